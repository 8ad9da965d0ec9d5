"""`dragon ask`: one question, one answer."""

from __future__ import annotations

import os
import sys
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from device.cli import options
from device.cli.failures import bad_input


@options.asking
def ask(
    question: options.Question = None,
    report: Annotated[
        bool, typer.Option("--report", help="Print the whole report, with the source of each part")
    ] = False,
    as_json: options.AsJson = False,
    files: Annotated[
        list[Path] | None,
        typer.Option("--files", metavar="<file> ...", help="Answer from these files instead of this device's library"),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Add the files to the library, too")] = False,
    url: options.Url = None,
    api_key_file: options.KeyFile = None,
    ca: options.Authority = None,
    *,
    fields: dict[str, Any],
) -> None:
    """Answer one question.

    Prints the answer on stdout, and its sources and figures on stderr.
    """
    from device.cli.answers import conversation, stream_answer, to_stderr
    from device.cli.connection import ask_daemon, find_daemon
    from device.cli.render import as_json_text, full_report, summarise_answer

    given = files or []
    if keep and not given:
        raise bad_input("--keep adds the files of --files to the library: give --files, too")
    body = {"messages": conversation([], options.read_question(question))} | fields | as_fields(given)
    output = None if as_json else sys.stdout
    printed = ask_daemon(url, api_key_file, ca, lambda daemon: stream_answer(daemon, body, output))
    if as_json:
        value = {
            "answer": printed.text,
            "finish_reason": printed.reason,
            "usage": printed.usage,
            "dragon": printed.report,
        }
        print(as_json_text(value))
    else:
        to_stderr(full_report(printed.report) if report else summarise_answer(printed.report))
    if keep:
        with find_daemon(url, api_key_file, ca) as daemon:
            for path in given:
                daemon.upload(path.name, read_file(path))


def as_fields(paths: Sequence[Path]) -> dict[str, Any]:
    """Returns a body's field with the files, empty without files. Raises `CommandFailed`."""
    if not paths:
        return {}
    names = [path.name for path in paths]
    for path, name in zip(paths, names, strict=True):
        if names.count(name) > 1:
            raise bad_input(f"two of the files are called {name}: give one of them another name")
        if not os.path.isfile(path):
            raise bad_input(f"{path} is not a file")
    return {"files": [{"name": path.name, "content": b64encode(read_file(path)).decode()} for path in paths]}


def read_file(path: Path) -> bytes:
    """Raises `CommandFailed`."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise bad_input(f"{path} can't be read: {(error.strerror or str(error)).lower()}") from None
