"""What growing and verifying trees takes, as it was seen. No clock is read."""

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
    """Seconds of a draft step, of a verifying pass, and of every node in it; of use in many answers."""

    def __init__(self, draft: float, verify: float, node: float = 0.0) -> None:
        """What is believed before the first, in seconds. Raises `ValueError` for what is not possible."""
        if not (0.0 <= draft < math.inf and 0.0 < verify < math.inf and 0.0 <= node < math.inf):
            raise ValueError(f"a draft step of {draft} s, a pass of {verify} s and {node} s a node are not possible")
        self._believed = (draft, verify, node)
        self._drafts: deque[float] = deque(maxlen=WINDOW)
        self._passes: deque[tuple[int, float]] = deque(maxlen=WINDOW)  # nodes, seconds

    def drafted(self, seconds: float) -> None:
        """Take in a draft step."""
        self._drafts.append(max(0.0, seconds))

    def verified(self, nodes: int, seconds: float) -> None:
        """Take in a pass that read `nodes` nodes and little else."""
        self._passes.append((nodes, max(0.0, seconds)))

    @property
    def draft(self) -> float:
        """Seconds of a draft step."""
        return median(self._drafts) if self._drafts else self._believed[0]

    @property
    def node(self) -> float:
        """Seconds that a node adds to a pass: least squares, drawn towards the prior."""
        sure = WINDOW * _SPREAD**2
        if not self._passes:
            return self._believed[2]
        nodes, seconds = (fmean(each) for each in zip(*self._passes, strict=True))
        both = sum((one - nodes) * (other - seconds) for one, other in self._passes)
        spread = sum((one - nodes) ** 2 for one, _ in self._passes)
        return max(0.0, (sure * self._believed[2] + both) / (sure + spread))

    @property
    def verify(self) -> float:
        """Seconds of a pass without nodes, more than 0."""
        if not self._passes:
            return self._believed[1]
        node = self.node
        least = min(seconds for _, seconds in self._passes) / 2  # of a slope that is a little wrong
        return max(median(seconds - node * nodes for nodes, seconds in self._passes), least, 1e-9)
