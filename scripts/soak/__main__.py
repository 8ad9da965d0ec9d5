"""`make soak MINUTES=5 [SEED=n] [WORKERS=n]`: asks real daemons at random, breaks them at random, checks every answer.

What is asked and broken is a function of the seed (`plan.py`), and what must come of it a function of what is asked
(`promises.py`, `checker.py`). Exit code 1 if an answer was wrong or lost, something grew, or a log tells of an error.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from scripts.daemons import ROOT, Pair
from scripts.soak.checker import Judged, Library, Reference, as_reference, bad_lines, judge
from scripts.soak.client import Outcome, asked
from scripts.soak.plan import Ask, Fault, Law, Plan, reference_of
from scripts.soak.resources import EVERY, Lives, place_for_temporary
from scripts.soak.results import Results, record, tables
from scripts.soak.world import World, prepare, private_marks, questions, settled, titles, undisturbed

PROGRESS: Final = 10.0  # seconds between two lines
SETTLING: Final = 120.0  # seconds after the last fault in which both daemons must be as before
CALM: Final = 5.0  # seconds of a good link after which no position may be degraded
LAST_ASKS: Final = 12
END_TOKEN: Final = 1  # of the embedded model


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.soak", description="Ask, break, and check what comes.")
    parser.add_argument("--minutes", type=float, default=5.0, help="of faults; more before and after (5)")
    parser.add_argument("--seed", type=int, default=None, help="of a run to be repeated; left out: a new one")
    parser.add_argument("--workers", type=int, default=0, help="processes of the cloud behind its gateway (0: one)")
    options = parser.parse_args(arguments)
    if not options.minutes > 0:
        parser.error("--minutes must be above 0")
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    plan = Plan(seed, 60 * options.minutes, questions(), END_TOKEN)
    workers = f" WORKERS={options.workers}" if options.workers else ""
    replay = f"make soak MINUTES={options.minutes:g} SEED={seed}{workers}"
    print(f"seed {seed}; the same again: {replay}", flush=True)
    folder = ROOT / "build" / "soak" / str(seed)
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.default_int_handler)
    results = Results(seed, options.minutes, replay)
    soak = Soak(plan, folder, results, options.workers)
    try:
        soak.run()
    except KeyboardInterrupt:
        results.interrupted = True
    print(tables(results))
    path = folder.with_suffix(".json")
    path.write_text(json.dumps(record(results), indent=1))
    print(f"{path.relative_to(ROOT)}; logs in {folder.relative_to(ROOT)}")
    return 1 if results.failures else 0


@dataclass
class Soak:
    """One run: its references, its clients and its faults."""

    plan: Plan
    folder: Path
    results: Results
    workers: int = 0  # of the cloud
    stop: threading.Event = field(default_factory=threading.Event)
    titles: Mapping[str, Library] = field(default_factory=titles)
    references: dict[tuple[int, Library], Reference] = field(default_factory=dict)
    _next: threading.Lock = field(default_factory=threading.Lock)
    _began: float = field(default_factory=time.monotonic)

    def run(self) -> None:
        """Prepare, ask and break, and look at what is left. Raises `KeyboardInterrupt`, with no process left."""
        prepare(self.folder)
        temporary = place_for_temporary(self.folder)
        self._make_references()
        with World(self.folder, self.plan.seed, self.workers) as world:
            self._began = time.monotonic()
            lives = Lives({"device": world.device, "cloud": world.cloud}, temporary, self._clock)
            asks, seen = self.plan.asks(), list[threading.Thread]()
            try:
                seen = [self._start(self._client, number, world, asks) for number in range(4)]
                lanes = [self._start(self._break, world, lane) for lane in self.plan.faults()]
                self._watch(lives, [*lanes, *seen])
                self._afterwards(world)
            finally:
                self.stop.set()
                self.results.resources, self.results.samples = lives.judged(), lives.samples
        self._read_logs()

    def _clock(self) -> float:
        return time.monotonic() - self._began

    def _start(self, run: object, *arguments: object) -> threading.Thread:
        def guarded() -> None:
            try:
                run(*arguments)  # type: ignore[operator]
            except Exception as error:
                if not self.stop.is_set():
                    self.results.fail(f"the run itself: {type(error).__name__}: {error}")

        thread = threading.Thread(target=guarded, daemon=True)
        thread.start()
        return thread

    # --- before

    def _make_references(self) -> None:
        """Ask for every law once in an undisturbed pair of daemons, with the one cloud and with the other one."""
        laws, began = self.plan.laws, time.monotonic()
        with undisturbed(self.folder) as pair:
            self.results.numbers = str(pair.status()["exactness"])
            for law in laws:
                self._refer(pair, law, "first")
                if law.promise.alone:
                    self._refer(pair, law, "alone", "device")
        with undisturbed(self.folder, other=True) as pair:
            for law in laws:
                if law.promise.cloud:
                    self._refer(pair, law, "other")
        took = time.monotonic() - began
        print(f"{len(self.references)} reference answers of {len(laws)} laws in {took:.0f} s", flush=True)

    def _refer(self, pair: Pair, law: Law, library: Library, sources: str | None = None) -> None:
        answer = pair.complete(law.question, **reference_of(law, sources))
        self.references[law.number, library] = as_reference(answer)

    # --- meanwhile

    def _client(self, number: int, world: World, asks: Iterator[Ask]) -> None:
        """Ask one request after the other, while there are to be so many clients."""
        while self._clock() < self.plan.seconds and not self.stop.is_set():
            if number >= self.plan.clients(self._clock()):
                self.stop.wait(0.5)
                continue
            with self._next:
                ask = next(asks)
            self._ask(world, ask)

    def _ask(self, world: World, ask: Ask) -> tuple[Outcome, Judged]:
        outcome = asked(world.pair.url, ask, self._clock, lambda: world.lives)
        judged = judge(ask, outcome, self.references, self.titles)
        if not self.stop.is_set():
            self.results.add(ask, outcome, judged)
        return outcome, judged

    def _break(self, world: World, lane: Sequence[Fault]) -> None:
        for fault in lane:
            if not world.can(fault.kind):
                self.results.skipped.add(fault.kind)
                continue
            if self.stop.wait(max(0.0, fault.at - self._clock())):
                return
            end = world.harm(fault)
            began = self._clock()
            try:
                self.stop.wait(fault.seconds)
            finally:
                end()
            self.results.broke(fault, began, self._clock())

    def _watch(self, lives: Lives, threads: Sequence[threading.Thread]) -> None:
        """Print how it goes and look at the processes, until the clients and the faults are over."""
        told = self._clock()
        while any(thread.is_alive() for thread in threads):
            lives.look()
            if self._clock() - told >= PROGRESS:
                told = self._clock()
                print(self.results.line(told), flush=True)
            time.sleep(EVERY)

    # --- afterwards

    def _afterwards(self, world: World) -> None:
        """Both daemons are as before: connected, idle, and nothing that they answer is degraded."""
        if missing := settled(world, SETTLING):
            self.results.fail(f"not settled within {SETTLING:.0f} s of the last fault: {missing}")
            return
        time.sleep(CALM)
        calm = Plan(self.plan.seed + 1, self.plan.seconds, self.plan.questions, self.plan.end).asks()
        laws = {law.number: law for law in self.plan.laws}
        for _ in range(LAST_ASKS):
            drawn = next(calm)
            law = laws[drawn.law.number]
            ask = Ask(drawn.number, law, reference_of(law), drawn.stream, None)
            outcome, judged = self._ask(world, ask)
            if outcome.end != "answered" or judged.degraded:
                self.results.fail(
                    f"after the faults, {ask.method} is {outcome.end}, degraded {judged.degraded}: {outcome.sentence}"
                )
        if missing := settled(world, SETTLING):
            self.results.fail(f"after the last answer: {missing}")

    def _read_logs(self) -> None:
        marks = private_marks()
        for path in sorted(self.folder.glob("*.log")):
            for line in bad_lines(path.read_text("utf-8", errors="replace"), marks):
                self.results.fail(f"{path.name}: {line}")


if __name__ == "__main__":
    sys.exit(main())
