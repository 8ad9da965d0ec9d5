"""The suite `growth`: one table for each thing that can grow."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from scripts.bench.growth import library, tokens
from scripts.bench.measuring import Spread, Table
from scripts.bench.results import Results

MEBIBYTE = 2**20


def run(results: Results) -> None:
    """Documents per side, context, answer length, library and vocabulary."""
    short = results.short
    _documents(results, (1, 2) if short else (1, 2, 4, 8, 16))
    _context(results, (32, 64) if short else (256, 512, 1024, 2048, 4096))
    _answer(results, (8, 16) if short else (16, 64, 256, 1024))
    _vocabulary(results, (512, 2048) if short else (2048, 8192, 32_768, 50_272, 151_936))
    _library(results, (40,) if short else (1_000, 10_000, 100_000))


def _documents(results: Results, counts: tuple[int, ...]) -> None:
    results.say("documents per side")
    steps = tokens.step_by_documents(counts)
    work = {count: tokens.Engine(documents=count).laps() for count in counts}
    results.samples("work by documents", work)
    rows = [[count, steps[count].text(2), Spread.of(work[count]).text()] for count in counts]
    heads = ["documents per side", "decode step, ms", "work beside the model, µs per token"]
    results.table("Documents per side", Table(heads, rows))


def _context(results: Results, contexts: tuple[int, ...]) -> None:
    results.say("context")
    steps = tokens.step_by_context(contexts)
    results.samples("step by context", {context: asdict(step) for context, step in steps.items()})
    rows = [[context, step.text(2)] for context, step in steps.items()]
    results.table("Context", Table(["tokens of context in each of 4 rows", "decode step, ms"], rows))


def _answer(results: Results, lengths: tuple[int, ...]) -> None:
    """The last quarter of every length, so that growth along the answer would show."""
    results.say("answer length")
    laps = tokens.Engine(tokens=max(lengths)).laps()
    results.samples("work by position", laps)
    rows = [[length, Spread.of(laps[3 * length // 4 : length]).text()] for length in lengths]
    results.table("Answer length", Table(["tokens", "work beside the model in the last quarter, µs per token"], rows))


def _vocabulary(results: Results, sizes: tuple[int, ...]) -> None:
    results.say("vocabulary")
    rows = []
    for size in sizes:
        work = {t: tokens.Engine(vocabulary=size, tokens=24, temperature=t).laps() for t in (0.0, 1.0)}
        results.samples(f"work at a vocabulary of {size}", work)
        rows.append([size, *(Spread.of(laps).text() for laps in work.values())])
    heads = ["vocabulary", "work beside the model at T = 0, µs per token", "at T = 1"]
    results.table("Vocabulary", Table(heads, rows))


def _library(results: Results, sizes: tuple[int, ...]) -> None:
    rows = []
    for size in sizes:
        results.say(f"library of {size} chunks")
        filled, searched = library.measure(size)
        results.samples(f"library of {size}", asdict(filled) | asdict(searched))
        low, high = np.percentile(1e3 * np.asarray(searched.query), (50, 95))
        rows.append(
            [
                filled.chunks,
                f"{filled.chunks / filled.ingestion:.0f}",
                f"{filled.chunks / filled.processor:.0f}",
                f"{filled.folder / MEBIBYTE:.1f}",
                f"{searched.start:.2f}",
                f"{low:.1f}",
                f"{high:.1f}",
                f"{searched.resident / MEBIBYTE:.0f}",
            ]
        )
    heads = [
        "chunks",
        "ingestion, chunks/s",
        "per second of one core",
        "on disk, MiB",
        "start, s",
        "query p50, ms",
        "p95, ms",
        "more memory, MiB",
    ]
    results.table("Library", Table(heads, rows))
