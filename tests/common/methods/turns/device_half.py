"""The device's half: shows every token, its own ones and the cloud's."""

from __future__ import annotations

from common.aggregation.choice import make_aggregation
from common.methods.interface import DeviceContext
from common.methods.report import MethodReport
from common.runtime.reading import PromptRows
from common.session.values import Commit
from proto.messages import Closed, Message, Target
from tests.common.methods.turns.client import TurnsClient
from tests.common.methods.turns.method import TurnsRequest
from tests.common.methods.turns.rules import Rules

LATE = "The cloud did not take part: it let its turn pass."


class TurnsDevice:
    """Implements `DeviceHalf`."""

    def __init__(self, context: DeviceContext) -> None:
        assert isinstance(context.request, TurnsRequest)
        self._context = context
        self._drafting = make_aggregation("device", context.opening, context.side.decoder.vocabulary)
        self._rules = Rules("device", context.opening, context.request.turn, context.side.decoder.vocabulary)
        self._client = TurnsClient(self._rules, self._decided, context.ended)
        self._passed = 0  # turns of the device

    @property
    def over(self) -> bool:
        return self._client.over

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
        context.side.begin(self._client, context.opening, self._drafting, self._retrieved, context.cloud.decoded)

    def receive(self, message: Message) -> None:
        if not isinstance(message, Target):
            return
        self._context.ready = True
        with self._client.lock:
            start = len(self._rules.tokens)
            for offset, token in enumerate(self._rules.take(message.position, message.tokens)):
                self._show(start + offset, token)
        self._context.side.decoding.wake()

    def without_cloud(self, sentence: str) -> None:
        self._context.note(sentence)
        self._rules.alone = True
        self._context.side.decoding.wake()

    def reconnected(self) -> None:
        self._context.send(self._context.opening)
        if self._rules.tokens:
            self._context.send(self._target(0, self._rules.tokens))

    def tick(self, now: float) -> None:
        if self.waiting and not self.over and self._context.silent(now) > self._context.cloud.silence():
            self.without_cloud(LATE)

    def end(self, failure: Exception | None) -> None:
        self._client.end(failure)

    def report(self, closed: Closed | None) -> MethodReport:
        return MethodReport(figures={"turns_of_the_device": float(self._passed)})

    def _retrieved(self, retrieved: PromptRows) -> None:
        self._context.record.device_titles = retrieved.titles
        self._context.record.prompt_tokens += retrieved.tokens

    def _decided(self, position: int, token: int) -> None:
        self._context.send(self._target(position, [token]))
        if position % self._rules.turn == 0:
            self._passed += 1
        self._show(position, token)

    def _show(self, position: int, token: int) -> None:
        goes_on = self._context.committed(Commit(position, token, self._rules.alone, None, None, {}))
        if self._rules.finished or not goes_on:
            self._client.end(None)

    def _target(self, position: int, tokens: list[int]) -> Target:
        return Target(self._context.opening.session, 0, position, tuple(tokens), "device")
