"""The suite `cluster`: where a hundred thousand devices' answers go, simulated with the gateway's own table.

Devices ask again and again, for answers of unlike lengths; workers are lost and replaced. What is simulated is time;
where an answer goes, and what finding that costs, is the product's.
"""

from __future__ import annotations

import heapq
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Final

import numpy as np

from cloud.gateway.table import Key, Table
from common.transport.interface import Peer
from scripts.bench.measuring import Table as Printed
from scripts.bench.results import Results

HELLO: Final = b"hello"
PAUSE: Final = 120.0  # seconds from an answer to the device's next question, on average
TOKENS: Final = 100.0  # of an answer, on average
SPREAD: Final = 0.8  # standard deviation of the logarithm of its length
TOKEN: Final = 0.025  # seconds
LOSSES: Final = 60.0  # seconds from one lost worker to the next, each of which is replaced as long after
MESSAGES: Final = 2.1  # per token, up and down, of an answer of both sides
EACH: Final = 1000  # openings between two looks at the loads
SEED: Final = 22


@dataclass(frozen=True, slots=True)
class Layout:
    """Gateways, which share nothing, with as many workers and devices each."""

    gateways: int
    workers: int
    devices: int
    slack: int = 2  # sessions more than the least that a device's own worker may have
    answers: int = 10**6

    @property
    def name(self) -> str:
        return f"{self.gateways:,} of {self.workers:,} workers and {self.devices:,} devices"


@dataclass(slots=True)
class Found:
    """Loads, and answers by where they went."""

    loads: list[list[int]] = field(default_factory=list)  # of all workers that serve, at each look
    answers: int = 0
    again: int = 0  # of them, those of devices that had one before
    at_home: int = 0  # of these, those whose worker had the device's one before
    reopened: int = 0  # whose worker was lost
    opening: float = 0.0  # microseconds
    seconds: float = 0.0  # simulated


LAYOUTS: Final = (
    *(Layout(100, 10, 1000, slack) for slack in (0, 2, 8)),
    Layout(10, 100, 10_000),
    Layout(1, 1000, 100_000),
)
SHORT: Final = (Layout(2, 3, 30, answers=500), Layout(1, 6, 60, answers=500))


def run(results: Results) -> None:
    """Simulate each layout; print how even loads are, and what follows for gateways."""
    found = {}
    for layout in SHORT if results.short else LAYOUTS:
        results.say(f"{layout.name}, slack {layout.slack}: {layout.answers:,} answers")
        found[layout] = simulate(layout)
    results.samples("layouts", [{"layout": each, "reopened": one.reopened} for each, one in found.items()])
    rows = [_row(layout, each) for layout, each in found.items()]
    heads = [
        "gateways", "slack", "answers per worker", "99 of 100 workers", "most", "at home", "µs per opening",
        "messages/s per gateway",
    ]  # fmt: skip
    results.table("Cluster, placement", Printed(heads, rows))


def _row(layout: Layout, found: Found) -> list[str]:
    loads = np.concatenate([np.array(each) for each in found.loads])
    rate = MESSAGES * TOKENS * found.answers / found.seconds / layout.gateways
    return [
        layout.name,
        str(layout.slack),
        f"{loads.mean():.1f}",
        f"{np.percentile(loads, 99):.0f}",
        str(loads.max()),
        f"{100 * found.at_home / max(1, found.again):.0f} %",
        f"{found.opening:.0f}",
        f"{rate:,.0f}",
    ]


def simulate(layout: Layout) -> Found:
    """Until so many answers have ended, of all gateways together."""
    draw, found, numbers = random.Random(SEED), Found(), count(1)
    tables = [Table(1, layout.slack) for _ in range(layout.gateways)]
    for table in tables:
        for _ in range(layout.workers):
            table.joined(next(numbers))
    places = [(table, Peer(number, str(number))) for table in tables for number in range(1, layout.devices + 1)]
    events: list[tuple[float, int, str, int]] = []
    order = count()
    latest: dict[int, int] = {}  # the worker of each device's latest answer

    def later(at: float, what: str, number: int) -> None:
        heapq.heappush(events, (at, next(order), what, number))

    for device, (table, peer) in enumerate(places):
        table.greeted(peer, HELLO)
        later(draw.expovariate(1 / PAUSE), "ask", device)
    later(LOSSES, "lose", 0)
    ended, spent = 0, 0.0
    while ended < layout.answers:
        now, _, what, number = heapq.heappop(events)
        found.seconds = now
        match what:
            case "ask":
                table, peer = places[number]
                began = time.perf_counter()
                opening = table.opened((peer, 1))
                spent += time.perf_counter() - began
                assert opening is not None
                found.answers += 1
                found.again += number in latest
                found.at_home += latest.get(number) == opening.worker
                latest[number] = opening.worker
                tokens = TOKENS * draw.lognormvariate(-(SPREAD**2) / 2, SPREAD)
                later(now + TOKEN * tokens, "end", number)
                if found.answers % EACH == 0 or layout.answers < EACH:
                    found.loads.append([each.load(worker) for each in tables for worker in each.workers])
            case "end":
                table, peer = places[number]
                table.free((peer, 1))
                ended += 1
                later(now + draw.expovariate(1 / PAUSE), "ask", number)
            case "lose":
                place = draw.randrange(len(tables))
                for key in _lost(tables[place], draw):
                    tables[place].opened(key)
                    found.reopened += 1
                later(now + LOSSES, "join", place)
                later(now + LOSSES, "lose", 0)
            case "join":
                tables[number].joined(next(numbers))
    found.opening = 1e6 * spent / found.answers
    return found


def _lost(table: Table, draw: random.Random) -> Iterator[Key]:
    """Have a worker end; its sessions, whose devices open them again."""
    if len(table.workers) > 1:
        yield from table.lost(draw.choice(table.workers))
