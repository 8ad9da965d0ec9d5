"""Rolling digest of a token prefix: what a draft is conditioned on, in 61 bits.

The polynomial sum of (token + 1) * BASE**(distance to the end) modulo the Mersenne prime 2**61 - 1. It fences
drafts of another prefix. It is no cryptographic hash: whoever wants two prefixes to collide can find some.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

PRIME: Final = 2**61 - 1
BASE: Final = 0x167BDE172C16608E  # drawn once at random below PRIME; part of the protocol
EMPTY: Final = 0x0039A2DB49A459BE  # digest of the empty prefix; drawn once at random, likewise


def extend(digest: int, token: int) -> int:
    """The digest of a prefix whose digest is `digest`, with `token` behind it."""
    # + 1, so that token 0 changes the digest as the others do
    return (digest * BASE + token + 1) % PRIME


def digest(tokens: Iterable[int]) -> int:
    """The digest of a whole prefix, below `PRIME`."""
    value = EMPTY
    for token in tokens:
        value = extend(value, token)
    return value
