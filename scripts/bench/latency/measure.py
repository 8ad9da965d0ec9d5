"""Asks two real daemons in the network lab, every method in turn at every question."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.bench.asking import PATIENT, WARM_UP, Answer, TokensDiffer, ask, filled, in_turn, pair_of, settle
from scripts.bench.latency.plan import SLOW_QUESTIONS, Floors, Leg, Plan, emulated
from scripts.bench.synthetic_model import make_model
from scripts.bench.workload import Texts
from scripts.daemons import Pair
from scripts.netlab.lab import NetLab
from scripts.netlab.setting import LinkSetting
from scripts.netlab.trace import sinusoid

LONGEST_LEG = 7200.0  # seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered(Answer):
    """One answer of a pair with these floors, at this added round trip in milliseconds."""

    floors: str
    rtt: float
    temperature: float

    @property
    def accepted(self) -> list[tuple[bool | None, bool | None]]:
        """Correctness of the drafts of (device, cloud) [tokens]; None: the device saw no draft."""
        return [(ours, theirs) for ours, theirs in self.report["accepted"]]

    @property
    def prompt(self) -> float:
        """Tokens of a row before the answer, on the average."""
        return float(self.report["prompt_tokens"]) / max(1, len(self.report["sources"]))

    @property
    def context(self) -> float:
        """Tokens in a row, on the average over its steps."""
        return self.prompt + self.tokens / 2


def measure_demonstration(floors: Floors, plan: Plan, say: Callable[[str], None]) -> list[Answered]:
    """All legs of `plan` with the embedded model or a synthetic one. Raises `TokensDiffer`."""
    texts = Texts.draw_joint(plan.questions)
    with tempfile.TemporaryDirectory(prefix="dragon-bench-") as folder:
        model = {} if plan.entropy is None else make_model(Path(folder), plan.entropy)
        found: list[Answered] = []
        for answered in measure(floors, plan, say, texts, model):
            found.append(answered)
            check_identity(found, plan)
    return found


def measure(
    floors: Floors, plan: Plan, say: Callable[[str], None], texts: Texts, settings: Mapping[str, object]
) -> Iterator[Answered]:
    """All legs of `plan` with one pair of daemons of these `settings` in a lab of their own."""
    with filled(texts) as data, NetLab(LinkSetting()) as lab:
        device = {**PATIENT, **settings, **emulated(floors.device)}
        with pair_of(data, device, {**settings, **emulated(floors.cloud)}, lab) as pair:
            warm(pair, texts, plan)
            for leg in plan.legs:
                lab.replay(sinusoid(LinkSetting(rtt=leg.rtt / 1e3), LONGEST_LEG, plan.jitter))
                settle(pair, lambda: lab.setting.rtt, plan.own)
                yield from _leg(pair, texts, floors, leg, plan)
                lab.stop_replay()
                say(f"{floors.name} ms, {leg.rtt:g} ms added: done by {lab.kind}")


def warm(pair: Pair, texts: Texts, plan: Plan) -> None:
    """Ask the first question by every mode, and have all modes read every question's documents: none is to pay for what
    those behind it find read.
    """
    for number, question in enumerate(texts.questions):
        tokens = 1 if number else min(WARM_UP, plan.max_tokens)
        for mode in plan.modes:
            ask(pair, question, mode, **_law(plan, number, 0.0, tokens))


def _leg(pair: Pair, texts: Texts, floors: Floors, leg: Leg, plan: Plan) -> Iterator[Answered]:
    for number, question in enumerate(texts.questions[: leg.questions]):
        for temperature in leg.temperatures:
            asked = [mode for mode in plan.modes if number < SLOW_QUESTIONS or mode not in plan.slow]
            for mode in in_turn(asked, number):
                report = ask(pair, question, mode, **_law(plan, number, temperature, plan.max_tokens))
                yield Answered(
                    mode=mode.name,
                    question=number,
                    report=report,
                    floors=floors.name,
                    rtt=leg.rtt,
                    temperature=temperature,
                )


def _law(plan: Plan, question: int, temperature: float, tokens: int) -> dict[str, Any]:
    return {"temperature": temperature, "seed": plan.seed_of(question), "max_tokens": tokens}


def check_identity(found: list[Answered], plan: Plan) -> None:
    """The newest answer has the tokens of every other exact one of its question and temperature."""
    exact = {mode.name for mode in plan.modes if mode.exact}
    newest = found[-1]
    if newest.mode not in exact:
        return
    for other in found:
        same = (other.question, other.temperature) == (newest.question, newest.temperature)
        if same and other.mode in exact and other.pieces != newest.pieces:
            raise TokensDiffer(
                f"question {newest.question} at temperature {newest.temperature:g}: {newest.mode} at {newest.rtt:g} ms "
                f"gave {newest.pieces}, {other.mode} at {other.rtt:g} ms {other.pieces}"
            )
