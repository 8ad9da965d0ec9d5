"""An answer that the cloud generates by itself and sends as a whole (DRDG/SW)."""

from __future__ import annotations

from collections.abc import Callable

from common.runtime.recording import RecordingDrafting, generated
from common.sampling.certificate import NO_EVIDENCE
from proto.messages import Message, Open


class WholeAnswerSender:
    """Collects the answer's tokens and sends them when they are complete."""

    def __init__(self, request: Open, drafting: RecordingDrafting, send: Callable[[Message], object]) -> None:
        self.evidence = NO_EVIDENCE  # known after retrieval
        self._drafting = drafting
        self._request = request
        self._send = send
        self._tokens: list[int] = []

    def committed(self, token: int) -> None:
        self._tokens.append(token)
        if token in self._request.eos or len(self._tokens) == self._request.max_tokens:
            noted = self._drafting.log_probabilities
            self._send(generated(self._request.session, self._tokens, noted, self.evidence))
