"""The suite `quality`: DRAGON Fig. 5 on real text, and exact match on the demonstration's world."""

from __future__ import annotations

import math

import numpy as np

from scripts.bench.measuring import Table
from scripts.bench.quality import perplexity
from scripts.bench.quality.corpus import Corpus, NoText
from scripts.bench.quality.exact_match import COUNTS, SHORT_COUNTS, exact_match
from scripts.bench.quality.text_model import RECIPE, Recipe, train
from scripts.bench.results import Results

MODEL = "text-model"  # kept in the results' folder: training takes most of an hour
SHORT_RECIPE = Recipe(vocabulary=300, steps=4, batch=2, window=32, document=16, library=40)


def run(results: Results) -> None:
    """Perplexity where there is text to measure on, and exact match."""
    try:
        _perplexity(results, Corpus.load())
    except NoText as error:
        results.say(f"no perplexity: {error}")
    _exact_match(results)


def _perplexity(results: Results, corpus: Corpus) -> None:
    folder = results.folder / MODEL
    recipe = SHORT_RECIPE if results.short else Recipe()
    if not (folder / RECIPE).exists():
        results.say(f"training a model of the known half for up to {recipe.minutes:g} minutes")
        train(corpus, recipe, folder, results.say)
    counts = perplexity.SHORT_COUNTS if results.short else perplexity.COUNTS
    most = perplexity.SHORT_WINDOWS if results.short else perplexity.WINDOWS
    results.say(f"{len(corpus.known)} known and {len(corpus.unseen)} unseen texts")
    found = perplexity.Text(folder, corpus, recipe, counts, most).measure()
    values = {method: {k: math.exp(np.mean(nll)) for k, nll in by.items()} for method, by in found.items()}
    rows = [[method, *(f"{values[method][count]:.1f}" for count in counts)] for method in perplexity.METHODS]
    results.samples("negative log-likelihood per token, by window", found)
    results.table(
        "Perplexity by documents per side",
        Table(["method", *map(str, counts)], rows),
        f"{most} windows of {recipe.window} tokens of texts that the model never saw.",
    )
    with results.figure("perplexity") as (axis,):
        for method, by in values.items():
            axis.plot(range(len(counts)), [by[count] for count in counts], marker="o", label=method)
        axis.set_xticks(range(len(counts)), [str(count) for count in counts])
        axis.set(xlabel="documents per side", ylabel="perplexity")
        axis.legend()


def _exact_match(results: Results) -> None:
    counts = SHORT_COUNTS if results.short else COUNTS
    shares = exact_match(counts, libraries=1 if results.short else 3, questions=2 if results.short else 20)
    results.samples("exact match", shares)
    kinds = list(next(iter(next(iter(shares.values())).values())))
    rows = [
        [method, kind, *(f"{by[count][kind]:.2f}" for count in counts)]
        for method, by in shares.items()
        for kind in kinds
    ]
    results.table("Exact match by documents per side", Table(["method", "question", *map(str, counts)], rows))
    with results.figure("exact-match", columns=len(kinds)) as axes:
        for axis, kind in zip(axes, kinds, strict=True):
            for method, by in shares.items():
                axis.plot(range(len(counts)), [by[count][kind] for count in counts], marker="o", label=method)
            axis.set_xticks(range(len(counts)), [str(count) for count in counts])
            axis.set(xlabel="documents per side", title=kind, ylim=(-0.03, 1.03))
        axes[0].set_ylabel("exact match")
        axes[0].legend(fontsize="small")
