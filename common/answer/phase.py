"""The cloud's part in an answer: none, asked for, or begun."""

from __future__ import annotations

from typing import Literal

State = Literal["alone", "asked", "joined"]


class Phase:
    """`alone`: the cloud takes no part; `asked`: the answer is, or shall be, open there; `joined`: it has begun.

    A single value, so that any thread may ask and tell.
    """

    def __init__(self, state: State) -> None:
        self._state: State = state

    @property
    def open(self) -> bool:
        """Whether the answer is, or shall be, open on the cloud."""
        return self._state != "alone"

    @property
    def joined(self) -> bool:
        """Whether the cloud has begun its part."""
        return self._state == "joined"

    def ask(self) -> None:
        """Note that the cloud shall take part, and has yet to begin."""
        self._state = "asked"

    def restart(self) -> None:
        """Note that the cloud, if it takes part, has yet to begin: the answer is opened on it again."""
        if self.open:
            self._state = "asked"

    def join(self) -> None:
        """Note that the cloud has begun, if it was asked."""
        if self.open:
            self._state = "joined"

    def leave(self) -> None:
        """Note that the cloud takes no part any more."""
        self._state = "alone"
