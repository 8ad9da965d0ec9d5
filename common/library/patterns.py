"""Compares patterns of requests (`proto/patterns.py`) with document paths.

A hostile peer may send patterns, and every document is compared with them. Hence they are not regular expressions: a
request's patterns form one automaton without backtracking, which reads each character of a path once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from proto.patterns import normalised

_MOST_STATES: Final = 4096  # remembered: about 4 MB with the longest patterns


@dataclass(slots=True, eq=False)
class PatternState:
    """State of the patterns after the beginning of a path."""

    bits: int
    fits: int  # a bit for each pattern that fits if the path ends here
    following: dict[str, PatternState] = field(default_factory=dict)


class PathPatterns:
    """Patterns for paths, all compared at once.

    * `*` stands for any characters of a name, `?` for one.
    * `**` between slashes stands for any folders, or none.
    * A pattern without a slash fits names anywhere; others begin at the path's beginning.
    * A pattern that fits a folder fits everything below it. With a final slash or `/**` it fits folders only.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self._literals: dict[str, int] = {}  # character: the positions where it fits
        self._any = self._star = self._between = self._within = 0  # positions by kind
        self._ends: list[tuple[int, bool]] = []  # end of each pattern, and whether it is for folders only
        self._size = 0
        start = 0
        for pattern in patterns:
            start |= 1 << self._size
            self._append(normalised(pattern))
        self._end = sum(1 << end for end, _ in self._ends)
        self._states: dict[int, PatternState] = {}
        self.start = self._state(self._closed(start))

    def after(self, state: PatternState, text: str) -> PatternState:
        """The state after `text`, more of a path; folder names end in a slash."""
        for character in text:
            following = state.following.get(character)
            if following is None:
                following = self._step(state, character)
            state = following
        return state

    def _append(self, pattern: str) -> None:
        """Lays out a pattern: bits for its positions, its end, and paths below."""
        parts = pattern.removesuffix("/").split("/")
        folders, floating = pattern.endswith("/"), len(parts) == 1
        while parts and parts[-1] == "**":
            parts.pop()
            folders = True
        if not parts:  # `**` alone
            parts, folders = ["**", "*"], False
        elif floating:
            parts.insert(0, "**")
        last = ""
        for number, part in enumerate(parts):
            if part == "**":
                if last != "**":
                    self._between |= self._place()
                    self._within |= self._place()
            else:
                self._name(part)
                if number < len(parts) - 1:
                    self._literal("/")
            last = part
        self._ends.append((self._size, folders))
        self._size += 2

    def _name(self, part: str) -> None:
        last = ""
        for character in part:
            if character == "*":
                if last != "*":
                    self._star |= self._place()
            elif character == "?":
                self._any |= self._place()
            else:
                self._literal(character)
            last = character

    def _literal(self, character: str) -> None:
        self._literals[character] = self._literals.get(character, 0) | self._place()

    def _place(self) -> int:
        self._size += 1
        return 1 << (self._size - 1)

    def _step(self, state: PatternState, character: str) -> PatternState:
        bits, below = state.bits, self._end << 1
        moved = bits & self._literals.get(character, 0)
        if character == "/":
            reached = moved << 1 | (bits & self._within) >> 1 | (bits & self._end) << 1 | bits & below
        else:
            moved |= bits & (self._any | self._between)
            reached = moved << 1 | bits & (self._star | self._within | below)
        following = state.following[character] = self._state(self._closed(reached))
        return following

    def _closed(self, bits: int) -> int:
        """Adds the positions reachable without a character: after `**/` and after `*`."""
        bits |= (bits & self._between) << 2
        return bits | (bits & self._star) << 1

    def _state(self, bits: int) -> PatternState:
        known = self._states.get(bits)
        if known is not None:
            return known
        if len(self._states) >= _MOST_STATES:
            for state in self._states.values():
                state.following.clear()
            self._states.clear()
        fits = 0
        for number, (end, folders) in enumerate(self._ends):
            if bits >> end & (2 if folders else 3):
                fits |= 1 << number
        made = self._states[bits] = PatternState(bits, fits)
        return made
