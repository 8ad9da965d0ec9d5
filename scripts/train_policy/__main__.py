"""`make train-policy`: trains the network of `common/draft_policy/ddqn.py` again."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import save_file

from common.draft_policy.ddqn import WEIGHTS, DoubleQ, Network
from common.draft_policy.times import RESOLUTIONS
from scripts.simulation.rounds import HIGH, LOW
from scripts.train_policy.learner import TIMES, VOCABULARY, Training, train

CONFIDENCES: Final = (0.5, 0.7, 0.9, 0.97)


def main() -> None:
    """Train, and write weights and record."""
    usual = Training()
    parser = argparse.ArgumentParser(prog="python -m scripts.train_policy", description=__doc__)
    parser.add_argument("--output", type=Path, default=WEIGHTS, help="weights; the record goes beside them")
    parser.add_argument("--seed", type=int, default=usual.seed)
    parser.add_argument("--steps", type=int, default=usual.steps, help="of the optimiser")
    options = parser.parse_args()
    torch.set_num_threads(1)
    training = Training(seed=options.seed, steps=options.steps)
    began = time.monotonic()
    trained = train(training, say)
    say(f"trained in {time.monotonic() - began:.0f} s")
    save_file(trained.state_dict(), options.output)
    record = {
        "training": asdict(training),
        "trained_for": {
            "draft_seconds": TIMES.draft,
            "verify_seconds": TIMES.verify,
            "rtt_seconds": TIMES.rtt,
            "vocabulary": VOCABULARY,
            "index": "fixed",
            "resolutions": RESOLUTIONS,
        },
        "actions": actions(Network.load(options.output)),
    }
    options.output.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n")
    say(f"weights in {options.output}, record beside it")


def actions(network: Network) -> list[dict[str, Any]]:
    """Choices of a network in some states: all confidences alike, at the rates of the paper's link."""
    policy, chosen = DoubleQ(network), []
    for rate, confidence in product((LOW, HIGH), CONFIDENCES):
        plan = policy.plan([confidence] * 16, TIMES.at_rate(rate))
        chosen.append(
            {"confidence": confidence, "bytes_per_second": rate, "length": plan.length, "resolution": plan.resolution}
        )
    return chosen


def say(sentence: str) -> None:
    """Progress, on stderr."""
    print(f"[{time.strftime('%H:%M:%S')}] {sentence}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
