"""`make demo`: fills sample libraries, starts both daemons, asks the sample questions, and stops them; twice.

First the default language model reads texts about real things, then the embedded one the texts of its invented world.
`python -m scripts.demo texts` or `world` shows one of them.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.markup import escape

from common.configuration.settings import EMBEDDED_MODEL, default_model, default_models
from common.engine.model.gguf import imported
from device.cli.render import figures_line
from scripts.daemons import ANSWER_PATIENCE, ROOT, Pair, add_documents, dragon
from scripts.demo.judge import Question, read_questions

FOLDER = ROOT / "scripts" / "demo"
TEXTS = FOLDER / "texts"
SAMPLES = {role: ROOT / role / "sample_library" for role in ("device", "cloud")}
PARTS = ("texts", "world")
LONGEST = "48"  # tokens of an answer
PATIENCE = 60.0  # seconds that the device waits for the cloud
ENOUGH = 2  # questions about real texts that both sides must get right, and neither side alone
SIDES: tuple[Literal["device", "cloud", "both"], ...] = ("device", "cloud", "both")
COLOURS = {"device": "cyan", "cloud": "magenta", "both": "green"}
NAMES = {"device": "device alone", "cloud": "cloud alone", "both": "together"}

console = Console(highlight=False, width=None if sys.stdout.isatty() else 110)


@dataclass(frozen=True, slots=True)
class Asked:
    """A question with, for each choice of sources, whether the answer was right."""

    question: Question
    right: Mapping[str, bool]

    @property
    def joint(self) -> bool:
        """Right together, and wrong from either side alone."""
        return self.right["both"] and not (self.right["device"] or self.right["cloud"])

    @property
    def surprises(self) -> int:
        """Answers that are not as expected: what a library can't know is bound to be wrong, what it holds may be."""
        holder = {"private": "device", "public": "cloud", "both": "both"}[self.question.needs]
        guessed = [side for side in ("device", "cloud") if self.right[side] and side != holder]
        return len(guessed) + (not self.right["both"])


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when the invented world's answers are as expected, and enough of those about real texts."""
    parser = argparse.ArgumentParser(prog="python -m scripts.demo", description="Ask a device and a cloud together.")
    parser.add_argument("part", nargs="?", choices=PARTS, help="what to ask about (default: both)")
    part = parser.parse_args(arguments).part
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="dragon-demo-") as folder:
        real = about_texts(Path(folder) / "texts") if part != "world" else None
        invented = about_the_world(Path(folder) / "world") if part != "texts" else []
    console.print()
    if real is not None:
        console.print(
            f"Real texts: {sum(asked.joint for asked in real)} of {len(real)} questions right together and wrong "
            "from either side alone."
        )
    surprises = sum(asked.surprises for asked in invented)
    if invented:
        needing_both = sum(asked.question.needs == "both" for asked in invented)
        console.print(
            f"Invented world: {len(invented)} questions, {needing_both} of which need both libraries; "
            f"{surprises or 'no'} unexpected answers."
        )
    console.print(
        f"{time.monotonic() - started:.0f} s; all daemons have stopped. README goes on with your own documents."
    )
    enough = real is None or sum(asked.joint for asked in real) >= ENOUGH
    return 0 if enough and not surprises else 1


def about_texts(data: Path) -> list[Asked] | None:
    """Ask the default language model about real things; None where it is not installed."""
    model = default_model()
    if model == str(EMBEDDED_MODEL):
        console.print("[dim]no questions about real texts: `make setup` installs the language model that reads them[/]")
        return None
    console.rule("[bold]Real texts, SmolLM2-135M-Instruct in both daemons")
    fill_libraries(data, {"device": TEXTS / "notes", "cloud": TEXTS / "entries"})
    console.print("[dim]importing the model: a minute or two the first time, nothing later ...[/]")
    imported(Path(model), default_models())
    settings = {"model": model, "models": default_models(), "search": "hybrid", "documents": 2}
    return ask_all(data, settings, read_questions(TEXTS / "questions.json"))


def about_the_world(data: Path) -> list[Asked]:
    """Ask the embedded model about the invented world that it was trained to read."""
    console.rule("[bold]An invented world, and a tiny model that was trained to read about it")
    fill_libraries(data, SAMPLES)
    return ask_all(data, {}, read_questions(FOLDER / "questions.json"))


def ask_all(data: Path, settings: Mapping[str, object], questions: Sequence[Question]) -> list[Asked]:
    """Start both daemons on the libraries below `data`, and ask."""
    console.print("[dim]starting a cloud daemon and a device daemon ...[/]")
    # A machine that stands still for some seconds must not make other answers of these.
    with Pair(data, {**settings, "patience": PATIENCE, "unmatched": "warn"}, settings) as pair:
        return [ask(pair, number, question) for number, question in enumerate(questions, start=1)]


def fill_libraries(data: Path, folders: Mapping[str, Path]) -> None:
    """Add a folder of documents to each role's library, as a user does."""
    data.mkdir(exist_ok=True)
    for role, folder in folders.items():
        try:
            told = add_documents(data, role, folder)
        except RuntimeError as error:
            raise SystemExit(str(error)) from None
        kind = "private notes" if role == "device" else "public entries"
        console.print(f"[{COLOURS[role]}]{role}[/] library ({kind}): {told.splitlines()[-1]}")


def ask(pair: Pair, number: int, question: Question) -> Asked:
    """Ask one question three times."""
    console.rule(f"[bold]{number}. {escape(question.text)}[/]", align="left")
    return Asked(question, {sources: show(pair, question, sources) for sources in SIDES})


def show(pair: Pair, question: Question, sources: Literal["device", "cloud", "both"]) -> bool:
    """Ask with these sources through the client, print the answer; returns whether it is right."""
    options = ("--sources", sources, "--max-tokens", LONGEST, "--json", "--url", pair.url)
    asked = dragon("ask", question.text, *options, timeout=ANSWER_PATIENCE)
    if asked.returncode:
        raise SystemExit(f"`dragon ask` failed: {asked.stderr.strip()}")
    result: dict[str, Any] = json.loads(asked.stdout)
    answer, report = result["answer"].strip(), result["dragon"]
    right = question.is_right(answer)
    mark = f"[green]{escape('[right]')}[/]" if right else f"[red]{escape('[wrong]')}[/]"
    console.print(f"[{COLOURS[sources]}]{NAMES[sources]:>12}[/]  {escape(answer)}  {mark}")
    if sources == "both":
        console.print(f"{'from':>12}  {marked_quotes(report)}")
    console.print(f"[dim]{'':>12}  {escape(figures_line(report))}[/]")
    return right


def marked_quotes(report: dict[str, Any]) -> str:
    """The answer, in which the words that stand in a document have its name and its side's colour."""
    ranges = [
        (first, end, report["sources"][each["source"]])
        for each in report["citations"] or ()
        for quote in each["quotes"]
        for first, end in quote["tokens"]
    ]
    marked, place = "", 0
    for first, end, source in sorted(ranges, key=lambda found: found[0]):
        before, words = ("".join(report["pieces"][start:stop]) for start, stop in ((place, first), (first, end)))
        space = words[: len(words) - len(words.lstrip())]
        origin = f"\\[{source['side']} {escape(source['title'])}]"
        marked += f"{escape(before + space)}[{COLOURS[source['side']]}]«{escape(words.strip())}»[/][dim]{origin}[/]"
        place = end
    return marked + escape("".join(report["pieces"][place:]))


if __name__ == "__main__":
    sys.exit(main())
