"""Tokens per second over an uplink that goes to and fro between both rates: lengths that are fixed, and policies."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from scripts.bench.asking import PATIENT, WARM_UP, Mode, ask, filled, in_turn, pair_of, settle
from scripts.bench.draft_pair import make_pair
from scripts.bench.measuring import NOTHING, Spread, Table, grouped
from scripts.bench.methods.measure import Drafted
from scripts.bench.methods.plan import TARGET, adaptive
from scripts.bench.methods.prediction import per_second
from scripts.bench.qsv.plan import Changing
from scripts.bench.workload import Texts
from scripts.netlab.lab import NetLab
from scripts.netlab.setting import LinkSetting
from scripts.netlab.trace import markov

LONGEST = 600.0  # seconds of an answer


def measure_changing(plan: Changing, say: Callable[[str], None]) -> list[Drafted]:
    """Every way's answers, one for each seed, in the network lab: all of a seed meet the same uplink."""
    texts = Texts.draw_joint(1)
    with tempfile.TemporaryDirectory(prefix="dragon-bench-") as folder, filled(texts) as data:
        models = make_pair(Path(folder), plan.overlap)
        device = {**models.device, **PATIENT, "emulate_draft_ms": plan.draft_ms}
        cloud = models.cloud | {"emulate_decode_ms": plan.verify_ms}
        law = {"temperature": 1.0, "documents": 1}
        found: list[Drafted] = []
        with NetLab(LinkSetting()) as lab, pair_of(data, device, cloud, lab) as pair:
            settle(pair)
            for mode in plan.ways:
                ask(pair, texts.questions[0], mode, **law, seed=0, max_tokens=min(WARM_UP, plan.max_tokens))
            for place, seed in enumerate(plan.seeds):
                for mode in in_turn(plan.ways, place):
                    lab.replay(markov(LinkSetting(), LONGEST, plan.states, seed))
                    report = ask(pair, texts.questions[0], mode, **law, seed=seed, max_tokens=plan.max_tokens)
                    lab.stop_replay()
                    found.append(Drafted(mode=mode.name, question=seed, report=report))
                say(f"uplink of two rates by {lab.kind}: seed {seed} done")
        return found


def changing_table(found: Sequence[Drafted], ways: Sequence[Mode]) -> Table:
    """A row for each way; ratios are of answers with one seed, to the fixed length with the highest median."""
    named = {mode.name: mode for mode in ways}
    by_way = grouped(found, lambda answer: answer.mode)
    speeds = {
        name: {answer.question: per_second(answer, named[name]) for answer in those} for name, those in by_way.items()
    }
    spreads = {name: Spread.of(list(by_seed.values())) for name, by_seed in speeds.items()}
    fixed = [mode.name for mode in ways if mode != TARGET and not adaptive(mode)]
    best = speeds[max(fixed, key=lambda name: spreads[name].median)]
    rows = []
    for name, those in by_way.items():
        ratios = Spread.of([speed / best[seed] for seed, speed in speeds[name].items()])
        rows.append([name, _lengths(those), spreads[name].short(1), ratios.short(2)])
    return Table(["way", "accepted, length", "tokens/s", "of the best fixed"], rows)


def _lengths(answers: Sequence[Drafted]) -> str:
    drafted = [answer for answer in answers if answer.figures]
    if not drafted:
        return NOTHING
    accepted = median(answer.held or 0.0 for answer in answers)
    return f"{accepted:.2f}, {median(answer.proposed for answer in drafted):.1f}"
