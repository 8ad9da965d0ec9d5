"""Computes the numbers of lists and headings in OpenDocument texts, as programs show them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from lxml import etree

from common.library.readers.content import parse_whole_number
from common.library.readers.numbering import CountedList, Level

TEXT: Final = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
NUMBERED: Final = "numbered"  # attribute of items with their number already in the text

_STYLE: Final = "{urn:oasis:names:tc:opendocument:xmlns:style:1.0}"
_NAME: Final = "{http://www.w3.org/XML/1998/namespace}id"
_FORMS: Final = {"1": "decimal", "a": "lowerLetter", "A": "upperLetter", "i": "lowerRoman", "I": "upperRoman"}
_DEEPEST: Final = 10  # levels
_PARAGRAPHS: Final = TEXT + "p", TEXT + "h"


def write_numbers(body: Any, parts: Iterable[Any]) -> None:
    """Writes numbers into list items and headings; `parts` are the roots with styles."""
    etree.strip_elements(body, TEXT + "tracked-changes", with_tail=False)  # deleted items do not count
    styles: dict[str | None, dict[int, Level]] = {}
    outline: dict[int, Level] = {}
    for part in parts:
        for style in part.iter(TEXT + "list-style"):
            styles[style.get(_STYLE + "name")] = _levels(style, "list-level-style-number")
        for style in part.iter(TEXT + "outline-style"):
            outline = _levels(style, "outline-level-style", unnumbered=True)
    _number_headings(body, CountedList(outline))
    latest: dict[str | None, CountedList] = {}  # by name of a style or list
    for element in body.iter(TEXT + "list"):
        if next(element.iterancestors(TEXT + "list"), None) is None:
            name, going_on = element.get(TEXT + "style-name"), element.get(TEXT + "continue-numbering") == "true"
            counted = latest.get(element.get(TEXT + "continue-list") or (name if going_on else None))
            if counted is None:
                counted = CountedList(styles.get(name, {}))
            latest |= {each: counted for each in (name, element.get(_NAME)) if each}
            _number_items(element, counted, 0, styles)


def _number_headings(body: Any, counted: CountedList) -> None:
    for heading in body.iter(TEXT + "h"):
        depth = _stated(heading, "outline-level") - 1
        aside = heading.get(TEXT + "is-list-header") == "true" or heading.getparent().tag == TEXT + "list-item"
        if depth in counted.levels and not aside and (number := counted.next_text(depth)):
            _begin_with(heading, number)


def _number_items(
    element: Any, counted: CountedList, depth: int, styles: Mapping[str | None, dict[int, Level]]
) -> None:
    for item in element.iterchildren(TEXT + "list-item"):
        first = next(item.iterchildren(*_PARAGRAPHS), None)
        if depth in counted.levels and first is not None:
            if item.get(TEXT + "start-value"):
                counted.counts[depth] = _stated(item, "start-value") - 1
            _begin_with(first, counted.next_text(depth))
            item.set(NUMBERED, "true")
        for inner in item.iterchildren(TEXT + "list"):
            own = styles.get(inner.get(TEXT + "style-name"), counted.levels)
            _number_items(inner, counted if own is counted.levels else CountedList(own), depth + 1, styles)


def _levels(style: Any, kind: str, unnumbered: bool = False) -> dict[int, Level]:
    """Numbered levels of a style by depth; `unnumbered` adds the others for counting."""
    stated = {_stated(level, "level") - 1: level for level in style.iterchildren(TEXT + kind)}
    forms = {depth: _FORMS.get(level.get(_STYLE + "num-format", "")) for depth, level in stated.items()}
    levels = {}
    for depth, level in stated.items():
        form = forms[depth]
        if form is not None and depth < _DEEPEST:
            first = max(0, depth + 1 - _stated(level, "display-levels"))
            shown = (f"%{each + 1}" for each in range(first, depth + 1) if forms.get(each))
            before, after = (level.get(_STYLE + f"num-{side}", "") for side in ("prefix", "suffix"))
            levels[depth] = Level(_stated(level, "start-value"), form, before + ".".join(shown) + after)
        elif unnumbered:
            levels[depth] = Level(form="none")
    return levels


def _begin_with(paragraph: Any, number: str) -> None:
    paragraph.text = f"{number} {paragraph.text or ''}"


def _stated(element: Any, name: str) -> int:
    return parse_whole_number(element.get(TEXT + name, ""), 1)
