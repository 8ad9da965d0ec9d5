"""A process that steps the embedded model and does nothing else: what a daemon's decode step is compared with.

One per daemon, so that the two share the machine's cores and memory as the daemons do. Each line on standard input
starts a round; its step times come back as one line of JSON, in milliseconds.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from types import TracebackType

from proto.messages import Side
from scripts.bench.engine.pair import SIDES
from scripts.bench.workload import Demonstration
from scripts.daemons import ROOT

STEPS = 16  # of each question


class BareSteps:
    """Both processes; a context manager. `rounds` of both sides run at the same time."""

    def __init__(self, questions: int) -> None:
        self._processes: dict[Side, subprocess.Popen[str]] = {}
        for side in SIDES:
            command = [sys.executable, "-m", "scripts.bench.engine.bare_step", side, str(questions)]
            self._processes[side] = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        for side in SIDES:
            self._read(side)

    def __enter__(self) -> BareSteps:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes.values():
            process.kill()
            process.communicate()

    def round(self, question: int) -> dict[Side, list[float]]:
        """Step times in milliseconds of both sides on one question, taken at the same time."""
        for process in self._processes.values():
            if process.stdin is not None:
                process.stdin.write(f"{question}\n")
                process.stdin.flush()
        return {side: self._read(side) for side in SIDES}

    def _read(self, side: Side) -> list[float]:
        process = self._processes[side]
        line = process.stdout.readline() if process.stdout is not None else ""
        if not line:
            raise RuntimeError(f"the bare model of the {side} stopped")
        times: list[float] = json.loads(line)
        return times


def main() -> None:
    """Serve rounds until standard input ends."""
    side: Side = "device" if sys.argv[1] == "device" else "cloud"
    demonstration = Demonstration(int(sys.argv[2]))
    print("[]", flush=True)
    for line in sys.stdin:
        reading = demonstration.sources(demonstration.questions[int(line)], STEPS)[side].logits
        path: list[int] = []
        times = []
        for step in range(STEPS):
            started = time.perf_counter()
            token = int(reading.logits(path)[0].argmax())
            if step:  # the first logits come from the prefill
                times.append(1e3 * (time.perf_counter() - started))
            path.append(token)
        print(json.dumps(times), flush=True)


if __name__ == "__main__":
    main()
