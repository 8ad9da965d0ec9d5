"""The suites `quality` and `exact-match`: DRAGON Fig. 5 on real text, and on the demonstration's world."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from transformers import PreTrainedModel, PreTrainedTokenizerFast, Qwen2ForCausalLM

from common.figures import line_style
from scripts.bench.measuring import Table, mean_interval
from scripts.bench.quality import perplexity
from scripts.bench.quality.corpus import Corpus
from scripts.bench.quality.exact_match import COUNTS, SHORT_COUNTS, Shares, exact_match
from scripts.bench.quality.text_model import Recipe, is_trained, train
from scripts.bench.results import Results

MODEL = "text-model"  # kept in the results' folder: training takes an hour or more
SHORT_RECIPE = Recipe(vocabulary=300, steps=4, batch=2, window=32, document=16, library=40)


def run(results: Results) -> None:
    """Perplexity of what there is to read. Most of it is training, an hour or more. Raises `NoText`."""
    corpus = Corpus.load()
    folder = results.folder / MODEL
    recipe = SHORT_RECIPE if results.short else Recipe()
    if not is_trained(corpus, recipe, folder):
        results.say(f"training a model of the known half: {recipe.steps} steps")
        train(corpus, recipe, folder, results.say)
    counts = perplexity.SHORT_COUNTS if results.short else perplexity.COUNTS
    most = perplexity.SHORT_WINDOWS if results.short else perplexity.WINDOWS
    sizes = perplexity.Sizes(recipe.document, recipe.window, recipe.library, most, counts)
    model: PreTrainedModel = Qwen2ForCausalLM.from_pretrained(folder)
    text = perplexity.Text(model, PreTrainedTokenizerFast.from_pretrained(folder), corpus, sizes)
    results.say(f"{len(corpus.known)} known and {len(corpus.unseen)} unseen texts")
    report(results, "Perplexity by documents per side", "perplexity", text.measure(), sizes)


def report(
    results: Results, title: str, figure: str, found: dict[str, dict[int, list[float]]], sizes: perplexity.Sizes
) -> None:
    """Table, samples and picture of the likelihoods that `Text.measure` found."""
    values = {method: {k: math.exp(np.mean(nll)) for k, nll in by.items()} for method, by in found.items()}
    results.samples(f"{title}: negative log-likelihood per token, by window", found)
    count = len(found[perplexity.NONE][0])
    note = f"{count} windows of {sizes.window} tokens, documents of {sizes.document}; the texts are not in the library."
    columns = {str(count): count for count in perplexity.COUNTS}
    rows = {(method,): values[method] for method in perplexity.METHODS}
    table = Table.crossed(
        ["documents per side"], rows, columns, lambda by, count: f"{by[count]:.1f}" if count in by else None
    )
    results.table(title, table, note)
    with_documents = {head: count for head, count in columns.items() if count}
    differences = _differences(found, with_documents)
    results.table(f"Differences in per cent: {title}", differences, "Mean [95 %] over the windows, of perplexity.")
    with results.figure(figure, rows=len(perplexity.PANELS), title=title) as axes:
        for axis, (panel, methods) in zip(axes, perplexity.PANELS.items(), strict=True):
            for number, method in enumerate(methods):
                shown = [values[method][count] for count in sizes.counts]
                axis.plot(range(len(sizes.counts)), shown, label=method, **line_style(number))
            axis.set_xticks(range(len(sizes.counts)), [str(count) for count in sizes.counts])
            axis.set(ylabel="perplexity per token", title=panel)
        axes[-1].set_xlabel("documents per side")


def _differences(found: Mapping[str, Mapping[int, list[float]]], columns: Mapping[str, int]) -> Table:
    """Of perplexity, per cent of the other's: the mean is of its logarithm, window by window."""

    def cell(pair: tuple[str, str], count: int) -> str | None:
        if count not in found[pair[0]]:
            return None
        one, other = (np.asarray(found[method][count]) for method in pair)
        return mean_interval(one - other, signed=True, shown=_per_cent)

    return Table.crossed(["", "against"], {pair: pair for pair in perplexity.COMPARED}, columns, cell)


def _per_cent(nats: float) -> float:
    return 100 * math.expm1(nats)


def run_exact_match(results: Results) -> None:
    """Answers of the embedded model, in minutes."""
    counts = SHORT_COUNTS if results.short else COUNTS
    shares = exact_match(counts, libraries=1 if results.short else 3, questions=2 if results.short else 20)
    results.samples("exact match", shares)
    kinds = list(next(iter(next(iter(shares.values())).values())))
    results.table("Exact match by documents per side", show(shares), f"Questions for {' / '.join(kinds)}.")
    title = "Answers that are right to the letter, by what the question needs"
    with results.figure("shares", columns=len(kinds), title=title) as axes:
        for axis, kind in zip(axes, kinds, strict=True):
            for number, (method, by) in enumerate(shares.items()):
                shown = [by[count][kind] for count in counts]
                axis.plot(range(len(counts)), shown, label=method, **line_style(number))
            axis.set_xticks(range(len(counts)), [str(count) for count in counts])
            axis.set(xlabel="documents per side", title=kind, ylim=(0, 1.03))
        axes[0].set_ylabel("share of answers")


def show(shares: Shares) -> Table:
    """A row for each method, with the shares of all kinds of questions in each cell."""
    rows = {(method,): by for method, by in shares.items()}
    columns = {str(count): count for count in COUNTS}
    return Table.crossed(["documents per side"], rows, columns, lambda by, count: _shares(by.get(count)))


def _shares(by_kind: Mapping[str, float] | None) -> str | None:
    return None if by_kind is None else " / ".join(f"{share:.2f}" for share in by_kind.values())
