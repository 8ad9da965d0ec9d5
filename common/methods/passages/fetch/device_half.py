"""The cloud's documents on the device, which answers by itself."""

from __future__ import annotations

from common.answer.attribution import of_one_process
from common.answer.report import MethodReport
from common.daemon.model_runtime import Start
from common.daemon.prompt_rows import Document
from common.methods.aggregate.device_answer import DeviceAnswer
from common.methods.interface import DeviceContext
from common.methods.passages.gathering import Gathering
from common.sampling.joint import make_joint
from proto.fields import Form
from proto.messages import Closed, Message


class FetchDevice:
    """Implements `DeviceHalf`: asks for the cloud's documents, retrieves its own meanwhile, answers from both."""

    def __init__(self, context: DeviceContext, form: Form) -> None:
        side = context.side
        self._context = context
        self._device = DeviceAnswer(context, frozenset({"device"}))
        self._answer = self._device.answer
        self._joint = make_joint(context.opening, side.decoder.vocabulary, str(side.decoder.torch_device))
        room = side.target.room(context.opening)
        self._gathering = Gathering(context, form, room, lambda: self._answer.over, self._found, self.end)

    # --- DeviceHalf

    @property
    def over(self) -> bool:
        return self._answer.over

    @property
    def away(self) -> bool:
        return self._device.away

    @property
    def waiting(self) -> bool:
        return self._gathering.waiting

    def start(self, absence: str | None) -> None:
        self._gathering.start(absence)

    def receive(self, message: Message) -> None:
        self._gathering.receive(message)

    def without_cloud(self, sentence: str) -> None:
        self._gathering.without_cloud(sentence)

    def reconnected(self) -> None:
        self._gathering.reconnected()

    def tick(self, now: float) -> None:
        self._gathering.tick(now)

    def end(self, failure: Exception | None) -> None:
        self._answer.end(failure)

    def report(self, closed: Closed | None) -> MethodReport:
        return self._device.figures(closed, of_one_process(self._context.record, self._answer.record.shares))

    # --- on the retrieval thread

    def _found(self, own: list[Document], fetched: list[Document]) -> None:
        context = self._context
        found = context.side.target.arrange(context.opening, own, fetched)
        found.note(context.record)
        context.reread(found.apart, self._answer.record)
        drafting, measured = self._device.drafting, context.cloud.decoded
        target, waited = context.side.target, context.record.waited
        processor = target.processor(context.opening)
        start = Start(self._answer.part, context.opening, drafting, measured, waited=waited)
        target.decode(start, found, processor, self._joint)
