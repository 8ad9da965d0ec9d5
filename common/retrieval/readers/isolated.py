"""Reads documents in a process of its own: one that hangs, crashes or eats memory costs its document and nothing else.

The process gets contents over a pipe and gives text back. It may write no file, and leaves no core dump: both would
hold what is private.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from threading import Timer
from typing import Any, get_args

from common.python_process import python_environment
from common.retrieval.readers.content import Content, Section, Unit, Unreadable

UNITS = get_args(Unit)
SECONDS = 60.0  # for one document
MEMORY = 2 * 2**30  # bytes of address space
MOST_TEXT = 20_000_000  # characters


class IsolatedReader:
    """To be closed in the end; the process is started when the first document is read. For one thread at a time."""

    def __init__(self, seconds: float = SECONDS, memory: int = MEMORY) -> None:
        self._seconds = seconds
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
            answer = _asked(process, suffix, content)
        finally:
            timer.cancel()
        if answer is None:
            self.close()
            if late[0]:
                raise Unreadable(f"reading it took longer than {self._seconds:g} s")
            raise Unreadable("reading it failed: the reader crashed, or ran out of memory")
        if "reason" in answer:
            raise Unreadable(str(answer["reason"]))
        return _content(answer)

    def close(self) -> None:
        """End the process."""
        if self._process is None:
            return
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):  # what was not written yet goes nowhere
                    pipe.close()
        self._process.wait()
        self._process = None

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self.close()
            command = [sys.executable, "-P", "-B", "-m", "common.retrieval.readers", str(self._memory)]
            self._process = subprocess.Popen(
                command,
                env=python_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # what a library complains of may be of the document
            )
        return self._process


def _asked(process: subprocess.Popen[bytes], suffix: str, content: bytes) -> dict[str, Any] | None:
    """What the process answers; None when it ends instead."""
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(json.dumps({"suffix": suffix, "size": len(content)}).encode() + b"\n")
        process.stdin.write(content)
        process.stdin.flush()
        line = process.stdout.readline()
    except OSError:
        return None
    found: dict[str, Any] | None = json.loads(line) if line.endswith(b"\n") else None
    return found


def _content(answer: dict[str, Any]) -> Content:
    """The answer's content, by its types: a document may have taken the reader over."""
    sections = [Section(str(text), str(place), unit) for text, place, unit in answer["sections"] if unit in UNITS]
    return Content(tuple(sections), str(answer["title"]))
