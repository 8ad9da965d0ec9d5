"""Formulas as text in a line, e.g. `(a + b)/c` or `x^2`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain, repeat
from typing import Any, Final

from bs4 import Tag

MATHS: Final = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"

_RUNS: Final = {MATHS + "r", MATHS + "t", "mi", "mn", "mo", "mtext", "ms"}
_APPLIED: Final = "\u2061"  # between a function and its argument
_UNSEEN: Final = f"{_APPLIED}\u2062\u2063\u2064"  # invisible signs for products, lists and sums
_SHOWN_APART: Final = re.compile(r"\{\\displaystyle (.*)\}", re.DOTALL)


def office_in_line(element: Any) -> str:
    """A formula of Word or PowerPoint, or a part of one."""
    kind = str(element.tag).removeprefix(MATHS)
    if kind == "t":
        return element.text or ""

    def parts(name: str) -> list[str]:
        return list(map(office_in_line, element.iterchildren(MATHS + name)))

    def part(name: str) -> str:
        return "".join(parts(name))

    def sign(name: str, default: str) -> str:
        stated = element.find(f"{MATHS}{kind}Pr/{MATHS}{name}")
        return default if stated is None else stated.get(MATHS + "val", "")

    match kind:
        case "f":
            return f"{_grouped(part('num'))}/{_grouped(part('den'))}"
        case "sSup":
            return f"{part('e')}^{_grouped(part('sup'))}"
        case "sSub":
            return f"{part('e')}_{_grouped(part('sub'))}"
        case "sSubSup":
            return f"{part('e')}_{_grouped(part('sub'))}^{_grouped(part('sup'))}"
        case "sPre":
            return f"_{_grouped(part('sub'))}^{_grouped(part('sup'))}{part('e')}"
        case "acc":
            return _marked(part("e"), sign("chr", "\u0302"))
        case "bar":
            return _marked(part("e"), "\u0305" if sign("pos", "bot") == "top" else "\u0332")
        case "rad":
            return f"{part('deg')}√{_grouped(part('e'))}"
        case "d":
            return sign("begChr", "(") + sign("sepChr", "|").join(parts("e")) + sign("endChr", ")")
        case "nary":
            ends = [(before, part(name)) for before, name in (("_", "sub"), ("^", "sup"))]
            shown = "".join(before + _grouped(end) for before, end in ends if end)
            return f"{sign('chr', '∫')}{shown} {part('e')}"
        case "m":
            rows = "; ".join(parts("mr"))
            return rows if element.getparent().getparent().tag == MATHS + "d" else f"[{rows}]"
        case "mr":
            return ", ".join(parts("e"))
        case "eqArr":
            return "; ".join(parts("e"))
        case "limLow":
            return f"{part('e')}_{_grouped(part('lim'))}"
        case "limUpp":
            return f"{part('e')}^{_grouped(part('lim'))}"
        case "func":
            return f"{part('fName')} {part('e')}"
    return _in_a_row((child.tag in _RUNS, office_in_line(child)) for child in element)


def page_in_line(math: Tag) -> str:
    """A formula of a page, in its TeX form if stated."""
    annotation = math.find("annotation", encoding="application/x-tex")
    said = str(math.get("alttext") or (annotation.get_text() if annotation else "")).strip()
    shown = _SHOWN_APART.fullmatch(said)
    return (shown[1] if shown else said) or _of_page(math)


def _of_page(element: Tag) -> str:
    children = element.find_all(True, recursive=False)
    parts = [_of_page(child) for child in children]
    in_a_row = _in_a_row((child.name in _RUNS, part) for child, part in zip(children, parts, strict=True))
    match element.name, parts:
        case "semantics", [shown, *_]:  # the others repeat it for programs
            return shown
        case "mfrac", [above, below]:
            return f"{_grouped(above)}/{_grouped(below)}"
        case "msup" | "mover", [base, upper]:
            return f"{base}^{_grouped(upper)}"
        case "msub" | "munder", [base, lower]:
            return f"{base}_{_grouped(lower)}"
        case "msubsup" | "munderover", [base, lower, upper]:
            return f"{base}_{_grouped(lower)}^{_grouped(upper)}"
        case "msqrt", _:
            return f"√{_grouped(in_a_row)}"
        case "mroot", [base, degree]:
            return f"{degree}√{_grouped(base)}"
        case "mfenced", _:
            return _fenced(element, parts)
        case "mtable", _:
            return "; ".join(parts)
        case "mtr", _:
            return " ".join(parts)
    return in_a_row if parts else element.get_text(strip=True)


def _fenced(element: Tag, parts: list[str]) -> str:
    signs = "".join(str(element.get("separators", ",")).split())
    between = chain(signs, repeat(signs[-1:]))
    inner = "".join(chain.from_iterable(zip(parts[:-1], between, strict=False))) + "".join(parts[-1:])
    return f"{element.get('open', '(')}{inner}{element.get('close', ')')}"


def _in_a_row(parts: Iterable[tuple[bool, str]]) -> str:
    """Joins parts, each with whether it is a run of characters.

    Digits on both sides of a larger part, or of an invisible sign, are separate numbers: 2½ is not 21/2.
    """
    written, after_run, applied = [""], True, False
    for is_run, part in parts:
        shown = part.strip(_UNSEEN)
        if shown:
            numbers = written[-1][-1:].isdigit() and shown[0].isdigit() and not (is_run and after_run)
            written += [" ", shown] if numbers or (applied and shown[0].isalnum()) else [shown]
        if part:
            after_run, applied = is_run and bool(shown), part.endswith(_APPLIED)
    return "".join(written)


def _marked(part: str, mark: str) -> str:
    """A part with a combining mark after it."""
    return f"{f'({part})' if len(part) > 1 else part}{mark}"


def _grouped(part: str) -> str:
    return part if part.isalnum() else f"({part})"
