"""`make train-policy`: trains the network of `common/draft_policy/ddqn.py` again, and says what it reaches."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from common.draft_policy.ddqn import WEIGHTS, Network
from common.draft_policy.values import RESOLUTIONS
from scripts.train_policy.evaluation import (
    HELD_OUT,
    TOKENS,
    actions,
    adaptive,
    fixed,
    recorded_settings,
    settings,
    throughput,
)
from scripts.train_policy.learner import Training, train
from scripts.train_policy.settings import INDEX, TIMES, VOCABULARY

NICE = 10  # it runs for minutes beside other work


def main() -> None:
    """Train, compare, write."""
    usual = Training()
    parser = argparse.ArgumentParser(prog="python -m scripts.train_policy", description=__doc__)
    parser.add_argument(
        "--output", type=Path, default=WEIGHTS, help="where the weights go; the record goes beside them"
    )
    parser.add_argument("--seed", type=int, default=usual.seed)
    parser.add_argument("--steps", type=int, default=usual.steps, help="of the optimiser")
    parser.add_argument("--discount", type=float, default=usual.discount)
    options = parser.parse_args()
    os.nice(NICE)
    torch.set_num_threads(1)
    training = Training(seed=options.seed, steps=options.steps, discount=options.discount)
    began = time.monotonic()
    trained = train(training, say)
    say(f"trained in {time.monotonic() - began:.0f} s")
    weights = {name: value.detach().contiguous() for name, value in trained.state_dict().items()}
    options.output.write_bytes(save(weights))
    network = Network.load(options.output)
    record = {
        "training": asdict(training),
        "trained_for": {
            "draft_seconds": TIMES.draft,
            "verify_seconds": TIMES.verify,
            "rtt_seconds": TIMES.rtt,
            "vocabulary": VOCABULARY,
            "index": INDEX,
            "resolutions": RESOLUTIONS,
        },
        "actions": actions(network),
        "tokens_per_second": reached(network),
    }
    options.output.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n")
    say(f"weights in {options.output}, record beside it")


def reached(network: Network) -> list[dict[str, Any]]:
    """Tokens per second on answers that were held out, against the best fixed plan of each network."""
    rows = []
    for setting in (*settings(), *recorded_settings()):
        plans = fixed(setting, HELD_OUT, TOKENS)
        best = max(plans, key=plans.__getitem__)
        policy = adaptive(network)["DDQN"]()
        row = {
            **asdict(setting),
            "ddqn": round(throughput(policy, setting, HELD_OUT, TOKENS), 2),
            "best_fixed": round(plans[best], 2),
            "best_length": best.length,
            "best_resolution": best.resolution,
        }
        say(
            " ".join(f"{name} {value}" for name, value in row.items()) + f" ratio {row['ddqn'] / row['best_fixed']:.3f}"
        )
        rows.append(row)
    return rows


def say(sentence: str) -> None:
    """Progress, on stderr."""
    print(f"[{time.strftime('%H:%M:%S')}] {sentence}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
