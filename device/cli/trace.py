"""`dragon trace`: one question, and where the time went."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Annotated, Any

import typer

from device.cli import options
from device.cli.failures import CommandFailed, bad_input, unfinished_answer

if TYPE_CHECKING:
    from common.tracing.analysis import Step
    from common.tracing.trace import Trace


@options.asking
def trace(
    question: options.Question = None,
    output: Annotated[Path | None, typer.Option("--output", help="Write the trace for Perfetto or Chrome")] = None,
    png: Annotated[Path | None, typer.Option("--png", help="Draw both pipelines, RTT, score and acceptance")] = None,
    text: Annotated[bool, typer.Option("--text", help="Print a line for each token")] = False,
    url: options.Url = None,
    api_key_file: options.KeyFile = None,
    ca: options.Authority = None,
    *,
    fields: dict[str, Any],
) -> None:
    """Answer one question, and show where the time went.

    Prints the answer on stderr and the figures on stdout.
    """
    from common.tracing.trace import from_json
    from device.cli.answers import conversation, stream_answer
    from device.cli.connection import ask_daemon
    from device.cli.render import strip_controls

    messages = conversation([], options.read_question(question))
    if png is not None:
        _require_matplotlib()
    for path in filter(None, (output, png)):
        _require_folder(path)
    body = {"messages": messages} | fields | {"trace": True}
    printed = ask_daemon(url, api_key_file, ca, lambda daemon: stream_answer(daemon, body, sys.stderr))
    if printed.report.get("trace") is None:
        raise unfinished_answer("the daemon sent no trace")
    try:
        found = from_json(printed.report["trace"])
    except ValueError as error:
        raise unfinished_answer(str(error)) from None
    print(strip_controls("\n\n".join([*([_table(found)] if text else []), _summary(found)])))
    _save(found, output, png)


def _summary(trace: Trace) -> str:
    """Causes of the time, the clocks' offset, missing spans."""
    from common.tracing.analysis import milliseconds_per_token, steps

    found = steps(trace)
    lines = list(trace.notes)
    if found:
        lines.append(f"first token after {found[0].end / 1e6:.1f} ms: {_parts(found[0])}")
    later = [step for step in found if step.position > 0]
    if later:
        total = mean((step.end - step.start) / 1e6 for step in later)
        lines.append(f"each of the other {len(later)} after {total:.1f} ms on average:")
        for cause, milliseconds in milliseconds_per_token(found).items():
            if milliseconds > 0:
                lines.append(f"  {cause:28}{milliseconds:8.2f} ms {milliseconds / total:6.0%}")
        cloud = sum(step.waited_for == "cloud" for step in later)
        lines.append(f"the cloud was waited for {cloud} times, the device {len(later) - cloud} times")
    if trace.ahead is not None and trace.uncertainty is not None:
        lines.append(
            f"the cloud's clock is {trace.ahead / 1e6:.3f} ms ahead, known to {trace.uncertainty / 1e6:.1f} ms; "
            "if the two directions differ, its times are wrong by half the difference"
        )
    if trace.dropped:
        lines.append(f"{trace.dropped} spans are missing: an answer this long has too many")
    return "\n".join(lines)


def _table(trace: Trace) -> str:
    """A line per token: time, step, awaited side, causes."""
    from common.tracing.analysis import steps

    lines = [f"{'token':>6} {'at ms':>9} {'took ms':>8}  {'waited for':11}for"]
    for step in steps(trace):
        at, took = step.end / 1e6, (step.end - step.start) / 1e6
        lines.append(f"{step.position:6} {at:9.1f} {took:8.1f}  {step.waited_for:11}{_parts(step)}")
    return "\n".join(lines)


def _parts(step: Step) -> str:
    from common.tracing.analysis import CAUSES

    spent = {cause: step.spent(cause) / 1e6 for cause in CAUSES}
    return ", ".join(f"{cause} {milliseconds:.1f}" for cause, milliseconds in spent.items() if milliseconds >= 0.05)


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
    """Fails before the question is asked."""
    if os.path.isdir(path):
        raise bad_input(f"{path} can't be written: it is a folder")
    if not os.access(path.absolute().parent, os.W_OK):
        raise bad_input(f"{path} can't be written: there is no folder {path.parent} that this user may write to")


def _require_matplotlib() -> None:
    """Fails before the question is asked."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise _no_matplotlib() from None


def _no_matplotlib() -> CommandFailed:
    return bad_input("--png needs matplotlib, which is not installed; install it with pip install matplotlib")
