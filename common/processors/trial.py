"""Tries a JSON schema's grammar in a process that may be killed: compiling has no limit of its own.

A schema comes from a client, and thirty patterns that must hold together take hours.
"""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from common.python_process import python_environment

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

SECONDS = 2  # of processor time
MEMORY = 2**30  # bytes of address space
PATIENCE = 60.0  # seconds, on a machine with other work
# Spaces as models and `json.dumps` write them: free ones are where small models get lost.
SPACING: JsonCompileOptions = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


def why_not(schema: str) -> str | None:
    """What is wrong with `schema`, as half a sentence; None for one that can be compiled at little cost."""
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-B", "-m", "common.processors.trial"],
            input=schema.encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # may quote the schema
            env=python_environment(),
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "it took too long to find out what it means"
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return f"it takes more than {SECONDS} s to find out what it means"
    if done.returncode:
        return f"it takes more than {MEMORY >> 20} MiB to find out what it means"
    reason: str | None = json.loads(done.stdout)
    return reason


def main() -> None:
    """Write what is wrong with the schema on stdin to stdout, in JSON."""
    limits = ((resource.RLIMIT_CPU, SECONDS), (resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_CORE, 0))
    for limit, most in limits:
        resource.setrlimit(limit, (most, most))
    from llguidance import LLMatcher

    try:
        grammar = LLMatcher.grammar_from_json_schema(sys.stdin.read(), overrides=SPACING)
        reason = LLMatcher.validate_grammar(grammar)
    except ValueError as error:
        reason = str(error)
    print(json.dumps(sentence(reason) or None))


def sentence(reason: str) -> str:
    """What a library complains of, on one line and not longer than people read."""
    return " ".join(reason.split())[:200].rstrip(".")


if __name__ == "__main__":
    main()
