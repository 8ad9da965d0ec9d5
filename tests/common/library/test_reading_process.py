"""The process that reads watched folders, from the daemon's side: what is told to it is read, or tried again."""

from __future__ import annotations

import sys
from queue import SimpleQueue

import numpy as np
import pytest
from numpy.typing import NDArray

from common.library.reading_process import ReadingProcess
from common.process.machine import child_command

PATIENCE = 30.0  # seconds
NOTES = "/notes"
# Ends within a line that is longer than a pipe has room for, as where the system has no memory left.
TORN = "input(), input(), print('{\"embed\": [\"' + 100_000 * 'a', end='', flush=True)"


def ended(reading: ReadingProcess) -> int | None:
    """The exit code of the process, of whose end note was taken."""
    assert reading._listener is not None and reading._process is not None
    reading._listener.join(PATIENCE)
    assert not reading._listener.is_alive()
    return reading._process.returncode


def run(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this command be the process."""
    monkeypatch.setattr("common.library.reading_process.child_command", lambda module: command)


@pytest.mark.parametrize("code", [0, 3], ids=["goes on", "ends"])
def test_what_changes_in_a_folder_that_is_being_read_is_read_next(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the daemon's model, too; and it is tried again where that reading does not come to its end."""
    run(child_command("tests.common.library.reading_aloud", str(code)), monkeypatch)
    lent = SimpleQueue[list[str]]()

    def embed(texts: list[str]) -> NDArray[np.float32]:
        lent.put(texts)
        return np.zeros((len(texts), 2), np.float32)

    reading = ReadingProcess({}, embed)
    reading.read({NOTES: {"/notes/long.pdf"}})
    assert lent.get(timeout=PATIENCE) == ["reading 1"]
    reading.read({NOTES: {"/notes/new.md"}})
    exit_code = ended(reading)
    failed = reading.failed()
    assert "/notes/new.md" in failed[NOTES] if code else failed == {}
    assert (exit_code, lent.get(timeout=PATIENCE), reading.running) == (code, ["reading 2"], False)
    reading.close()


def test_a_process_that_ends_within_a_line_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    run([sys.executable, "-c", TORN], monkeypatch)
    reading = ReadingProcess({}, lambda texts: np.zeros((len(texts), 2), np.float32))
    for path in ("/notes/a.md", "/notes/b.md"):
        reading.read({NOTES: {path}})
        assert ended(reading) == 0
        assert (reading.failed(), reading.running) == ({NOTES: {path}}, False)
    reading.close()
