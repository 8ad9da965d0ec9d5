"""Tries a grammar in a killable process: compiling has no limit of its own.

Thirty combined patterns in a client's schema take hours.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import IO, TYPE_CHECKING

from common.process.child import allow_seconds, limit
from common.process.machine import child_command, python_environment

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

SECONDS = 2  # of processor time
MEMORY = 2**30  # bytes of address space
PATIENCE = 60.0  # seconds, on a machine with other work
POLL = 0.02  # seconds between two checks of `wanted`
# Spaces as models and `json.dumps` write them: small models get lost in free ones.
SPACING: JsonCompileOptions = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


class Unwanted(Exception):
    """The result is no longer needed."""


def always() -> bool:
    """The default for `wanted`."""
    return True


class TrialFailed(ValueError):
    """The trial did not end, for lack of memory or on a busy machine.

    Another trial may succeed. The text is half a sentence.
    """


def json_grammar(schema: str) -> str:
    """The unchecked grammar of a JSON schema. Raises `ValueError`, half a sentence."""
    from llguidance import LLMatcher

    try:
        return LLMatcher.grammar_from_json_schema(schema, overrides=SPACING)
    except ValueError as error:
        raise ValueError(shorten_complaint(str(error))) from None


def why_not(grammar: str, wanted: Callable[[], bool] = always) -> str | None:
    """Finds a fault of `grammar`, half a sentence; None if it compiles cheaply.

    Raises `TrialFailed` without a result, and `Unwanted`, which ends the trial, once `wanted` returns False.
    """
    with subprocess.Popen(
        child_command("common.processors.trial"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # may quote the grammar
        env=python_environment(),
    ) as process:
        try:
            _hand_over(grammar, process)
            told = _told(process, wanted)
        except BaseException:
            process.kill()
            raise
    if process.returncode == -signal.SIGXCPU:
        return f"compiling it takes more than {SECONDS} s"
    if process.returncode:  # SIGKILL: the system is out of memory
        raise TrialFailed(f"compiling it takes more than {MEMORY >> 20} MiB, or all free memory")
    reason: str | None = json.loads(told)
    return reason


def _hand_over(grammar: str, process: subprocess.Popen[bytes]) -> None:
    """Writes the grammar from a thread: a long one exceeds the pipe's buffer.

    `communicate` does not continue writing after a time-out. The grammar may be private, so it is in no file.
    """
    given, process.stdin = process.stdin, None
    threading.Thread(target=_write, args=(grammar.encode(), given), name="grammar", daemon=True).start()


def _write(given: bytes, file: IO[bytes]) -> None:
    with suppress(BrokenPipeError), file:  # closing writes, too
        file.write(given)


def _told(process: subprocess.Popen[bytes], wanted: Callable[[], bool]) -> bytes:
    deadline = time.monotonic() + PATIENCE
    while True:
        with suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=POLL)[0]
        if not wanted():
            raise Unwanted
        if time.monotonic() > deadline:
            raise TrialFailed("compiling it took too long")


def main() -> None:
    """Reads a grammar from stdin and writes its fault to stdout as JSON."""
    limit(MEMORY)
    allow_seconds(SECONDS)
    from llguidance import LLMatcher

    try:
        reason = LLMatcher.validate_grammar(sys.stdin.read())
    except ValueError as error:
        reason = str(error)
    print(json.dumps(shorten_complaint(reason) or None))


def shorten_complaint(reason: str) -> str:
    """A library's complaint on one line, at most 200 characters."""
    return " ".join(reason.split())[:200].rstrip(".")


if __name__ == "__main__":
    main()
