"""An answer that the cloud generates by itself and tells as a whole (DRDG/SW)."""

from __future__ import annotations

from collections.abc import Callable

from common.runtime.recording import RecordingDrafting, generated
from common.sampling.certificate import NO_EVIDENCE
from common.speculation.values import Commit
from proto.messages import Message, Open


class Reciter:
    """Observes the answer and sends it when it is complete."""

    def __init__(
        self, request: Open, drafting: RecordingDrafting, eos: frozenset[int], send: Callable[[Message], object]
    ) -> None:
        self.drafting = drafting
        self.evidence = NO_EVIDENCE  # known after retrieval
        self._request = request
        self._eos = eos
        self._send = send
        self._tokens: list[int] = []

    def committed(self, commit: Commit) -> bool:
        self._tokens.append(commit.token)
        if commit.token in self._eos or len(self._tokens) == self._request.max_tokens:
            noted = self.drafting.log_probabilities
            self._send(generated(self._request.session, self._tokens, noted, self.evidence))
        return True

    def withdrawn(self, position: int) -> None:
        raise RuntimeError("nobody takes a token of the cloud's own answer back")

    def ended(self, failure: Exception | None) -> None:
        pass
