"""Questions about one long document, over real sockets and on one device."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from common.engine.sequences import Prompt
from common.methods.long_context.reading import BETWEEN
from common.methods.rejection.drawing import Judging
from common.model.decoder import Decoder
from common.runtime.errors import AnswerFailed, RequestError
from common.sampling.warping import Warp
from common.settings import EMBEDDED_DRAFT, EMBEDDED_MODEL, EMBEDDED_TOKENIZER
from common.transport.faulty import FaultyProxy
from device.interface import Finished, TokenEvent
from proto.digest import digest
from proto.messages import Close, Closed, Contributions, Fetched, Open, Ready
from proto.payloads.sparse import encode_sparse
from proto.rounds import Propose, Verdict
from scripts.daemons import fill_library
from tests.cloud.test_giving_up import OPEN
from tests.cloud.town import Resident, Town
from tests.common.rounds.test_hostile import sparse
from tests.daemons.conftest import ENTRIES
from tests.daemons.streaming import wait_until
from tests.support.one_side import OneSide

TARGET: dict[str, Any] = {"model": str(EMBEDDED_MODEL), "dtype": "float32"}
QUESTION = "What is the best-selling horror game?"
LENGTH = 24
SECTIONS = [
    "The winter timetable of the harbour ferry begins in November and has one crossing less.",
    "Yormcrus is based in Mairvo, and has had a shop for kettles there since the war.",
    *ENTRIES.values(),
]
ALMANAC = "\n\n".join(SECTIONS * 4)
TITLE = "almanac"


@pytest.fixture(scope="module")
def data(fresh_data: Callable[[], Path]) -> Path:
    data = fresh_data()
    for role in ("device", "cloud"):
        (data / f"{role}-documents").rename(data / f"{role}-short")
        texts = {TITLE: ALMANAC, "endless": ALMANAC * 6, "one": "# Twin\n\nFirst.", "two": "# Twin\n\nSecond."}
        fill_library(data, role, texts)
    return data


@pytest.fixture(scope="module")
def town(data: Path) -> Iterator[Town]:
    with Town(data, **TARGET) as town:
        yield town


@pytest.fixture(scope="module")
def device(town: Town) -> Resident:
    return town.device("drafting", **TARGET, draft_model=str(EMBEDDED_DRAFT))


@pytest.fixture(scope="module")
def private(town: Town) -> Resident:
    """A device that keeps everything to itself."""
    return town.device("private", **TARGET, draft_model=str(EMBEDDED_DRAFT))


NETWORK: dict[str, Any] = {"method": "rapid", "long_document": TITLE, "retrieval_tokens": 120}
RESIDENT: dict[str, Any] = NETWORK | {"verifier": "device", "sources": "device", "privacy": "offline"}


def tokens_of(device: Resident, **fields: Any) -> tuple[list[int], Finished]:
    *events, last = device.begin(QUESTION, max_tokens=LENGTH, **fields)
    assert isinstance(last, Finished)
    return [event.token for event in events if isinstance(event, TokenEvent)], last


@pytest.fixture(scope="module")
def alone(town: Town) -> list[int]:
    """What the verifier's model says by itself behind the whole document."""
    decoder = Decoder.load(str(EMBEDDED_MODEL), tokenizer=str(EMBEDDED_TOKENIZER), dtype="float32")
    side = town.cloud
    text = BETWEEN.join(hit.text for hit in side.library.passages(TITLE, QUESTION))
    query = decoder.tokenizer.encode(f"\nQuestion: {QUESTION}\nAnswer:")
    prompt = Prompt((tuple(side.format.document_tokens(text)),), tuple(query), (1.0,))
    judging = Judging(Warp(0.0), travels=False)
    one = OneSide(decoder, prompt, side.scorer, judging, LENGTH + 1)
    path: list[int] = []
    while len(path) < LENGTH and (not path or path[-1] not in side.eos):
        path.append(one.draft(path).view.token)
    one.rows.close()
    decoder.close()
    return path


