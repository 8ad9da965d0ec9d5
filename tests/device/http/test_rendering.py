"""Server-sent events as clients take them apart."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from device.http.answers import event


@given(st.text(st.sampled_from('a\\"\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029é𝄞')))
def test_an_event_is_one_line_whatever_its_reader_takes_for_a_lines_end(text: str) -> None:
    data, empty = event({"text": text}).decode().splitlines()
    assert data.startswith("data: ") and not empty
    assert json.loads(data.removeprefix("data: ")) == {"text": text}
