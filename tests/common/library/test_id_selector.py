"""Selectors of ids: they choose these and no others, whatever the ids, and take no room for others."""

from __future__ import annotations

import faiss
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.library.approximate import selector

SMALL = st.integers(0, 300)
ANY = st.integers(-(2**63), 2**63 - 1)


@given(
    chosen=st.sets(SMALL, min_size=1) | st.sets(ANY, min_size=1) | st.sets(SMALL | ANY, min_size=1), others=st.sets(ANY)
)
def test_it_chooses_these_and_no_others(chosen: set[int], others: set[int]) -> None:
    made = selector(np.array(sorted(chosen), np.int64))
    asked = chosen | others | set(range(-1, 310)) | {max(chosen) // 8 * 8 + bit for bit in range(-8, 16)}
    assert {each for each in asked if -(2**63) <= each < 2**63 and made.is_member(each)} == chosen


def test_of_much_of_a_library_no_hash_set_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """At every search, while all others wait."""
    monkeypatch.setattr(faiss, "IDSelectorBatch", None)
    made = selector(np.arange(1, 100_000, 8))
    assert [each for each in range(40) if made.is_member(each)] == [1, 9, 17, 25, 33]