class TestNetwork:
    @pytest.mark.parametrize("codec", [{}, {"draft_codec": "lattice", "resolution": 32}])
    @pytest.mark.parametrize("length", [1, 5, 10])
    def test_greedy_answers_without_strength_are_the_verifiers(
        self, device: Resident, alone: list[int], codec: dict[str, Any], length: int
    ) -> None:
        tokens, last = tokens_of(device, **NETWORK, **codec, eta=0.0, draft_length=length)
        assert tokens == alone
        report = last.report
        assert (report.degraded, report.notes, report.figures["exact"]) == ((), (), 1.0)
        assert [source.title for source in report.sources] == [TITLE]
        assert all(row == (1.0,) for row in report.attribution)

    def test_the_drafter_reads_a_part(self, device: Resident) -> None:
        whole = len(device.side.tokenizer.encode(ALMANAC))
        _, last = tokens_of(device, **NETWORK)
        assert whole < last.report.prompt_tokens < whole + 120 + 60
        _, wider = tokens_of(device, **NETWORK | {"retrieval_tokens": None})
        assert wider.report.prompt_tokens > last.report.prompt_tokens + 100

    def test_nothing_like_the_question(self, device: Resident) -> None:
        """Then the drafter reads no passage."""
        tokens, last = tokens_of(device, **NETWORK, retrieval_threshold=1.0, eta=0.0)
        assert tokens == tokens_of(device, **NETWORK, eta=0.0)[0]
        assert last.report.fetched_bytes < 100

    @pytest.mark.parametrize("seed", range(3))
    def test_without_strength_length_changes_no_law_but_draws_alike(self, device: Resident, seed: int) -> None:
        """The same seed gives the same tokens, however the proposals travel."""
        fields: dict[str, Any] = {"temperature": 1.0, "seed": seed, "draft_length": 4}
        assert tokens_of(device, **NETWORK, **fields)[0] == tokens_of(device, **NETWORK, **fields)[0]

    def test_the_published_residual_is_told(self, device: Resident) -> None:
        _, last = tokens_of(device, **NETWORK, temperature=1.0, residual="paper")
        assert last.report.figures["exact"] == 0.0

    @pytest.mark.parametrize("base", ["network", "resident"])
    def test_a_trace(self, device: Resident, base: str) -> None:
        _, last = tokens_of(device, **NETWORK if base == "network" else RESIDENT, trace=True)
        trace = last.report.trace
        assert trace is not None
        assert {span.side for span in trace.spans} == ({"device", "cloud"} if base == "network" else {"device"})

    def test_passages_are_those_of_the_document(self, town: Town) -> None:
        stranger = town.stranger()
        stranger.send(opening(11, retrieval_tokens=60))
        wait_until(lambda: bool(stranger.of(Ready)), "the cloud has found the document")
        parts = stranger.of(Fetched)
        text = [part.payload.decode() for part in parts]
        assert 0 < len(parts) < len(town.cloud.library.passages(TITLE, QUESTION))
        assert all(part in ALMANAC for part in text)
        assert sorted(text, key=ALMANAC.index) == text or len(set(text)) < len(text)
        stranger.close()


class TestLongContext:
    """The baseline: the verifier by itself."""

    ALONE: ClassVar[dict[str, Any]] = {"method": "long-context", "long_document": TITLE}

    @pytest.mark.parametrize("where", [{}, {"sources": "device", "privacy": "offline"}])
    def test_is_the_model_behind_the_whole_document(
        self, device: Resident, alone: list[int], where: dict[str, Any]
    ) -> None:
        tokens, last = tokens_of(device, **self.ALONE | where)
        assert tokens == alone
        assert [source.title for source in last.report.sources] == [TITLE]
        assert last.report.notes == ()

    @pytest.mark.parametrize(
        ("fields", "field", "said"),
        [
            ({"long_document": ""}, "long_document", "name it by its title or path"),
            ({"sources": "both"}, "sources", "must be 'cloud' or 'device'"),
            ({"aggregation": "output"}, "aggregation", "must be 'context'"),
            ({"long_document": "Zzyzx"}, "long_document", "no document 'Zzyzx'"),
            ({"long_document": "endless"}, "long_document", "too long to be read whole"),
            ({"long_document": "Zzyzx", "sources": "device"}, "long_document", "no document 'Zzyzx'"),
        ],
    )
    def test_refused(self, device: Resident, fields: dict[str, Any], field: str, said: str) -> None:
        with pytest.raises(RequestError, match=said) as caught:
            tokens_of(device, **self.ALONE | fields)
        assert caught.value.field == field


