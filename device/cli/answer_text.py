"""Outputs for an answer's text as it arrives: a terminal, a file or pipe, or none."""

from __future__ import annotations

import os
import unicodedata
from typing import Final, Protocol, TextIO

from device.cli.render import strip_controls

TAB: Final = 8  # columns
_DIM, _NORMAL = "\x1b[2m", "\x1b[22m"
_ERASE: Final = "\x1b[K"  # to the end of the line


class AnswerText(Protocol):
    """A reader of an answer's text."""

    def final(self, piece: str) -> None:
        """Writes final text and removes the draft."""
        ...

    def provisional(self, text: str) -> None:
        """Shows likely next text, in place of the earlier draft."""
        ...


class Nowhere:
    """Implements `AnswerText` without output."""

    def final(self, piece: str) -> None:
        pass

    def provisional(self, text: str) -> None:
        pass


class Plain:
    """Implements `AnswerText` for files, pipes and simple terminals: final text only."""

    def __init__(self, output: TextIO) -> None:
        self._output = output
        self._clean = strip_controls if output.isatty() else str

    def final(self, piece: str) -> None:
        self._output.write(self._clean(piece))
        self._output.flush()

    def provisional(self, text: str) -> None:
        pass


class Terminal:
    """Implements `AnswerText` with drafts dimmed after the final text.

    A draft ends before the window's edge, as it can only be removed on the cursor's line.
    """

    def __init__(self, output: TextIO) -> None:
        self._output = output
        self._column = 0  # after the final text; the window's width at the edge
        self._shown = 0  # columns of the draft

    def final(self, piece: str) -> None:
        clean, width = strip_controls(piece), self._width()
        for character in clean:
            self._column = 0 if character == "\n" else _behind(self._column, character, width)
        self._write(self._taken_back() + clean)

    def provisional(self, text: str) -> None:
        # At the edge, the cursor's line depends on the terminal.
        width = self._width()
        room = max(0, width - 1 - self._column)
        draft, used = "", 0
        for character in strip_controls(text).replace("\n", " ").replace("\t", " "):
            if (behind := used + _columns(character)) > room:
                break
            draft, used = draft + character, behind
        self._write(self._taken_back() + (f"{_DIM}{draft}{_NORMAL}" if used else ""))
        self._shown = used

    def _width(self) -> int:
        try:
            return os.get_terminal_size(self._output.fileno()).columns
        except OSError:
            return 0

    def _taken_back(self) -> str:
        back = f"\x1b[{self._shown}D{_ERASE}" if self._shown else ""
        self._shown = 0
        return back

    def _write(self, text: str) -> None:
        self._output.write(text)
        self._output.flush()


def answer_text(output: TextIO | None) -> AnswerText:
    """Returns a writer to `output`, or to nowhere for None."""
    if output is None:
        return Nowhere()
    obeys = output.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    return Terminal(output) if obeys else Plain(output)


def _behind(column: int, character: str, width: int) -> int:
    """The column after writing a character at `column`."""
    if character == "\t":
        return min((column // TAB + 1) * TAB, max(width - 1, 0))
    columns = _columns(character)
    return columns if column + columns > width else column + columns


def _columns(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1
