"""Faults under answers that are drafted and verified, with real processes."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from typing import Any

import httpx
import pytest
from scipy import stats

from cloud.settings import CloudSettings
from common.configuration import load_settings
from common.methods.rejection.drawing import Judged, Judging
from common.runtime.side import SideRuntime
from common.sampling.warping import Warp
from scripts.daemons import Pair
from tests.cloud.test_giving_up import OPEN
from tests.daemons.streaming import PATIENCE, Stream
from tests.daemons.test_faults import BEGUN, LONGEST, QUESTION, SAMPLED, SHORT, Place, damaged, place
from tests.support.one_side import OneSide

__all__ = ["damaged", "place"]

ANSWERS = 240  # that a law is compared with
CELLS = 12  # texts of their own in the comparison; all others together are one more
LEAST = 1e-4  # probability of a token that is looked behind
FAR: dict[str, Any] = {
    "temperature": 2.0,
    "draft_temperature": 0.7,
    "documents": 0,
}  # from the cloud's model, which both daemons have here
DRAFTED: tuple[dict[str, Any], ...] = ({"method": "coupled"}, {"method": "dssd", "draft_length": 3})
by_method = pytest.mark.parametrize("fields", DRAFTED, ids=lambda fields: str(fields["method"]))


def running(pair: Pair, tokens: int, fields: dict[str, Any]) -> Stream:
    return Stream(pair.url, QUESTION, max_tokens=tokens, **SAMPLED, **fields)


def verified(pair: Pair, fields: dict[str, Any]) -> dict[str, Any]:
    """An answer that goes as it should."""
    answer: dict[str, Any] = pair.complete(QUESTION, max_tokens=SHORT, **SAMPLED, **fields)
    assert answer["dragon"]["degraded"] == []
    assert answer["dragon"]["notes"] == []
    return answer


@by_method
def test_cloud_killed_in_the_middle(place: Place, fields: dict[str, Any]) -> None:
    with running(place.pair, SHORT, fields) as stream:
        stream.read(BEGUN)
        place.cloud.kill()
        report = stream.finish()
    degraded = report["degraded"]
    assert report["tokens"] == SHORT
    assert degraded == list(range(degraded[0], SHORT))
    assert degraded[0] >= BEGUN
    (note,) = report["notes"]
    assert note == f"The cloud took no part after {degraded[0]} tokens: it did not answer in time."
    place.pair.wait_for_cloud("away")
    alone = place.pair.complete(QUESTION, max_tokens=SHORT, **SAMPLED, **fields)["dragon"]
    assert alone["degraded"] == list(range(SHORT))
    assert alone["sources"] == []  # no private document takes part: what is drafted from it could leave later
    place.repair()
    verified(place.pair, fields)


@by_method
def test_a_cloud_that_returns_verifies_again(place: Place, fields: dict[str, Any]) -> None:
    with running(place.pair, LONGEST, fields) as stream:
        stream.read(BEGUN)
        place.proxy.black_hole(True)
        try:
            stream.read_for(3.0)
        finally:
            place.proxy.black_hole(False)
        report = stream.finish()
    degraded = report["degraded"]
    assert report["tokens"] == LONGEST
    assert degraded[0] >= BEGUN
    assert degraded[-1] < LONGEST - 1
    place.repair()
    verified(place.pair, fields)


@by_method
def test_connections_that_are_cut_change_no_token(place: Place, fields: dict[str, Any]) -> None:
    expected = verified(place.patient, fields)
    with running(place.patient, SHORT, fields) as stream:
        stream.read(BEGUN)
        for _ in range(4):
            place.proxy.cut()
            stream.read(BEGUN)
        report = stream.finish()
    assert stream.text == expected["choices"][0]["message"]["content"]
    assert report["pieces"] == expected["dragon"]["pieces"]
    assert report["degraded"] == []


@by_method
def test_cloud_replaced_in_the_middle(place: Place, fields: dict[str, Any]) -> None:
    expected = verified(place.patient, fields)
    with running(place.patient, SHORT, fields) as stream:
        stream.read(BEGUN)
        replaced = place.cloud
        place.start_both_clouds()
        place.use_the_other_cloud()
        replaced.kill()
        report = stream.finish()
    assert report["degraded"] == []
    assert report["pieces"] == expected["dragon"]["pieces"]
    place.repair()


@pytest.mark.parametrize(
    "fields",
    [
        {"method": "dssd", "draft_length": 2, "top_k": 3},
        {"method": "qsv", "draft_length": 2, "top_k": 3, "resolution": 8},
    ],
    ids=lambda fields: str(fields["method"]),
)
def test_answers_follow_the_clouds_model(place: Place, fields: dict[str, Any]) -> None:
    """Over HTTP, two tokens at a time, against the law of the cloud's model alone; the draft model is far from it."""
    law = law_of_two_tokens(place, int(fields.get("top_k", 0)))
    likeliest = sorted(law, key=lambda text: -law[text])[:CELLS]
    counts = Counter[str]()
    accepted = judged = 0
    for batch in range(ANSWERS // 8):
        body = {"prompt": QUESTION, "n": 8, "seed": 1000 * batch, "max_tokens": 2} | fields
        answer = httpx.post(f"{place.patient.url}/v1/completions", json=body | FAR, timeout=PATIENCE).json()
        for choice in answer["choices"]:
            counts[choice["text"]] += 1
            accepted += choice["dragon"]["device"]["accepted"]
            judged += choice["dragon"]["device"]["accepted"] + choice["dragon"]["device"]["rollbacks"]
    assert 0.2 < accepted / judged < 0.95  # otherwise nothing is shown
    seen = [counts[text] for text in likeliest]
    expected = [ANSWERS * law[text] for text in likeliest]
    if ANSWERS - sum(expected) > 1:  # else there are no others
        seen.append(ANSWERS - sum(seen))
        expected.append(ANSWERS - sum(expected))
    assert sum(seen) == ANSWERS
    expected = [ANSWERS * each / sum(expected) for each in expected]
    assert stats.power_divergence(seen, expected, lambda_="log-likelihood").pvalue > 1e-3


def law_of_two_tokens(place: Place, top_k: int) -> dict[str, float]:
    """The probability of the text of the first two tokens, by the cloud's model in this process."""
    flags = {"data": place.pair.data / "cloud", "threads": 1, **place.cloud.flags}
    side = SideRuntime("cloud", load_settings(CloudSettings, overrides=flags))
    try:
        request = replace(OPEN, question=QUESTION, prompt=QUESTION, documents=0, max_tokens=2)
        rows = OneSide(side.decoder, side.retrieve(request).prompt, side.scorer, Judging(Warp(2.0, top_k), False), 3)
        law: dict[str, float] = defaultdict(float)
        for first, probability in following(rows, []):
            for second, share in following(rows, [first]):
                law[side.tokenizer.decode([first, second])] += probability * share
        return law
    finally:
        side.close()


def following(rows: OneSide, path: list[int]) -> list[tuple[int, float]]:
    view = rows.draft(path).view
    assert isinstance(view, Judged)
    found = view.distribution
    likely = found.probabilities > LEAST
    return list(zip(found.ids[likely].tolist(), found.probabilities[likely].tolist(), strict=True))
