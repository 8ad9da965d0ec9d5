"""Asks two real daemons whose connection goes through a proxy with a delay and a rate."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from scripts.bench.asking import PATIENT, WARM_UP, Answer, Mode, TokensDiffer, ask, in_turn, linked, settle
from scripts.bench.draft_pair import DraftPair, make_pair
from scripts.bench.methods.plan import AHEAD_FIXED, DRAFT, EAGER, NO_NETWORK, TARGET, Network, Part, Plan
from scripts.bench.workload import Texts
from scripts.daemons import Pair
from scripts.netlab.faulty_proxy import PERFECT, Line

PROBE = 150  # bytes of a probe, which the uplink's rate delays
# families whose tokens are the target's, one by one
ALIKE = (TARGET.family, "coupled synchronous", AHEAD_FIXED.family, EAGER.family)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafted(Answer):
    """One answer that was drafted and verified, or its target's own."""

    @property
    def figures(self) -> Mapping[str, float]:
        """Of rounds; empty where nothing was verified."""
        figures: Mapping[str, float] = self.report["figures"]
        return figures

    @property
    def rounds(self) -> int:
        return round(self.figures.get("rounds", 0))

    @property
    def proposals(self) -> int:
        """More than rounds, drafting ahead."""
        return round(self.figures.get("proposals", 0))

    @property
    def proposed(self) -> float:
        """Tokens per round."""
        return self.figures.get("proposed_per_round", 0.0)

    @property
    def drafted(self) -> int:
        return int(self.report["device"]["drafted"])

    @property
    def undrafted(self) -> int:
        """Tokens of the target where nothing was proposed."""
        return round(self.figures.get("undrafted", 0))

    @property
    def accepted(self) -> int:
        return int(self.report["device"]["accepted"])

    @property
    def held(self) -> float | None:
        """Share of the judged drafts that were right; None where nothing was verified."""
        return self.acceptance[0] if self.figures else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered(Drafted):
    """One answer of a pair of models on a network."""

    overlap: float
    network: Network
    forwarded: tuple[int, int]  # up and down, of the whole answer: probes, passages and encryption included

    @property
    def seed(self) -> int:
        return int(self.report["seed"])


def measure(part: Part, plan: Plan, say: Callable[[str], None]) -> list[Answered]:
    """All networks of a part. Raises `TokensDiffer` where coupled drafting changes a token of the target's."""
    found: list[Answered] = []
    texts = Texts.draw_joint(1)
    with tempfile.TemporaryDirectory(prefix="dragon-bench-") as folder:
        models = make_pair(Path(folder), part.overlap)
        say(f"overlap {part.overlap:g}: measured {models.measured.overlap:.3f}, {models.measured.entropy:.2f} nats")
        if part.alone:
            found += _drafter_alone(Path(folder) / "alone", models, texts, part, plan)
        for answer in _verified(Path(folder) / "data", models, texts, part, plan, say):
            found.append(answer)
            check_identity(found)
    return found


def check_identity(found: list[Answered]) -> None:
    """Compare the newest answer, if it is coupled, with the target's of the same pair and seed."""
    newest = found[-1]
    for other in found:
        same = (other.overlap, other.seed) == (newest.overlap, newest.seed)
        if same and _alike(other) and _alike(newest) and other.pieces != newest.pieces:
            raise TokensDiffer(f"seed {newest.seed}: {newest.mode} gave {newest.pieces}, {other.mode} {other.pieces}")


def _alike(answer: Answered) -> bool:
    return answer.mode.startswith(ALIKE)


def _drafter_alone(data: Path, models: DraftPair, texts: Texts, part: Part, plan: Plan) -> Iterator[Answered]:
    """The drafter as the model of a device whose cloud takes no part."""
    own = models.cloud | {"model": models.drafter}
    data.mkdir()
    texts.fill_libraries(data)
    with Pair(data, own | {"emulate_decode_ms": plan.draft_ms}, own) as pair:
        _ask(pair, texts, DRAFT, part.seeds[0], WARM_UP)
        for seed in part.seeds:
            report = _ask(pair, texts, DRAFT, seed, plan.max_tokens)
            yield Answered(mode=DRAFT.name, report=report, overlap=part.overlap, network=NO_NETWORK, forwarded=(0, 0))


def _verified(
    data: Path, models: DraftPair, texts: Texts, part: Part, plan: Plan, say: Callable[[str], None]
) -> Iterator[Answered]:
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
                    report = _ask(pair, texts, mode, seed, plan.max_tokens)
                    after = proxy.forwarded
                    bytes_ = after["up"] - before["up"], after["down"] - before["down"]
                    yield Answered(
                        mode=mode.name, report=report, overlap=part.overlap, network=network, forwarded=bytes_
                    )
            say(f"overlap {part.overlap:g}, {network.name}: done, {len(modes)} methods")


def _ask(pair: Pair, texts: Texts, mode: Mode, seed: int, tokens: int) -> dict[str, Any]:
    return ask(pair, texts.questions[0], mode, temperature=1.0, seed=seed, max_tokens=tokens, documents=1)
