"""Quotes of documents, marked in the answers that the demonstration prints."""

from __future__ import annotations

from typing import Any

import pytest

from scripts.demo.__main__ import marked_quotes

REPORT: dict[str, Any] = {
    "sources": [{"side": "device", "title": "bicycle"}, {"side": "cloud", "title": "ritchie"}],
    "pieces": ["It", " has", " six", " [g]", " and", " he", " made", " six"],
    "attribution": [[0.8, 0], [0.9, 0], [0.9, 0], [0.9, 0], [0, 0], [0, 0.9], [0, 0.2], [0, 0.9]],
}


def test_only_what_is_quoted_is_marked() -> None:
    of_note = [{"text": "It has six.", "tokens": [[1, 3]], "differs": []}]
    of_entry = [{"text": "He made six.", "tokens": [[5, 6], [7, 8]], "differs": []}]
    quoted = [{"source": 0, "quotes": of_note}, {"source": 1, "quotes": of_entry}]
    assert marked_quotes(REPORT | {"citations": quoted}) == (
        "It [cyan]«has six»[/][dim]\\[device bicycle][/] \\[g] and [magenta]«he»[/][dim]\\[cloud ritchie][/]"
        " made [magenta]«six»[/][dim]\\[cloud ritchie][/]"
    )


@pytest.mark.parametrize("nothing", [None, []])
def test_nothing_is_quoted(nothing: list[Any] | None) -> None:
    assert marked_quotes(REPORT | {"citations": nothing}) == "It has six \\[g] and he made six"
