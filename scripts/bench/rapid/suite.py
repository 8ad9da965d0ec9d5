"""The suite `rapid`: what a drafter of a short context saves a verifier of a long one, and what the shift does.

Times by context are those of a model with random weights, whose acceptance means nothing for others. Right answers and
distances between laws are of SmolLM2-135M-Instruct, which reads 8,192 tokens, on made-up stories. Drafter and verifier
are the same model (self-speculation), in one thread: where times are taken, nothing runs beside anything.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from scripts.bench.rapid.needles import needles
from scripts.bench.rapid.sizes import DEFAULT, LONG, SHORT, Sizes
from scripts.bench.rapid.timing import by_context
from scripts.bench.results import Results


def run(results: Results) -> None:
    """About two minutes."""
    _measure(results, SHORT if results.short else DEFAULT)


def run_long(results: Results) -> None:
    """Longer answers and sixty needles, to the end of what SmolLM2 reads: an hour."""
    _measure(results, SHORT if results.short else LONG)


def _measure(results: Results, sizes: Sizes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        by_context(results, sizes, Path(folder))
        needles(results, sizes, Path(folder))
