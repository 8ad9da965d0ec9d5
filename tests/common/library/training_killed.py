"""A process that trains an approximate index and is killed when its file is about to take its place.

Usage: python -m tests.common.library.training_killed LIBRARY APPROXIMATE_FROM
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import numpy as np

from common.library.index import VectorIndex
from common.library.store import Store


def main() -> None:
    folder = Path(sys.argv[1])
    store, index = Store(folder), VectorIndex(folder, int(sys.argv[2]))
    for _ in range(2):
        with store.reading():
            index.refresh(store)
            index.search(store, np.ones(store.state().dimension or 0, np.float32), 1)
        index.finish_training()
    if not index.approximate:
        raise SystemExit("nothing was trained")
    os.replace = lambda *paths: os.kill(os.getpid(), signal.SIGKILL)
    index.save(store)


if __name__ == "__main__":
    main()
