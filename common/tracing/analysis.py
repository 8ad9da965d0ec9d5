"""Attributes the time between two tokens to causes, from a trace.

From each commit on the device it follows prerequisites back to the previous commit: the later draft, its message, its
decode step, and so on. Each stretch has one cause, and the stretches add up to the whole time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Literal, get_args

from common.tracing.trace import Interval, Trace
from proto.messages import OTHER, Side

Cause = Literal[
    "retrieval",
    "prefill",
    "device decode",
    "cloud decode",
    "device recomputation",  # a repeated decode step for a position: a roll-back's price
    "cloud recomputation",
    "draft under way",
    "target under way",
    "other message under way",
    "engine",  # neither decoding nor sending: aggregation, queues, threads, unrecorded time
]
WORK = ("retrieve", "prefill", "decode")
DECISION = ("aggregate", "follow")
FRUITLESS = ("pre-empted", "late", "branched")  # results of decode steps
PROMPT = 2_000_000  # ns; a step this soon after the previous one waited for nothing else

CAUSES: tuple[Cause, ...] = get_args(Cause)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Part of the time before a token, in nanoseconds."""

    cause: Cause
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Step:
    """Time until one token became final on the device, by cause."""

    position: int
    start: int  # end of the previous token, or the request's start
    end: int
    waited_for: Side  # side of the last necessary draft or decision
    stretches: tuple[Stretch, ...]  # in time order, without gaps

    def spent(self, cause: Cause) -> int:
        """Nanoseconds spent on `cause`."""
        return sum(stretch.end - stretch.start for stretch in self.stretches if stretch.cause == cause)


def steps(trace: Trace) -> list[Step]:
    """Every token committed on the device, in order."""
    index = _Index(trace)
    found: list[Step] = []
    start = 0
    for commit in trace.of("aggregate", "follow", side="device"):
        walk = _Walk(index, start, commit.end)
        waited_for = walk.decided(commit)
        found.append(Step(commit.position, start, commit.end, waited_for, tuple(reversed(walk.stretches))))
        start = max(start, commit.end)
    return found


def milliseconds_per_token(steps: Iterable[Step]) -> dict[Cause, float]:
    """Mean time by cause over tokens after the first (its time is TTFT).

    The causes add up to the time per token.
    """
    later = [step for step in steps if step.position > 0]
    return {cause: mean([step.spent(cause) / 1e6 for step in later]) if later else 0.0 for cause in CAUSES}


class _Index:
    """Each side's finished work, arrived messages and repeated decode steps."""

    def __init__(self, trace: Trace) -> None:
        self._done: dict[Side, list[Interval]] = {}
        self._arrived: dict[Side, list[Interval]] = {}
        self._again: set[int] = set()
        for side in ("device", "cloud"):
            done = trace.of("retrieve", "prefill", "decode", "aggregate", "follow", side=side)
            self._done[side] = sorted(done, key=lambda span: span.end)
            arrived = [span for span in trace.of("transmit") if OTHER[span.side] == side]
            self._arrived[side] = sorted(arrived, key=lambda span: span.end)
            self._find_repeated(side, trace)

    def _find_repeated(self, side: Side, trace: Trace) -> None:
        decoded: set[int] = set()
        for span in trace.of("decode", side=side):
            if span.detail == "branched":
                continue
            if span.position in decoded:
                self._again.add(id(span))
            decoded.add(span.position)

    def repeated(self, span: Interval) -> bool:
        """Whether the side had decoded this step's position, or begun to, before."""
        return id(span) in self._again

    def done(self, side: Side, at: int, kinds: Container[str], position: int | None = None) -> Interval | None:
        """Last useful work of these kinds finished by `side` until `at`, or None."""
        fits = (
            span
            for span in _before(self._done[side], at)
            if span.kind in kinds
            and (position is None or span.position <= position < span.position + span.count)
            and span.detail not in FRUITLESS
        )
        return next(fits, None)

    def arrived(self, side: Side, at: int, details: Container[str], position: int | None) -> Interval | None:
        """Last message of these types to reach `side` until `at`, or None."""
        fits = (
            span
            for span in _before(self._arrived[side], at)
            if span.detail in details and (position is None or span.position <= position < span.position + span.count)
        )
        return next(fits, None)


