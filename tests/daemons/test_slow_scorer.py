"""Both sides' engines over sockets, with document weights from a cross-encoder: one process's tokens, however slow."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from cloud.sessions import Sessions
from cloud.settings import CloudSettings
from common.answer.request import AnswerFailed, Request
from common.daemon.start import Ticker
from common.library.embedder import SentenceTransformerEmbedder
from common.scoring.choice import load_scorer
from common.scoring.lagged import LaggedScorer
from common.transport.cloud_link import CloudLink
from common.transport.device_link import DeviceLink
from device.engine import DeviceEngine
from device.interface import Finished
from device.settings import DeviceSettings
from scripts.daemons import free_port
from scripts.netlab.faulty_proxy import FaultyProxy, Line
from tests.common.scoring.tiny_encoders import make_cross_encoder
from tests.daemons.test_token_identity import LENGTH, SEED, OneProcess
from tests.daemons.test_token_identity import QUESTIONS as ALL_QUESTIONS
from tests.daemons.wordy_model import make_wordy_model
from tests.support.generations import Iterated

QUESTIONS = ALL_QUESTIONS[:2]
TEMPERATURE = 1.0
PERIOD = 2  # shorter than what is drafted ahead: drafts that are rolled back were scored
SCALE = 30.0  # a model of random weights, made to swing from one document to another
PATIENCE = 60.0  # seconds


@dataclass(frozen=True, slots=True)
class Town:
    """A device and a cloud in this process, and what their decoders say without any network."""

    engine: DeviceEngine
    process: OneProcess

    def ask(self, question: str, **changes: object) -> Finished:
        prompt = f"\nQuestion: {question}\nAnswer:"
        fields = {"max_tokens": LENGTH, "temperature": TEMPERATURE, "seed": SEED, "privacy": "balanced"} | changes
        *_, last = Iterated(self.engine, Request(question=question, prompt=prompt, **fields))  # type: ignore[arg-type]
        return cast(Finished, last)

    def rescored(self, **changes: object) -> None:
        """Let both sides score by other settings."""
        for side in self.process.sides:
            side.scorer.close()
            side.target.scorer = load_scorer(
                side.settings.model_copy(update=changes), side.tokenizer, SentenceTransformerEmbedder()
            )


@pytest.fixture(scope="module")
def town(fresh_data: Callable[[], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    folder = tmp_path_factory.mktemp("models")
    chosen: dict[str, object] = {
        "model": make_wordy_model(folder / "model"),
        "scorer": "cross-encoder",
        "scorer_model": str(make_cross_encoder(folder / "cross")),
        "scorer_period": PERIOD,
        "scorer_scale": SCALE,
    }
    process = OneProcess(fresh_data(), **chosen)
    device, cloud = process.sides
    port = free_port()
    slow = Line(delay=0.01, jitter=0.04)
    with FaultyProxy(port, up=slow, down=slow, seed=5) as proxy:
        sessions = Sessions(cast(CloudSettings, cloud.settings), cloud)
        ticker = Ticker(sessions.tick)
        address = f"tcp://127.0.0.1:{proxy.address.rpartition(':')[2]}"
        settings = DeviceSettings(
            data=device.settings.data,
            model="embedded",
            cloud=address,
            privacy="balanced",
            patience=PATIENCE,
            max_tokens=LENGTH,
        )
        engine = DeviceEngine(settings, device)
        assert engine.cloud.connection is not None
        sessions.link = CloudLink(f"tcp://127.0.0.1:{port}", None, sessions, cloud.link_limits)
        with sessions.link:
            ticker.start()
            link = DeviceLink(address, None, engine.cloud.connection, device.link_limits)
            engine.start(link)
            link.start()
            deadline = time.monotonic() + PATIENCE
            while not engine.cloud.connected:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            yield Town(engine, process)
            engine.close()
            link.close()
            ticker.close()
    process.close()


def test_the_same_tokens_as_one_process_that_waits_for_every_score(town: Town) -> None:
    expected = [town.process.answer(question, TEMPERATURE) for question in QUESTIONS]
    town.rescored(scorer_period=1000)
    assert expected != [town.process.answer(question, TEMPERATURE) for question in QUESTIONS], "the answer must matter"
    town.rescored()
    for question, answer in zip(QUESTIONS, expected, strict=True):
        for mode in ({"placement": "device"}, {"placement": "mirrored"}, {"method": "token-wise"}):
            finished = town.ask(question, **mode)
            assert finished.text == answer, (question, mode)
            assert (finished.report.degraded, finished.report.disagreements) == ((), 0)
            assert {source.side for source in finished.report.sources} == {"device", "cloud"}
    scorers = [cast(LaggedScorer, side.scorer) for side in town.process.sides]
    for cost in (scorer.cost for scorer in scorers):
        assert cost.calls > len(QUESTIONS) * LENGTH / PERIOD
    assert town.engine.status().scorer.endswith(f":float32:logit:every {PERIOD}:{SCALE}")


def test_scoring_that_fails_ends_its_answer_with_a_sentence(town: Town, caplog: pytest.LogCaptureFixture) -> None:
    device = town.process.sides[0]
    whole = device.scorer
    assert isinstance(whole, LaggedScorer)
    broken = load_scorer(device.settings, device.tokenizer, SentenceTransformerEmbedder())
    assert isinstance(broken, LaggedScorer)
    vars(broken._model)["_longest"] = None  # the next pass raises
    device.target.scorer = broken
    with pytest.raises(AnswerFailed, match="The documents could not be scored; the daemon's log says why"):
        town.ask(QUESTIONS[0])
    device.target.scorer = whole
    broken.close()
    assert not any(question in caplog.text for question in QUESTIONS)
    assert town.ask(QUESTIONS[0]).report.tokens == LENGTH
