"""The suite `papers`: the figures and tables of the five papers whose methods are built in."""

from __future__ import annotations

from scripts.bench.measuring import Table
from scripts.bench.papers import drafted, dragon, edgellm, rapid
from scripts.bench.papers.figure import CLAIM
from scripts.bench.results import Results
from scripts.bench.rows import where

FIGURES = (*dragon.FIGURES, *drafted.FIGURES, *rapid.FIGURES, *edgellm.FIGURES)


def run(results: Results) -> None:
    """Make one figure after the other, and at last one table of what the papers say and what came out here."""
    claims = []
    for figure in FIGURES:
        results.say(figure.name)
        cases = [{"figure": figure.name} | case for case in figure.cases(results.short)]
        rows = results.measured(cases, lambda case, figure=figure: figure.ask(results, case))  # type: ignore[misc]
        found = figure.show(results, where(rows, figure=figure.name))
        claims += [[figure.name, claim.what, claim.paper, claim.here, figure.made] for claim in found]
    results.table("Papers: claim by claim", Table(["figure", *CLAIM, "made with"], claims))