class _Walk:
    """Walks back in time from one commit to the one before."""

    def __init__(self, index: _Index, since: int, until: int) -> None:
        self.stretches: list[Stretch] = []  # latest first
        self._index = index
        self._since = since
        self._at = until

    def decided(self, commit: Interval) -> Side:
        """Books all time until `commit` by cause; returns the side of the last prerequisite."""
        waited_for: Side | None = None
        seen: set[int] = set()
        here: Interval | None = commit
        while here is not None and self._at > self._since and id(here) not in seen:
            seen.add(id(here))
            if waited_for is None and here.kind in ("decode", "transmit"):
                waited_for = here.side
            here = self._waited_for(here)
            if here is not None:
                self._spend("engine", here.end)
        self._spend("engine", self._since)
        return waited_for or commit.side

    def _waited_for(self, span: Interval) -> Interval | None:
        match span.kind:
            case "aggregate":
                return self._inputs(span)
            case "follow":
                return self._index.arrived(
                    span.side, span.start, ("target", "sync", "verdict", "decided"), span.position
                )
            case "transmit":
                return self._sender(span)
            case _:
                self._spend(self._cause(span), span.start)
                return self._enabling(span)

    def _inputs(self, span: Interval) -> Interval | None:
        own = self._index.done(span.side, span.start, ("decode",), span.position)
        told = self._index.arrived(span.side, span.start, ("draft", "resolved"), span.position)
        return own if span.detail == "alone" else _later(own, told)

    def _sender(self, span: Interval) -> Interval | None:
        cause: dict[str, Cause] = {
            "draft": "draft under way",
            "propose": "draft under way",
            "target": "target under way",
            "verdict": "target under way",
            "decided": "target under way",
        }
        self._spend(cause.get(span.detail, "other message under way"), span.start)
        sender, position, at = span.side, span.position, span.start
        match span.detail:
            case "draft":
                return self._index.done(sender, at, ("decode",), position)
            case "propose":
                return self._index.done(sender, at, ("decode",))
            case "verdict" | "decided":
                return self._index.done(sender, at, DECISION)
            case "target":
                return self._index.done(sender, at, DECISION, position + span.count - 1)
            case "resolved":
                return self._index.arrived(sender, at, ("resolve",), position)
            case "resolve":
                own = self._index.done(sender, at, ("decode",), position)
                return _later(own, self._index.arrived(sender, at, ("draft",), position))
            case _:
                return self._index.done(sender, at, WORK)

    def _enabling(self, span: Interval) -> Interval | None:
        if span.kind == "retrieve":
            return self._index.arrived(span.side, span.start, ("open",), None)
        proposal = self._index.arrived(span.side, span.start, ("propose",), span.position)
        if proposal is not None:
            return proposal  # the draft to verify
        work = self._index.done(span.side, span.start, WORK)
        decision = self._index.done(span.side, span.start, DECISION)
        if work is None or decision is None:
            return work or decision
        if work.kind == "decode" and work.epoch != span.epoch:
            return decision  # it rolled the work back
        return work if span.start - work.end < PROMPT else _later(work, decision)

    def _cause(self, span: Interval) -> Cause:
        if span.kind == "retrieve":
            return "retrieval"
        if span.kind == "prefill":
            return "prefill"
        again = self._index.repeated(span)
        if span.side == "device":
            return "device recomputation" if again else "device decode"
        return "cloud recomputation" if again else "cloud decode"

    def _spend(self, cause: Cause, start: int) -> None:
        start = max(start, self._since)
        if start < self._at:
            self.stretches.append(Stretch(cause, start, self._at))
            self._at = start


def _later(one: Interval | None, other: Interval | None) -> Interval | None:
    return max((span for span in (one, other) if span is not None), key=lambda span: span.end, default=None)


def _before(spans: Sequence[Interval], at: int) -> Iterator[Interval]:
    for number in range(bisect_right(spans, at, key=lambda span: span.end) - 1, -1, -1):
        yield spans[number]
