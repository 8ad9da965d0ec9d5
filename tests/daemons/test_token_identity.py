"""Two real daemons, with a network of random delays between them, give one process's tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from cloud.settings import CloudSettings
from common.configuration.configuration import load_settings
from common.configuration.settings import Settings
from common.daemon.side import Scope, SideRuntime
from common.sampling.certificate import WHOLE, eta_fixed
from common.sampling.race import LocalRace, RaceSampler
from device.settings import DeviceSettings
from proto.messages import Open
from scripts.daemons import Pair, free_port
from scripts.netlab.faulty_proxy import FaultyProxy, Line
from tests.daemons.streaming import complete_with_shares
from tests.support.one_side import OneSide

QUESTIONS = (
    "What is the best-selling game of the kind I like?",
    "Where is my dance class?",
    "What could help me with my health problem?",
)
ASKED = ((QUESTIONS[0], 1.0), (QUESTIONS[0], 0.0), (QUESTIONS[1], 1.0), (QUESTIONS[2], 1.0))
IN_ONE_ROW = ((QUESTIONS[2], 2.0), (QUESTIONS[0], 0.0))
SEED = 20
LENGTH = 16
MODES: tuple[dict[str, object], ...] = (
    {"placement": "device"},
    {"placement": "device", "method": "token-wise"},
    {"placement": "cloud"},
    {"placement": "mirrored"},
    {"placement": "greedy"},
    {"placement": "random"},
    {"placement": "device", "entries": 4},
    {"method": "fetch-text"},
    {"placement": "device", "aggregation": "context"},
    {"placement": "device", "aggregation": "blocks"},
    {"placement": "mirrored", "aggregation": "blocks"},
)
Expected = dict[object, dict[tuple[str, float], str]]  # by aggregation


@pytest.fixture(scope="module", params=["lexical", "contrast"])
def scorer(request: pytest.FixtureRequest) -> str:
    """The document weights: one that reads the answer so far, and one that reads the model's predictions."""
    return str(request.param)


@pytest.fixture(scope="module")
def pair(fresh_data: Callable[[], Path], scorer: str) -> Iterator[Pair]:
    port = free_port()
    slow = Line(delay=0.005, jitter=0.02)  # a few steps of the model
    with FaultyProxy(port, up=slow, down=slow, seed=3) as proxy:
        between = int(proxy.address.rpartition(":")[2])
        device = {"privacy": "balanced", "patience": 60.0, "scorer": scorer}
        with Pair(fresh_data(), device, {"scorer": scorer}, between=between, cloud_port=port) as pair:
            yield pair


class OneProcess:
    """Both sides' documents in one loop: no drafts, no messages, no session."""

    def __init__(self, data: Path, **settings: object) -> None:
        kinds: tuple[type[Settings], ...] = (DeviceSettings, CloudSettings)
        self.sides = [
            SideRuntime(kind.role, load_settings(kind, overrides={"data": data / kind.role, "threads": 1} | settings))
            for kind in kinds
        ]

    def close(self) -> None:
        for side in self.sides:
            side.close()

    def answer(self, question: str, temperature: float, aggregation: str = "output") -> str:
        prompt = f"\nQuestion: {question}\nAnswer:"
        request = Open(
            1,
            "speculative",
            question,
            prompt,
            4,
            SEED,
            temperature,
            "race",
            "race",
            32,
            True,
            1.0,
            "device",
            "both",
            1,
            LENGTH,
            aggregation,  # type: ignore[arg-type]
        )
        decodings = []
        for side in self.sides:
            vocabulary = side.decoder.vocabulary
            drafting = RaceSampler(SEED, temperature, vocabulary, vocabulary)
            found = side.retrieve(request, Scope())
            decodings.append(OneSide(side.decoder, found.prompt, side.scorer, drafting, LENGTH + 1))
        answer: list[int] = []
        eos = self.sides[0].decoder.eos
        while len(answer) < LENGTH and not (answer and answer[-1] in eos):
            answer.append(self._next(decodings, answer))
        return self.sides[0].tokenizer.decode([token for token in answer if token not in eos]).lstrip()

    def _next(self, decodings: list[OneSide], answer: list[int]) -> int:
        views, evidence = [], []
        for decoding in decodings:
            drawn = decoding.draft(answer)
            view = drawn.view
            assert isinstance(view, LocalRace)
            views.append(view.speed_of)
            evidence.append(drawn.evidence)
        eta = eta_fixed(evidence[0], evidence[1])
        scores = {
            token: eta * views[0].get(token, 0.0) + (WHOLE - eta) * views[1].get(token, 0.0)
            for token in views[0] | views[1]
        }
        return min(scores, key=lambda token: (-scores[token], token))


@pytest.fixture(scope="module")
def expected(fresh_data: Callable[[], Path], scorer: str) -> Expected:
    process = OneProcess(fresh_data(), scorer=scorer)
    try:
        return {
            aggregation: {asked: process.answer(*asked, aggregation) for asked in questions}
            for aggregation, questions in (
                ("output", ASKED if scorer == "lexical" else ASKED[:1]),
                ("context", IN_ONE_ROW[:1]),
                ("blocks", IN_ONE_ROW),
            )
        }
    finally:
        process.close()


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: "-".join(map(str, mode.values())))
def test_every_mode_gives_the_same_tokens(pair: Pair, expected: Expected, mode: dict[str, object]) -> None:
    for (question, temperature), answer in expected[mode.get("aggregation", "output")].items():
        response = pair.complete(question, temperature=temperature, seed=SEED, max_tokens=LENGTH, **mode)
        assert response["choices"][0]["message"]["content"] == answer, (question, temperature)
        report = response["dragon"]
        assert report["degraded"] == []
        assert report["disagreements"] == 0
        assert {source["side"] for source in report["sources"]} == {"device", "cloud"}
        assert all(("chunk" in source) == (source["side"] == "device") for source in report["sources"])


def test_documents_in_one_row_give_other_answers(expected: Expected) -> None:
    """Control: the identity above says something of each only if they differ."""
    answers = [expected[aggregation][IN_ONE_ROW[0]] for aggregation in ("context", "blocks")]
    assert answers[0] != answers[1] and not {*answers} & {*expected["output"].values()}


def test_one_document_of_each_side_is_read_alike_in_a_row_of_its_own(pair: Pair, scorer: str) -> None:
    asked: dict[str, object] = {"temperature": 1.0, "seed": SEED, "max_tokens": LENGTH, "documents": 1}
    ways = ("output", "context", "blocks")
    rows, *others = (complete_with_shares(pair, QUESTIONS[0], **asked, aggregation=way) for way in ways)
    for other in others:
        assert other["choices"] == rows["choices"]
        assert other["dragon"]["sources"] == rows["dragon"]["sources"]
        if scorer == "contrast":  # else a row per document knows nothing of what the model says without any
            shares = [np.array(each["dragon"]["attribution"]) for each in (rows, other)]
            assert np.abs(shares[0] - shares[1]).max() < 0.02, "the cloud's come in steps of 1/255"


def test_the_answers_differ_with_the_seed(pair: Pair, expected: Expected) -> None:
    """Control: the identity above would say little if all seeds gave one answer."""
    question = QUESTIONS[0]
    answers = set[str]()
    for seed in range(5):
        response = pair.complete(question, temperature=1.0, seed=seed, max_tokens=LENGTH)
        answers.add(response["choices"][0]["message"]["content"])
        if len(answers) > 2:
            return
    pytest.fail(f"five seeds gave only {answers}")
