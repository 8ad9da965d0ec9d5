"""Runs of the suite: so many devices ask at the same moment, and the bare model steps as many rows beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from common.runtime.request import Request
from scripts.bench.sessions.bare import WARM, BareBatch
from scripts.bench.sessions.drafts import evidence_for
from scripts.bench.sessions.player import Play, Played
from scripts.bench.sessions.town import Meter, Town, Usage

Kind = Literal["listening", "drafting"]  # a device without documents; one with drafts of its own
KINDS: tuple[Kind, ...] = ("listening", "drafting")

DOCUMENTS = 4


@dataclass(frozen=True, slots=True)
class Plan:
    """Numbers of sessions in turn, all of that `repeats` times over."""

    sessions: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    tokens: int = 100
    repeats: int = 5
    temperature: float = 1.0
    seed: int = 700  # of the first session; the others count up
    weight: float = 0.1  # of a drafting device
    passes: int = 23  # of the bare model in every repeat

    @property
    def most(self) -> int:
        return max(self.sessions)


SHORT = Plan(sessions=(1, 3), tokens=16, repeats=2, passes=4)


@dataclass(frozen=True, slots=True)
class Times:
    """Latencies of all sessions of a run, in seconds: (p50, p95)."""

    ttft: tuple[float, float]
    gap: tuple[float, float]  # between tokens of a session
    steady_gap: tuple[float, float] | None  # of those while every session was decoding


@dataclass(frozen=True, slots=True)
class Ran:
    """One run: `sessions` devices of a kind, which asked together."""

    kind: Kind
    sessions: int
    repeat: int
    tokens: int  # of all answers
    rate: float  # tokens per second of all sessions, from the first question to the last token
    steady: float | None  # while every session was decoding; None where there was no such time
    times: Times
    usage: Usage
    differing: int  # sessions whose tokens are not those of the same question alone
    device_weight: float | None
    drafted: int  # by the cloud
    accepted: int
    rollbacks: int
    preempted: int
    questions: int  # of the devices' certificates
    draft_seconds: float  # of processor time, mean of a device's draft

    @property
    def load(self) -> tuple[float, float]:
        """Share of a core that the cloud and the players took."""
        return self.usage.cloud / self.usage.seconds, self.usage.players / self.usage.seconds


@dataclass(frozen=True, slots=True)
class Found:
    """Everything that was measured."""

    runs: tuple[Ran, ...]
    bare: dict[int, list[float]]  # tokens per second by number of sessions, one per repeat
    idle: int  # bytes of the cloud's memory when every question had been answered alone
    prompt: int  # tokens of a row before the answer, mean

    def of(self, kind: Kind, sessions: int) -> list[Ran]:
        return [run for run in self.runs if (run.kind, run.sessions) == (kind, sessions)]

    def ratios(self, kind: Kind, sessions: int) -> list[float]:
        """Steady rate over the bare model's of the same repeat."""
        bare = self.bare[sessions]
        return [run.steady / bare[run.repeat] for run in self.of(kind, sessions) if run.steady is not None]

    def memory(self, sessions: int) -> float | None:
        """Bytes per session beyond the idle daemon's, which keeps the place of one; None for a single session.

        Of the first repeat: what one run took stays with the process for the next.
        """
        first = [run.usage.resident for kind in KINDS for run in self.of(kind, sessions) if run.repeat == 0]
        return None if sessions < 2 else (max(first) - self.idle) / (sessions - 1)


