"""Numbers of lists and headings in OpenDocument texts, counted as the programs that show them do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from common.library.readers.numbering import CountedList, Level

TEXT: Final = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
NUMBERED: Final = "numbered"  # attribute of items whose number stands in their text by now

_STYLE: Final = "{urn:oasis:names:tc:opendocument:xmlns:style:1.0}"
_NAME: Final = "{http://www.w3.org/XML/1998/namespace}id"
_FORMS: Final = {"1": "decimal", "a": "lowerLetter", "A": "upperLetter", "i": "lowerRoman", "I": "upperRoman"}
_PARAGRAPHS: Final = TEXT + "p", TEXT + "h"


def write_numbers(body: Any, parts: Iterable[Any]) -> None:
    """Put their numbers into the texts of list items and headings; `parts` are the roots that have the styles."""
    styles: dict[str, dict[int, Level]] = {}
    outline: dict[int, Level] = {}
    for part in parts:
        for style in part.iter(TEXT + "list-style"):
            styles[style.get(_STYLE + "name", "")] = _levels(style, "list-level-style-number")
        for style in part.iter(TEXT + "outline-style"):
            outline = _levels(style, "outline-level-style")
    _number_headings(body, CountedList(outline))
    latest: dict[str | None, CountedList] = {}  # by the name of a style or of a list
    for element in body.iter(TEXT + "list"):
        if next(element.iterancestors(TEXT + "list"), None) is None:
            name, going_on = element.get(TEXT + "style-name"), element.get(TEXT + "continue-numbering") == "true"
            counted = latest.get(element.get(TEXT + "continue-list") or (name if going_on else None))
            if counted is None:
                counted = CountedList(styles.get(name, {}))
            latest |= {each: counted for each in (name, element.get(_NAME)) if each}
            _number_items(element, counted, 0)


def _number_headings(body: Any, counted: CountedList) -> None:
    for heading in body.iter(TEXT + "h"):
        depth = _whole(heading, "outline-level") - 1
        if depth in counted.levels and heading.get(TEXT + "is-list-header") != "true":
            _begin_with(heading, counted.next_text(depth))


def _number_items(element: Any, counted: CountedList, depth: int) -> None:
    for item in element.iterchildren(TEXT + "list-item"):
        first = next(item.iterchildren(*_PARAGRAPHS), None)
        if depth in counted.levels and first is not None:
            if item.get(TEXT + "start-value"):
                counted.counts[depth] = _whole(item, "start-value") - 1
            _begin_with(first, counted.next_text(depth))
            item.set(NUMBERED, "true")
        for inner in item.iterchildren(TEXT + "list"):
            _number_items(inner, counted, depth + 1)


def _levels(style: Any, kind: str) -> dict[int, Level]:
    """Those of a style that have numbers, by their depths."""
    levels = {}
    for level in style.iterchildren(TEXT + kind):
        form = _FORMS.get(level.get(_STYLE + "num-format", ""))
        if form is not None:
            depth = _whole(level, "level") - 1
            shown = range(max(0, depth + 1 - _whole(level, "display-levels")), depth + 1)
            before, after = (level.get(_STYLE + f"num-{side}", "") for side in ("prefix", "suffix"))
            text = before + ".".join(f"%{each + 1}" for each in shown) + after
            levels[depth] = Level(_whole(level, "start-value"), form, text)
    return levels


def _begin_with(paragraph: Any, number: str) -> None:
    paragraph.text = f"{number} {paragraph.text or ''}"


def _whole(element: Any, name: str) -> int:
    """A number that an element states, 1 where it states none."""
    said = element.get(TEXT + name, "1")
    return int(said) if said.isdecimal() and len(said) < 10 else 1
