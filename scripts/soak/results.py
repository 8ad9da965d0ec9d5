"""The results of a run: counted as they come, printed as tables, kept as JSON."""

from __future__ import annotations

import statistics
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from scripts.soak.checker import Growth, Judged, errors_by_sentence
from scripts.soak.client import Outcome
from scripts.soak.plan import Ask, Fault

MOST_FAILURES: Final = 40  # that are printed
Entry = tuple[Ask, Outcome, Judged]


@dataclass
class Results:
    """All that came of a run so far. Any thread may add to it."""

    seed: int
    minutes: float
    replay: str
    numbers: str = ""  # how far the daemons' numbers repeat
    entries: list[Entry] = field(default_factory=list)
    faults: list[tuple[Fault, float, float]] = field(default_factory=list)  # with seconds of begin and end
    skipped: set[str] = field(default_factory=set)
    resources: Sequence[tuple[str, Sequence[Growth]]] = ()
    interrupted: bool = False
    _said: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, ask: Ask, outcome: Outcome, judged: Judged) -> None:
        """Count one request, and print what is wrong with it."""
        with self._lock:
            self.entries.append((ask, outcome, judged))
        for wrong in judged.wrong:
            place = f"request {ask.number} of {self.replay}, from {outcome.started:.1f} s, {outcome.seconds:.1f} s"
            self.fail(f"{wrong}\n    {place}\n    {dict(ask.fields)}, question {ask.law.question!r}")

    def fail(self, sentence: str) -> None:
        with self._lock:
            self._said.append(sentence)
        print(f"FAILURE {sentence}", flush=True)

    def broke(self, fault: Fault, began: float, ended: float) -> None:
        with self._lock:
            self.faults.append((fault, began, ended))

    @property
    def failures(self) -> list[str]:
        """Everything that must not be, in words."""
        growing = [
            f"{name} grows in {each.name}: {each.start:.0f} to {each.end:.0f}, {each.per_minute:.2f} a minute"
            for name, growths in self.resources
            for each in growths
            if each.grows
        ]
        return [*self._said, *growing]

    def line(self, at: float) -> str:
        """One line of progress."""
        ends = Counter(outcome.end for _, outcome, _ in self.entries)
        wrong = sum(bool(judged.wrong) for _, outcome, judged in self.entries if outcome.end != "lost")
        return (
            f"{at:5.0f} s  {ends['answered']} answers, {ends['failed']} errors, {ends['cancelled']} cancelled, "
            f"{wrong} wrong, {ends['lost']} lost, {len(self.faults)} faults"
        )


def tables(results: Results) -> str:
    """The tables that end a run."""
    lines = [
        "",
        f"{'method':15}{'answers':>8}{'tokens':>8}{'compared':>9}{'degraded':>9}{'errors':>7}{'p50 s':>7}{'p95 s':>7}",
    ]
    methods = sorted({ask.method for ask, _, _ in results.entries})
    for method in [*methods, "all"]:
        entries = [each for each in results.entries if method in (each[0].method, "all")]
        answered = [each for each in entries if each[1].end == "answered"]
        seconds = [outcome.seconds for _, outcome, _ in answered]
        tokens, compared, degraded = (
            sum(outcome.tokens for _, outcome, _ in answered),
            sum(judged.compared for _, _, judged in answered),
            sum(judged.degraded for _, _, judged in answered),
        )
        errors = sum(outcome.end == "failed" for _, outcome, _ in entries)
        lines.append(
            f"{method:15}{len(answered):8}{tokens:8}{compared:9}{degraded:9}{errors:7}"
            f"{_share(seconds, 0.5):>7}{_share(seconds, 0.95):>7}"
        )
    lines += ["", "errors"]
    sentences = errors_by_sentence([outcome for _, outcome, _ in results.entries])
    lines += [f"{times:6}  {sentence}" for sentence, times in sorted(sentences.items(), key=lambda each: -each[1])]
    lines += ["", "faults"]
    kinds = Counter(fault.kind for fault, _, _ in results.faults)
    lines += [f"{times:6}  {kind}" for kind, times in sorted(kinds.items())]
    lines += [f"     -  {kind}: skipped, this machine does not allow it" for kind in sorted(results.skipped)]
    lines += ["", f"{'process':16}{'quantity':>12}{'start':>9}{'end':>9}{'a minute':>10}"]
    for name, growths in results.resources:
        for each in growths:
            slope = "-" if each.per_minute is None else f"{each.per_minute:+.2f}"
            lines.append(
                f"{name:16}{each.name:>12}{each.start:9.0f}{each.end:9.0f}{slope:>10}{'  GROWS' if each.grows else ''}"
            )
    failures = results.failures
    over = max([0.0, *(outcome.started + outcome.seconds for _, outcome, _ in results.entries)])
    lines += ["", f"{results.line(over)}; numbers {results.numbers}"]
    lines += [f"FAILURE {each}" for each in failures[:MOST_FAILURES]]
    verdict = f"{len(failures)} failures; the same again: {results.replay}" if failures else "nothing wrong"
    return "\n".join([*lines, verdict + (" until it was interrupted" if results.interrupted else "")])


def record(results: Results) -> dict[str, Any]:
    """The record as JSON."""
    return {
        "seed": results.seed,
        "minutes": results.minutes,
        "interrupted": results.interrupted,
        "numbers": results.numbers,
        "failures": results.failures,
        "requests": [
            {
                "number": ask.number,
                "law": ask.law.number,
                "promise": ask.law.promise.name,
                "question": ask.law.question,
                "fields": dict(ask.fields),
                "stream": ask.stream,
                "cancelled": ask.cancelled,
                "judged": asdict(judged),
                "outcome": {name: value for name, value in asdict(outcome).items() if name != "report"},
                "notes": list(outcome.report.get("notes", ())),
                "degraded": list(outcome.report.get("degraded", ())),
            }
            for ask, outcome, judged in results.entries
        ],
        "faults": [asdict(fault) | {"began": began, "ended": ended} for fault, began, ended in results.faults],
        "resources": {name: [asdict(each) for each in growths] for name, growths in results.resources},
    }


def _share(values: Sequence[float], share: float) -> str:
    """A quantile of the values, as text."""
    if len(values) < 2:
        return f"{values[0]:.1f}" if values else "-"
    return f"{statistics.quantiles(values, n=100, method='inclusive')[round(100 * share) - 1]:.1f}"
