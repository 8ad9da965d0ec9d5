"""Asks two real daemons whose connection goes through a proxy with a delay and a rate."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from scripts.bench.asking import PATIENT, WARM_UP, Mode, answered, ask, check_same, in_turn, linked, settle
from scripts.bench.draft_pair import DraftPair, make_pair
from scripts.bench.methods.plan import AHEAD_FIXED, DRAFT, EAGER, NO_NETWORK, TARGET, Part, Plan, setting
from scripts.bench.rows import Row
from scripts.bench.workload import Texts
from scripts.daemons import Pair
from scripts.netlab.faulty_proxy import PERFECT, Line

PROBE = 150  # bytes of a probe, which the uplink's rate delays
# families whose tokens are the target's, one by one
ALIKE = (TARGET.family, "coupled synchronous", AHEAD_FIXED.family, EAGER.family)


def sample(report: Mapping[str, Any], forwarded: tuple[int, int] = (0, 0)) -> Row:
    """An answer's row. `forwarded`: bytes on the line, up and down, with probes, passages and encryption.

    Figures of rounds are 0 where nothing was verified.
    """
    figures, own = report["figures"], report["device"]
    return answered(report) | {
        "seed": int(report["seed"]),
        "rounds": round(figures.get("rounds", 0)),
        "proposals": round(figures.get("proposals", 0)),  # more than rounds, drafting ahead
        "proposed": figures.get("proposed_per_round", 0.0),  # tokens
        "drafted": int(own["drafted"]),
        "accepted": int(own["accepted"]),
        "undrafted": round(figures.get("undrafted", 0)),  # tokens of the target where nothing was proposed
        "held": own["acceptance"] if figures else None,  # share of the judged drafts that were right
        "forwarded_up": forwarded[0],
        "forwarded_down": forwarded[1],
    }


def measure(part: Part, plan: Plan, say: Callable[[str], None]) -> list[Row]:
    """All networks of a part. Raises `TokensDiffer` where coupled drafting changes a token of the target's."""
    found: list[Row] = []
    texts = Texts.draw_joint(1)
    with tempfile.TemporaryDirectory(prefix="dragon-bench-") as folder:
        models = make_pair(Path(folder), part.overlap)
        say(f"overlap {part.overlap:g}: measured {models.measured.overlap:.3f}, {models.measured.entropy:.2f} nats")
        if part.alone:
            found += _drafter_alone(Path(folder) / "alone", models, texts, part, plan)
        for row in _verified(Path(folder) / "data", models, texts, part, plan, say):
            found.append({"overlap": part.overlap} | row)
            check_identity(found)
    return found


def check_identity(found: Sequence[Row]) -> None:
    """Raises `TokensDiffer` where answers that are the target's differ with one pair and seed."""
    check_same([row for row in found if row["mode"].startswith(ALIKE)], "overlap", "seed")


def _drafter_alone(data: Path, models: DraftPair, texts: Texts, part: Part, plan: Plan) -> Iterator[Row]:
    """The drafter as the model of a device whose cloud takes no part."""
    own = models.cloud | {"model": models.drafter}
    data.mkdir()
    texts.fill_libraries(data)
    with Pair(data, own | {"emulate_decode_ms": plan.draft_ms}, own) as pair:
        _ask(pair, texts, DRAFT, part.seeds[0], WARM_UP)
        for seed in part.seeds:
            report = _ask(pair, texts, DRAFT, seed, plan.max_tokens, plan.temperature)
            yield {"overlap": part.overlap} | setting(DRAFT) | NO_NETWORK.row | sample(report)


def _verified(
    data: Path, models: DraftPair, texts: Texts, part: Part, plan: Plan, say: Callable[[str], None]
) -> Iterator[Row]:
    data.mkdir()
    texts.fill_libraries(data)
    device = {**models.device, **PATIENT, "emulate_draft_ms": plan.draft_ms}
    cloud = models.cloud | {"emulate_decode_ms": plan.verify_ms}
    with linked(data, device, cloud, PERFECT, PERFECT) as (pair, proxy):
        for mode in {each.family: each for each in part.everything.values() if each != DRAFT}.values():
            _ask(pair, texts, mode, part.seeds[0], min(WARM_UP, plan.max_tokens))
        for network, modes in part.modes.items():
            proxy.set_line("up", Line(network.delay / 1e3, rate=network.bytes_per_second))
            proxy.set_line("down", Line(network.delay / 1e3))
            settle(pair, partial(float, 2 * network.delay / 1e3), plan.own + PROBE / network.bytes_per_second)
            for place, seed in enumerate(part.seeds):
                for mode in in_turn(modes, place):
                    before = proxy.forwarded
                    report = _ask(pair, texts, mode, seed, plan.max_tokens, plan.temperature)
                    after = proxy.forwarded
                    forwarded = after["up"] - before["up"], after["down"] - before["down"]
                    yield setting(mode) | network.row | sample(report, forwarded)
            say(f"overlap {part.overlap:g}, {network.name}: done, {len(modes)} methods")


def _ask(pair: Pair, texts: Texts, mode: Mode, seed: int, tokens: int, temperature: float = 1.0) -> dict[str, Any]:
    return ask(pair, texts.questions[0], mode, temperature=temperature, seed=seed, max_tokens=tokens, documents=1)
