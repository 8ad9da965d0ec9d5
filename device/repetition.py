"""Answers that have begun to say the same again and again, as small models do to the last token."""

from __future__ import annotations

from typing import Final

LONGEST_CYCLE: Final = 32  # tokens
SHORTEST_RUN: Final = 48  # tokens
FEWEST_CYCLES: Final = 4


class Repetition:
    """Looks at the end of an answer, token by token."""

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._runs = [0] * (LONGEST_CYCLE + 1)  # by length of the cycle: tokens at the end that equal those before

    def push(self, token: int) -> bool:
        """Take the next token; whether the end is now nothing but one cycle, said `FEWEST_CYCLES` times or more and
        over `SHORTEST_RUN` tokens.
        """
        self._tokens.append(token)
        place, ended = len(self._tokens) - 1, False
        for cycle in range(1, LONGEST_CYCLE + 1):
            before = place - cycle
            same = before >= 0 and self._tokens[before] == token
            run = self._runs[cycle] = self._runs[cycle] + 1 if same else 0
            # The run counts from the second time on.
            ended |= run + cycle >= max(SHORTEST_RUN, FEWEST_CYCLES * cycle)
        return ended
