"""The cloud's half: waits for its turns, and tells the device its tokens."""

from __future__ import annotations

import time
from collections.abc import Iterator

from common.aggregation.choice import make_aggregation
from common.methods.failures import failure_message, unknown_session
from common.methods.interface import CloudContext
from common.methods.request import read_own_options
from common.runtime.reading import PromptRows
from proto.messages import Closed, Error, Fetch, Message, Open, Ready, Target
from tests.common.methods.turns.client import TurnsClient
from tests.common.methods.turns.method import TurnsRequest
from tests.common.methods.turns.rules import Rules


class TurnsCloud:
    """Implements `CloudHalf`."""

    def __init__(self, request: Open | Fetch, context: CloudContext) -> None:
        """Raises `ValueError` for a request that can't be served."""
        if not isinstance(request, Open):
            raise ValueError("Turns are opened by Open.")
        vocabulary = context.side.decoder.vocabulary
        self.began = self._heard = time.monotonic()
        self._request = request
        self._context = context
        self._drafting = make_aggregation("cloud", request, vocabulary)
        self._rules = Rules("cloud", request, read_own_options(TurnsRequest, request).turn, vocabulary)
        self._client = TurnsClient(self._rules, self._decided, self._ended)
        self._drafted = 0

    def begin(self) -> None:
        side = self._context.side
        side.begin(
            self._client, self._request, self._drafting, self._retrieved, lambda context, seconds: None, self._context
        )

    def receive(self, message: Message) -> None:
        if isinstance(message, Target):
            self._heard = time.monotonic()
            with self._client.lock:
                self._rules.take(message.position, message.tokens)
            self._context.side.decoding.wake()

    def tick(self, now: float, run_ahead: int) -> None:
        """Nothing of it depends on the clock."""

    def silent(self, now: float) -> float:
        return now - self._heard

    def given_up(self) -> Error:
        return unknown_session(self._request.session)

    def closing(self) -> Iterator[Message]:
        self.end()
        yield Closed(self._request.session, self._drafted, 0, 0, 0, 0, 0)

    def end(self) -> None:
        self._client.end(None)

    def _retrieved(self, retrieved: PromptRows) -> None:
        self._context.send(Ready(self._request.session, retrieved.titles, retrieved.tokens))

    def _decided(self, position: int, token: int) -> None:
        self._drafted += 1
        self._context.send(Target(self._request.session, 0, position, (token,), "cloud"))

    def _ended(self, failure: Exception | None) -> None:
        if failure is not None:
            self._context.send(failure_message(self._request.session, failure))
            self._context.over(self)
        self._context.side.decoding.wake()
