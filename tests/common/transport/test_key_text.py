"""Public keys as text for people and shells."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st
from zmq.utils import z85

from common.transport.address import TransportError
from common.transport.keys import LENGTH, key_of, key_text


@given(st.binary(min_size=32, max_size=32))
def test_a_key_comes_back_and_needs_no_quotes(raw: bytes) -> None:
    key = z85.encode(raw).decode("ascii")
    text = key_text(key)
    assert key_of(text) == key_of(text.upper()) == key
    assert len(text) == LENGTH and text.isalnum() and shlex.quote(text) == text


@pytest.mark.parametrize("text", ["", "a", "1" * 52, "a" * 51 + "b", "a" * 53, "é" * 52, "a" * 48 + "====", "-" * 52])
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(TransportError, match="52 letters and digits"):
        key_of(text)
