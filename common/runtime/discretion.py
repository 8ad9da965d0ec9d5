"""What a side asks that may tell nothing of its own documents (`privacy = "strict"`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from common.aggregation.race import RaceAggregation
from common.sampling.view import RaceView
from common.speculation.values import Decided, Undecided, View
from proto.messages import Side


class DiscreetRace:
    """The race, asking for longer lists where it would ask for the values of tokens.

    The tokens that a certificate lacks are those that this side's own documents speak of. A list of twice the
    length names none of them, and ends in a certificate as well: a whole list leaves nothing to ask.
    """

    def __init__(self, race: RaceAggregation) -> None:
        self._race = race

    def aggregate(
        self, role: Side, position: int, device: RaceView, cloud: RaceView, evidence: tuple[float, float]
    ) -> Decided | Undecided:
        outcome = self._race.aggregate(role, position, device, cloud, evidence)
        if isinstance(outcome, Decided):
            return outcome
        remote = cloud if role == "device" else device
        return Undecided((), max(outcome.depth, 2 * len(remote.entries.ids)))

    def pack(self, view: Any) -> bytes:
        return self._race.pack(view)

    def read(self, side: Side, position: int, payload: bytes) -> View:
        return self._race.read(side, position, payload)

    def supply(self, view: Any, ids: Sequence[int], depth: int) -> bytes:
        return self._race.supply(view, ids, depth)

    def complete(self, view: Any, position: int, depth: int, payload: bytes) -> View:
        return self._race.complete(view, position, depth, payload)
