"""Data that leave the device, and that stay in the logs: read off the wire, the system and the files."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import psutil
import pytest

from common.configuration.settings import EMBEDDED_TOKENIZER
from common.engine.model.tokenizer import Tokenizer
from proto.messages import Cancel, Close, Hello, Open, Probe, ProbeReply, Resolve, Sync, Target
from scripts.daemons import ROOT, Pair, free_port
from tests.daemons.conftest import ENTRIES, NOTES
from tests.daemons.wire_tap import WireTap

QUESTIONS = (
    "Where is my dance class?",
    "What could help me with my health problem?",
    "What is the best-selling game of the kind I like?",
)

BY_COMMAND = True  # what imports do counts
CANARIES = ("Quarmdus", "Yarszis", "Freya", "Horror")  # of private documents, not of public ones nor questions
TOKENS = 20
GUARD = Path(__file__).resolve().parent / "no_egress"


@dataclass(frozen=True, slots=True)
class Tapped:
    """A pair of daemons that privacy is strict for, a tap between them, and the answers they gave."""

    pair: Pair
    tap: WireTap
    attempts: Path
    answers: tuple[str, ...]


def guarded(attempts: Path) -> dict[str, str]:
    return {"PYTHONPATH": f"{GUARD}{os.pathsep}{ROOT}", "EGRESS_ATTEMPTS": str(attempts)}


@pytest.fixture(scope="module")
def tapped(fresh_data: Callable[[], Path]) -> Iterator[Tapped]:
    data, port = fresh_data(), free_port()
    attempts = data / "attempts"
    attempts.touch()
    with WireTap(port) as tap:
        # A hub that is asked for anything would be asked from here: no cache and no word that it is not there.
        # What is sent is to be read off the wire, so it must not be encrypted.
        device, cloud = {"curve": "off", "patience": 60.0}, {"curve": "off"}
        pair = Pair(data, device, cloud, between=tap.port, cloud_port=port)
        for daemon in (pair.device, pair.cloud):
            daemon.environment = guarded(attempts) | {"HF_HOME": str(data / "hub"), "HF_HUB_OFFLINE": "0"}
        with pair:
            answers = tuple(
                pair.complete(question, **kind)["choices"][0]["message"]["content"]
                for question in QUESTIONS
                for kind in kinds_of_answers()
            )
            yield Tapped(pair, tap, attempts, answers)


def kinds_of_answers() -> Iterator[dict[str, Any]]:
    """Settings of answers with every private document in the prompt; few entries make many certificates fail."""
    common = {"documents": len(NOTES), "max_tokens": TOKENS, "seed": 5}
    yield common | {"temperature": 0.0}
    yield common | {"temperature": 2.0}
    yield common | {"temperature": 2.0, "entries": 1}
    yield common | {"temperature": 1.0, "sampler": "paper"}
    yield common | {"temperature": 2.0, "entries": 1, "method": "token-wise"}


def test_the_private_documents_took_part(tapped: Tapped) -> None:
    """Control: the private documents are in the prompts of the tapped answers."""
    report = tapped.pair.complete(QUESTIONS[0], documents=len(NOTES), max_tokens=TOKENS)["dragon"]
    assert len([source for source in report["sources"] if source["side"] == "device"]) == len(NOTES)
    assert len([source for source in report["sources"] if source["side"] == "cloud"]) == len(ENTRIES)
    assert report["degraded"] == []


class TestWire:
    def test_no_message_carries_a_distribution(self, tapped: Tapped) -> None:
        kinds = {type(message) for message in tapped.tap.messages}
        assert {Hello, Open, Target} <= kinds
        assert kinds <= {Hello, Open, Target, Sync, Resolve, Close, Cancel, Probe, ProbeReply}

    def test_every_token_is_one_of_the_answer(self, tapped: Tapped) -> None:
        """Every position is told once, too: what goes up in `Target` is the answers and nothing else."""
        tokenizer = Tokenizer.load(str(EMBEDDED_TOKENIZER))
        answers: dict[int, list[int]] = {}
        for message in tapped.tap.messages:
            match message:
                case Open():
                    answers[message.session] = []
                case Target() | Sync():
                    start = message.position if isinstance(message, Target) else 0
                    known = answers[message.session]
                    assert start <= len(known)
                    known[start:] = message.tokens
        texts = [tokenizer.decode(tokens).lstrip() for tokens in answers.values()]
        assert texts[: len(tapped.answers)] == list(tapped.answers)

    def test_no_question_of_the_device_names_a_token_of_its_own(self, tapped: Tapped) -> None:
        """A certificate that fails could ask for the tokens that only the private documents speak of."""
        resolves = [message for message in tapped.tap.messages if isinstance(message, Resolve)]
        assert resolves  # or this test says nothing
        assert [message.ids for message in resolves if message.ids] == []

    def test_at_secret_the_cloud_has_no_part_in_a_draw(self, tapped: Tapped) -> None:
        """It is asked for its most probable tokens, and nobody tells it a token that is not the answer's."""
        before = len(tapped.tap.messages)
        options = {"privacy": "secret", "temperature": 1.0, "seed": 5, "documents": len(NOTES), "max_tokens": TOKENS}
        answers = [tapped.pair.complete(question, **options, entries=1) for question in QUESTIONS]
        assert not any(answer["dragon"]["degraded"] for answer in answers)
        sent = tapped.tap.messages[before:]
        opened = [message for message in sent if isinstance(message, Open)]
        assert [(each.temperature, each.seed, each.placement) for each in opened] == [(0.0, 0, "device")] * len(answers)
        assert {type(message) for message in sent} <= {Open, Target, Sync, Resolve, Close, Probe, ProbeReply}
        assert not any(message.ids for message in sent if isinstance(message, Resolve))

    def test_and_gets_the_same_answer(self, tapped: Tapped) -> None:
        kinds = list(kinds_of_answers())
        for start in range(0, len(tapped.answers), len(kinds)):
            answers = zip(kinds, tapped.answers[start:], strict=False)
            assert len({answer for kind, answer in answers if kind["temperature"] == 2.0}) == 1

    def test_texts_are_the_questions(self, tapped: Tapped) -> None:
        for message in tapped.tap.messages:
            texts = [value for field in fields(message) if isinstance(value := getattr(message, field.name), str)]
            if isinstance(message, Open):
                assert message.question in QUESTIONS
                assert message.prompt == f"\nQuestion: {message.question}\nAnswer:"
            elif not isinstance(message, Hello):
                assert set(texts) <= {"device", "cloud"}

    def test_no_canary_in_any_byte(self, tapped: Tapped) -> None:
        sent = tapped.tap.sent.lower()
        assert QUESTIONS[0].lower().encode() in sent
        spoken = " ".join(tapped.answers).lower()
        quiet = [canary for canary in map(str.lower, CANARIES) if canary not in spoken]
        assert quiet
        assert not [canary for canary in quiet if canary.encode() in sent]


