"""`dragon ask`: one question, one answer."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from device.cli import options


@options.asking
def ask(
    question: options.Question = None,
    report: Annotated[bool, typer.Option("--report", help="Print the whole report, with who said what")] = False,
    as_json: options.AsJson = False,
    url: options.Url = None,
    api_key: options.ApiKey = None,
    *,
    fields: dict[str, Any],
) -> None:
    """Answer one question.

    The answer goes to stdout as it comes; where it comes from, and figures, go to stderr.
    """
    from device.cli.answers import conversation, stream_answer, to_stderr
    from device.cli.connection import find_daemon
    from device.cli.render import as_json_text, full_report, summary

    asked = options.read_question(question)
    body = {"messages": conversation([], asked)} | fields
    with find_daemon(url, api_key) as daemon:
        printed = stream_answer(daemon, body, None if as_json else sys.stdout)
    if as_json:
        value = {
            "answer": printed.text,
            "finish_reason": printed.reason,
            "usage": printed.usage,
            "dragon": printed.report,
        }
        print(as_json_text(value))
    else:
        to_stderr(full_report(printed.report) if report else summary(printed.report))
