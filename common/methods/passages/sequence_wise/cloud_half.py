"""Sequence-wise aggregation, on the cloud, which answers by itself and sends the answer as a whole."""

from __future__ import annotations

from common.answer.values import Commit
from common.daemon.prompt_rows import PromptRows
from common.engine.sampling import Drafter
from common.methods.aggregate.cloud_answer import CloudAnswer
from common.methods.aggregate.setup import SessionParts
from common.methods.interface import CloudContext
from common.methods.passages.sequence_wise.candidate import RecordingDrafting, generated, question_evidence
from common.sampling.certificate import NO_EVIDENCE
from proto.messages import Fetch, Message, Open


class SequenceWiseCloud(CloudAnswer):
    """Implements `CloudHalf`."""

    def __init__(self, request: Open | Fetch, context: CloudContext) -> None:
        """Raises `ValueError` for a request that can't be served."""
        if not isinstance(request, Open) or request.sources != "cloud":
            raise ValueError("Sequence-wise aggregation is opened with sources 'cloud': each side answers by itself.")
        super().__init__(request, context, frozenset({"cloud"}))
        self._evidence = NO_EVIDENCE  # known after retrieval
        self._tokens: list[int] = []

    def drafter(self, parts: SessionParts) -> Drafter:
        self._recording = RecordingDrafting(parts.drafting)
        return self._recording

    def announce(self, message: Message) -> None:
        """Send nothing: the answer goes out as a whole."""

    def retrieved(self, retrieved: PromptRows) -> None:
        self._evidence = question_evidence(self.context.side.scorer, retrieved.prompt)
        super().retrieved(retrieved)

    def committed(self, commit: Commit) -> bool:
        self._tokens.append(commit.token)
        if commit.token in self.request.eos or len(self._tokens) == self.request.max_tokens:
            noted = self._recording.log_probabilities
            self.context.send(generated(self.request.session, self._tokens, noted, self._evidence))
        return True
