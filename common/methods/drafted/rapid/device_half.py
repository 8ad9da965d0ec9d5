"""The drafter of rapid. Without passages there is nothing to draft from."""

from __future__ import annotations

from dataclasses import replace

from common.answer.errors import AnswerFailed
from common.answer.report import MethodReport
from common.daemon.prompt_rows import PromptRows
from common.methods.drafted.device_half import DraftingDevice
from common.methods.drafted.rapid.request import RapidRequest
from common.methods.drafted.reading import Passage
from proto.messages import Closed

NOTHING_READ = (
    "The draft model read no passage of the document: the most similar one is below retrieval_threshold, or has more "
    "tokens than retrieval_tokens or the draft model's context."
)


class RapidDevice(DraftingDevice):
    """Implements `DeviceHalf`."""

    def without_cloud(self, sentence: str) -> None:
        """Go on with the passages that came; without any the answer fails, as the document is not here."""
        if self.reading:
            self.end(AnswerFailed(sentence))
        else:
            super().without_cloud(sentence)

    def _rows_of(self, passages: list[Passage]) -> PromptRows:
        return self._noted(super()._rows_of(passages))

    def _noted(self, rows: PromptRows) -> PromptRows:
        if not rows.texts:
            self._context.note(NOTHING_READ)
        return rows

    def report(self, closed: Closed | None) -> MethodReport:
        request, part = self._context.request, super().report(closed)
        assert isinstance(request, RapidRequest)
        own = {"exact": float(request.lawful), "eta": request.eta}
        return replace(part, figures={**part.figures, **own})
