"""Removal of the documents' stored keys and values, where documents are removed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from common.engine.kv.store_folder import clear_store
from common.library.errors import EmbedderChanged, LibraryError, LibraryLocked, PathError

REFUSALS: Final = (PathError, LibraryLocked, EmbedderChanged)  # of a change of a library, before it has begun


def forget_states(folder: Path) -> None:
    """Remove all keys and values in `folder`: which of them are a removed document's can't be told.

    Raises `LibraryError`.
    """
    try:
        clear_store(folder)
    except OSError as error:
        raise LibraryError(
            f"the removed documents' keys and values in {folder} can't be removed"
            f" ({(error.strerror or str(error)).lower()}): remove that folder"
        ) from error


@contextmanager
def forgetting_states(folder: Path) -> Iterator[None]:
    """Remove all keys and values in `folder` when documents have been removed inside, or may have been: not where that
    was refused. Raises `LibraryError`.
    """
    refused = False
    try:
        yield
    except REFUSALS:
        refused = True
        raise
    finally:
        if not refused:
            forget_states(folder)
