"""Reasons why there is no memory for the keys and values of an answer. Their texts are for users."""

from __future__ import annotations


class KvMemoryFullError(RuntimeError):
    """The budget holds no more rows now; `needed` and `free` are bytes."""

    def __init__(self, needed: int, free: int) -> None:
        super().__init__(
            f"keys and values of this answer need {_mebibytes(needed)}, and {_mebibytes(free)} of the budget (kv_bytes)"
            " are free"
        )
        self.needed = needed
        self.free = free


class KvTooLargeError(KvMemoryFullError):
    """The budget never holds such rows: `needed` bytes, with a limit of `free`."""

    def __init__(self, needed: int, limit: int) -> None:
        RuntimeError.__init__(
            self,
            f"keys and values of this answer need {_mebibytes(needed)}, and {_mebibytes(limit)} are all that there is "
            "for running answers: ask with fewer or shorter documents or for a shorter answer, or have kv_bytes set to "
            f"{needed} or more",
        )
        self.needed, self.free = needed, limit


class KvAllocationError(RuntimeError):
    """The system has no memory for `needed` bytes, although the budget allows them."""

    def __init__(self, needed: int) -> None:
        super().__init__(
            f"the machine has no {_mebibytes(needed)} left for keys and values, although kv_bytes allows for them: set "
            "a smaller kv_bytes, or end what else takes memory"
        )


class KvWaitError(RuntimeError):
    """Others have had the memory for `seconds`, as long as somebody waits for it."""

    def __init__(self, needed: int, seconds: float) -> None:
        super().__init__(
            f"keys and values of this answer need {_mebibytes(needed)}, and answers that are under way have not left "
            f"that of the budget (kv_bytes) for {seconds:.0f} seconds"
        )


def _mebibytes(count: int) -> str:
    return f"{count / 2**20:.{0 if count >= 100 * 2**20 else 1}f} MiB"
