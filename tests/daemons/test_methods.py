"""The baselines as methods of the same two daemons: what they answer, and what becomes of them without the cloud."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest

from common.daemon.side import Scope, SideRuntime
from common.methods.paper.sequence_wise import RecordingDrafting, SideAnswer, choose, make_side_answer
from common.sampling.race import RaceSampler
from common.transport.cloud_link import CloudLink
from common.transport.keys import local_cloud_keys
from common.transport.sending import Peer
from proto.errors import ProtocolError
from proto.framing import PAYLOAD_LIMIT
from proto.messages import Cancel, Close, Fetch, Fetched, Generated, Hello, Message, Open, Welcome
from scripts.daemons import Pair, free_port
from scripts.netlab.faulty_proxy import FaultyProxy
from tests.daemons.conftest import ENTRIES, NOTES
from tests.daemons.streaming import Stream, complete_together, complete_with_shares, wait_until
from tests.daemons.test_token_identity import OneProcess
from tests.support.one_side import OneSide

QUESTIONS = (
    "What is the best-selling game of the kind I like?",
    "Where is my dance class?",
    "What could help me with my health problem?",
)
LENGTH = 24
MODES = ((0.0, "race"), (1.0, "race"), (1.0, "paper"))
PATIENCE = 3.0  # seconds, on a busy machine, too


class Imposter:
    """A cloud that passes the handshake and answers what it is told to."""

    def __init__(self, keys: Path) -> None:
        """`keys` is the folder that the daemons of one user share."""
        self.answers: list[Message] = []  # to the next `Fetch` or `Open`, with its session
        self.asked: list[Message] = []
        self.heard = Event()  # a `Fetch` or `Open` came
        self.port = free_port()
        self._link = CloudLink(f"tcp://127.0.0.1:{self.port}", local_cloud_keys(keys), self)
        self._link.start()

    def close(self) -> None:
        self._link.close()

    def on_message(self, peer: Peer, message: Message, size: int) -> None:
        match message:
            case Hello():
                self._link.send(peer, Welcome(replace(message, role="cloud"), 8, 512, 8192))
            case Fetch() | Open() | Cancel() | Close():
                self.asked.append(message)
                if isinstance(message, Fetch | Open):
                    for answer in self.answers:
                        self._link.send(peer, replace(answer, session=message.session))  # type: ignore[arg-type]
                    self.heard.set()

    def on_connected(self, peer: Peer) -> None: ...

    def on_gone(self, peer: Peer) -> None: ...

    def on_invalid(self, peer: Peer, error: ProtocolError) -> None: ...


class Place:
    """A device behind a proxy, with a real cloud and an imposter."""

    def __init__(self, pair: Pair, proxy: FaultyProxy, cloud_port: int) -> None:
        self.pair = pair
        self.imposter = Imposter(pair.data / "local-keys")
        self._proxy = proxy
        self._cloud_port = cloud_port

    def use_imposter(self, *answers: Message) -> Imposter:
        self.imposter.answers = list(answers)
        self.imposter.asked.clear()
        self.imposter.heard.clear()
        self._turn_to(self.imposter.port)
        return self.imposter

    def use_cloud(self) -> Pair:
        self._turn_to(self._cloud_port)
        return self.pair

    def use_nothing(self) -> None:
        """Break the connection; nobody answers any more."""
        self._proxy.set_target(free_port())
        self._proxy.cut()

    def _turn_to(self, port: int) -> None:
        self.use_nothing()
        wait_until(lambda: self.pair.status()["cloud"]["state"] != "connected", "the connection is lost")
        self._proxy.set_target(port)
        self.pair.wait_for_cloud("connected")


@pytest.fixture(scope="module")
def damaged(fresh_data: Callable[[], Path]) -> Iterator[Place]:
    port = free_port()
    with FaultyProxy(port) as proxy:
        between = int(proxy.address.rpartition(":")[2])
        with Pair(fresh_data(), {"patience": PATIENCE}, between=between, cloud_port=port) as pair:
            place = Place(pair, proxy, port)
            yield place
            place.imposter.close()


@pytest.fixture
def place(damaged: Place) -> Place:
    """A place whose cloud runs, whatever the test before did to it."""
    damaged.pair.ensure_cloud()
    return damaged


@pytest.fixture
def reader() -> Iterator[ThreadPoolExecutor]:
    """Reads an answer while the test does harm."""
    with ThreadPoolExecutor(1) as executor:
        yield executor


@pytest.fixture
def pair(place: Place) -> Pair:
    return place.pair


def asked(
    pair: Pair, question: str, temperature: float = 0.0, there: bool = True, **fields: Any
) -> tuple[str, dict[str, Any]]:
    """Text and report of an answer, for which the cloud is `there` or not."""
    complete = complete_together if there else complete_with_shares
    response = complete(pair, question, temperature=temperature, seed=20, max_tokens=LENGTH, **fields)
    return response["choices"][0]["message"]["content"], response["dragon"]


def alone(pair: Pair, **fields: Any) -> str:
    return asked(pair, QUESTIONS[0], sources="device", **fields)[0]


@pytest.fixture(scope="module")
def process(fresh_data: Callable[[], Path]) -> Iterator[OneProcess]:
    process = OneProcess(fresh_data())
    yield process
    process.close()


def own_answer(side: SideRuntime, question: str, temperature: float) -> SideAnswer:
    """Answer that a side generates by itself."""
    prompt = f"\nQuestion: {question}\nAnswer:"
    request = Open(
        1,
        "sequence-wise",
        question,
        prompt,
        4,
        20,
        temperature,
        "race",
        "race",
        32,
        True,
        1.0,
        "cloud",
        "cloud",
        1,
        LENGTH,
    )
    vocabulary = side.decoder.vocabulary
    recording = RecordingDrafting(RaceSampler(20, temperature, 32, vocabulary))
    found = side.retrieve(request, Scope())
    decoding = OneSide(side.decoder, found.prompt, side.scorer, recording, LENGTH + 1)
    answer: list[int] = []
    while len(answer) < LENGTH and not (answer and answer[-1] in side.decoder.eos):
        drawn = decoding.draft(answer)
        if not answer:
            evidence = drawn.evidence
        answer.append(drawn.view.token)
    return make_side_answer(answer, recording.log_probabilities, evidence)


class TestFetching:
    @pytest.mark.parametrize(("temperature", "sampler"), MODES)
    def test_fetched_texts_give_the_tokens_of_both_sides(self, pair: Pair, temperature: float, sampler: str) -> None:
        for question in QUESTIONS:
            together, _ = asked(pair, question, temperature, sampler=sampler)
            text, report = asked(pair, question, temperature, sampler=sampler, method="fetch-text")
            assert text == together
            assert {source["side"] for source in report["sources"]} == {"device", "cloud"}
            assert [round(sum(row), 2) for row in report["attribution"]] == [1.0] * report["tokens"]
            assert report["fetched_bytes"] > sum(map(len, ENTRIES.values())) * 4 // len(ENTRIES) // 2
            assert (report["sent"]["tokens"], report["received_bytes"], report["degraded"]) == (0, 0, [])
            assert report["device"]["acceptance"] is report["cloud"]["acceptance"] is None
            assert report["method"] == "fetch-text"

    def test_fetched_keys_and_values_nearly_do(self, pair: Pair) -> None:
        """8 bits decide otherwise only where two tokens are about as probable."""
        same, bytes_per_token = [], []
        for question in QUESTIONS:
            for temperature in (0.0, 1.0):
                text, _ = asked(pair, question, temperature, method="fetch-text")
                other, report = asked(pair, question, temperature, method="fetch-kv")
                same.append(text == other)
                bytes_per_token.append(report["fetched_bytes"] / report["prompt_tokens"])
        assert np.mean(same) >= 0.8
        # 2 KiB in codes per token of the cloud's documents, which are about half of the prompt
        assert 700 < min(bytes_per_token) < max(bytes_per_token) < 2600

    def test_all_documents_in_one_row(self, pair: Pair) -> None:
        text, report = asked(pair, QUESTIONS[1], method="fetch-text", aggregation="context")
        assert text
        assert {source["side"] for source in report["sources"]} == {"device", "cloud"}
        assert report["aggregation"] == "context"
        place = report["pieces"].index(" Del")
        (best,) = [source for source, share in enumerate(report["attribution"][place]) if share > 0.5]
        assert report["sources"][best]["side"] == "device"
        assert max(report["attribution"][0]) == 0, "no document makes the first word likelier"

    def test_fetched_keys_and_values_share_a_row_as_blocks(self, pair: Pair) -> None:
        texts = {}
        for method in ("fetch-text", "fetch-kv"):
            texts[method], report = asked(pair, QUESTIONS[1], method=method, aggregation="blocks", temperature=0.0)
            assert {source["side"] for source in report["sources"]} == {"device", "cloud"}
            assert len(report["attribution"]) == report["tokens"]
        assert texts["fetch-kv"] == texts["fetch-text"]

    @pytest.mark.parametrize("sources", ["device", "cloud"])
    def test_one_side_with_all_its_documents_in_one_row(self, pair: Pair, sources: str) -> None:
        text, report = asked(pair, QUESTIONS[1], sources=sources, aggregation="context")
        assert text
        rows = asked(pair, QUESTIONS[1], sources=sources)[1]
        assert report["sources"] == rows["sources"]
        assert report["prompt_tokens"] < rows["prompt_tokens"]  # one begin token for all
        read = [max(row) for row in report["attribution"]]
        assert len(read) == report["tokens"]
        assert sources == "cloud" or max(read) > 0.5, "the place is in one of the device's documents"


class TestCitations:
    @pytest.mark.parametrize(
        ("fields", "cited"),
        [
            ({}, {"cloud"}),
            ({"method": "fetch-text"}, {"cloud"}),
            ({"method": "fetch-text", "aggregation": "context"}, {"cloud"}),
            ({"method": "edgellm"}, {"device"}),
            ({"method": "coupled"}, {"cloud"}),
            ({"sources": "device"}, {"device"}),
            ({"sources": "cloud"}, {"cloud"}),
        ],
        ids=str,
    )
    def test_quotes_are_verbatim_and_have_the_marked_words(
        self, pair: Pair, fields: dict[str, Any], cited: set[str]
    ) -> None:
        """Whichever side has read the document, and says so."""
        sides, texts = set(), NOTES | ENTRIES
        for question in QUESTIONS:
            _, report = asked(pair, question, temperature=0.0, **fields)
            for citation in report["citations"]:
                source = report["sources"][citation["source"]]
                for quote in citation["quotes"]:
                    assert quote["text"] in texts[source["title"]]
                    words = re.findall(r"\w+", quote["text"].lower())
                    for first, end in quote["tokens"]:
                        sides.add(source["side"])
                        marked = "".join(report["pieces"][first:end]).lower()
                        assert set(re.findall(r"\w+", marked)) <= set(words)
        assert sides >= cited


@pytest.mark.parametrize("method", ["coupled", "dssd", "qsv", "speculative"])
def test_documents_that_are_far_from_the_question_take_no_part(pair: Pair, method: str) -> None:
    far = "How many planets orbit the star Proxima Centauri?"
    _, report = asked(pair, far, temperature=0.0, method=method, unmatched="warn")
    assert report["unmatched"]
    assert report["sources"] == report["citations"] == []


class TestSequenceWise:
    @pytest.mark.parametrize("temperature", [0.0, 1.0])
    def test_one_of_both_answers(self, pair: Pair, temperature: float) -> None:
        chosen, after_first = set(), []
        more = ("From which company is my kettle?", "What is the name of my rabbit?") if temperature else ()
        for question in (*QUESTIONS, *more):
            of_device, _ = asked(pair, question, temperature, sources="device")
            of_cloud, _ = asked(pair, question, temperature, sources="cloud")
            text, report = asked(pair, question, temperature, method="sequence-wise")
            assert text in (of_device, of_cloud)
            shares = {round(sum(row[: len(NOTES)][: len(report["sources"]) // 2]), 2) for row in report["attribution"]}
            if of_device != of_cloud:
                assert shares == {1.0 if text == of_device else 0.0}
                chosen.add(text == of_device)
            after_first.append((report["seconds"] - report["ttft"]) / report["ttft"])
            assert 12 * report["tokens"] > report["received_bytes"] > 4 * report["tokens"]
            assert (report["device"]["acceptance"], report["degraded"], report["notes"]) == (None, [], [])
            assert report["cloud"]["drafted"] > 0
        assert min(after_first) < 0.25  # all of it at once: told as it is made, most of it would come later
        if temperature:
            assert chosen == {True, False}  # or this test says little

    @pytest.mark.parametrize("temperature", [0.0, 1.0])
    def test_the_rule_decides(self, pair: Pair, process: OneProcess, temperature: float) -> None:
        """The winner is that of each side's answer and its mass, found in one process."""
        for question in QUESTIONS:
            device, cloud = (own_answer(side, question, temperature) for side in process.sides)
            tokens = choose(device, cloud).tokens
            text, _ = asked(pair, question, temperature, method="sequence-wise")
            kept = [token for token in tokens if token not in process.sides[0].decoder.eos]
            assert text == process.sides[0].tokenizer.decode(kept).lstrip()

    def test_stop_strings_end_the_chosen_answer(self, pair: Pair) -> None:
        whole, _ = asked(pair, QUESTIONS[1], method="sequence-wise")
        text, report = asked(pair, QUESTIONS[1], method="sequence-wise", stop=[" is"])
        assert text == whole[: whole.index(" is")]
        assert 0 < report["tokens"] < LENGTH

    def test_the_cloud_tells_what_its_documents_say_before_a_stop_string(self, pair: Pair) -> None:
        """Rows of the tokens that it has decided behind those that are shown do no harm."""
        for question in QUESTIONS:
            whole, _ = asked(pair, question, method="sequence-wise")
            _, report = asked(pair, question, method="sequence-wise", stop=[f" {whole.split()[2]}"])
            assert (report["unattributed"], report["notes"]) == (0, [])


