from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from common.library.chunks import Chunker
from common.library.embedder import SentenceTransformerEmbedder
from common.library.library import Library
from common.library.store import Store
from tests.common.library.toy_embedder import ToyEmbedder

Write = Callable[[str, str | bytes], Path]


@pytest.fixture(scope="session")
def embedder() -> SentenceTransformerEmbedder:
    """The real model, loaded once."""
    torch.set_num_threads(1)
    loaded = SentenceTransformerEmbedder()
    loaded.encode(["load"])
    return loaded


@pytest.fixture(scope="session")
def chunker() -> Chunker:
    return Chunker(SentenceTransformerEmbedder().tokenizer_file, 32)


@pytest.fixture
def toy() -> ToyEmbedder:
    return ToyEmbedder()


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    folder = tmp_path / "documents"
    folder.mkdir()
    return folder


@pytest.fixture
def write(documents: Path) -> Write:
    """Write a document whose time stamp is old enough to be trusted."""

    def write(name: str, content: str | bytes) -> Path:
        path = documents / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        an_hour_ago = time.time_ns() - 3600 * 10**9
        os.utime(path, ns=(an_hour_ago, an_hour_ago))
        return path

    return write


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """The database of a library that is nothing else."""
    opened = Store(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def library(tmp_path: Path, toy: ToyEmbedder, chunker: Chunker) -> Iterator[Library]:
    """A library with the toy embedder."""
    with Library(tmp_path / "library", toy, chunker=chunker) as opened:
        yield opened
