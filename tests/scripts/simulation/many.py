"""Simulated answers by the hundred thousand: each one over a network of its own, compared with one process.

`make soak SESSIONS=1000000 [SEED=n]`. Decode times, delays, losses, repetitions, reordering, outages, placements and
branches are a function of the seed and the answer's number, so that one that differs can be had again.
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from itertools import islice
from multiprocessing import get_context

import numpy as np

from common.estimates.estimators import FAINT, SpeculationLimits
from tests.common.methods.aggregate.table_model import TableModel
from tests.scripts.simulation.worlds import SETTINGS, VOCABULARY, build, one_process, rough_network

BATCH = 500  # answers that a process makes before it tells
PROGRESS = 30.0  # seconds between two lines
LONGEST = 40  # tokens
PATIENCE = 3600.0  # simulated seconds until an answer counts as lost


@dataclass(frozen=True, slots=True)
class Told:
    """Outcome of a batch."""

    tokens: int
    simulated: float  # seconds
    wrong: tuple[str, ...]


def answer(seed: int, number: int) -> tuple[int, float, str | None]:
    """Tokens, simulated seconds, and what is wrong with the answer of this number, None: nothing."""
    draw = np.random.default_rng([seed, number])
    model = TableModel(VOCABULARY, int(draw.integers(2**32)), disagreement=float(draw.uniform(0, 1)))
    name = str(draw.choice(list(SETTINGS)))
    temperature, entries = float(draw.choice([0.0, 0.3, 1.0])), int(draw.choice([1, 2, 4, VOCABULARY]))
    length, own = 1 + int(LONGEST * draw.random() ** 2), int(draw.integers(2**63))  # half of them up to ten tokens
    rows = int(draw.choice([1, 2, 8]))
    ahead = SpeculationLimits(int(draw.choice([1, 2, 5, 12])), rows, FAINT, rows)
    network = rough_network(draw, float(draw.choice([0.0, 0.1, 0.3])), 0.1, ordered=bool(draw.integers(2)))
    world = build(SETTINGS[name], model, own, temperature, entries, length, network, draw, ahead)
    expected = one_process(model, own, temperature, length)
    if not world.run(until=PATIENCE):
        return 0, PATIENCE, f"{name}: it never ended"
    device, cloud = list(world.device.session.committed), list(world.cloud.session.committed)
    counters = world.device.session.counters
    wrong = None
    if device != expected or cloud != expected[: len(cloud)]:
        wrong = f"{name}: the device has {device}, the cloud {cloud}, one process {expected}"
    elif counters.disagreements or counters.degraded:
        wrong = f"{name}: {counters.disagreements} disagreements, {counters.degraded} degraded positions"
    return len(expected), world.clock.now, wrong


def batch(seed: int, first: int, count: int) -> Told:
    """Make the answers from this number on."""
    tokens, simulated, wrong = 0, 0.0, list[str]()
    for number in range(first, first + count):
        made, seconds, fault = answer(seed, number)
        tokens += made
        simulated += seconds
        if fault is not None:
            wrong.append(f"answer {number}: {fault}; again: --seed {seed} --first {number} --sessions 1")
    return Told(tokens, simulated, tuple(wrong))


def made(seed: int, first: int, sessions: int) -> Iterator[Told]:
    """All batches, as they end."""
    places = iter(range(first, first + sessions, BATCH))
    cores = os.cpu_count() or 1
    # Fresh processes: threads of what was imported do not survive a fork.
    with ProcessPoolExecutor(cores, get_context("spawn")) as pool:

        def begun(most: int) -> list[Future[Told]]:
            return [
                pool.submit(batch, seed, place, min(BATCH, first + sessions - place)) for place in islice(places, most)
            ]

        waiting = begun(2 * cores)
        while waiting:
            yield waiting.pop(0).result()
            waiting += begun(1)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.scripts.simulation.many", description=__doc__)
    parser.add_argument("--sessions", type=int, default=10**6)
    parser.add_argument("--seed", type=int, default=None, help="of a run to be repeated; left out: a new one")
    parser.add_argument("--first", type=int, default=0, help="number of the first answer")
    options = parser.parse_args()
    seed = secrets.randbelow(10**6) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    done, tokens, simulated, wrong = 0, 0, 0.0, 0
    began = told = time.monotonic()
    for each in made(seed, options.first, options.sessions):
        done = min(done + BATCH, options.sessions)
        tokens, simulated, wrong = tokens + each.tokens, simulated + each.simulated, wrong + len(each.wrong)
        for line in each.wrong:
            print(line, flush=True)
        if time.monotonic() - told > PROGRESS or done == options.sessions:
            told = time.monotonic()
            print(
                f"[{told - began:.0f} s] {done:,} answers, {tokens:,} tokens, {simulated / 86400:.1f} simulated days: "
                f"{wrong} differ",
                flush=True,
            )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
