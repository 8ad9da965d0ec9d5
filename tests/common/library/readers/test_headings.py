"""Headings of Markdown: places and titles are what a person takes for a heading, and nothing in code."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.library.chunks import title_of
from common.library.readers.content import Section, headings
from common.library.readers.plain import read_markdown


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("intro\n\n# One\nwords\n## Two ##\n", ["One", "Two"]),
        ("```bash\n# not\n```\n# Yes\n", ["Yes"]),
        ("~~~\n# not\n```\n# not\n~~~\n# Yes\n", ["Yes"]),
        ("- item\n\n  ```\n  # not\n  ```\n", []),
        ("- ```sh\n  # not\n  ```\n\n# Yes\n\n```\n# not\n```\n## And\n", ["Yes", "And"]),
        ("1. ```\n   # not\n   ```\n# Yes\n", ["Yes"]),
        ("1.  - ~~~\n# not\n      ~~~\n# Yes\n", ["Yes"]),
        ("-\t```\n# not\n\t```\n# Yes\n", ["Yes"]),
        ("```\n- ```\n    ```\n# not\n```\n# Yes\n", ["Yes"]),
        ("- so\n- - -\n# Yes\n- ```x``` and\n# And\n", ["Yes", "And"]),
        ("- ~~~struck~~~ done\n- open\n\n# Next\n", ["Next"]),
        ("- ``` begins code\n\n# Next\n\n## More\n", ["Next", "More"]),
        ("2. ```\n   # not\n\n   # not\n\n# Next\n", ["Next"]),
        ("2. ```\n   # not\n\n```\n# Next\n", ["Next"]),
        ("2. ```\n# not\n\n# not\n```\n# Next\n", ["Next"]),
        ("- ```\n  # not\n\n```sh\n# not\n```\n# Next\n", ["Next"]),
        ("    # not\n", []),
        ("Use ```x``` or\n```y``` here\n# Yes\n", ["Yes"]),
        ("Title\n=====\n\nPart\n---\n\nwords", ["Title", "Part"]),
        ("Title\n=====\nPart\n---\nwords", ["Title", "Part"]),
        ("words\nof a paragraph\n---\n", []),
        ("- item\n---\n", []),
        ("1. item\n---\n", []),
        ("> quoted\n---\n", []),
        ("| a |\n---\n", []),
        ("words\n\n---\n\nmore", []),
        ("---\ntitle: x\n# not\n---\n# Yes\n", ["Yes"]),
        ("---\n# generated\na: b\n...\n# Yes\n", ["Yes"]),
        ("---\n\n# Yes\n\n---\n", ["Yes"]),
        ("#hashtag\n####### seven\n# \n", []),
        ("# Learn C#\n## F# ##\n### C# and F# #\n#### #\n", ["Learn C#", "F#", "C# and F#", ""]),
    ],
)
def test_headings(text: str, found: list[str]) -> None:
    assert [heading for _, heading in headings(text)] == found
    for at, heading in headings(text):
        assert text[at:].lstrip("# ").startswith(heading)


def test_a_heading_that_a_piece_begins_with_is_its_place() -> None:
    section = Section("intro\n\n# One\nwords\n\nTwo\n===\n\nx", unit="heading")
    assert section.places([0, 7, 13, 20, 29]) == ["", "One", "One", "Two", "Two"]


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("---\nlayout: page\ntitle: 'The plan: A'\n---\n# Other\n", "The plan: A"),
        ("---\r\nTitle: The plan\r\n---\r\n", "The plan"),
        ("---\ntitle:\n---\n# Other\n", "Other"),
        ("---\ntitle: >-\n  The plan\n---\n", "The plan"),
        ("```sh\n# first\n```\n\nSetup\n=====\n", "Setup"),
        ("title: no\n", "notes"),
    ],
)
def test_titles(text: str, title: str) -> None:
    assert title_of(Path("notes.md"), read_markdown(text.encode())) == title


def test_time_is_linear_in_the_text() -> None:
    """As these files are read in the daemon itself; each of these took minutes with a pattern that goes back."""
    for text in (
        "---\ntitle: x" + " " * 500_000 + "y\n---\n",
        "#" + " \t" * 500_000,
        "`" * 500_000 + "x`",
        "- " * 250_000 + "```x`",
        "=" * 500_000,
        "data:image/png" + ";a" * 250_000 + ";base64" * 50_000,
        "data:a" * 100_000,
    ):
        assert len(list(headings(text))) <= 1 and read_markdown(text.encode()).sections
