"""Printing one streamed answer."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final, TextIO

from device.cli.answer_text import answer_text
from device.cli.daemon import DaemonClient
from device.cli.failures import unfinished_answer
from device.cli.render import strip_controls

WAITING: Final = " (waiting for the cloud ...)"
READING: Final = " (reading {done:,} of {total:,} tokens ...)"


@dataclass(frozen=True, slots=True)
class PrintedAnswer:
    text: str
    reason: str
    usage: dict[str, Any]
    report: dict[str, Any]


def stream_answer(daemon: DaemonClient, body: dict[str, Any], output: TextIO | None) -> PrintedAnswer:
    """Asks, and writes the text to `output` (None: nowhere). Raises `CommandFailed`.

    A terminal gets no control characters, and drafts if requested. A file or pipe gets the text unchanged.
    """
    text, reason = "", ""
    last: dict[str, Any] = {}
    shown = answer_text(output)
    chunks = daemon.chat(body)
    try:
        with closing(chunks):  # type: ignore[type-var]
            for last in chunks:
                for choice in last["choices"]:
                    piece = choice["delta"].get("content") or ""
                    text += piece
                    reason = choice.get("finish_reason") or reason
                    if piece:
                        shown.final(piece)
                told = last.get("dragon") or {}
                if output is not None and (doubt := told.get("doubt")):
                    shown.provisional("")
                    to_stderr(doubt["sentence"])
                if told.get("waiting"):
                    shown.provisional(WAITING)
                elif read := told.get("reading"):
                    shown.provisional(READING.format(**read))
                elif (draft := told.get("provisional")) is not None:
                    shown.provisional(draft)
    finally:
        shown.final("\n" if text else "")
    if reason == "length" and output is not None:
        to_stderr(
            f"cut after {(last.get('usage') or {}).get('completion_tokens', 'its')} tokens: --max-tokens N allows more"
        )
    if not isinstance(last.get("dragon"), dict):
        raise unfinished_answer("the server is not a dragon device daemon: it sent no report")
    return PrintedAnswer(text, reason, last.get("usage") or {}, last["dragon"])


def conversation(turns: Iterable[tuple[str, str]], question: str) -> list[dict[str, str]]:
    """Returns the `messages` of a question after (question, answer) turns."""
    messages: list[dict[str, str]] = []
    for asked, answered in turns:
        messages += [{"role": "user", "content": asked}, {"role": "assistant", "content": answered}]
    return [*messages, {"role": "user", "content": question}]


def to_stderr(text: str) -> None:
    print(strip_controls(text), file=sys.stderr, flush=True)
