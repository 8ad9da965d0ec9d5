"""Text that people give to commands, of which some bytes may be no characters."""

from __future__ import annotations

import sys
from collections.abc import Callable

from device.cli.failures import bad_input


def is_text(text: str) -> bool:
    """Whether all bytes of an argument, or of a line, were characters."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def from_stdin(read: Callable[[], str]) -> str:
    """The text that `read` gets from standard input. Raises `CommandFailed` where that is in another encoding."""
    try:
        text = read()
    except UnicodeDecodeError:
        text = "\udcff"  # as where the terminal's encoding passes such bytes on
    if not is_text(text):
        raise bad_input(
            f"standard input is not text in the encoding {sys.stdin.encoding}: convert it, for example with iconv"
        )
    return text
