"""`dragon trace`: one question, and where the time went."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from device.cli import options
from device.cli.failures import CommandFailed, answer_failed, bad_input

if TYPE_CHECKING:
    from common.tracing.trace import Trace


@options.asking
def trace(
    question: options.Question = None,
    output: Annotated[Path | None, typer.Option("--output", help="Write the trace for Perfetto or Chrome")] = None,
    png: Annotated[Path | None, typer.Option("--png", help="Draw both pipelines, RTT, score and acceptance")] = None,
    text: Annotated[bool, typer.Option("--text", help="One line for each token")] = False,
    url: options.Url = None,
    api_key_file: options.KeyFile = None,
    ca: options.Authority = None,
    *,
    fields: dict[str, Any],
) -> None:
    """Answer one question, and show where the time went.

    The answer goes to stderr as it comes, the figures to stdout.
    """
    from common.tracing.trace import from_json
    from device.cli.answers import conversation, stream_answer
    from device.cli.connection import asked
    from device.cli.render import strip_controls
    from device.cli.timeline import summary, table

    messages = conversation([], options.read_question(question))
    if png is not None:
        _require_matplotlib()
    for path in filter(None, (output, png)):
        _require_folder(path)
    body = {"messages": messages} | fields | {"trace": True}
    printed = asked(url, api_key_file, ca, lambda daemon: stream_answer(daemon, body, sys.stderr))
    if printed.report.get("trace") is None:
        raise answer_failed("the daemon sent no trace")
    try:
        found = from_json(printed.report["trace"])
    except ValueError as error:
        raise answer_failed(str(error)) from None
    print(strip_controls("\n\n".join([*([table(found)] if text else []), summary(found)])))
    _save(found, output, png)


def _save(trace: Trace, output: Path | None, png: Path | None) -> None:
    from common.process.files import named_by_user
    from common.tracing.figure import save_timeline
    from common.tracing.trace import chrome_trace

    try:
        if output is not None:
            with named_by_user(output):
                output.write_text(json.dumps(chrome_trace(trace)) + "\n", "utf-8")
        if png is not None:
            with named_by_user(png):
                save_timeline(png, trace, "One answer: both pipelines, round trip, scheduling score and acceptance")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise bad_input(f"{error.filename or output or png} can't be written: {reason}") from None


def _require_folder(path: Path) -> None:
    """Before the question is asked, too."""
    if os.path.isdir(path):
        raise bad_input(f"{path} can't be written: it is a folder")
    if not os.access(path.absolute().parent, os.W_OK):
        raise bad_input(f"{path} can't be written: there is no folder {path.parent} that this user may write to")


def _require_matplotlib() -> None:
    """Before the question is asked: the answer may take long."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise _no_matplotlib() from None


def _no_matplotlib() -> CommandFailed:
    return bad_input("--png needs matplotlib, which is not installed; install it with pip install matplotlib")
