"""The suite `branching`: whole answers by the branches of a decode step, and by what each costs, simulated.

Both sessions and their race are the daemons' own; models, steps and network are made up. So it tells of machines, too,
that are not at hand: on a GPU, one row more in a step costs next to nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Final, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray

from common.answer.values import View
from common.answer.watch import Patience
from common.estimates.ahead import Ahead, branches
from common.estimates.policy import placement_policy, run_ahead
from common.methods.aggregate.machine.tree import ROOM
from common.methods.aggregate.machine.values import SessionConfig
from common.methods.aggregate.samplers.race import RaceAggregation
from common.sampling.race import RaceSampler
from proto.digest import digest
from proto.fields import OTHER, Placement, Side
from scripts.bench.measuring import MEDIANS, Spread, Table
from scripts.bench.results import Results
from scripts.simulation.link import Fate
from scripts.simulation.timing import Sinusoid
from scripts.simulation.world import Network, SideModel, World

STEPS: Final[dict[Side, float]] = {"device": 0.022, "cloud": 0.011}  # seconds of a step with one row
RTT: Final = 0.3  # seconds
ENTRIES: Final = 32  # K
VOCABULARY: Final = 256
SPREAD, NOISE = 3.1, 0.38  # deviation of the logits, and of what a side's own documents add: .88 of drafts accepted
PLACEMENTS: Final[tuple[Placement, ...]] = ("device", "mirrored")
COSTS: Final = (0.0, 0.02, 0.08, 0.2)  # of a row more, in steps
ROWS: Final = (1, 4, 8, 16)  # of a step, at most
ACCEPTANCE: Final = 0.88
ANSWERS, TOKENS = 6, 200
NOTE: Final = (
    f"{MEDIANS} of {ANSWERS} answers of {TOKENS} tokens, a round trip of {1e3 * RTT:.0f} ms and a fifth more or less, "
    f"steps of {1e3 * STEPS['device']:.0f} and {1e3 * STEPS['cloud']:.0f} ms with one row."
)


def run(results: Results) -> None:
    """Four minutes."""
    answers, tokens = (1, 20) if results.short else (ANSWERS, TOKENS)
    found: dict[tuple[str, str], dict[int, str]] = {}
    samples = []
    for placement, cost in product(PLACEMENTS, COSTS[:2] if results.short else COSTS):
        cells = found.setdefault((placement, f"{cost:g}"), {})
        for rows in ROWS:
            ratios = [over_steps(placement, cost, rows, tokens, seed) for seed in range(answers)]
            samples.append({"placement": placement, "cost": cost, "rows": rows, "ratios": ratios})
            cells[rows] = Spread.of(ratios).short(2)
        results.say(f"{placement}, a row takes {cost:g} of a step")
    results.samples("answers", samples)
    columns = {"no branches" if rows == 1 else f"up to {rows} rows": rows for rows in ROWS}
    table = Table.crossed(
        ["placement", "a row, of a step"], {key: key for key in found}, columns, lambda at, rows: found[at][rows]
    )
    results.table("Whole answers over the device's steps", table, NOTE)


class HashedModel:
    """Next-token distributions of both sides behind any prefix, drawn from its digest."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._known: dict[tuple[Side, int], NDArray[np.float32]] = {}

    def distribution(self, side: Side, prefix: Sequence[int]) -> NDArray[np.float32]:
        """`[vocab]`, behind `prefix`."""
        behind = digest(prefix)
        if (side, behind) not in self._known:
            shared, own = (np.random.default_rng((self._seed, behind, part)) for part in (0, 1 + (side == "cloud")))
            logits = shared.normal(scale=SPREAD, size=VOCABULARY) + own.normal(scale=NOISE, size=VOCABULARY)
            weights = np.exp(logits - logits.max())
            self._known[side, behind] = (weights / weights.sum()).astype(np.float32)
        return self._known[side, behind]


class Drafter:
    """Implements `Predictor`; both sides' documents weigh the same."""

    def __init__(self, model: HashedModel, side: Side, aggregation: RaceAggregation) -> None:
        self._model, self._side, self._aggregation = model, side, aggregation

    def predict(self, position: int, prefix: Sequence[int]) -> tuple[View, float]:
        return self._aggregation.drafted(
            position, torch.from_numpy(self._model.distribution(self._side, prefix)), None
        ), 0.0


def over_steps(placement: Placement, cost: float, rows: int, tokens: int, seed: int) -> float:
    """Seconds of one answer over those of the device's steps."""
    model = HashedModel(seed)
    way = Sinusoid(phase=seed)
    random = np.random.default_rng(seed)

    def side(role: Side) -> SideModel:
        hidden = placement == "device" and role == "device"
        aggregation = RaceAggregation(RaceSampler(seed, 1.0, ENTRIES, VOCABULARY), VOCABULARY, True, hidden)
        return SideModel(Drafter(model, role, aggregation), aggregation, lambda position: STEPS[role])

    def fate(sender: Side) -> Fate:
        return Fate((RTT / 2 * way.factor(world.clock.now, random),))

    config = SessionConfig(1, placement, frozenset(), tokens, VOCABULARY)
    world = World(
        config,
        side("device"),
        side("cloud"),
        lambda role: placement_policy(placement, seed, _never, role),
        Network(fate),
        Patience(math.inf, math.inf),
        Ahead(),
    )
    for simulated in (world.device, world.cloud):
        role = simulated.session.role
        simulated.row_seconds = cost * STEPS[role]
        simulated.session.ahead = ahead_of(role, placement, rows, simulated.row_seconds)
    world.run()
    return world.device.commits[-1][0] / (tokens * STEPS["device"])


def ahead_of(role: Side, placement: Placement, rows: int, row: float) -> Ahead:
    """The bounds that a daemon finds which knows all of this."""
    own, other = STEPS[role], STEPS[OTHER[role]]
    drafts = run_ahead(RTT + other, own, 64, ACCEPTANCE)
    trips = 0.5 if placement == "mirrored" else float(role == "cloud")
    return replace(branches(drafts, rows, own, other, trips * RTT, row), room=ROOM)


def _never() -> NoReturn:
    raise RuntimeError("these placements ask for no estimates")