class Asking:
    """The plan's questions, and what each is answered alone on the idle daemon."""

    def __init__(self, town: Town, plan: Plan, questions: Sequence[str]) -> None:
        """One session per question; answers all of them, one after the other, with and without drafts."""
        self._town = town
        self._plan = plan
        self._questions = questions
        self._evidence: list[list[float]] = []  # of the drafting devices, by session and position
        self._alone: dict[Kind, list[tuple[int, ...]]] = {"listening": [], "drafting": []}
        prompts = []
        for session in range(plan.most):
            played = self._begin(session, "listening").result()
            self._evidence.append(evidence_for(plan.weight, played.evidence))
            self._alone["listening"].append(played.tokens)
            self._alone["drafting"].append(self._begin(session, "drafting").result().tokens)
            prompts.append(played.prompt_tokens / DOCUMENTS)
        self.prompt = round(float(np.mean(prompts)))

    def run(self, kind: Kind, sessions: int, repeat: int) -> Ran:
        """That many sessions at once."""
        with Meter(self._town.process) as meter:
            plays = [self._begin(session, kind) for session in range(sessions)]
            found = [play.result() for play in plays]
        alone = self._alone[kind][:sessions]
        made = sum(played.drafts for played in found)
        weights = [played.device_weight for played in found if played.device_weight is not None]
        start, end = min(played.asked for played in found), max(played.times[-1] for played in found)
        steady = steady_time(found)
        tokens = sum(len(played.tokens) for played in found)
        return Ran(
            kind,
            sessions,
            repeat,
            tokens,
            tokens / (end - start),
            None if steady is None else sum(within(played, steady) for played in found) / (steady[1] - steady[0]),
            _times(found, steady),
            meter.usage,
            sum(played.tokens != expected for played, expected in zip(found, alone, strict=True)),
            float(np.mean(weights)) if weights else None,
            sum(played.closed.drafted for played in found),
            sum(played.closed.accepted for played in found),
            sum(played.closed.rollbacks for played in found),
            sum(played.closed.preempted for played in found),
            sum(played.questions for played in found),
            sum(played.draft_seconds for played in found) / made if made else 0.0,
        )

    def _begin(self, session: int, kind: Kind) -> Play:
        question = self._questions[session]
        request = Request(
            question,
            f"\nQuestion: {question}\nAnswer:",
            max_tokens=self._plan.tokens,
            temperature=self._plan.temperature,
            seed=self._plan.seed + session,
            documents=DOCUMENTS,
        )
        return self._town.players[session].begin(request, self._evidence[session] if kind == "drafting" else None)


def measure(town: Town, plan: Plan, questions: Sequence[str], say: Callable[[str], None]) -> Found:
    """All runs of `plan`, the bare model's beside each; `say` is told how far it is."""
    say("every question alone")
    asking = Asking(town, plan, questions)
    idle = town.resident
    # As many columns as the rows have in the middle of the answer.
    batches = {count: BareBatch(count * DOCUMENTS, asking.prompt, plan.tokens // 2) for count in plan.sessions}
    bare: dict[int, list[float]] = {count: [] for count in plan.sessions}
    runs = []
    for repeat in range(plan.repeats):
        for count in plan.sessions:
            say(f"repeat {repeat + 1} of {plan.repeats}, {count} sessions")
            bare[count].append(count / batches[count].seconds(min(plan.passes, plan.tokens // 2 - WARM)))
            for kind in KINDS:
                runs.append(asking.run(kind, count, repeat))
    return Found(tuple(runs), bare, idle, asking.prompt)


def steady_time(found: Sequence[Played]) -> tuple[float, float] | None:
    """From every session's first token to the first session's last one; None where that is no time at all."""
    start, end = max(played.times[0] for played in found), min(played.times[-1] for played in found)
    return (start, end) if start < end else None


def within(played: Played, time: tuple[float, float]) -> int:
    """Tokens of an answer in a stretch of time, those at its very beginning left out."""
    return sum(time[0] < moment <= time[1] for moment in played.times)


def _times(found: Sequence[Played], steady: tuple[float, float] | None) -> Times:
    pairs = [pair for played in found for pair in pairwise(played.times)]
    inside = [] if steady is None else [pair for pair in pairs if steady[0] <= pair[0] and pair[1] <= steady[1]]
    return Times(
        _usual([played.ttft for played in found]),
        _usual([later - earlier for earlier, later in pairs]),
        _usual([later - earlier for earlier, later in inside]) if inside else None,
    )


def _usual(seconds: Sequence[float]) -> tuple[float, float]:
    middle, high = np.percentile(np.asarray(seconds), (50, 95))
    return float(middle), float(high)
