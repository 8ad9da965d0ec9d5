"""Removes hidden parts of a page: by attribute, style or rule, and closed dialogs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from bs4 import BeautifulSoup, Tag
from soupsieve import SelectorSyntaxError

_COMMENT: Final = re.compile(r"/\*.*?(?:\*/|\Z)", re.DOTALL)
_NAMES: Final = re.compile(r"[.#]([\w-]+)")
_UNSEEN: Final = re.compile(
    r"(?:^|[;{\s])(?:display\s*:\s*none|visibility\s*:\s*(?:hidden|collapse)|mso-hide\s*:\s*all"
    r"|(?:font-size|max-height|opacity)\s*:\s*0(?:\.0+)?(?:px|pt|em|rem|%)?\s*(?:;|!|$))",
    re.IGNORECASE,
)
_SEEN: Final = re.compile(r"(?:^|[;{\s])(?:display\s*:\s*(?!none)\w|visibility\s*:\s*visible)", re.IGNORECASE)
_SCREEN: Final = re.compile(r"@media\s+(?:only\s+)?(?:screen|all)\s*$", re.IGNORECASE)
_MOST_RULES: Final = 100  # looked up per page
_LONGEST_SHEET: Final = 1_000_000  # characters
_WORD: Final = re.compile(r"\w")


def remove_hidden(page: BeautifulSoup) -> None:
    """Removes hidden content, unless all is hidden: a program then shows it later."""
    elements = [element for element in page.descendants if isinstance(element, Tag)]
    found = [element for element in elements if _is_hidden(element)] + _hidden_by_rules(page, elements)
    hidden = {id(element): element for element in found}
    outermost = [each for each in hidden.values() if not any(id(outer) in hidden for outer in each.parents)]
    if not outermost or _is_all(page, hidden):
        return
    for element in outermost:
        element.decompose()


def _is_hidden(element: Tag) -> bool:
    attributes = element.attrs
    if not attributes and element.name != "dialog":
        return False
    if "hidden" in attributes and attributes["hidden"] != "until-found":
        return True
    if "popover" in attributes or (element.name == "dialog" and "open" not in attributes):
        return True
    return bool(_UNSEEN.search(str(attributes.get("style", ""))))


def _hidden_by_rules(page: BeautifulSoup, elements: Sequence[Tag]) -> list[Tag]:
    sheets = (element.get_text()[:_LONGEST_SHEET] for element in elements if element.name == "style")
    rules = [rule for sheet in sheets for rule in _rules(sheet)]
    if not any(hides for _, hides in rules):
        return []
    names = {str(element.attrs["id"]) for element in elements if "id" in element.attrs}
    names.update(name for element in elements for name in element.get_attribute_list("class") if name)
    found = dict[int, Tag]()
    known = ((selector, hides) for selector, hides in rules if names.issuperset(_NAMES.findall(selector)))
    for selector, hides in islice(known, _MOST_RULES):
        try:
            chosen = page.select(selector)
        except (SelectorSyntaxError, NotImplementedError):
            continue
        for element in chosen:
            if hides:
                found[id(element)] = element
            else:
                found.pop(id(element), None)
    return list(found.values())


def _rules(sheet: str) -> Iterator[tuple[str, bool]]:
    """Selectors of a style sheet and whether they hide, without states and other media."""
    text, at = _COMMENT.sub("", sheet), 0
    while (start := text.find("{", at)) >= 0:
        heading = text[at:start].rpartition(";")[2].strip()
        end = _end(text, start)
        body, at = text[start + 1 : end], end + 1
        if heading.startswith("@"):
            if _SCREEN.match(heading):
                yield from _rules(body)
            continue
        hides = bool(_UNSEEN.search(body))
        if hides or _SEEN.search(body):
            for selector in heading.split(","):
                if selector.strip() and ":" not in selector and _NAMES.search(selector):
                    yield selector.strip(), hides


def _end(text: str, start: int) -> int:
    depth = 0
    for match in re.compile(r"[{}]").finditer(text, start):
        depth += 1 if match[0] == "{" else -1
        if not depth:
            return match.start()
    return len(text)


def _is_all(page: BeautifulSoup, hidden: dict[int, Tag]) -> bool:
    body = page.body or page
    return not any(
        not any(id(outer) in hidden for outer in words.parents)
        for words in body(string=_WORD)
        if words.parent is not None and words.parent.name not in ("script", "style", "noscript", "template", "title")
    )
