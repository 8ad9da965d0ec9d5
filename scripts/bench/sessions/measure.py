"""Runs of the suite: so many devices ask at the same moment, and the bare model steps as many rows beside it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from statistics import fmean
from typing import Literal

import numpy as np

from common.answer.request import Request
from scripts.bench.rows import Row
from scripts.bench.sessions.bare import WARM, BareBatch
from scripts.bench.sessions.player import Play, Played
from scripts.bench.sessions.town import Meter, Town
from scripts.bench.synthetic_model import Shape

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
    shape: Shape | None = None  # of a synthetic model; None: the embedded one
    together: bool = True  # whether to measure from the first question on, too

    @property
    def most(self) -> int:
        return max(self.sessions)

    @property
    def settling(self) -> int:
        """Tokens after which what was drafted while sessions waited is used up."""
        return self.tokens // 8


SHORT = Plan(sessions=(1, 3), tokens=16, repeats=2, passes=4)

# What stands beside the model in a pass costs the same, however large the model is.
LARGER = tuple(
    Plan(sessions=(16,), tokens=60, repeats=3, shape=shape, together=False)
    for shape in (Shape(512, 8, 1408, 8, 2), Shape(576, 30, 1536, 9, 3))
)
SHORT_LARGER = (Plan(sessions=(2,), tokens=16, repeats=1, passes=4, shape=Shape(64, 2, 128, 4, 2), together=False),)


class Asking:
    """The plan's questions, and what each is answered alone on the idle daemon."""

    def __init__(self, town: Town, plan: Plan, questions: Sequence[str]) -> None:
        """One session per question; answers all of them, one after the other, with and without drafts."""
        self._town = town
        self._plan = plan
        self._questions = questions
        alone = {kind: [self._begin(one, kind).result() for one in range(plan.most)] for kind in KINDS}
        self._alone = {kind: [played.tokens for played in found] for kind, found in alone.items()}
        self.prompt = round(fmean(played.prompt_tokens for played in alone[KINDS[0]]) / DOCUMENTS)

    def together(self, kind: Kind, sessions: int) -> Row:
        """That many sessions, asked for at the same moment; everything counts."""
        with Meter(self._town.process) as meter:
            plays = [self._begin(session, kind) for session in range(sessions)]
            found = [play.result() for play in plays]
        tokens = sum(len(played.tokens) for played in found)
        seconds = max(played.times[-1] for played in found) - min(played.asked for played in found)
        gaps = [gap for played in found for gap in gaps_within(played, (0.0, math.inf))]
        ttft, ttft_95 = usual([played.ttft for played in found])
        timed = {"rate": tokens / seconds, "ttft": ttft, "ttft_95": ttft_95}
        return timed | self._counted(kind, found, meter.most, gaps)

    def steady(self, kind: Kind, sessions: int) -> Row:
        """That many sessions, which wait for each other's first token.

        Rate and gaps are of the time while all of them were decoding; counts are of whole answers.
        """
        plays = [self._begin(session, kind, held=True) for session in range(sessions)]
        for play in plays:
            play.wait_for_draft()
        with Meter(self._town.process) as meter:
            for play in plays:
                play.release()
            found = [play.result() for play in plays]
        steady = steady_time(found, self._plan.settling)
        rate = sum(within(played, steady) for played in found) / (steady[1] - steady[0])
        gaps = [gap for played in found for gap in gaps_within(played, steady)]
        return {"rate": rate} | self._counted(kind, found, meter.most, gaps)

    def _counted(self, kind: Kind, found: Sequence[Played], resident: int, gaps: Sequence[float]) -> Row:
        weights = [played.device_weight for played in found if played.device_weight is not None]
        differing = [played.tokens != expected for played, expected in zip(found, self._alone[kind], strict=False)]
        gap, gap_95 = usual(gaps)
        return {
            "gap": gap,  # seconds between tokens of a session
            "gap_95": gap_95,
            "resident": resident,
            "differing": sum(differing),  # sessions whose tokens are not those of the same question alone
            "tokens": sum(len(played.tokens) for played in found),
            "device_weight": fmean(weights) if weights else None,
            "rollbacks": sum(played.closed.rollbacks for played in found),
        }

    def _begin(self, session: int, kind: Kind, held: bool = False) -> Play:
        question = self._questions[session]
        request = Request(
            question=question,
            prompt=f"\nQuestion: {question}\nAnswer:",
            max_tokens=self._plan.tokens,
            temperature=self._plan.temperature,
            seed=self._plan.seed + session,
            documents=DOCUMENTS,
        )
        weight = self._plan.weight if kind == "drafting" else 0.0
        return self._town.players[session].begin(request, weight, held)


def measure(town: Town, plan: Plan, questions: Sequence[str], model: Path, say: Callable[[str], None]) -> Iterator[Row]:
    """All runs of `plan`, the bare model's beside each; `model` is where that lies. `say` is told how far it is.

    Rows of kind `bare model` have the rate of bare forward passes.
    """
    say("every question alone")
    asking = Asking(town, plan, questions)
    # As many columns as the rows have in the middle of the answer.
    batches = {count: BareBatch(model, count * DOCUMENTS, asking.prompt, plan.tokens // 2) for count in plan.sessions}
    common = {
        "parameters": next(iter(batches.values())).parameters,
        "idle": town.resident,  # bytes of the cloud's memory when every question had been answered alone
        "prompt": asking.prompt,
    }
    for repeat, count in product(range(plan.repeats), plan.sessions):
        say(f"repeat {repeat + 1} of {plan.repeats}, {count} sessions")
        setting = common | {"sessions": count, "repeat": repeat}
        for kind in KINDS if plan.together else ():
            yield setting | {"kind": kind, "steady": False} | asking.together(kind, count)
        # Next to each other, as one is the other's measure.
        yield setting | {"kind": "listening", "steady": True} | asking.steady("listening", count)
        rate = count / batches[count].seconds(min(plan.passes, plan.tokens // 2 - WARM))
        yield setting | {"kind": "bare model", "steady": True, "rate": rate}
        yield setting | {"kind": "drafting", "steady": True} | asking.steady("drafting", count)


def steady_time(found: Sequence[Played], settling: int) -> tuple[float, float]:
    """Start and end of the time from every session's token number `settling` to the first session's last one.

    Raises `RuntimeError` where that is no time at all.
    """
    start, end = max(played.times[settling] for played in found), min(played.times[-1] for played in found)
    if start >= end:
        raise RuntimeError("a session ended before all others were decoding: nothing was steady")
    return start, end


def within(played: Played, time: tuple[float, float]) -> int:
    """Tokens of an answer in a stretch of time, those at its very beginning left out."""
    return sum(time[0] < moment <= time[1] for moment in played.times)


def gaps_within(played: Played, time: tuple[float, float]) -> list[float]:
    """Seconds between tokens of an answer in a stretch of time."""
    return [later - earlier for earlier, later in pairwise(played.times) if time[0] <= earlier and later <= time[1]]


def usual(seconds: Sequence[float]) -> tuple[float, float]:
    """The 50th and the 95th percentile."""
    middle, high = np.percentile(np.asarray(seconds), (50, 95))
    return float(middle), float(high)
