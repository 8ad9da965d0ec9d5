"""`make bench`: measures, prints tables, keeps raw samples and draws the figures, on this machine.

Each suite leaves `build/bench/<suite>.json` with machine, versions, seeds and raw samples, and its pictures beside it.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers.utils import logging

from scripts.bench.publish import publish
from scripts.bench.results import NoText, Results
from scripts.daemons import ROOT

FOLDER = ROOT / "build" / "bench"

# Suite: its purpose, and the module whose `run(results)`, or the function named after a colon, does it.
SUITES = {
    "latency": ("latency of every method against the link's (Fig. 6 and 7)", "scripts.bench.latency"),
    "latency-long": ("the same with answers of 200 tokens, models of 1 to 3 nats", "scripts.bench.latency:run_long"),
    "questions": ("right answers and honest ones by how documents are read", "scripts.bench.questions.suite"),
    "citations": ("footnotes of answers, judged, and answers that no document gave", "scripts.bench.citations"),
    "retrieval": ("chunks embedded per second, documents found by kind of search", "scripts.bench.retrieval"),
    "engine": ("what the engine costs per token beside the models", "scripts.bench.engine.suite"),
    "sessions": ("tokens per second of many devices on one cloud", "scripts.bench.sessions.suite"),
    "workers": ("a cloud of several processes against one: latency, tokens per second", "scripts.bench.workers"),
    "methods": ("drafting and verifying over an emulated link, two real daemons", "scripts.bench.methods.suite"),
    "methods-grid": (
        "the same at every rate with every delay, and by pair of models",
        "scripts.bench.methods.suite:run_grid",
    ),
    "methods-whole": (
        "whole answers, drafted and streamed, over the same link",
        "scripts.bench.methods.suite:run_whole",
    ),
    "methods-eager": (
        "eager coupled drafting, by step, pair of models and distance",
        "scripts.bench.methods.suite:run_eager",
    ),
    "weights": ("perplexity, memory and seconds by type of weights, beside llama.cpp", "scripts.bench.weights"),
    "peers": ("the model alone beside llama.cpp: step, prompt, start, memory", "scripts.bench.peers"),
    "conversations": ("seconds to the first token of later turns, beside llama.cpp", "scripts.bench.conversations"),
    "papers": ("every figure and table of the papers, small, beside their numbers", "scripts.bench.papers.suite"),
    "privacy": (
        "attacks on what the cloud sees, beside an attacker with the text alone",
        "scripts.bench.privacy.suite",
    ),
    "repeats": ("answers that placement, method, faults or neighbours change", "scripts.bench.repeats"),
}


def main(arguments: Sequence[str] | None = None) -> None:
    lines = [f"  {name:14}{what}" for name, (what, _) in SUITES.items()]
    parser = argparse.ArgumentParser(
        prog="python -m scripts.bench",
        description=__doc__,
        epilog="suites:\n" + "\n".join(lines),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("suites", nargs="*", metavar="SUITE", help="what to measure (default: everything)")
    parser.add_argument("--short", action="store_true", help="small sizes: shows that it works, measures little")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where results go (default: build/bench)")
    parser.add_argument("--publish", action="store_true", help="write tables and pictures into README and docs")
    options = parser.parse_args(arguments)
    if options.publish and options.short:
        parser.error("what a short run measures is not to be published")
    unknown = set(options.suites) - set(SUITES)
    if unknown:
        parser.error(f"there is no suite {', '.join(sorted(unknown))}; there are {', '.join(SUITES)}")
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    for name in options.suites or SUITES:
        results = Results(name, options.folder, options.short)
        module, _, function = SUITES[name][1].partition(":")
        try:
            getattr(importlib.import_module(module), function or "run")(results)
        except NoText as error:
            results.say(f"nothing was measured: {error}")
            continue
        print(f"\n{name}: raw samples in {results.write()}", flush=True)
        if options.publish:
            for path in publish(results.record, options.folder, ROOT, results.say):
                print(f"{name}: published in {path.relative_to(ROOT)}", flush=True)


if __name__ == "__main__":
    main()
