"""The cloud's half: waits for its turns, and tells the device its tokens."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from common.answer.driver import Driver, NullObserver
from common.answer.request import read_own_options, unknown_session
from common.daemon.model_runtime import PromptRows
from common.daemon.side import Scope
from common.engine.jobs import DecodeRequest
from common.methods.aggregate.driver import make_sampler
from common.methods.interface import CloudContext
from common.methods.paper.sampler import make_paper_sampler
from proto.messages import Closed, Error, Fetch, Message, Open, Ready, Target
from tests.common.methods.turns.method import TurnsRequest
from tests.common.methods.turns.part import part_of
from tests.common.methods.turns.rules import Rules


class TurnsCloud(NullObserver):
    """Implements `CloudHalf`."""

    slow = False

    def __init__(self, request: Open | Fetch, context: CloudContext) -> None:
        """Raises `ValueError` for a request that can't be served."""
        if not isinstance(request, Open):
            raise ValueError("Turns are opened by Open.")
        vocabulary = context.side.decoder.vocabulary
        self.began = self._heard = time.monotonic()
        self._request = request
        self._context = context
        self._drafting = make_sampler("cloud", request, vocabulary, make_paper_sampler)
        self._rules = Rules("cloud", request, read_own_options(TurnsRequest, request).turn, vocabulary)
        self._driver = Driver("cloud", self._rules, [context.side.decoding], context.send, self)
        self._part = part_of(self._driver, self._rules)

    def begin(self) -> None:
        side = self._context.side
        side.begin(
            DecodeRequest(self._part, self._drafting, tenant=self._context),
            self._request,
            lambda request: side.retrieve(request, Scope(request.only)),
            self._retrieved,
        )

    def check(self, message: Message) -> None:
        """Refuse nothing: a target is taken in at once."""

    def receive(self, message: Message) -> None:
        if isinstance(message, Target):
            self._heard = time.monotonic()
            self._driver.apply(lambda: self._rules.take(message.position, message.tokens))

    def tick(self, now: float, run_ahead: int) -> None:
        """Nothing of it depends on the clock."""

    def silent(self, now: float) -> float:
        return now - self._heard

    def given_up(self) -> Error:
        return unknown_session(self._request.session)

    def finish(self, done: Callable[[], object]) -> None:
        done()

    def closing(self) -> Iterator[Message]:
        self.end()
        yield Closed(self._request.session, self._rules.decided, 0, 0, 0, 0, 0)

    def end(self) -> None:
        self._driver.end()

    def _retrieved(self, retrieved: PromptRows) -> None:
        self._context.send(Ready(self._request.session, retrieved.titles, retrieved.tokens, retrieved.closest))

    # --- Observer, under the driver's lock

    def ended(self, failure: Exception | None) -> None:
        if failure is not None:
            self._context.failed(self, self._request.session, failure)
