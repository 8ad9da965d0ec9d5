"""Documents as programs and people write them, beside the text and the places that their readers find.

`python -m tests.common.library.readers.test_golden` writes what the readers find now: read the difference before you
commit it.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import pytest

from common.library.readers import scans
from common.library.readers.content import Content, Section, Unreadable
from common.library.readers.formats import PARSED, SUFFIXES, TEXT, parser_of

GOLDEN = Path(__file__).with_name("golden")
DOCUMENTS = sorted(path for path in GOLDEN.glob("*/*") if path.suffix in SUFFIXES and ".expected" not in path.suffixes)


def read(suffix: str, content: bytes) -> Content:
    return (TEXT.get(suffix) or parser_of(suffix))(content)


def lines_of(section: Section) -> list[str]:
    """The lines of a section, with a place before each line that begins another one."""
    lines = section.text.split("\n")
    starts = [sum(len(line) + 1 for line in lines[:number]) for number in range(len(lines))]
    placed = zip(section.places(starts), lines, strict=True)
    return [
        f"[{place}] {line}" if place and not number else line
        for place, group in groupby(placed, key=lambda pair: pair[0])
        for number, (_, line) in enumerate(group)
    ]


def shown(document: Path) -> str:
    """The title and the remarks, then each section below a line of its own; or the reason why there is none."""
    try:
        content = read(document.suffix, document.read_bytes())
    except Unreadable as error:
        return f"unreadable: {error.reason}\n"
    sections = ("\n".join(["-" * 20, *lines_of(section)]) for section in content.sections)
    remarks = (f"remark: {remark}" for remark in content.remarks)
    return "\n".join([f"title: {content.title}".rstrip(), *remarks, *sections, ""])


def expected_of(document: Path) -> Path:
    return document.with_name(f"{document.name}.expected.txt")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(GOLDEN).as_posix())
def test_text_and_places(document: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scans, "can_read_scans", lambda: False)
    assert shown(document) == expected_of(document).read_bytes().decode()


def test_every_format_and_every_expected_text_has_a_document() -> None:
    assert {path.suffix for path in DOCUMENTS} >= set(PARSED) - {".htm", ".xhtml", ".tsv", ".mhtml"}
    assert {expected_of(path) for path in DOCUMENTS} == set(GOLDEN.glob("*/*.expected.txt"))


if __name__ == "__main__":
    for each in DOCUMENTS:
        expected_of(each).write_bytes(shown(each).encode())
