"""Functions compiled by Numba, once for a machine, in seconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba


def compiled(function: Callable[..., Any], *, without_gil: bool = False) -> Any:
    """`function`, compiled when it is first called, and kept for later processes where that may be written.

    Compiled code computes the same bits everywhere: IEEE operations in the order that is written, none of them fused or
    reordered. With `without_gil` other threads run meanwhile.
    """
    try:
        return numba.njit(cache=True, nogil=without_gil)(function)
    except RuntimeError:  # neither beside the file nor in the user's cache may anything be written
        return numba.njit(nogil=without_gil)(function)
