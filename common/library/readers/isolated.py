"""Reads documents in a separate process: a crash costs only the document.

The process limits itself and ends with its parent. It may write no file and no core dump, which would hold private
content.
"""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from threading import Timer
from typing import Any, get_args

import psutil

from common.library.readers.content import LONGEST_REMARK, MOST_REMARKS, Content, Section, Unit, Unreadable
from common.library.readers.scans import MOST_FAILURES, MOST_SCANS, Later, Scanned, packed, unpacked
from common.process.machine import child_command, python_environment

UNITS = get_args(Unit)
PROCESSOR_SECONDS = 60  # for one document or scan
SECONDS = 300.0  # for one document or scan, on a busy machine
MEMORY = 2 * 2**30  # bytes of address space
_KEPT = 4  # 1 / 4 of the memory: a larger process is replaced after a document
_LONGEST_ANSWER = 2**28  # bytes; a character may take twelve


class Reading:
    """One document's reading: scans known before or read now, and the page that it reached."""

    def __init__(self, scans: Mapping[int, Scanned] | None = None, later: bool = False) -> None:
        """`scans` are known by number; with `later` an unknown one raises `Later`."""
        self.scans = dict(scans or {})
        self.later = later

    def keep(self, number: int, scan: Scanned) -> None:
        """Takes in a scan's result, which a later reading may know."""
        self.scans[number] = scan

    def reached(self, page: int, pages: int, slow: bool = False) -> None:
        """Is called with the present page, a few times a second at most; `slow` if it takes seconds."""


class IsolatedReader:
    """Reads documents in a process started on demand; for one thread.

    Close it at the end.
    """

    def __init__(
        self, seconds: float = SECONDS, memory: int = MEMORY, processor_seconds: int = PROCESSOR_SECONDS
    ) -> None:
        self._seconds = seconds
        self._processor_seconds = processor_seconds
        self._memory = memory
        self._process: subprocess.Popen[bytes] | None = None

    def read(self, suffix: str, content: bytes, reading: Reading | None = None) -> Content:
        """The content of a document of a parsed format. Raises `Unreadable` and `Later`.

        If a scan ends the process, the others are still read.
        """
        reading = reading or Reading()
        for _ in range(MOST_FAILURES + 1):
            found = self._read_once(suffix, content, reading)
            if isinstance(found, Content):
                return found
            number, reason = found
            reading.keep(number, Scanned(failed=reason))
        raise Unreadable(reason)

    def _read_once(self, suffix: str, content: bytes, reading: Reading) -> Content | tuple[int, str]:
        """The content, or the number of the scan that ended the process, with a reason."""
        process = self._running()
        deadline = _Deadline(process, self._seconds)
        request = _Request(process, reading, deadline)
        answer = None
        try:
            answer = request.answer(suffix, content)
        except (Unreadable, Later):
            raise
        except BaseException:  # the process is still reading
            self.close()
            raise
        finally:
            deadline.timer.cancel()
            if _resident(process) > self._memory // _KEPT:
                self.close()
        if answer is not None:
            return answer
        self.close()
        if deadline.passed:
            reason = f"took longer than {self._seconds:g} s"
        elif process.returncode == -signal.SIGXCPU:
            reason = f"took more than {self._processor_seconds} s of processor time"
        else:
            reason = "failed: the reader crashed, or ran out of memory"
        if request.scan is not None:
            return request.scan, f"reading it {reason}"
        raise Unreadable(f"reading it {reason}")

    def close(self) -> None:
        if self._process is None:
            return
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):  # unwritten data is lost
                    pipe.close()
        self._process.wait()
        self._process = None

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self.close()
            limits = str(self._memory), str(self._processor_seconds)
            self._process = subprocess.Popen(
                child_command("common.library.readers", *limits),
                env=python_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # errors of a library may quote the document
            )
        return self._process


def _resident(process: subprocess.Popen[bytes]) -> int:
    try:
        return int(psutil.Process(process.pid).memory_info().rss)
    except psutil.Error:
        return 0


class _Deadline:
    """Kills a process after some seconds."""

    def __init__(self, process: subprocess.Popen[bytes], seconds: float) -> None:
        self._process = process
        self._seconds = seconds
        self.passed = False
        self.timer = self._started()

    def restart(self) -> None:
        self.timer.cancel()
        self.timer = self._started()

    def _started(self) -> Timer:
        timer = Timer(self._seconds, self._stop)
        timer.start()
        return timer

    def _stop(self) -> None:
        self.passed = True
        self._process.kill()


class _Request:
    """One request to the process, and its lines."""

    def __init__(self, process: subprocess.Popen[bytes], reading: Reading, deadline: _Deadline) -> None:
        self._process = process
        self._reading = reading
        self._deadline = deadline
        self._page = 1, 1  # the present one, of all
        self.scan: int | None = None  # the scan being read

    def answer(self, suffix: str, content: bytes) -> Content | None:
        """The process's answer; None if it ends or answers nonsense. Raises `Unreadable` and `Later`."""
        assert self._process.stdin is not None and self._process.stdout is not None
        scans = {number: packed(scan) for number, scan in self._reading.scans.items()}
        asked = {"suffix": suffix, "size": len(content), "scans": scans, "later": self._reading.later}
        try:
            self._process.stdin.write(json.dumps(asked).encode() + b"\n")
            self._process.stdin.write(content)
            self._process.stdin.flush()
            while True:
                said = json.loads(self._process.stdout.readline(_LONGEST_ANSWER))
                if "scan" in said:
                    self._take(int(said["scan"]), said.get("found"))
                elif "page" in said:
                    self._page = int(said["page"]), int(said["pages"])
                    self._reading.reached(*self._page)
                else:
                    return _content(said)
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def _take(self, number: int, found: object) -> None:
        """Each scan restarts the deadline twice: a process that a document has taken over can't do it for ever."""
        if not 0 <= number < MOST_SCANS or number in self._reading.scans:
            raise ValueError(number)
        self._deadline.restart()
        if found is None:
            if self.scan is not None:
                raise ValueError(number)
            self.scan = number
            self._reading.reached(*self._page, slow=True)
            return
        scan = unpacked(str(found))
        self.scan = None
        self._reading.keep(number, scan)


def _content(answer: dict[str, Any]) -> Content:
    """Checks types: a document may have taken over the process. Raises `Unreadable` and `Later`."""
    if "later" in answer:
        raise Later
    if "reason" in answer:
        raise Unreadable(str(answer["reason"]))
    sections = [Section(str(text), str(place), unit) for text, place, unit in answer["sections"] if unit in UNITS]
    remarks = (str(remark)[:LONGEST_REMARK] for remark in answer["remarks"][:MOST_REMARKS])
    return Content(tuple(sections), str(answer["title"]), tuple(remarks))
