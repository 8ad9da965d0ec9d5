"""The prefix digest tells prefixes apart."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proto.codes import EMPTY, PRIME, digest, extend
from proto.framing import pack
from proto.messages import Draft

tokens = st.lists(st.integers(0, 2**24 - 1), max_size=30)


@given(tokens, st.integers(0, 2**24 - 1))
def test_rolling_digest_is_that_of_the_whole_prefix(prefix: list[int], token: int) -> None:
    assert digest([]) == EMPTY
    assert extend(digest(prefix), token) == digest([*prefix, token])


@given(tokens)
def test_digest_fits_its_field(prefix: list[int]) -> None:
    assert digest(prefix) < PRIME
    pack(Draft(1, 0, len(prefix), digest(prefix), 0.0, 0, b""))
    pack(Draft(1, 0, len(prefix), PRIME - 1, 0.0, 0, b""))


@given(tokens, tokens)
def test_other_prefixes_have_other_digests(one: list[int], other: list[int]) -> None:
    assert (digest(one) == digest(other)) == (one == other)


def test_order_length_and_zeros_count() -> None:
    prefixes = [(), (0,), (0, 0), (0, 0, 0), (1,), (1, 2), (2, 1), (0, 1), (1, 0), (2**24 - 1,)]
    assert len({digest(prefix) for prefix in prefixes}) == len(prefixes)


def test_no_collision_among_all_short_prefixes() -> None:
    """2**17 prefixes of one bit per token: a 61-bit digest collides among them with probability 4e-9."""
    level, seen = [EMPTY], {EMPTY}
    for _ in range(16):
        level = [extend(value, bit) for value in level for bit in (0, 1)]
        seen.update(level)
    assert len(seen) == 2**17 - 1
