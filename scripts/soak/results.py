"""The results of a run: flat rows as they come, printed as tables, kept as JSON."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from numpy import quantile

from scripts.bench.rows import Row, where
from scripts.soak.checker import Judged
from scripts.soak.client import Outcome
from scripts.soak.plan import Ask, Fault
from scripts.soak.resources import Growth

MOST_FAILURES: Final = 40  # that are printed
COLUMNS: Final = ("answers", "tokens", "compared", "degraded", "errors", "p50 s", "p95 s")


@dataclass
class Results:
    """All that came of a run so far. Any thread may add to it."""

    seed: int
    minutes: float
    replay: str
    numbers: str = ""  # how far the daemons' numbers repeat
    requests: list[Row] = field(default_factory=list)
    faults: list[Row] = field(default_factory=list)  # with seconds of begin and end
    skipped: set[str] = field(default_factory=set)
    resources: Sequence[tuple[str, Sequence[Growth]]] = ()  # of each process
    samples: Mapping[str, Any] = field(default_factory=dict)  # that they were judged by
    interrupted: bool = False
    _said: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, ask: Ask, outcome: Outcome, judged: Judged) -> None:
        """Count one request, and print what is wrong with it."""
        law = {"law": ask.law.number, "promise": ask.law.promise.name, "question": ask.law.question}
        asked = {"fields": dict(ask.fields), "stream": ask.stream, "cancelled": ask.cancelled, "method": ask.method}
        said = asdict(outcome) | {"notes": list(outcome.report.get("notes", ()))}
        del said["report"]
        with self._lock:
            self.requests.append({"number": ask.number} | law | asked | said | asdict(judged))
        for wrong in judged.wrong:
            place = f"request {ask.number} of {self.replay}, from {outcome.started:.1f} s, {outcome.seconds:.1f} s"
            self.fail(f"{wrong}\n    {place}\n    {dict(ask.fields)}, question {ask.law.question!r}")

    def fail(self, sentence: str) -> None:
        with self._lock:
            self._said.append(sentence)
        print(f"FAILURE {sentence}", flush=True)

    def broke(self, fault: Fault, began: float, ended: float) -> None:
        with self._lock:
            self.faults.append(asdict(fault) | {"began": began, "ended": ended})

    @property
    def failures(self) -> list[str]:
        """Everything that must not be, in words."""
        growing = [f"{name}: {each}" for name, growths in self.resources for each in growths if each.grows]
        return [*self._said, *growing]

    def line(self, at: float) -> str:
        """One line of progress."""
        ends = Counter(row["end"] for row in self.requests)
        wrong = sum(bool(row["wrong"]) for row in self.requests if row["end"] != "lost")
        return (
            f"{at:5.0f} s  {ends['answered']} answers, {ends['failed']} errors, {ends['cancelled']} cancelled, "
            f"{wrong} wrong, {ends['lost']} lost, {len(self.faults)} faults"
        )


def tables(results: Results) -> str:
    """The tables that end a run, and its failures."""
    failures = results.failures
    over = max([0.0, *(row["started"] + row["seconds"] for row in results.requests)])
    verdict = f"{len(failures)} failures; the same again: {results.replay}" if failures else "nothing wrong"
    lines = [
        *_by_method(results.requests),
        *_causes(results),
        "\nprocess: a quantity at its start and end, and its rise a minute in the second half",
        *(f"{name}: {', '.join(map(str, growths))}" for name, growths in results.resources),
        f"\n{results.line(over)}; numbers {results.numbers}",
        *(f"FAILURE {each}" for each in failures[:MOST_FAILURES]),
        verdict + (" until it was interrupted" if results.interrupted else ""),
    ]
    return "\n".join(lines)


def _by_method(rows: Sequence[Row]) -> Iterator[str]:
    yield f"\n{'method':15}" + "".join(f"{name:>9}" for name in COLUMNS)
    for method in [*sorted({row["method"] for row in rows}), "all"]:
        own = [row for row in rows if method in (row["method"], "all")]
        answered = where(own, end="answered")
        sums = (sum(row[field] for row in answered) for field in ("tokens", "compared", "degraded"))
        counts = (len(answered), *sums, len(where(own, end="failed")))
        shares = quantile([row["seconds"] for row in answered] or [0.0], (0.5, 0.95))
        yield f"{method:15}" + "".join(f"{count:9}" for count in counts) + "".join(f"{each:9.1f}" for each in shares)


def _causes(results: Results) -> Iterator[str]:
    yield "\nerrors"
    failed = where(results.requests, end="failed")
    sentences = Counter(f"{row['code']}: {re.sub(r'[0-9.]+', '…', row['sentence'])}" for row in failed)
    yield from (f"{times:6}  {sentence}" for sentence, times in sentences.most_common())
    yield "\nfaults"
    kinds = Counter(row["kind"] for row in results.faults)
    yield from (f"{times:6}  {kind}" for kind, times in sorted(kinds.items()))
    yield from (f"     -  {kind}: skipped, this machine does not allow it" for kind in sorted(results.skipped))


def record(results: Results) -> dict[str, Any]:
    """The record as JSON."""
    kept = ("seed", "minutes", "interrupted", "numbers", "failures", "requests", "faults", "samples")
    growths = {name: [asdict(each) for each in growths] for name, growths in results.resources}
    return {name: getattr(results, name) for name in kept} | {"resources": growths}
