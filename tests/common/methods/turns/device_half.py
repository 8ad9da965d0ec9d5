"""The device's half: shows every token, its own ones and the cloud's."""

from __future__ import annotations

from common.answer.driver import Driver
from common.answer.report import MethodReport
from common.daemon.model_runtime import PromptRows
from common.engine.jobs import DecodeRequest
from common.methods.aggregate.driver import make_sampler
from common.methods.interface import DeviceContext
from common.methods.paper.sampler import make_paper_sampler
from proto.messages import Closed, Message, Target
from tests.common.methods.turns.method import TurnsRequest
from tests.common.methods.turns.part import part_of
from tests.common.methods.turns.rules import Rules

LATE = "The cloud did not take part: it let its turn pass."


class TurnsDevice:
    """Implements `DeviceHalf`."""

    def __init__(self, context: DeviceContext) -> None:
        assert isinstance(context.request, TurnsRequest)
        self._context = context
        self._drafting = make_sampler("device", context.opening, context.side.decoder.vocabulary, make_paper_sampler)
        self._rules = Rules("device", context.opening, context.request.turn, context.side.decoder.vocabulary)
        self._driver = Driver("device", self._rules, [context.side.decoding], context.send, context)
        self._part = part_of(self._driver, self._rules)

    @property
    def over(self) -> bool:
        return self._driver.over

    @property
    def waiting(self) -> bool:
        return not self._rules.mine

    @property
    def away(self) -> bool:
        return self._rules.alone

    def start(self, absence: str | None) -> None:
        context = self._context
        if absence is None:
            context.send(context.opening)
        else:
            self.without_cloud(absence)
        request = DecodeRequest(self._part, self._drafting, context.cloud.decoded)
        side = context.side
        side.begin(request, context.opening, lambda opening: side.retrieve(opening, context.scope), self._retrieved)

    def receive(self, message: Message) -> None:
        if not isinstance(message, Target):
            return
        self._context.phase.join()
        self._driver.apply(lambda: self._rules.take(message.position, message.tokens))

    def without_cloud(self, sentence: str) -> None:
        self._context.note(sentence)
        self._rules.alone = True
        self._driver.wake()

    def reconnected(self) -> None:
        self._context.send(self._context.opening)
        if self._rules.tokens:
            self._context.send(self._rules.target(0, self._rules.tokens))

    def tick(self, now: float) -> None:
        if (
            self.waiting
            and not self.over
            and self._context.silent(now) > self._context.cloud.limits(read=False).patience
        ):
            self.without_cloud(LATE)

    def end(self, failure: Exception | None) -> None:
        self._driver.end(failure)

    def report(self, closed: Closed | None) -> MethodReport:
        return MethodReport(figures={"turns_of_the_device": float(-(-self._rules.decided // self._rules.turn))})

    def _retrieved(self, retrieved: PromptRows) -> None:
        self._context.record.device_titles = retrieved.titles
        self._context.record.device_prompt_tokens = retrieved.tokens
