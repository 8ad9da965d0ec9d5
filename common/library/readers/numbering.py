"""Computes the numbers of lists and headings in Word: files lack them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from lxml import etree

from common.library.readers.content import parse_whole_number

WORDS: Final = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"

_VALUE: Final = WORDS + "val"
_GONE: Final = ("del", "moveFrom")  # marks of deleted paragraphs
_MOST_STYLES: Final = 32  # depth of style inheritance
_PLACE: Final = re.compile(r"%(10|[1-9])")  # placeholder of a level's number
_ROMAN: Final = (
    *((1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"), (40, "XL")),
    *((10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")),
)
_LARGEST_ROMAN: Final = 3999
_LETTERS: Final = 26


@dataclass(frozen=True, slots=True)
class Level:
    """Numbers of one depth; `style` numbers paragraphs implicitly."""

    start: int = 1
    form: str = "decimal"
    text: str = ""
    style: str = ""
    in_digits: bool = False  # digits for all levels, whatever their forms
    begins_anew: bool = True  # after a paragraph of a higher level


@dataclass(slots=True)
class CountedList:
    """Levels counted together, and the latest number of each begun level."""

    levels: dict[int, Level]
    counts: dict[int, int] = field(default_factory=dict)

    def next_text(self, depth: int) -> str:
        """Counts the next paragraph and returns its number."""
        level = self.levels[depth]
        for deeper in [each for each in self.counts if each > depth and self.levels.get(each, level).begins_anew]:
            del self.counts[deeper]
        self.counts[depth] = self.counts.get(depth, level.start - 1) + 1

        def shown(place: re.Match[str]) -> str:
            of = self.levels.get(int(place[1]) - 1, level)
            count = self.counts.get(int(place[1]) - 1, of.start)
            return str(count) if level.in_digits else in_form(count, of.form)

        return _PLACE.sub(shown, level.text)


class Numbering:
    """Counts the paragraphs of one document; the arguments are roots of its parts."""

    def __init__(self, numbering: Any, styles: Any) -> None:
        self._styles = {each.get(WORDS + "styleId"): each for each in styles.iter(WORDS + "style")}
        abstract = {each.get(WORDS + "abstractNumId"): each for each in numbering.iter(WORDS + "abstractNum")}
        lists = {name: CountedList(_levels(each)) for name, each in abstract.items()}
        self._numbers = {each.get(WORDS + "numId"): each for each in numbering.iter(WORDS + "num")}
        self._lists = {name: _of_number(lists, each) for name, each in self._numbers.items()}
        for name, each in self._numbers.items():  # numbers with levels defined by a style
            style = _said(abstract.get(_said(each, "abstractNumId")), "numStyleLink")
            if style in self._styles:
                self._lists[name] = self._lists.get(_said(self._styles[style], "pPr", "numPr", "numId"))
        self._begun = set[tuple[str, int]]()

    def write(self, body: Any) -> None:
        """Writes numbers into the paragraphs' texts and removes their list properties."""
        for paragraph in body.iter(WORDS + "p"):
            properties = paragraph.find(WORDS + "pPr")
            if properties is None or any(properties.find(f"{WORDS}rPr/{WORDS}{how}") is not None for how in _GONE):
                continue
            number = self._number(properties)
            if number is None:
                continue
            for each in properties.findall(WORDS + "numPr"):
                properties.remove(each)
            run = etree.Element(WORDS + "r")
            etree.SubElement(run, WORDS + "t").text = number + " " if number else ""
            properties.addnext(run)

    def _number(self, properties: Any) -> str | None:
        name, depth = self._place(properties)
        found = self._lists.get(name)
        if found is None or depth not in found.levels or found.levels[depth].form == "bullet":
            return None
        if (name, depth) not in self._begun:
            self._begun.add((name, depth))
            for override in self._numbers[name].iter(WORDS + "lvlOverride"):
                if override.get(WORDS + "ilvl") == str(depth) and _said(override, "startOverride"):
                    found.counts[depth] = parse_whole_number(_said(override, "startOverride"), 1) - 1
        return found.next_text(depth)

    def _place(self, properties: Any) -> tuple[str, int]:
        own = next(properties.iterchildren(WORDS + "numPr"), None)
        name, depth = _said(own, "numId"), _said(own, "ilvl")
        for style in self._based(_said(properties, "pStyle")):
            numbered = next(style.iter(WORDS + "numPr"), None)
            name, depth = name or _said(numbered, "numId"), depth or _said(numbered, "ilvl")
            found = self._lists.get(name)
            if found and not depth:
                said = style.get(WORDS + "styleId")
                depth = next((str(each) for each, level in found.levels.items() if level.style == said), "")
            if name:
                break
        return name, parse_whole_number(depth, 0)

    def _based(self, name: str) -> Iterator[Any]:
        for _ in range(_MOST_STYLES):
            if name not in self._styles:
                return
            yield self._styles[name]
            name = _said(self._styles[name], "basedOn")


def in_form(count: int, form: str) -> str:
    """A number in a list form, e.g. «iv»; in digits outside its range."""
    if form in ("upperRoman", "lowerRoman") and 0 < count <= _LARGEST_ROMAN:
        text = ""
        for value, sign in _ROMAN:
            text += sign * (count // value)
            count %= value
        return text if form == "upperRoman" else text.lower()
    if form in ("upperLetter", "lowerLetter") and 0 < count <= _LETTERS**2:
        letter = chr(ord("A") + (count - 1) % _LETTERS) * ((count - 1) // _LETTERS + 1)
        return letter if form == "upperLetter" else letter.lower()
    if form == "none":
        return ""
    return f"{count:02}" if form == "decimalZero" else str(count)


def _of_number(lists: Mapping[str | None, CountedList], number: Any) -> CountedList | None:
    """The list of a number id with its own levels and shared counts."""
    found = lists.get(_said(number, "abstractNumId"))
    if found is None:
        return None
    own: dict[int, Level] = {}
    for override in number.iterchildren(WORDS + "lvlOverride"):
        own |= _levels(override)
    return CountedList(found.levels | own, found.counts) if own else found


def _levels(element: Any) -> dict[int, Level]:
    levels = {}
    for each in element.iterchildren(WORDS + "lvl"):
        level = Level(
            parse_whole_number(_said(each, "start"), 1),
            _said(each, "numFmt") or "decimal",
            _said(each, "lvlText"),
            _said(each, "pStyle"),
        )
        levels[parse_whole_number(each.get(WORDS + "ilvl") or "", 0)] = replace(
            level,
            in_digits=each.find(WORDS + "isLgl") is not None,
            begins_anew=_said(each, "lvlRestart") != "0",
        )
    return levels


def _said(element: Any, *path: str) -> str:
    found = None if element is None else element.find("/".join(WORDS + name for name in path))
    return "" if found is None else found.get(_VALUE) or ""
