"""FAISS's selectors of ids: the vectors at which a search among chosen ones looks."""

from __future__ import annotations

from typing import Any, Final

import faiss
import numpy as np
from numpy.typing import NDArray

_faiss: Any = faiss  # its type stubs lack that bits come as an array
_SPREAD: Final = 16  # times as many ids as are chosen, at most, have a bit each


def selector(chosen: NDArray[np.int64]) -> Any:
    """The selector of `chosen` ids [n], ascending, at least one.

    Every search makes one and asks it about every vector, for which bits take a fraction of a hash set's time. That one
    is for few ids of many, and for ids so large, in a database that somebody hands on, that bits would fill the memory.
    """
    if chosen[0] < 0 or chosen[-1] >= _SPREAD * len(chosen):
        return faiss.IDSelectorBatch(chosen)
    bits = np.zeros(int(chosen[-1]) + 1, np.bool_)
    bits[chosen] = True
    return _faiss.IDSelectorBitmap(np.packbits(bits, bitorder="little"))