@pytest.mark.parametrize("role", ["device", "cloud"])
def test_logs_hold_neither_questions_nor_documents_nor_answers(tapped: Tapped, role: str) -> None:
    log = getattr(tapped.pair, role).log.read_text().lower()
    assert f"{role} ready" in log
    for text in (*QUESTIONS, *CANARIES, *NOTES.values(), *ENTRIES.values(), *tapped.answers):
        words = [word.strip(".,?") for word in text.lower().split()]
        for phrase in zip(words, words[1:], words[2:], strict=False):
            assert " ".join(phrase) not in log
    for word in ("delthcine", "yormcrus", "kettle", "rabbit", *(canary.lower() for canary in CANARIES)):
        assert word not in log


class TestEgress:
    def test_nobody_tried_to_leave_the_machine(self, tapped: Tapped) -> None:
        """No attempt was made while they started, nor while they answered."""
        assert tapped.attempts.read_text() == ""

    def test_every_connection_stays_on_the_machine(self, tapped: Tapped) -> None:
        """Connections of libraries that bypass Python are seen, too."""
        for daemon in (tapped.pair.device, tapped.pair.cloud):
            assert daemon.process is not None
            found = psutil.Process(daemon.process.pid).net_connections("inet")
            assert found
            assert {each.laddr.ip for each in found} | {each.raddr.ip for each in found if each.raddr} == {"127.0.0.1"}

    def test_an_attempt_would_be_noticed(self, tmp_path: Path) -> None:
        attempts = tmp_path / "attempts"
        for call in ("socket().connect(('192.0.2.1', 80))", "getaddrinfo('huggingface.co', 443)"):
            command = [sys.executable, "-c", f"import socket; socket.{call}"]
            environment = os.environ | guarded(attempts)
            assert subprocess.run(command, env=environment, capture_output=True, check=False).returncode == 1
        assert [line.split()[1] for line in attempts.read_text().splitlines()] == [
            "socket.connect",
            "socket.getaddrinfo",
        ]
