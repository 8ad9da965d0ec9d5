"""A process that adds a folder with the toy embedder and reports every step on stdout.

Usage: python -m tests.common.library.ingesting LIBRARY DOCUMENTS [wait]
With `wait`, every step waits for a line on stdin.
"""

from __future__ import annotations

import sys
from pathlib import Path

from common.library.chunks import Chunker
from common.library.embedder import SentenceTransformerEmbedder
from common.library.library import Library
from tests.common.library.toy_embedder import ToyEmbedder


def step(done: int, total: int, path: str, place: str) -> None:
    print(done, total, flush=True)
    if sys.argv[3:]:
        sys.stdin.readline()


def main() -> None:
    chunker = Chunker(SentenceTransformerEmbedder().tokenizer_file, 32)
    with Library(Path(sys.argv[1]), ToyEmbedder(), chunker=chunker) as library:
        library.add(Path(sys.argv[2]), step)
    print("done", flush=True)


if __name__ == "__main__":
    main()
