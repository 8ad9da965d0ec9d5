"""`make demo`: fills both sample libraries, starts both daemons, asks the sample questions, and stops them."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.markup import escape

from device.cli.render import attribution_parts, figures_line
from scripts.daemons import ROOT, Pair, add_documents, dragon

QUESTIONS = ROOT / "scripts" / "demo" / "questions.json"
SIDES: tuple[Literal["device", "cloud", "both"], ...] = ("device", "cloud", "both")
COLOURS = {"device": "cyan", "cloud": "magenta", "both": "green"}
NAMES = {"device": "device alone", "cloud": "cloud alone", "both": "together"}

console = Console(highlight=False, width=None if sys.stdout.isatty() else 110)


@dataclass(frozen=True, slots=True)
class Question:
    """A sample question; `needs` says which library holds what it asks for."""

    text: str
    needs: Literal["private", "public", "both"]
    answer: str


def main() -> int:
    """0 when every answer from both libraries is right, and one-sided ones are wrong where both are needed."""
    questions = read_questions(QUESTIONS)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="dragon-demo-") as folder:
        data = Path(folder)
        fill_libraries(data)
        console.print("[dim]starting a cloud daemon and a device daemon ...[/]")
        with Pair(data) as pair:
            surprises = sum(ask(pair, number, question) for number, question in enumerate(questions, start=1))
    seconds = time.monotonic() - started
    needing_both = sum(question.needs == "both" for question in questions)
    console.print(
        f"\n{len(questions)} questions, {needing_both} of which need both libraries; "
        f"{surprises or 'no'} unexpected answers; {seconds:.0f} s; both daemons have stopped."
    )
    return 1 if surprises else 0


def read_questions(path: Path) -> list[Question]:
    """The sample questions. Raises `KeyError` or `ValueError` for a damaged file."""
    return [Question(item["question"], item["needs"], item["answer"]) for item in json.loads(path.read_text())]


def fill_libraries(data: Path) -> None:
    """Add both sample libraries, as a user does."""
    for role in ("device", "cloud"):
        try:
            told = add_documents(data, role, ROOT / role / "sample_library")
        except RuntimeError as error:
            raise SystemExit(str(error)) from None
        kind = "private notes" if role == "device" else "public entries"
        console.print(f"[{COLOURS[role]}]{role}[/] library ({kind}): {told.splitlines()[-1]}")


def ask(pair: Pair, number: int, question: Question) -> int:
    """Ask one question three times; returns how many answers were not as expected."""
    console.rule(f"[bold]{number}. {escape(question.text)}[/]", align="left")
    return sum(show(pair, question, sources) for sources in SIDES)


def show(pair: Pair, question: Question, sources: Literal["device", "cloud", "both"]) -> int:
    """Ask with these sources through the client, print the answer; returns 1 if it was not as expected."""
    asked = dragon("ask", question.text, "--sources", sources, "--json", "--url", pair.url, timeout=120)
    if asked.returncode:
        raise SystemExit(f"`dragon ask` failed: {asked.stderr.strip()}")
    result: dict[str, Any] = json.loads(asked.stdout)
    answer, report = result["answer"].strip(), result["dragon"]
    right = answer == question.answer
    mark = "[green]right[/]" if right else "[red]wrong[/]"
    console.print(f"[{COLOURS[sources]}]{NAMES[sources]:>12}[/]  {escape(answer)}  {mark}")
    if sources == "both":
        console.print(f"{'from':>12}  {marked_parts(report)}")
    console.print(f"[dim]{'':>12}  {escape(figures_line(report))}[/]")
    expected = sources == "both" or question.needs == {"device": "private", "cloud": "public"}[sources]
    # Only what a library can't know is bound to be wrong; what it holds, it may still get wrong.
    return int(right is False and sources == "both") + int(right and not expected)


def marked_parts(report: dict[str, Any]) -> str:
    """The answer with the source of each part, in its side's colour."""
    sources: Sequence[dict[str, str]] = report["sources"]
    parts: list[str] = []
    for part in attribution_parts(report):
        text = escape(part.text if parts else part.text.lstrip())
        if part.source is None:
            parts.append(text)
            continue
        source = sources[part.source]
        origin = f"\\[{source['side']} {escape(source['title'])}]"
        parts.append(f"[{COLOURS[source['side']]}]{text}[/][dim]{origin}[/]")
    return "".join(parts)


if __name__ == "__main__":
    sys.exit(main())
