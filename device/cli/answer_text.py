"""Places that an answer's text is written to as it comes: a terminal, a file or a pipe, or none."""

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
        """Write what follows. Drafts are taken back."""
        ...

    def provisional(self, text: str) -> None:
        """Show what will probably follow, in place of what was shown so before."""
        ...


class Nowhere:
    """Implements `AnswerText` for nobody."""

    def final(self, piece: str) -> None:
        pass

    def provisional(self, text: str) -> None:
        pass


class Plain:
    """Implements `AnswerText` for files, pipes, and terminals that obey nothing: final text only, as it is."""

    def __init__(self, output: TextIO) -> None:
        self._output = output
        self._clean = strip_controls if output.isatty() else str

    def final(self, piece: str) -> None:
        self._output.write(self._clean(piece))
        self._output.flush()

    def provisional(self, text: str) -> None:
        pass


class Terminal:
    """Implements `AnswerText` with drafts dimmed behind the final text.

    A draft ends before the edge of the window, so that it is on the line of the cursor and can be taken back; what
    scrolled away could not.
    """

    def __init__(self, output: TextIO) -> None:
        self._output = output
        self._column = 0  # of the cursor behind the final text; at the edge, that of the window's width
        self._shown = 0  # columns of the draft

    def final(self, piece: str) -> None:
        clean, width = strip_controls(piece), self._width()
        for character in clean:
            self._column = 0 if character == "\n" else _behind(self._column, character, width)
        self._write(self._taken_back() + clean)

    def provisional(self, text: str) -> None:
        # At the edge itself, terminals differ in whether the cursor is on the next line already.
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
    """A writer to `output` (None: nowhere)."""
    if output is None:
        return Nowhere()
    obeys = output.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    return Terminal(output) if obeys else Plain(output)


def _behind(column: int, character: str, width: int) -> int:
    """The column behind a character that is written at `column` of a window."""
    if character == "\t":
        return min((column // TAB + 1) * TAB, max(width - 1, 0))
    columns = _columns(character)
    return columns if column + columns > width else column + columns


def _columns(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1
