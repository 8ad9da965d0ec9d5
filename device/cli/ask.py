"""`dragon ask`: one question, one answer."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from device.cli import options
from device.cli.failures import bad_input


@options.asking
def ask(
    question: options.Question = None,
    report: Annotated[bool, typer.Option("--report", help="Print the whole report, with who said what")] = False,
    as_json: options.AsJson = False,
    files: Annotated[
        list[Path] | None,
        typer.Option("--files", metavar="<file> ...", help="Answer from these files, no others of this device"),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Add the files to the library, too")] = False,
    url: options.Url = None,
    api_key_file: options.KeyFile = None,
    ca: options.Authority = None,
    *,
    fields: dict[str, Any],
) -> None:
    """Answer one question.

    The answer goes to stdout as it comes; where it comes from, and figures, go to stderr.
    """
    from device.cli.answers import conversation, stream_answer, to_stderr
    from device.cli.connection import asked, find_daemon
    from device.cli.files import as_fields, content_of
    from device.cli.render import as_json_text, full_report, summary

    given = files or []
    if keep and not given:
        raise bad_input("--keep adds the --files to the library: there are none")
    body = {"messages": conversation([], options.read_question(question))} | fields | as_fields(given)
    output = None if as_json else sys.stdout
    printed = asked(url, api_key_file, ca, lambda daemon: stream_answer(daemon, body, output))
    if keep:
        with find_daemon(url, api_key_file, ca) as daemon:
            for path in given:
                daemon.upload(path.name, content_of(path))
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
