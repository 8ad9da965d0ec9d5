"""The file of a FAISS index, which can be deleted at any time.

It carries the name of its content and a checksum; a file that is missing, damaged or of another library is ignored.
"""

from __future__ import annotations

import hashlib
import logging
import os
from pathlib import Path
from typing import IO, Any

import faiss

from common.library import approximate
from common.library.index_header import HEADER, Header, header, written
from common.library.store import INDEX, Store
from common.process.files import replacing

TEMPORARY = "index.faiss.new"

_faiss: Any = faiss  # its type stubs lack the two callback classes
_log = logging.getLogger(__name__)


def write(folder: Path, index: Any, commit: str) -> None:
    """Replace the file, as a whole; only the holder of the writer lock may. A failure costs time, not content."""
    path = folder / INDEX
    try:
        with replacing(path, temporary=folder / TEMPORARY) as file:
            file.write(b" " * HEADER)
            faiss.write_index(index, _faiss.PyCallbackIOWriter(file.write))
            file.flush()
            told = Header(commit, _digest(file), index.nlist if approximate.is_approximate(index) else 0)
            file.seek(0)
            file.write(header(told))
    except (OSError, RuntimeError) as error:  # RuntimeError: FAISS's own, around a failed write
        _log.warning("the index file %s was not written, it is rebuilt when needed: %s", path, error)


def read(folder: Path, store: Store) -> Any:
    """The file's index when it holds the store's content or a former one, else None."""
    path = folder / INDEX
    try:
        with path.open("rb") as file:
            named = written(file.read(HEADER))
            if named is None or not store.descends_from(named.commit):
                return None
            if _digest(file) != named.sha256:
                _log.warning("the index file %s is damaged and is rebuilt", path)
                return None
            size = file.seek(0, os.SEEK_END)
            file.seek(HEADER)
            # Sizes that are stated inside can be no larger than the file: nothing is allocated for others.
            _faiss.set_deserialization_vector_byte_limit(size)
            _faiss.set_deserialization_loop_limit(size)
            index = faiss.read_index(_faiss.PyCallbackIOReader(file.read))
    except FileNotFoundError:
        return None
    except (OSError, RuntimeError, MemoryError) as error:
        _log.warning("the index file %s can't be read and is rebuilt: %s", path, error)
        return None
    if _is_usable(index):
        return index
    _log.warning("the index file %s is of another kind and is rebuilt", path)
    return None


def _is_usable(index: Any) -> bool:
    """Whether the index is of a kind that is written here, and consistent."""
    if approximate.is_approximate(index):
        return approximate.is_sound(index)
    if not isinstance(index, faiss.IndexIDMap2):
        return False
    inner = faiss.downcast_index(index.index)
    counts = {int(index.ntotal), int(inner.ntotal), index.id_map.size()}
    return (
        isinstance(inner, faiss.IndexFlatIP)
        and len(counts) == 1
        and inner.d == index.d
        and inner.metric_type == faiss.METRIC_INNER_PRODUCT
    )


def _digest(file: IO[bytes]) -> str:
    file.seek(HEADER)
    return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
