"""Whole answers over HTTP that are drafted and verified, by two real daemons, follow the law of the cloud's model."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from scipy import stats

from cloud.settings import CloudSettings
from common.configuration.configuration import load_settings
from common.daemon.side import Scope, SideRuntime
from common.methods.drafted.distributions import TargetView, VerifierDrawing
from common.sampling.rejection import Warp
from scripts.daemons import Pair
from tests.cloud.test_giving_up import OPEN
from tests.daemons.streaming import PATIENCE
from tests.daemons.wordy_model import SCORER, make_wordy_model
from tests.support.one_side import OneSide

QUESTION = "Where is my dance class, and what could help me with my health problem?"
ANSWERS = 160  # that a law is compared with
AT_ONCE = 8
CELLS = 12  # texts of their own in the comparison; all others together are one more
LEAST = 1e-4  # probability of a token that is looked behind
# The draft model is the cloud's, which says nearly the same of every token; so much colder, half of its drafts are
# rejected. If the residual were forgotten then, a token's law would be .07 nats off: this would fail with p < 1e-6.
FAR: dict[str, Any] = {"temperature": 1.0, "draft_temperature": 0.05, "documents": 0}


@pytest.fixture(scope="module")
def pair(fresh_data: Callable[[], Path]) -> Iterator[Pair]:
    data = fresh_data()
    model = {"model": make_wordy_model(data / "model"), "scorer": SCORER}
    with Pair(data, model | {"patience": 60.0}, model) as pair:
        yield pair


@pytest.mark.parametrize(
    "fields",
    [
        {"method": "dssd", "draft_length": 2, "top_k": 3},
        {"method": "qsv", "draft_length": 2, "top_k": 3, "resolution": 8},
    ],
    ids=lambda fields: str(fields["method"]),
)
def test_answers_follow_the_clouds_model(pair: Pair, fields: dict[str, Any]) -> None:
    """Over HTTP, two tokens at a time, against the law of the cloud's model alone; the draft model is far from it."""
    law = law_of_two_tokens(pair, int(fields.get("top_k", 0)))
    likeliest = sorted(law, key=lambda text: -law[text])[:CELLS]
    counts = Counter[str]()
    accepted = judged = 0
    for batch in range(ANSWERS // AT_ONCE):
        body = {"prompt": QUESTION, "n": AT_ONCE, "seed": 1000 * batch, "max_tokens": 2} | fields
        answer = httpx.post(f"{pair.url}/v1/completions", json=body | FAR, timeout=PATIENCE).json()
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


def law_of_two_tokens(pair: Pair, top_k: int) -> dict[str, float]:
    """The probability of the text of the first two tokens, by the cloud's model in this process."""
    flags = {"data": pair.data / "cloud", "threads": 1, **pair.cloud.flags}
    side = SideRuntime("cloud", load_settings(CloudSettings, overrides=flags))
    try:
        request = replace(OPEN, question=QUESTION, prompt=QUESTION, documents=0, max_tokens=2)
        judging = VerifierDrawing(Warp(FAR["temperature"], top_k), False)
        rows = OneSide(side.decoder, side.retrieve(request, Scope()).prompt, side.scorer, judging, 3)
        law: dict[str, float] = defaultdict(float)
        for first, probability in following(rows, []):
            for second, share in following(rows, [first]):
                law[side.tokenizer.decode([first, second])] += probability * share
        return law
    finally:
        side.close()


def following(rows: OneSide, path: list[int]) -> list[tuple[int, float]]:
    view = rows.draft(path).view
    assert isinstance(view, TargetView)
    found = view.distribution
    likely = found.probabilities > LEAST
    return list(zip(found.ids[likely].tolist(), found.probabilities[likely].tolist(), strict=True))
