"""The results of a run: counted as they come, printed as tables, kept as JSON."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from numpy import quantile

from scripts.soak.checker import Growth, Judged
from scripts.soak.client import Outcome
from scripts.soak.plan import Ask, Fault

MOST_FAILURES: Final = 40  # that are printed
COLUMNS: Final = ("answers", "tokens", "compared", "degraded", "errors", "p50 s", "p95 s")
Entry = tuple[Ask, Outcome, Judged]
Resources = Sequence[tuple[str, Sequence[Growth]]]  # of each process


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
    resources: Resources = ()
    samples: Mapping[str, Any] = field(default_factory=dict)  # that they were judged by
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
        growing = [f"{name}: {each}" for name, growths in self.resources for each in growths if each.grows]
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
    """The tables that end a run, and its failures."""
    failures = results.failures
    over = max([0.0, *(outcome.started + outcome.seconds for _, outcome, _ in results.entries)])
    verdict = f"{len(failures)} failures; the same again: {results.replay}" if failures else "nothing wrong"
    lines = [
        *_by_method(results.entries),
        *_causes(results),
        *_processes(results.resources),
        f"\n{results.line(over)}; numbers {results.numbers}",
        *(f"FAILURE {each}" for each in failures[:MOST_FAILURES]),
        verdict + (" until it was interrupted" if results.interrupted else ""),
    ]
    return "\n".join(lines)


def _by_method(entries: Sequence[Entry]) -> Iterator[str]:
    yield f"\n{'method':15}" + "".join(f"{name:>9}" for name in COLUMNS)
    for method in [*sorted({ask.method for ask, _, _ in entries}), "all"]:
        own = [(outcome, judged) for ask, outcome, judged in entries if method in (ask.method, "all")]
        answered = [each for each in own if each[0].end == "answered"]
        counts = (
            len(answered),
            sum(outcome.tokens for outcome, _ in answered),
            sum(judged.compared for _, judged in answered),
            sum(judged.degraded for _, judged in answered),
            sum(outcome.end == "failed" for outcome, _ in own),
        )
        seconds = [outcome.seconds for outcome, _ in answered] or [0.0]
        shares = (f"{quantile(seconds, each):9.1f}" for each in (0.5, 0.95))
        yield f"{method:15}" + "".join(f"{count:9}" for count in counts) + "".join(shares)


def _causes(results: Results) -> Iterator[str]:
    yield "\nerrors"
    failed = [outcome for _, outcome, _ in results.entries if outcome.end == "failed"]
    sentences = Counter(f"{each.code}: {re.sub(r'[0-9.]+', '…', each.sentence)}" for each in failed)
    yield from (f"{times:6}  {sentence}" for sentence, times in sentences.most_common())
    yield "\nfaults"
    yield from (
        f"{times:6}  {kind}" for kind, times in sorted(Counter(each.kind for each, _, _ in results.faults).items())
    )
    yield from (f"     -  {kind}: skipped, this machine does not allow it" for kind in sorted(results.skipped))


def _processes(resources: Resources) -> Iterator[str]:
    yield "\nprocess: a quantity at its start and end, and its rise a minute in the second half"
    yield from (f"{name}: {', '.join(map(str, growths))}" for name, growths in resources)


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
        "samples": results.samples,
    }
