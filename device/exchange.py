"""What a method that does not go token by token does with the cloud, and which requests need it."""

from __future__ import annotations

from typing import Protocol

from common.runtime.request import Request
from proto.messages import Fetched, Generated

WHOLE_ANSWERS = ("sequence-wise",)
FETCHES = ("fetch-text", "fetch-kv")


class Exchange(Protocol):
    """One answer's dealings with the cloud. Called from any thread; it goes on by itself."""

    def start(self, absence: str | None) -> None:
        """Begin the answer; `absence` says why the cloud can't take part now, None when it can."""
        ...

    def receive(self, message: Fetched | Generated, size: int) -> None:
        """What the cloud sent, in `size` bytes."""
        ...

    def without_cloud(self, sentence: str) -> None:
        """Go on without the cloud; `sentence` tells the user why. Nothing happens when it is not needed any more."""
        ...

    def reconnected(self) -> None:
        """The cloud, or another one, is there again and knows nothing."""
        ...

    def tick(self, now: float) -> None:
        """Look at the clock, whether the cloud has been silent for too long."""
        ...

    def end(self, failure: Exception | None) -> None:
        """Stop here: cancelled, or failed."""
        ...


def decides_alone(request: Request) -> bool:
    """Whether the device decides every token by itself, whatever it has from the cloud."""
    return request.method in WHOLE_ANSWERS + FETCHES
