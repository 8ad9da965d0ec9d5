"""The end of a daemon that is told to stop, and how much of the time that it took the machine was at something else."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from common.process.lifetime import KILLED, LONGEST
from scripts.daemons import Daemon
from tests.daemons.streaming import PATIENCE

END = 2.0  # seconds, beside those in which the machine does something else
TELLING = 0.3  # seconds that a daemon has for the last words to its clients
SPARE = 0.5  # seconds that are left of the longest end in order, on a machine that does nothing else
LOOK = 0.005
TURN = 0.05  # seconds in which whoever looks comes to look again, unless the machine is busy or stands still

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a process by a signal."""

    code: int
    seconds: float  # from the signal on
    elsewhere: float  # of these, at most: threads could have run, and others had the processors, or nobody had them
    cpu: float
    number: int  # the signal's

    @property
    def starved(self) -> bool:
        """Whether the machine may have taken the time away that is there for last words."""
        return self.elsewhere > TELLING

    @property
    def cut_short(self) -> bool:
        """Whether it was through with its patience for an end in order, for want of a processor.

        One that hangs wants none: such an end is told from this one on a busy machine, too.
        """
        return self.code == KILLED + self.number and self.seconds >= LONGEST and self.elsewhere > SPARE

    def check(self, *codes: int) -> None:
        """That it ended in time; in order, unless `codes` are given, as far as the machine let it."""
        log.info("%s", self)
        assert self.seconds - self.elsewhere < END and self.cpu < END, self
        assert self.code in (codes or (0,)) or self.cut_short, self


def end(daemon: Daemon, number: int = signal.SIGTERM, beside: Sequence[psutil.Process] = ()) -> Ended:
    """Send a signal, and wait for the end of the process; those `beside` it, which it ends, may want for processors."""
    assert daemon.process is not None
    process = psutil.Process(daemon.process.pid)
    cpu = used = sum(process.cpu_times()[:2])
    before = {each: waited(each) for each in (process.pid, *(other.pid for other in beside))}
    lost, still = dict(before), 0.0
    began = looked = time.monotonic()
    process.send_signal(number)
    while (code := daemon.process.poll()) is None:
        assert time.monotonic() - began < PATIENCE
        with suppress(psutil.Error):
            used = sum(process.cpu_times()[:2])
        for each in lost:
            with suppress(OSError):
                lost[each] = max(lost[each], waited(each))
        time.sleep(LOOK)
        now = time.monotonic()
        still += max(0.0, now - looked - TURN)  # a virtual machine's stolen time is told nowhere else
        looked = now
    seconds = time.monotonic() - began
    return Ended(code, seconds, sum(lost.values()) - sum(before.values()) + still, used - cpu, number)


def waited(process: int) -> float:
    """Seconds that the process's threads have waited for a processor so far; where that isn't told, 0."""
    return sum(int(path.read_text().split()[1]) for path in Path("/proc").glob(f"{process}/task/*/schedstat")) / 1e9
