"""Patterns of documents by folder, file and tag in requests: `journal/**`, `*.pdf`, `tag:work`."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Final

from proto.messages import LONGEST_PATTERN, MOST_PATTERNS

TAG: Final = "tag:"
LONGEST_TAG: Final = 64  # characters


def check_patterns(patterns: Sequence[str]) -> None:
    """Raises `ValueError`, one clause without the patterns, for invalid ones."""
    if len(patterns) > MOST_PATTERNS:
        raise ValueError(f"there may be up to {MOST_PATTERNS} patterns")
    for number, pattern in enumerate(patterns, 1):
        if (problem := _problem(pattern)) is not None:
            raise ValueError(f"pattern {number} {problem}")


def checked_tag(tag: str) -> str:
    """Returns the tag without surrounding space. Raises `ValueError`, one clause."""
    kept = normalised(tag.strip())
    if not 0 < len(kept) <= LONGEST_TAG:
        raise ValueError(f"a tag has 1 to {LONGEST_TAG} characters")
    if _has_controls(kept):
        raise ValueError("a tag has no control characters")
    return kept


def normalised(text: str) -> str:
    """Returns text with one code per character: file systems encode accents differently."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def _problem(pattern: str) -> str | None:
    if _has_controls(pattern):
        return "has control characters"
    if len(pattern.encode()) > LONGEST_PATTERN:
        return f"is longer than {LONGEST_PATTERN} bytes"
    if pattern.startswith(TAG):
        try:
            checked_tag(pattern.removeprefix(TAG))
        except ValueError as error:
            return f"names no tag: {error}"
        return None
    parts = pattern.removesuffix("/").split("/")
    if not pattern.strip() or any(part in ("", ".", "..") for part in parts):
        return (
            "is no path below an added folder: write it as `dragon library list` shows it, without a / in front, "
            "or * for every document"
        )
    return None


def _has_controls(text: str) -> bool:
    return any(unicodedata.category(character) in ("Cc", "Cs") for character in text)
