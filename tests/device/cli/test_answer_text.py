"""An answer's text on a terminal: drafts behind it are dimmed, and leave no trace."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from device.cli.answer_text import Plain, Terminal, answer_text
from device.cli.answers import stream_answer

WIDTH = 12
LETTERS = st.text("ab \n\t\x1bé漢", max_size=20)


class Window(io.StringIO):
    """A terminal of `WIDTH` columns, as far as its text and the column of the cursor go."""

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return 7

    def lines(self) -> tuple[list[str], str]:
        """Lines that are seen, and what of them is dimmed. A character of two columns is followed by an empty cell."""
        lines: list[list[tuple[str, bool]]] = [[]]
        column, dim, seen = 0, False, self.getvalue()
        for code, count, letter, character in re.findall(r"(\x1b\[(\d*)([A-Za-z]))|([^\x1b])", seen):
            match letter:
                case "D":
                    assert int(count) <= column, "beyond the beginning of the line"
                    column -= int(count)
                case "K":
                    del lines[-1][column:]
                case "m":
                    dim = count == "2"
                case _:
                    assert not code
                    column = put(lines, column, character, dim)
        assert not dim
        told = [[(character, dimmed) for character, dimmed in line if character] for line in lines]
        return (
            ["".join(character for character, _ in line).rstrip() for line in told],
            "".join(character for line in told for character, dimmed in line if dimmed),
        )


def put(lines: list[list[tuple[str, bool]]], column: int, character: str, dim: bool) -> int:
    """Write a character at a column of the last line; returns the cursor's column."""
    if character == "\n":
        lines.append([])
        return 0
    if character == "\t":
        wanted = min((column // 8 + 1) * 8, WIDTH - 1)
        lines[-1] += [(" ", dim)] * (wanted - len(lines[-1]))
        return max(wanted, 0)
    cells = [(character, dim)] + [("", dim)] * (character == "漢")
    if column + len(cells) > WIDTH:
        lines.append([])
        column = 0
    lines[-1][column : column + len(cells)] = cells
    return column + len(cells)


@pytest.fixture(autouse=True)
def window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "get_terminal_size", lambda place: os.terminal_size((WIDTH, 24)))
    monkeypatch.setenv("TERM", "xterm")


def written(pieces: Sequence[tuple[bool, str]]) -> Window:
    window = Window()
    text = Terminal(window)
    for final, piece in pieces:
        (text.final if final else text.provisional)(piece)
    return window


def test_a_draft_is_dimmed_and_taken_back() -> None:
    window = written([(True, "He is"), (False, " Bob"), (False, " Al")])
    assert window.lines() == (["He is Al"], " Al")
    assert written([(True, "He is"), (False, " Bob"), (True, " A")]).lines() == (["He is A"], "")
    assert written([(False, "Bob"), (True, "")]).lines() == ([""], "")


def test_a_draft_stays_on_the_line() -> None:
    assert written([(True, "a" * 9), (False, "bcdef")]).lines() == (["a" * 9 + "bc"], "bc")
    assert written([(True, "a" * 12), (False, "b")]).lines() == (["a" * 12], "")
    assert written([(True, "a" * 13), (False, "b\nc")]).lines() == (["a" * 12, "ab c"], "b c")


@pytest.mark.parametrize("before", [{"provisional": " Bob"}, {"waiting": True}], ids=str)
def test_a_warning_has_a_line_of_its_own(before: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A draft that was shown on its line is taken back first."""

    class Asked:
        def chat(self, _: object) -> Any:
            yield {"choices": [], "dragon": before}
            yield {"choices": [], "dragon": {"doubt": {"sentence": "Far."}}}
            yield {"choices": [{"delta": {"content": "I"}}]}
            yield {"choices": [], "dragon": {"seed": 1}}

    window, asked = Window(), Asked()
    monkeypatch.setattr(sys, "stderr", window)
    assert stream_answer(asked, {}, window).text == "I"  # type: ignore[arg-type]
    assert window.lines() == (["Far.", "I", ""], "")


@settings(max_examples=300)
@given(st.lists(st.tuples(st.booleans(), LETTERS), max_size=8))
def test_nothing_is_left_of_drafts(pieces: list[tuple[bool, str]]) -> None:
    seen, dimmed = written([*pieces, (True, "")]).lines()
    expected, _ = written([(True, piece) for final, piece in pieces if final]).lines()
    assert (seen, dimmed) == (expected, "")


@pytest.mark.parametrize("terminal", ["dumb", None])
def test_a_terminal_that_obeys_nothing(terminal: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if terminal is None:
        monkeypatch.delenv("TERM")
    else:
        monkeypatch.setenv("TERM", terminal)
    window = Window()
    text = answer_text(window)
    text.provisional("draft")
    text.final("a\x1b[2J")
    assert window.getvalue() == "a[2J"


def test_a_pipe_gets_final_text_as_it_is() -> None:
    output = io.StringIO()
    text = answer_text(output)
    assert isinstance(text, Plain)
    text.provisional("draft")
    text.final("a\x1b[2J")
    assert output.getvalue() == "a\x1b[2J"
