"""`dragon chat`: a conversation."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

from device.cli import options
from device.cli.failures import NOT_REACHABLE, CommandFailed

if TYPE_CHECKING:
    from device.cli.daemon import Daemon

PROMPT = "> "
HELP = "commands: /sources (of the last answer), /quit"


@options.asking
def chat(
    url: options.Url = None,
    api_key: options.ApiKey = None,
    *,
    fields: dict[str, Any],
) -> None:
    """Hold a conversation.

    Earlier questions and answers are part of the next prompt. Ctrl-C cancels an answer; /sources shows
    where the last one came from; /quit ends.
    """
    from device.cli.connection import find_daemon

    with find_daemon(url, api_key) as daemon:
        daemon.status()
        _converse(daemon, fields)


def _converse(daemon: Daemon, fields: dict[str, Any]) -> None:
    from device.cli.answers import conversation, stream_answer, to_stderr
    from device.cli.render import full_report, summary

    turns: list[tuple[str, str]] = []
    report: dict[str, Any] | None = None
    while (line := _read_line()) not in (None, "/quit"):
        if not line:
            continue
        if line == "/sources":
            to_stderr(full_report(report) if report is not None else "there is no answer yet")
            continue
        if line.startswith("/"):
            to_stderr(HELP)
            continue
        try:
            printed = stream_answer(daemon, {"messages": conversation(turns, line)} | fields, sys.stdout)
        except KeyboardInterrupt:
            to_stderr("cancelled; the question is not part of the conversation")
        except CommandFailed as failure:
            if failure.exit_code == NOT_REACHABLE:
                raise
            to_stderr(f"dragon: {failure.text}")
        else:
            turns.append((line, printed.text))
            report = printed.report
            to_stderr(summary(report))


def _read_line() -> str | None:
    """The next line, or None at the end of the input."""
    if not sys.stdin.isatty():
        line = sys.stdin.readline()
        return line.strip() if line else None
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  (gives input() its line editing)
    try:
        return input(PROMPT).strip()
    except EOFError:
        return None
