"""Room for everybody: what becomes of a full link's connections when another one comes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence


def leaves(holders: Sequence[str], newcomer: str) -> int | None:
    """Index of the connection that goes for one of the holder `newcomer`; None where the new one has to go.

    `holders` are those of the connections, oldest first. The oldest one goes of who has most of them, as it may be one
    that this holder has lost; but only if who comes still has no more than who gives: otherwise two would take turns in
    cutting each other's. So nobody's only connection goes for another one, however many keys or addresses come.
    """
    counts = Counter(holders)
    crowd, count = max(counts.items(), key=lambda each: each[1], default=("", 0))
    return holders.index(crowd) if count > counts[newcomer] + 1 else None
