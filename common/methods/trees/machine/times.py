"""Times of growing and verifying trees, as they were seen. No clock is read."""

from __future__ import annotations

import math
from collections import deque
from statistics import fmean, median
from typing import Final

WINDOW: Final = 32  # steps, and passes, that count
# The time of a node is believed to be the prior's as firmly as if a window of passes had shown it, whose sizes differed
# by so many nodes (standard deviation): passes of one size say nothing of it, and others' use of a disk looks like it.
_SPREAD: Final = 16.0


class TreeTimes:
    """Seconds of a draft step, of a verifying pass, and of every node in it; of use in many answers.

    One thread tells of draft steps and one of passes; what they come to may be read by any: `draft` is a draft step,
    `verify` a pass without nodes, more than 0, and `node` what a node adds to a pass.
    """

    def __init__(self, draft: float, verify: float, node: float = 0.0) -> None:
        """Takes what is believed before the first, in seconds. Raises `ValueError` for what is not possible."""
        if not (0.0 <= draft < math.inf and 0.0 < verify < math.inf and 0.0 <= node < math.inf):
            raise ValueError(f"a draft step of {draft} s, a pass of {verify} s and {node} s a node are not possible")
        self.draft, self.verify, self.node = draft, verify, node
        self._believed = node
        self._drafts: deque[float] = deque(maxlen=WINDOW)
        self._passes: deque[tuple[int, float]] = deque(maxlen=WINDOW)  # nodes, seconds

    def drafted(self, seconds: float) -> None:
        """Take in a draft step."""
        self._drafts.append(max(0.0, seconds))
        self.draft = median(self._drafts)

    def verified(self, nodes: int, seconds: float) -> None:
        """Take in a pass that read `nodes` nodes and little else."""
        self._passes.append((nodes, max(0.0, seconds)))
        self.node, self.verify = self._fitted()

    def _fitted(self) -> tuple[float, float]:
        """Seconds of a node, by least squares drawn towards the prior, and of a pass without nodes."""
        sure = WINDOW * _SPREAD**2
        nodes, seconds = (fmean(each) for each in zip(*self._passes, strict=True))
        both = sum((one - nodes) * (other - seconds) for one, other in self._passes)
        spread = sum((one - nodes) ** 2 for one, _ in self._passes)
        node = max(0.0, (sure * self._believed + both) / (sure + spread))
        least = min(taken for _, taken in self._passes) / 2  # of a slope that is a little wrong
        return node, max(median(taken - node * count for count, taken in self._passes), least, 1e-9)