class TestResident:
    """Both models on the device, without a cloud and with privacy offline."""

    def test_answers_are_those_of_the_network(self, device: Resident, private: Resident) -> None:
        for fields in ({"eta": 0.0}, {}, {"temperature": 1.0}, {"draft_codec": "lattice", "temperature": 0.7}):
            tokens, last = tokens_of(private, **RESIDENT, **fields)
            assert tokens == tokens_of(device, **NETWORK, **fields)[0]
            assert (last.report.sent_bytes, last.report.received_bytes, last.report.fetched_bytes) == (0, 0, 0)
            assert (last.report.degraded, last.report.notes) == ((), ())
            assert [(source.side, source.title) for source in last.report.sources] == [("device", TITLE)]
            assert last.report.attribution == ((1.0,),) * last.report.tokens

    def test_the_same_model_for_both(self, town: Town) -> None:
        """Self-speculation, on one thread."""
        device = town.device("self", **TARGET, draft_model=str(EMBEDDED_MODEL))
        everything = RESIDENT | {"retrieval_threshold": -1.0, "retrieval_tokens": 2000, "eta": 0.0}
        tokens, last = tokens_of(device, **everything)
        assert tokens == tokens_of(device, **RESIDENT, eta=0.0)[0]
        assert last.report.device.rollbacks == 0  # it has read what the verifier has read

    def test_cancelled(self, private: Resident) -> None:
        generation = private.begin(QUESTION, max_tokens=LENGTH, **RESIDENT)
        next(iter(generation))
        generation.cancel()
        assert tokens_of(private, **RESIDENT)[0]
        wait_until(lambda: private.side.decoder.memory.used_bytes == 0, "its memory is free")


class TestBadInput:
    @pytest.mark.parametrize(
        ("fields", "field", "said"),
        [
            ({"long_document": "  "}, "long_document", "name it by its title or path"),
            ({"sources": "both"}, "sources", "sources can't be 'both'"),
            ({"verifier": "device"}, "sources", "sources must be 'device', not 'cloud'"),
            ({"sampler": "race"}, "sampler", "draws by 'rejection'"),
            ({"aggregation": "output"}, "aggregation", "must be 'context'"),
            ({"resolution": 8}, "resolution", "of draft_codec 'lattice'"),
            ({"draft_codec": "lattice", "resolution": 200, "index_code": "fixed"}, "resolution", "too fine"),
            ({"top_logprobs": 2}, "logprobs", "Log-probabilities need"),
            ({"privacy": "offline"}, "sources", "keeps the question here"),
        ],
    )
    def test_refused(self, device: Resident, fields: dict[str, Any], field: str, said: str) -> None:
        with pytest.raises(RequestError, match=said) as caught:
            device.begin(QUESTION, **NETWORK | fields)
        assert caught.value.field == field

    @pytest.mark.parametrize("where", ["network", "resident"])
    @pytest.mark.parametrize(
        ("name", "said"),
        [
            ("almanack", "no document 'almanack': did you mean 'almanac' or 'almanac.md'"),
            ("Zzyzx", "no document 'Zzyzx': `dragon library list` shows"),
            ("Twin", "several documents 'Twin': name one by its path, 'one.md' or 'two.md'"),
            ("endless", r"too long to be read whole: it needs \d+ tokens, and the model's context holds \d+ beside"),
        ],
    )
    def test_a_document_that_is_not_there(self, device: Resident, where: str, name: str, said: str) -> None:
        base = NETWORK if where == "network" else RESIDENT
        with pytest.raises(RequestError, match=said) as caught:
            tokens_of(device, **base | {"long_document": name})
        assert caught.value.field == "long_document"
        assert tokens_of(device, **base)[0]  # both daemons go on

    @pytest.mark.parametrize("name", [f"{TITLE}.md", f"cloud-documents/{TITLE}.md"])
    def test_by_its_path(self, device: Resident, name: str) -> None:
        assert tokens_of(device, **NETWORK | {"long_document": name})[0] == tokens_of(device, **NETWORK)[0]

    def test_without_the_cloud(self, town: Town) -> None:
        with FaultyProxy(int(town.link.address.rpartition(":")[2])) as proxy:
            device = town.device("lonely", proxy.address, **TARGET, draft_model=str(EMBEDDED_DRAFT))
        wait_until(lambda: not device.engine.cloud.connected, "the link is closed")
        with pytest.raises(AnswerFailed, match="The cloud did not take part"):
            tokens_of(device, **NETWORK)
        assert tokens_of(device, **RESIDENT)[0]


