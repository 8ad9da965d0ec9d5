"""The suite `edgellm` stops where a way gives other tokens."""

from __future__ import annotations

import pytest

from scripts.bench.edgellm.device import Answer
from scripts.bench.edgellm.measure import check
from scripts.bench.edgellm.plan import NATURAL

pytestmark = pytest.mark.suite


def test_other_tokens_are_noticed() -> None:
    found = {
        ("one", NATURAL): [Answer([1, 2], 1.0, [])],
        ("two", NATURAL): [Answer([1], 1.0, [])],
        ("one", "64"): [Answer([3, 4, 5], 1.0, [])],
        ("two", "256"): [Answer([3, 4, 5, 6], 1.0, [])],
    }
    check(found)
    for place, tokens in ((("two", NATURAL), [3]), (("one", "64"), [3, 5])):
        with pytest.raises(RuntimeError, match="other tokens"):
            check({**found, place: [Answer(tokens, 1.0, [])]})
