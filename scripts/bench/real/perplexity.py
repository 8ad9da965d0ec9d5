"""Perplexity of the default model on text that people wrote: as many windows at a time as the machine has cores."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from scripts.bench.parallel import in_processes
from scripts.bench.quality.corpus import Corpus
from scripts.bench.quality.perplexity import Sizes, Text, by_method
from scripts.bench.quality.suite import report
from scripts.bench.real.articles import articles
from scripts.bench.results import Results

Found = dict[tuple[str, int], float]  # by method and documents per side


def perplexity(results: Results, sizes: Sizes, place: str, folder: Path) -> None:
    """Table and picture for the model at `place` and the texts of `folder`: articles, or proposals."""
    name = "PEPs" if folder.name == "peps" else "WikiText-2"
    found = by_method(_windows(results, sizes, place, folder))
    report(results, f"Perplexity of {name} by documents per side", name.lower(), found, sizes)


def _windows(results: Results, sizes: Sizes, place: str, folder: Path) -> Iterator[Found]:
    for number, found in enumerate(in_processes(partial(_window, place, folder, sizes), range(sizes.windows)), 1):
        results.say(f"{folder.name}: {number} of {sizes.windows} windows")
        if found is not None:
            yield found


def _window(place: str, folder: Path, sizes: Sizes, number: int) -> Found | None:
    """None where there are fewer windows."""
    text = _text(place, folder, sizes)
    return text.window(number) if number < len(text.windows) else None


@cache
def _text(place: str, folder: Path, sizes: Sizes) -> Text:
    """That of this process. In float32: many processors emulate bfloat16, at several times its time."""
    torch.set_num_threads(1)
    corpus = Corpus.load(folder) if folder.name == "peps" else Corpus.of(articles(folder))
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(place, dtype=torch.float32)
    return Text(model, PreTrainedTokenizerFast.from_pretrained(place), corpus, sizes)
