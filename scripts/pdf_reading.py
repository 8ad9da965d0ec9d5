"""`python -m scripts.pdf_reading CHECKOUT...`: reads PDFs of many kinds with each checkout, and prints a table.

Chromium prints pages with known words and cells; scans are drawn from them. The checkouts read in turns.
"""

from __future__ import annotations

import io
import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import pypdfium2

from scripts.browser import blank, chromium

NAMES: Final = ("Lamp", "Chair", "Table", "Kettle", "Curtain", "Carpet", "Basket", "Mirror")
SCANNED: Final = ("one column", "two columns", "footnotes", "rotated", "table, ruled", "table, plain")
TEXTS: Final = {
    "English": "the harbour of Elmsund has seventeen berths and a crane that lifts forty tonnes when weather allows"
    " offices open for captains who file their official flight of finances afflicted by rules affecting baffled staff",
    "Hebrew": "הספינה עוגנת בנמל הישן ליד המנוף הגדול",
    "Greek": "το πλοίο δένει στο παλιό λιμάνι κάθε πρωί",
}
STYLE: Final = (
    "<style>body{font:10pt DejaVu Sans}table{border-collapse:collapse}td,th{padding:3pt 12pt;text-align:left}"
    ".ruled td,.ruled th{border:1px solid}</style>"
)
READ: Final = """
import json, sys, time
from contextlib import suppress
from pathlib import Path
from common.library.readers.formats import parser_of
read = parser_of(".pdf")
for line in sys.stdin:
    began = time.process_time()
    found = ""
    with suppress(Exception):
        found = "\\n".join(section.text for section in read(Path(line.strip()).read_bytes()).sections)
    print(json.dumps([time.process_time() - began, found]), flush=True)
"""


class Made(NamedTuple):
    kind: str
    html: str
    words: list[str]  # in reading order
    cells: Sequence[str] = ()  # each behind its heading


def prose(rng: random.Random, words: int, language: str = "English") -> list[str]:
    return [f"{rng.choice(TEXTS[language].split())}{'.' * (at % 11 == 10)}" for at in range(words)]


def table(rng: random.Random, style: str) -> tuple[str, list[str]]:
    """A table in HTML, and its cells behind their headings."""
    rows = [
        (name, f"KX-{rng.randrange(10**4)}", f"{rng.randrange(9999) / 100:.2f}", str(rng.randrange(99)))
        for name in NAMES
    ]
    lines = [f"<tr>{''.join(f'<td>{value}' for value in row)}" for row in rows]
    headings = ("Article", "Number", "Price", "Stock")
    head = "".join(f"<th>{each}" for each in headings)
    cells = [f"{heading}: {value}" for row in rows for heading, value in zip(headings, row, strict=True)]
    return f"<table class={style}><tr>{head}{''.join(lines)}</table>", cells


def documents(rng: random.Random) -> Iterator[Made]:
    for _ in range(2):
        words = [prose(rng, 150) for _ in range(4)]
        texts, flat = [" ".join(each) for each in words], [word for each in words for word in each]
        paragraphs = "".join(f"<p>{text}" for text in texts)
        yield Made("one column", paragraphs, flat)
        yield Made("two columns", f"<div style='columns:2'>{paragraphs}</div>", flat)
        yield Made("three columns", f"<div style='columns:3'>{paragraphs}</div>", flat)
        yield Made("serif, ligatures", f"<div style='font:13pt DejaVu Serif'>{paragraphs}</div>", flat)
        yield Made("narrow, justified", f"<div style='width:5cm;text-align:justify'>{texts[0]}</div>", words[0])
        note = "<div style='position:fixed;bottom:0;font-size:8pt'>1 See the register of berths.</div>"
        yield Made("footnotes", f"<p>{texts[0]}<sup>1</sup><p>{texts[1]}{note}", [*words[0], *words[1]])
        yield Made("rotated", f"<div style='writing-mode:vertical-rl;height:20cm'>{texts[0]}</div>", words[0])
        for language in ("Hebrew", "Greek"):
            said = prose(rng, 60, language)
            yield Made(language, f"<p dir=auto>{' '.join(said)}", said)
        yield Made(
            "forms", "".join(f"<p>{name} <input value='{name}-7'>" for name in NAMES), ["Lamp", "Lamp-7", *NAMES[1:]]
        )
        for style in ("ruled", "plain"):
            shown, cells = table(rng, style)
            yield Made(f"table, {style}", f"<p>{texts[0]}{shown}<p>{texts[1]}", [*words[0], *words[1]], cells)


def scan(pdf: bytes, dots: int) -> bytes:
    pages = [page.render(scale=dots / 72).to_pil().convert("L") for page in pypdfium2.PdfDocument(pdf)]
    buffer = io.BytesIO()
    pages[0].save(buffer, "PDF", resolution=dots, save_all=True, append_images=pages[1:])
    return buffer.getvalue()


def judged(text: str, made: Made) -> tuple[float, float, float | None]:
    """Shares of the words that are there, of those in order, of the cells behind their headings."""
    found = text.split()
    there = (Counter(made.words) & Counter(found)).total()
    blocks = SequenceMatcher(None, made.words, found, autojunk=False).get_matching_blocks()
    behind = mean(any(cell in line for line in text.split("\n")) for cell in made.cells) if made.cells else None
    return there / len(made.words), sum(block.size for block in blocks) / len(made.words), behind


def asked(reader: subprocess.Popen[str], path: Path) -> tuple[float, str]:
    assert reader.stdin is not None and reader.stdout is not None
    print(path, file=reader.stdin, flush=True)
    seconds, text = json.loads(reader.stdout.readline())
    return float(seconds), str(text)


def main() -> None:
    command = [sys.executable, "-c", READ]
    readers = [subprocess.Popen(command, cwd=place, stdin=-1, stdout=-1, text=True) for place in sys.argv[1:]]
    found = dict[str, list[list[tuple[float | None, ...]]]]()
    with TemporaryDirectory() as folder, chromium() as browser:
        page, path = blank(browser), Path(folder, "document.pdf")
        for number, made in enumerate(documents(random.Random(7))):
            page.set_content(STYLE + made.html)
            printed = page.pdf(format="A4")
            contents = {made.kind: printed}
            for dots in (150, 300) if made.kind in SCANNED and number < 12 else ():
                contents[f"scan of {dots} dpi: {made.kind}"] = scan(printed, dots)
            for kind, content in contents.items():
                path.write_bytes(content)
                rounds = [[asked(reader, path) for reader in readers] for _ in range(3 if content is printed else 1)]
                rows = found.setdefault(kind, [[] for _ in readers])
                for own, answers in zip(rows, zip(*rounds, strict=True), strict=True):
                    own.append((*judged(answers[0][1], made), median(seconds for seconds, _ in answers)))
    print(f"| kind | documents |{' words | in order | cells | s |' * len(readers)}")
    print(f"|---|---|{'---|' * 4 * len(readers)}")
    for kind, rows in found.items():
        values = [[each for row in own if (each := row[at]) is not None] for own in rows for at in range(4)]
        print(f"| {kind} | {len(rows[0])} |", *(f"{mean(each):.3g} |" if each else "|" for each in values))


if __name__ == "__main__":
    main()