class TestStrangers:
    @pytest.mark.parametrize(
        "bad",
        [
            Propose(9, 1, 0, digest(()), (), (5, 6), encode_sparse([sparse(5, 6)] * 2)),
            Propose(9, 1, 0, digest(()), (), (5, 6), encode_sparse([sparse(5, 6)] * 4)),
            Propose(9, 1, 0, digest(()), (), (5,), encode_sparse([sparse(6), sparse(5)])),
            Propose(9, 1, 0, digest(()), (), (5,), b""),
        ],
    )
    def test_a_bad_proposal(self, town: Town, bad: Propose) -> None:
        stranger = town.stranger()
        stranger.send(opening(9))
        wait_until(lambda: bool(stranger.of(Ready)), "the stranger's answer is open")
        stranger.send(bad)
        assert stranger.code() == "malformed"
        stranger.close()
        town.check_that_all_is_free()

    @pytest.mark.parametrize(
        "options", ['{"long_document": "almanac", "eta": 1e9}', '{"long_document": 7}', '{"verifier": "moon"}', "[]"]
    )
    def test_bad_options(self, town: Town, options: str) -> None:
        stranger = town.stranger()
        stranger.send(replace(opening(9), options=options))
        assert stranger.code() == "unservable"
        stranger.close()

    @pytest.mark.parametrize("name", ["", "nowhere", "endless", "x" * 512])
    def test_a_document_that_is_not_there(self, town: Town, name: str) -> None:
        stranger = town.stranger()
        stranger.send(opening(9, long_document=name))
        assert stranger.code() == "document"
        stranger.close()
        town.check_that_all_is_free()

    def test_a_repeated_proposal_gets_the_same_verdict(self, town: Town) -> None:
        stranger = town.stranger()
        stranger.send(replace(opening(12), temperature=1.0))
        message = Propose(12, 1, 0, digest(()), (), (5, 6), encode_sparse([sparse(5, 6)] * 3))
        stranger.send(message)
        wait_until(lambda: bool(stranger.of(Verdict)), "a verdict comes")
        stranger.send(message)
        wait_until(lambda: len(stranger.of(Verdict)) == 2, "it comes again")
        first, second = stranger.of(Verdict)
        assert first == second
        stranger.send(Close(12, 1))
        wait_until(lambda: bool(stranger.of(Closed)), "the report comes")
        assert stranger.of(Contributions)[0].documents == 1
        stranger.close()


def opening(session: int, **options: Any) -> Open:
    own = {"long_document": TITLE} | options
    return replace(
        OPEN,
        session=session,
        method="rapid",
        sources="cloud",
        placement="cloud",
        sampler="rejection",
        aggregation="context",
        eos=(),
        options=json.dumps(own),
    )
