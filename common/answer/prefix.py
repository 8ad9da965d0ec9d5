"""The tokens of one answer with the digests of their prefixes."""

from __future__ import annotations

from proto.digest import EMPTY, extend


class Prefix:
    """Committed tokens followed by drafted ones, and the digest of every prefix of this path.

    A change takes O(1) time, or O(n) when it removes n tokens.
    """

    def __init__(self) -> None:
        self.path: list[int] = []  # committed tokens, then this side's drafts
        self.length = 0  # how many of them are committed
        self._digests: list[int] = [EMPTY]

    @property
    def path_length(self) -> int:
        return len(self.path)

    @property
    def path_digest(self) -> int:
        return self._digests[-1]

    def committed(self) -> list[int]:
        return self.path[: self.length]

    def digest(self, length: int) -> int:
        """Digest of the first `length` tokens of the path."""
        return self._digests[length]

    def extend(self, token: int) -> None:
        """Append a drafted token."""
        self.path.append(token)
        self._digests.append(extend(self._digests[-1], token))

    def commit(self) -> None:
        """Turn the first drafted token into a committed one."""
        self.length += 1

    def roll_back(self) -> None:
        """Forget the drafted part."""
        self._trim(self.length)

    def cut(self, length: int) -> None:
        """Forget everything after the first `length` tokens, committed ones included."""
        self.length = min(self.length, length)
        self._trim(self.length)

    def _trim(self, length: int) -> None:
        del self.path[length:]
        del self._digests[length + 1 :]
