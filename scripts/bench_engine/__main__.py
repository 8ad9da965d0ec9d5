"""`make bench-engine`: what the engine costs beside the models, on this machine, with one core per side.

Prints tables, and writes the raw samples with machine, versions and seeds to `build/bench/engine.json`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging

from scripts.bench_engine import decode_step, loopback, per_token, wire
from scripts.bench_engine.demonstration import Demonstration
from scripts.bench_engine.measuring import load, machine, table
from scripts.daemons import ROOT

RESULT = ROOT / "build" / "bench" / "engine.json"
SLOWED = loopback.Plan(questions=8, rounds=1, emulate=40.0)
PARTS = ("work", "wire", "step", "daemons")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m scripts.bench_engine", description=__doc__)
    parser.add_argument("--only", choices=PARTS, action="append", help="a part to measure (default: all)")
    parser.add_argument("--short", action="store_true", help="small sizes: shows that it works, measures little")
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    result, aims = run(options.only or PARTS, options.short)
    print("\n" + table(["aim", "at most", "measured (10-90 %)"], aims))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(result) + "\n")
    print(f"\nraw samples: {options.output}")


def run(parts: Sequence[str], short: bool) -> tuple[dict[str, Any], list[list[str]]]:
    """Measure and print `parts`; the raw result, and the lines of the closing table."""
    result: dict[str, Any] = {"machine": machine()}
    aims: list[list[str]] = []
    print(f"{result['machine']['processor']}, {result['machine']['cores']} cores, load {load()}")
    if "work" in parts:
        plan = per_token.Plan(vocabularies=(512,), tokens=8, rounds=1) if short else per_token.Plan()
        laps = per_token.measure(plan)
        _print("Work per token on one side beside the model: 4 documents, K = 32", per_token.show(laps))
        result["work"] = {"plan": asdict(plan), "microseconds": per_token.record(laps), "load": load()}
        for vocabulary in plan.vocabularies:
            case, spread = per_token.worst(laps, vocabulary)
            aim = per_token.AIMS.get(vocabulary, 0.0) / 1e3
            aims.append([f"work beside the model, {case.name}", f"{aim:g} ms", f"{_milliseconds(spread)} ms"])
    if "wire" in parts:
        sizes = wire.Plan((300, 5000), tokens=4, questions=2, answer_tokens=6) if short else wire.Plan()
        traffic = wire.measure(sizes, Demonstration(sizes.questions))
        _print("Bytes per token, placement `device`, K = 32", wire.show(traffic))
        result["wire"] = {"plan": asdict(sizes), "bytes": wire.record(traffic)}
        down, up = wire.worst(traffic)
        aims.append(["cloud to device, any vocabulary", f"{wire.DRAFT_AIM:g} bytes per token", f"{down:.0f}"])
        aims.append(["device to cloud, any vocabulary", f"{wire.TARGET_AIM:g} bytes per token", f"{up:.0f}"])
    if "step" in parts:
        stepping = decode_step.Plan(((24, 20),), steps=4, rounds=1) if short else decode_step.Plan()
        steps = decode_step.measure(stepping)
        _print("Decode step, embedded model, against Transformers' own cache", decode_step.show(steps))
        result["step"] = {"plan": asdict(stepping), "milliseconds": decode_step.record(steps), "load": load()}
        aims.append(["decode step / plain forward pass", f"{decode_step.AIM:g}", decode_step.worst(steps).text(2)])
    if "daemons" in parts:
        asking = loopback.Plan(questions=2, rounds=1) if short else loopback.Plan()
        answers = loopback.measure(asking)
        _print(f"Two daemons on loopback, one thread each; load {load()}", loopback.show(answers))
        result["daemons"] = {"plan": asdict(asking), "answers": loopback.record(answers)}
        for name, spread in loopback.ratios(answers).items():
            aims.append([f"latency per token / slower side's step ({name})", f"{loopback.AIM:g}", spread.text(2)])
        if not short:
            slowed = loopback.measure(SLOWED)
            _print(f"The same with steps of {SLOWED.emulate:g} ms on both sides; load {load()}", loopback.show(slowed))
            result["daemons, slowed"] = {"plan": asdict(SLOWED), "answers": loopback.record(slowed)}
    return result, aims


def _milliseconds(spread: Any) -> str:
    return f"{spread.median / 1e3:.2f} ({spread.low / 1e3:.2f}-{spread.high / 1e3:.2f})"


def _print(title: str, text: str) -> None:
    print(f"\n{title}\n\n{text}", flush=True)


if __name__ == "__main__":
    main()
