"""Reads documents in a separate process: a crash costs only the document.

The process limits itself and ends with its parent. It may write no file and no core dump, which would hold private
content.
"""

from __future__ import annotations

import json
import signal
import subprocess
from contextlib import suppress
from threading import Timer
from typing import Any, get_args

import psutil

from common.library.readers.content import LONGEST_REMARK, MOST_REMARKS, Content, Section, Unit, Unreadable
from common.process.machine import child_command, python_environment

UNITS = get_args(Unit)
PROCESSOR_SECONDS = 60  # for one document
SECONDS = 300.0  # for one document, on a busy machine
MEMORY = 2 * 2**30  # bytes of address space
_KEPT = 4  # 1 / 4 of the memory: a larger process is replaced after a document
_LONGEST_ANSWER = 2**28  # bytes; a character may take twelve


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

    def read(self, suffix: str, content: bytes) -> Content:
        """The content of a document of a parsed format. Raises `Unreadable`."""
        process = self._running()
        late = [False]

        def stop() -> None:
            late[0] = True
            process.kill()

        timer = Timer(self._seconds, stop)
        timer.start()
        try:
            answer = _answer(process, suffix, content)
        finally:
            timer.cancel()
            if _resident(process) > self._memory // _KEPT:
                self.close()
        if answer is None:
            self.close()
            if late[0]:
                raise Unreadable(f"reading it took longer than {self._seconds:g} s")
            if process.returncode == -signal.SIGXCPU:
                raise Unreadable(f"reading it took more than {self._processor_seconds} s of processor time")
            raise Unreadable("reading it failed: the reader crashed, or ran out of memory")
        return answer

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


def _answer(process: subprocess.Popen[bytes], suffix: str, content: bytes) -> Content | None:
    """The process's answer; None if it ends or answers nonsense. Raises `Unreadable`."""
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(json.dumps({"suffix": suffix, "size": len(content)}).encode() + b"\n")
        process.stdin.write(content)
        process.stdin.flush()
        line = process.stdout.readline(_LONGEST_ANSWER)
        return _content(json.loads(line))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _content(answer: dict[str, Any]) -> Content:
    """Checks types: a document may have taken over the process. Raises `Unreadable`."""
    if "reason" in answer:
        raise Unreadable(str(answer["reason"]))
    sections = [Section(str(text), str(place), unit) for text, place, unit in answer["sections"] if unit in UNITS]
    remarks = (str(remark)[:LONGEST_REMARK] for remark in answer["remarks"][:MOST_REMARKS])
    return Content(tuple(sections), str(answer["title"]), tuple(remarks))
