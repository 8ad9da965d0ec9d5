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

# Suite: its purpose, and the module whose `run(results)`, or the function named behind a colon, does it.
SUITES = {
    "latency": ("latency of every method against the link's (Fig. 6 and 7)", "scripts.bench.latency.suite"),
    "latency-long": (
        "the same with answers of 200 tokens, models of 1 to 3 nats",
        "scripts.bench.latency.suite:run_long",
    ),
    "quality": ("perplexity by documents per side (Fig. 5)", "scripts.bench.quality.suite"),
    "exact-match": (
        "right answers by documents per side, embedded model",
        "scripts.bench.quality.suite:run_exact_match",
    ),
    "real-acceptance": ("drafts of the default model on real text", "scripts.bench.real.suite:run_acceptance"),
    "real-answers": ("its answers from real text, by methods and weights", "scripts.bench.real.suite:run_answers"),
    "real-perplexity": (
        "its perplexity by documents per side, and by how they are read (Fig. 5)",
        "scripts.bench.real.suite:run_perplexity",
    ),
    "real-latency": (
        "its answers on real text over an emulated link, with real decode times",
        "scripts.bench.real.suite:run_latency",
    ),
    "questions": ("right answers and honest ones by how documents are read", "scripts.bench.questions.suite"),
    "citations": ("footnotes of answers, judged, and answers that no document gave", "scripts.bench.citations"),
    "retrieval": ("chunks embedded per second, documents found by kind of search", "scripts.bench.retrieval.suite"),
    "large-library": ("ten million chunks added, indexed, searched, published", "scripts.bench.retrieval.large"),
    "engine": ("what the engine costs per token beside the models", "scripts.bench.engine.suite"),
    "sessions": ("tokens per second of many devices on one cloud", "scripts.bench.sessions.suite"),
    "fairness": ("devices that ask now and then, beside one that asks for all that it may", "scripts.bench.fairness"),
    "gateway": ("a message by way of the gateway against none; memory of idle sessions", "scripts.bench.gateway"),
    "cluster": ("where many devices' answers go among many workers, simulated", "scripts.bench.cluster"),
    "workers": ("a cloud of several processes against one: latency, tokens per second", "scripts.bench.workers"),
    "edgellm": ("answers of a target that is larger than its memory, by its drafts", "scripts.bench.edgellm.suite"),
    "scoring": ("what document weights do to answers and what they cost", "scripts.bench.scoring.suite"),
    "acceptance": ("how often drafts are the target, by sampler", "scripts.bench.acceptance"),
    "codecs": ("bytes per draft by codec, and the tokens that a codec changes", "scripts.bench.codecs"),
    "rapid": ("long contexts drafted from a part of them: times, right answers, laws", "scripts.bench.rapid.suite"),
    "rapid-long": ("the same with longer answers and more needles", "scripts.bench.rapid.suite:run_long"),
    "timeline": ("both sides' pipelines (Fig. 9) and what the time per token went into", "scripts.bench.timeline"),
    "theory": ("the speed-up of Theorem 6.2, and the simulator's (Fig. 4)", "scripts.bench.theory"),
    "scheduling-link": (
        "placements on an emulated link, two real daemons (Fig. 8)",
        "scripts.bench.latency.placements",
    ),
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
        "the same of eager coupled drafting, by step, pair of models and distance",
        "scripts.bench.methods.suite:run_eager",
    ),
    "methods-work": ("what drafting and verifying costs per token beside the models", "scripts.bench.methods.work"),
    "repeats": ("answers that placement, method, faults or neighbours change", "scripts.bench.repeats"),
    "qsv": ("right answers, entropy and speed of quantise-sample-verify (Figs. 3 and 4)", "scripts.bench.qsv.suite"),
    "dssd-tables": ("the tables of DSSD, by its equations", "scripts.bench.dssd_tables"),
    "draft-policies": (
        "tokens per second by who decides the length of drafts, simulated",
        "scripts.bench.draft_policies",
    ),
    "branching": ("whole answers by the branches of a step and their cost, simulated", "scripts.bench.branching"),
    "scheduling": ("placements under added latency, simulated (Fig. 8)", "scripts.bench.scheduling"),
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