FULL = bytes(PAYLOAD_LIMIT)
BAD_TEXT = b"\xff\xfe" * 50
ANSWER = (9, 8, 1)
HOSTILE: dict[str, list[tuple[str, Message]]] = {
    "too many documents": [("fetch-text", Fetched(0, 0, 200, 0, 1, 0.5, "t", b"x"))],
    "too large": [("fetch-text", Fetched(0, 0, 1, 0, 60000, 0.5, "t", FULL))],
    "not UTF-8": [("fetch-text", Fetched(0, 0, 1, 0, 1, 0.5, "t", BAD_TEXT))],
    "no keys and values": [("fetch-kv", Fetched(0, 0, 1, 0, 1, 0.5, "t", b"\x00\x02\x05\x06garbage"))],
    "a bomb": [("fetch-kv", Fetched(0, 0, 1, 0, 1, 0.5, "t", b"\x80\xff\xff\xff\x7f" + bytes(100)))],
    "tokens beyond the vocabulary": [("sequence-wise", Generated(0, 0.0, (2**24 - 1, 1), bytes(8)))],
    "no probabilities": [("sequence-wise", Generated(0, 0.0, ANSWER, b"\x00\x00\xc0\x7f" * 3))],
}


class TestWithoutTheCloud:
    @pytest.mark.parametrize("what", HOSTILE)
    def test_hostile_messages(self, place: Place, what: str) -> None:
        """The device answers from its own documents, says so, and goes on to serve."""
        ((method, message),) = HOSTILE[what]
        place.use_imposter(message)
        try:
            text, report = asked(place.pair, QUESTIONS[0], there=False, method=method)
            assert text == alone(place.pair)
            assert len(report["notes"]) == 1
            assert "can't be used" in report["notes"][0]
            assert report["degraded"] == list(range(report["tokens"]))
        finally:
            place.use_cloud()

    @pytest.mark.parametrize("method", ["fetch-text", "fetch-kv", "sequence-wise"])
    def test_gone_in_the_middle(self, place: Place, reader: ThreadPoolExecutor, method: str) -> None:
        """Half of what was to come came, then the connection breaks and stays broken."""
        first = Fetched(0, 0, 2, 0, 2, 0.5, "t", FULL)
        imposter = place.use_imposter(*([first] if method != "sequence-wise" else []))
        with Stream(place.pair.url, QUESTIONS[0], method=method, temperature=0.0, max_tokens=LENGTH) as stream:
            reading = reader.submit(stream.finish)
            assert imposter.heard.wait(30)
            place.use_nothing()
            report = reading.result()
        place.use_cloud()
        assert stream.text == alone(place.pair)
        assert report["degraded"] == list(range(report["tokens"]))
        assert [note.split(":")[0] for note in report["notes"]] == ["The cloud did not take part"]
        assert report["ttft"] >= PATIENCE / 2

    def test_killed_while_it_is_asked(self, place: Place, reader: ThreadPoolExecutor) -> None:
        pair = place.pair
        assert pair.cloud.process is not None
        pair.cloud.process.send_signal(signal.SIGSTOP)  # so that it can't be done before
        with Stream(pair.url, QUESTIONS[0], method="fetch-text", temperature=0.0, max_tokens=LENGTH) as stream:
            reading = reader.submit(stream.finish)
            wait_until(lambda: pair.status()["active"] == 1, "the request is there")
            pair.cloud.kill()
            report = reading.result()
        assert report["degraded"] == list(range(report["tokens"]))
        pair.wait_for_cloud("away")
        text, report = asked(pair, QUESTIONS[0], there=False, method="sequence-wise")
        assert text == stream.text == alone(pair)
        assert report["notes"][0].startswith("The cloud did not take part")
        assert asked(pair, QUESTIONS[0], there=False, method="fetch-kv")[0] == text


class TestRefusals:
    @pytest.mark.parametrize(
        ("fields", "param"),
        [
            ({"method": "fetch-text", "sources": "device"}, "method"),
            ({"method": "sequence-wise", "sources": "cloud"}, "method"),
            ({"method": "fetch-kv", "aggregation": "context"}, "aggregation"),
            ({"method": "long-context", "long_document": "x", "aggregation": "blocks"}, "aggregation"),
        ],
    )
    def test_what_does_not_go_together(self, pair: Pair, fields: dict[str, Any], param: str) -> None:
        with pytest.raises(RuntimeError, match=f'"param": ?"{param}"'):
            pair.complete(QUESTIONS[0], **fields)
