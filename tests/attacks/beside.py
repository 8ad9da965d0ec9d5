"""Costs of attacks to a good device, and how much of them is the attacker's share of the machine.

`python -m tests.attacks.beside [ROUNDS]`. Answers are timed without an attack, with one, and with the same attack on
another cloud daemon of this machine, in turns; some minutes for 8 rounds.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from scripts.bench.measuring import Table
from scripts.daemons import Pair, fill_library
from tests.attacks.side_by_side import Attacker
from tests.daemons.conftest import ENTRIES, NOTES
from tests.daemons.intruder import let_in
from tests.daemons.test_attacks import CASES, QUESTION, SAMPLED, hello

ANSWERS = 3  # in each turn
RESAMPLES = 2000
QUIET, ATTACKED, BESIDE = "quiet", "attacked", "another attacked"
COMPARED = ((ATTACKED, QUIET), (BESIDE, QUIET), (ATTACKED, BESIDE))


def main() -> None:
    """Measure every kind of attack, and print a table."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        (good, keys), (other, other_keys) = (_filled(Path(folder) / name) for name in ("good", "other"))
        with Pair(good, {"patience": 60.0}) as pair, Pair(other) as bystander:
            for kind, trusted in (*CASES, ("lattices", True)):
                with (
                    Attacker(kind, _address(pair), *(keys if trusted else ())) as on_it,
                    Attacker(kind, _address(bystander), *(other_keys if trusted else ())) as on_other,
                ):
                    times = _timed(pair, {QUIET: None, ATTACKED: on_it, BESIDE: on_other}, rounds)
                name = f"{kind}{', trusted key' * trusted}"
                rows.append([name, f"{1000 * np.median(times[QUIET]):.1f}", *_ratios(times)])
                print(*rows[-1], sep="  ", file=sys.stderr, flush=True)
    print(Table(["attack", "ms per token, quiet", *(" / ".join(pair) for pair in COMPARED)], rows))


def _filled(data: Path) -> tuple[Path, tuple[str, ...]]:
    """A data folder with libraries, and the keys of an intruder that its cloud trusts, with its first frame."""
    for role, texts in (("device", NOTES), ("cloud", ENTRIES)):
        fill_library(data, role, texts)
    return data, (*let_in(data), hello(data / "intruder").hex())


def _address(pair: Pair) -> str:
    return f"tcp://127.0.0.1:{pair.cloud_port}"


def _timed(pair: Pair, phases: Mapping[str, Attacker | None], rounds: int) -> dict[str, list[float]]:
    """Seconds per token of answers in each phase."""
    times: dict[str, list[float]] = {phase: [] for phase in phases}
    pair.complete(QUESTION, **SAMPLED)
    for _ in range(rounds):
        for phase, attacker in phases.items():
            if attacker is not None:
                attacker.go()
            times[phase] += [pair.complete(QUESTION, **SAMPLED)["dragon"]["per_token"] for _ in range(ANSWERS)]
            if attacker is not None:
                attacker.stop()
    return times


def _ratios(times: Mapping[str, Sequence[float]]) -> list[str]:
    """Ratios of medians with their 95 % bootstrap intervals."""
    draw, cells = np.random.default_rng(1), []
    for first, second in COMPARED:
        pairs = [np.asarray(times[phase]) for phase in (first, second)]
        drawn = [np.median(draw.choice(each, (RESAMPLES, len(each))), axis=1) for each in pairs]
        low, high = np.percentile(drawn[0] / drawn[1], (2.5, 97.5))
        cells.append(f"{np.median(pairs[0]) / np.median(pairs[1]):.2f} [{low:.2f}-{high:.2f}]")
    return cells


if __name__ == "__main__":
    main()
