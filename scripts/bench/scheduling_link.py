"""The suite `scheduling-link`: placements on a real link, two daemons in the network lab (DRAGON Fig. 8)."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from common.configuration import EMBEDDED_MODEL, EMBEDDED_TOKENIZER
from scripts.bench.latency.measure import TokensDiffer, settle
from scripts.bench.measuring import Spread, Table
from scripts.bench.results import Results
from scripts.bench.workload import Texts
from scripts.daemons import Pair
from scripts.netlab.lab import NetLab
from scripts.netlab.setting import LinkSetting
from scripts.netlab.trace import sinusoid

STRATEGIES = ("device", "cloud", "random", "greedy", "mirrored")
LONGEST = 7200.0  # seconds of one latency
WEIGHTS = 0.06  # standard deviation of the random ones: distributions of several nats, on which the sides disagree


@dataclass(frozen=True, slots=True)
class Plan:
    """Milliseconds. The same seeds under every strategy: the race's tokens, and so its acceptance, are the same."""

    floors: tuple[float, float] = (50.0, 50.0)  # of device and cloud
    rtts: tuple[float, ...] = (0.0, 150.0, 300.0)
    seeds: int = 6
    tokens: int = 100
    temperature: float = 1.0


SHORT = Plan((5.0, 5.0), (20.0,), seeds=1, tokens=12)


def run(results: Results) -> None:
    """Ask every strategy in turn with every seed, check that the tokens are the same, and draw the times."""
    plan = SHORT if results.short else Plan()
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="dragon-bench-") as folder, NetLab(LinkSetting()) as lab:
        data = Path(folder)
        texts = Texts.draw(3)
        texts.fill_libraries(data)
        model = {"model": make_model(data / "model"), "tokenizer": str(EMBEDDED_TOKENIZER)}
        device = model | {"privacy": "balanced", "patience": 60.0, "emulate_decode_ms": plan.floors[0]}
        with Pair(data, device, model | {"emulate_decode_ms": plan.floors[1]}, lab=lab) as pair:
            for rtt in plan.rtts:
                lab.replay(sinusoid(LinkSetting(rtt=rtt / 1e3), LONGEST))
                settle(pair, lab)
                for seed in range(plan.seeds):
                    found += _ask_all(pair, texts.questions[0], plan, rtt, seed)
                lab.stop_replay()
                results.say(f"{rtt:g} ms added: done by {lab.kind}")
    results.samples("answers", found)
    _show(results, plan, found)


def make_model(folder: Path) -> str:
    """The embedded model's shape with random weights: for timing, and so that the sides disagree."""
    torch.manual_seed(0)
    config = Qwen2Config.from_pretrained(EMBEDDED_MODEL)
    config.initializer_range = WEIGHTS
    Qwen2ForCausalLM(config).save_pretrained(folder)
    return str(folder)


def _ask_all(pair: Pair, question: str, plan: Plan, rtt: float, seed: int) -> list[dict[str, Any]]:
    answers = []
    for placement in STRATEGIES:
        fields = {"placement": placement, "temperature": plan.temperature, "seed": seed, "max_tokens": plan.tokens}
        report = pair.complete(question, **fields)["dragon"]
        known = ("tokens", "per_token", "seconds", "ttft", "switches", "accepted", "pieces")
        answers.append({"rtt": rtt, "seed": seed, "strategy": placement} | {name: report[name] for name in known})
        if answers[-1]["pieces"] != answers[0]["pieces"]:
            raise TokensDiffer(f"seed {seed} at {rtt:g} ms: {placement} gave other tokens than {STRATEGIES[0]}")
    return answers


def _show(results: Results, plan: Plan, found: list[dict[str, Any]]) -> None:
    rows = []
    lines: dict[str, list[float]] = {name: [] for name in STRATEGIES}
    for rtt in plan.rtts:
        here = [one for one in found if one["rtt"] == rtt]
        fixed = {one["seed"]: 1e3 * one["per_token"] for one in here if one["strategy"] == "device"}
        for name in STRATEGIES:
            those = [one for one in here if one["strategy"] == name]
            spread = Spread.of([1e3 * one["per_token"] for one in those])
            ratios = Spread.of([1e3 * one["per_token"] / fixed[one["seed"]] for one in those])
            switches = median(one["switches"] for one in those)
            rows.append([f"{rtt:g}", name, spread.text(0), ratios.text(2), f"{switches:g}"])
            lines[name].append(spread.median)
    heads = ["added RTT, ms", "strategy", "ms per token", "/ device, same seed", "switches"]
    note = (
        f"Floors of {plan.floors[0]:g}/{plan.floors[1]:g} ms, {plan.seeds} answers of up to {plan.tokens} tokens each."
    )
    results.table("Placements on a real link, race sampler, random weights", Table(heads, rows), note)
    with results.figure("placements") as (axis,):
        for name, values in lines.items():
            axis.plot(plan.rtts, values, marker="o", label=name)
        axis.set(xlabel="added round trip, ms", ylabel="ms per token")
        axis.set_ylim(bottom=0)
        axis.legend()
