"""Faults under answers that are drafted and verified, with real processes.

Drafts that are coupled and drafts that carry distributions both meet every process that ends. Lines that fail are met
by the latter: every method meets them in `tests/common/methods/drafted` and `tests/cloud/test_reconnecting.py`.
"""

from __future__ import annotations

from typing import Any

import pytest

from common.answer.report import untold
from scripts.daemons import Pair
from scripts.soak.checker import UNREAD
from tests.daemons.streaming import Stream, complete_together
from tests.daemons.test_faults import BEGUN, LONG, QUESTION, SAMPLED, SHORT, Place, damaged, place

__all__ = ["damaged", "place"]

DRAFTED: tuple[dict[str, Any], ...] = ({"method": "coupled"}, {"method": "dssd", "draft_length": 3})
by_method = pytest.mark.parametrize("fields", DRAFTED, ids=lambda fields: str(fields["method"]))


def running(pair: Pair, tokens: int, fields: dict[str, Any]) -> Stream:
    return Stream(pair.url, QUESTION, max_tokens=tokens, **SAMPLED, **fields)


def verified(pair: Pair, fields: dict[str, Any]) -> dict[str, Any]:
    """An answer that goes as it should."""
    answer = complete_together(pair, QUESTION, max_tokens=SHORT, **SAMPLED, **fields)
    assert answer["dragon"]["notes"] == []
    return answer


@by_method
def test_cloud_killed_in_the_middle(place: Place, fields: dict[str, Any]) -> None:
    with running(place.pair, LONG, fields) as stream:
        stream.read(BEGUN)
        place.cloud.kill()
        report = stream.finish()
    degraded = report["degraded"]
    assert report["tokens"] == LONG
    assert degraded == list(range(degraded[0], LONG))
    assert degraded[0] >= BEGUN
    assert report["notes"] == [
        f"The cloud took no part after {degraded[0]} tokens: it did not answer in time.",
        untold(degraded[0], LONG),
    ]
    place.pair.wait_for_cloud("away")
    alone = place.pair.complete(QUESTION, max_tokens=SHORT, **SAMPLED, **fields)["dragon"]
    assert alone["degraded"] == list(range(SHORT))
    assert alone["sources"] == []  # no private document takes part: what is drafted from it could leave later
    place.repair()
    verified(place.pair, fields)


def test_drafts_without_the_clouds_passages_are_told_of(place: Place) -> None:
    """They are others than with them, so the tokens that hold are others for the same seed."""
    place.proxy.black_hole(True)
    try:
        with running(place.pair, LONG, DRAFTED[1]) as stream:
            stream.read(BEGUN)
            place.proxy.black_hole(False)
            report = stream.finish()
    finally:
        place.proxy.black_hole(False)
    (position,) = (int(found[1]) for note in report["notes"] if (found := UNREAD.match(note)))
    assert position >= BEGUN
    assert report["degraded"][:position] == list(range(position))
    assert position not in report["degraded"]
    place.repair()
    verified(place.pair, DRAFTED[1])


@by_method
def test_cloud_replaced_in_the_middle(place: Place, fields: dict[str, Any]) -> None:
    expected = verified(place.patient, fields)
    place.start_both_clouds()  # before the answer, which would be over
    with running(place.patient, SHORT, fields) as stream:
        stream.read(BEGUN)
        place.replace_cloud()
        report = stream.finish()
    assert report["degraded"] == []
    assert report["pieces"] == expected["dragon"]["pieces"]
    place.repair()
