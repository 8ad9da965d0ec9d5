"""Tokens per second over an uplink that goes to and fro between both rates: lengths that are fixed, and policies."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from scripts.bench.asking import PATIENT, WARM_UP, Answer, Mode, ask, check_whole, filled, in_turn, pair_of, settle
from scripts.bench.draft_pair import make_pair
from scripts.bench.measuring import NOTHING, Spread, Table, grouped
from scripts.bench.methods.plan import TARGET, adaptive
from scripts.bench.qsv.plan import Changing
from scripts.bench.workload import Texts
from scripts.netlab.lab import NetLab
from scripts.netlab.setting import LinkSetting
from scripts.netlab.trace import markov

LONGEST = 600.0  # seconds of an answer


def measure_changing(plan: Changing, say: Callable[[str], None]) -> list[Answer]:
    """Every way's answers, one for each seed, in the network lab: all of a seed meet the same uplink."""
    texts = Texts.draw_joint(1)
    with tempfile.TemporaryDirectory(prefix="dragon-bench-") as folder, filled(texts) as data:
        models = make_pair(Path(folder), plan.overlap)
        device = {**models.device, **PATIENT, "emulate_draft_ms": plan.draft_ms}
        cloud = models.cloud | {"emulate_decode_ms": plan.verify_ms}
        law = {"temperature": 1.0, "documents": 1}
        found: list[Answer] = []
        with NetLab(LinkSetting()) as lab, pair_of(data, device, cloud, lab) as pair:
            settle(pair)
            for mode in plan.ways:
                ask(pair, texts.questions[0], mode, **law, seed=0, max_tokens=min(WARM_UP, plan.max_tokens))
            for place, seed in enumerate(plan.seeds):
                for mode in in_turn(plan.ways, place):
                    lab.replay(markov(LinkSetting(), LONGEST, plan.states, seed))
                    report = ask(pair, texts.questions[0], mode, **law, seed=seed, max_tokens=plan.max_tokens)
                    lab.stop_replay()
                    check_whole(report, mode.name)
                    found.append(Answer(mode=mode.name, question=seed, report=report))
                say(f"uplink of two rates by {lab.kind}: seed {seed} done")
        return found


def changing_table(found: Sequence[Answer], ways: Sequence[Mode]) -> Table:
    """A row for each way; ratios are of answers with one seed, to the fixed length with the highest median."""
    by_way = {
        mode: {answer.question: answer for answer in those}
        for mode, those in grouped(found, lambda answer: answer.mode).items()
    }
    speeds = {mode: Spread.of([1e3 / answer.per_token for answer in those.values()]) for mode, those in by_way.items()}
    fixed = [mode.name for mode in ways if mode != TARGET and not adaptive(mode)]
    best = by_way[max(fixed, key=lambda name: speeds[name].median)]
    rows = []
    for name, those in by_way.items():
        ratios = Spread.of([best[seed].per_token / answer.per_token for seed, answer in those.items()])
        rows.append([name, _lengths(list(those.values())), speeds[name].short(1), ratios.short(2)])
    return Table(["way", "accepted, length", "tokens/s", "of the best fixed"], rows)


def _lengths(answers: Sequence[Answer]) -> str:
    figures = [answer.report["figures"] for answer in answers if answer.report["figures"]]
    if not figures:
        return NOTHING
    accepted = median(answer.acceptance[0] or 0.0 for answer in answers)
    return f"{accepted:.2f}, {median(each['proposed_per_round'] for each in figures):.1f}"
