"""The threshold of branches' probabilities: a tree is verified when none of its branches reaches it (EdgeLLM §III-C).

The probability α that is enough follows how good the drafts were: where all of them were right it is halved, otherwise
it is divided by T_c^(wrong share): Eq. 3 as its text has it; printed is the wrong share alone. T_c is below α as
a rule, so that a tree of which nothing was right would lead to more than 1.
"""

from __future__ import annotations

from typing import Final

FIRST: Final = 0.01  # α of a new answer, §III-C
LEAST: Final = 1e-4
MOST: Final = 0.5
_ALL_RIGHT: Final = 0.5  # α's factor, §III-C


class Threshold:
    """α of one answer."""

    def __init__(self, first: float = FIRST) -> None:
        self.value = first

    def judged(self, correct: int, whole: int, confidence: float) -> None:
        """Note that of the `whole` tokens of the branch that matched best `correct` were right, in a tree with
        T_c = `confidence`.
        """
        if not whole:
            return
        if correct == whole:
            changed = self.value * _ALL_RIGHT
        else:
            wrong = (whole - correct) / whole
            changed = self.value / max(confidence, LEAST) ** wrong
        self.value = min(max(changed, LEAST), MOST)
