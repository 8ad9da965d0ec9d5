"""`dragon chat`: a conversation."""

from __future__ import annotations

import contextlib
import select
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import typer

from device.cli import options
from device.cli.failures import NOT_REACHABLE, CommandFailed, ConversationTooLong
from device.cli.options import from_stdin

if TYPE_CHECKING:
    from device.cli.answers import PrintedAnswer

    Answer = Callable[[list[dict[str, str]]], PrintedAnswer]

PROMPT, MORE = "> ", "  "
PASTED = 0.05  # seconds between the lines of a pasted text
HELP = "commands: /sources (of the last answer), /new (conversation), /quit"
SHORTEN = "/shorten leaves out the oldest turns, /new all of them; both ask the question again"
LEFT_OUT = "left out: {}"
SHOWN = 60  # characters of a question


@options.asking
def chat(
    url: options.Url = None,
    api_key_file: options.KeyFile = None,
    ca: options.Authority = None,
    *,
    fields: dict[str, Any],
) -> None:
    """Have a conversation.

    Earlier questions and answers are part of the next prompt. Ctrl-C cancels an answer; /sources shows the
    sources of the last answer; /new begins another conversation; /quit ends. Lines that are pasted at
    once are one question.
    """
    from device.cli.answers import stream_answer
    from device.cli.connection import ask_daemon, ready_daemon

    with ready_daemon(url, api_key_file, ca):
        pass  # fails early without a daemon

    def answer(messages: list[dict[str, str]]) -> PrintedAnswer:
        """A restarted daemon has a new key for this user."""
        body = {"messages": messages} | fields
        return ask_daemon(url, api_key_file, ca, lambda daemon: stream_answer(daemon, body, sys.stdout))

    _converse(answer)


def _converse(answer: Answer) -> None:
    from device.cli.answers import to_stderr
    from device.cli.render import full_report, summarise_answer

    if sys.stdin.isatty():
        to_stderr(HELP)
    turns: list[tuple[str, str]] = []
    report: dict[str, Any] | None = None
    absent = False  # no daemon for the last question
    unasked: str | None = None  # a question that made the conversation too long
    while (line := _read_question()) not in (None, "/quit"):
        if not line:
            continue
        if line == "/sources":
            to_stderr(full_report(report) if report is not None else "there is no answer yet")
            continue
        ask = _shortened if line == "/shorten" else _asked
        if line == "/new":
            turns.clear()
        if line in ("/new", "/shorten") and unasked is not None:
            line = unasked
        elif line.startswith("/"):
            to_stderr("a new conversation" if line == "/new" else HELP)
            continue
        unasked = None
        try:
            printed = ask(answer, turns, line)
        except KeyboardInterrupt:
            to_stderr("cancelled; the question is not part of the conversation")
        except ConversationTooLong as failure:
            absent, unasked = False, line
            to_stderr(f"dragon: {failure.text}")
            if turns:
                to_stderr(SHORTEN)
        except CommandFailed as failure:
            absent = failure.exit_code == NOT_REACHABLE
            to_stderr(f"dragon: {failure.text}")
        else:
            absent = False
            turns.append((line, printed.text))
            report = printed.report
            to_stderr(summarise_answer(report))
    if absent:
        raise typer.Exit(NOT_REACHABLE)


def _asked(answer: Answer, turns: list[tuple[str, str]], question: str) -> PrintedAnswer:
    from device.cli.answers import conversation

    return answer(conversation(turns, question))


def _shortened(answer: Answer, turns: list[tuple[str, str]], question: str) -> PrintedAnswer:
    """Leaves out the oldest `turns` until the rest fits."""
    from device.cli.answers import to_stderr
    from device.cli.render import as_one_line

    while True:
        try:
            return _asked(answer, turns, question)
        except ConversationTooLong:
            if not turns:
                raise
            asked, _ = turns.pop(0)
            to_stderr(LEFT_OUT.format(as_one_line(asked)[:SHOWN]))


def _read_question() -> str | None:
    """The next line, None at the end. Lines pasted at once are one text."""
    if not sys.stdin.isatty():
        line = from_stdin(sys.stdin.readline)
        return line.strip() if line else None
    with contextlib.suppress(ImportError):
        import readline  # gives input() its line editing

        # Such terminals mark pasted text; others send lines.
        readline.parse_and_bind("set enable-bracketed-paste on")
    lines: list[str] = []
    try:
        lines.append(from_stdin(lambda: input(PROMPT)))
        while _is_waiting():
            lines.append(from_stdin(lambda: input(MORE)))
    except EOFError:
        if not lines:
            return None
    return "\n".join(lines).replace("\r", "\n").strip()


def _is_waiting() -> bool:
    """Whether there is input already: pasted, or typed ahead."""
    return bool(select.select([sys.stdin], [], [], PASTED)[0])
