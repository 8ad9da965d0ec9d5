"""Removes the stored keys and values of removed documents."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from common.engine.kv.store_folder import clear_store
from common.library.errors import EmbedderChanged, LibraryError, LibraryLocked, PathError

REFUSALS: Final = (PathError, LibraryLocked, EmbedderChanged)  # errors of a library change before it begins


def forget_states(folder: Path) -> None:
    """Removes all keys and values in `folder`: entries do not name their documents.

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
    """Removes all keys and values in `folder` after a removal inside the block.

    A failed removal counts too, unless refused. Raises `LibraryError`.
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
