"""The long context alone; requests about documents that can't be served; strangers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from common.answer.request import AnswerFailed, RequestError
from common.configuration.settings import EMBEDDED_DRAFT
from common.daemon.side import Scope
from common.methods.drafted.payloads import encode_sparse
from common.methods.rapid.long_context import read_document
from device.interface import Finished, TokenEvent
from proto.codes import digest
from proto.messages import Busy, Cancel, Close, Closed, Contributions, Error, Fetched, Propose, Ready, Verdict
from scripts.netlab.faulty_proxy import FaultyProxy
from tests.cloud.long_documents import (
    LENGTH,
    NETWORK,
    QUESTION,
    RESIDENT,
    TARGET,
    TITLE,
    alone,
    data,
    device,
    opening,
    private,
    tokens_of,
    town,
)
from tests.cloud.town import AT_ONCE, Resident, Stranger, Town
from tests.common.methods.drafted.test_hostile import sparse
from tests.daemons.streaming import wait_until

__all__ = ["alone", "data", "device", "private", "town"]


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

    def test_a_row_per_document_is_one_row(self, device: Resident, alone: list[int]) -> None:
        """The default of other methods may be written out."""
        tokens, last = tokens_of(device, **self.ALONE, aggregation="output")
        assert (tokens, last.report.aggregation) == (alone, "context")
        tokens, last = tokens_of(device, **NETWORK, aggregation="output")
        assert (tokens, last.report.aggregation) == (tokens_of(device, **NETWORK)[0], "context")

    @pytest.mark.parametrize(
        ("fields", "field", "said"),
        [
            ({"long_document": ""}, "long_document", "name it by its title or path"),
            ({"sources": "both"}, "sources", "must be 'cloud' or 'device'"),
            ({"aggregation": "blocks"}, "aggregation", "must be 'context'"),
            ({"long_document": "Zzyzx"}, "long_document", "no document of this name"),
            ({"long_document": "endless"}, "long_document", "too long to be read whole"),
            ({"long_document": "Zzyzx", "sources": "device"}, "long_document", "no document of this name"),
        ],
    )
    def test_refused(self, device: Resident, fields: dict[str, Any], field: str, said: str) -> None:
        with pytest.raises(RequestError, match=said) as caught:
            tokens_of(device, **self.ALONE | fields)
        assert caught.value.field == field


class TestBadInput:
    @pytest.mark.parametrize(
        ("fields", "field", "said"),
        [
            ({"long_document": "  "}, "long_document", "name it by its title or path"),
            ({"sources": "both"}, "sources", "sources can't be 'both'"),
            ({"verifier": "device"}, "sources", "sources must be 'device', not 'cloud'"),
            ({"sampler": "race"}, "sampler", "draws by 'rejection'"),
            ({"aggregation": "blocks"}, "aggregation", "must be 'context'"),
            ({"resolution": 8}, "resolution", "needs draft_codec 'lattice'"),
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
            ("almanack", "no document of this name: did you mean 'almanac' or 'almanac.md'"),
            ("Zzyzx", "no document of this name: `dragon library list` shows"),
            ("Twin", "several documents with this name: give the path of one, 'one.md' or 'two.md'"),
            ("endless", r"too long to be read whole: it needs \d+ tokens, and question and answer leave \d+ of"),
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


PROPOSED = ((digest(()),), (), (5, 6), encode_sparse([sparse(5, 6)] * 3))


class TestMemory:
    """A cloud with memory for one of these answers. The document counts, whatever else is asked for."""

    @pytest.fixture
    def holder(self, town: Town) -> Iterator[Stranger]:
        """Has one; those that are refused are told to come again soon."""
        memory, first = town.cloud.decoder.memory, replace(opening(1), documents=1)
        needed = town.cloud.target.kv_bytes(first, read_document(town.cloud, TITLE, first, Scope()).rows)
        assert town.cloud.kv_bytes(first) < needed / 2  # what a passage would need
        town.sessions._lasted.extend([0.1] * 100)
        limit, memory.limit_bytes = memory.limit_bytes, needed + needed // 2
        stranger = town.stranger()
        stranger.send(first)
        wait_until(lambda: bool(stranger.of(Ready)), "the first answer is open")
        yield stranger
        stranger.close()
        town.check_that_all_is_free()
        memory.limit_bytes = limit

    def test_the_second_is_refused_at_once_and_the_first_goes_on(self, town: Town, holder: Stranger) -> None:
        other = town.stranger()
        other.send(replace(opening(2), documents=1))
        wait_until(lambda: bool(other.of(Busy)), "no memory for a second one", AT_ONCE)
        assert 0 < other.of(Busy)[0].retry_after < 1e6 * AT_ONCE
        assert not other.of(Ready) and not other.of(Fetched)
        assert town.sessions.open == 1
        holder.send(Propose(1, 1, 0, *PROPOSED))
        wait_until(lambda: bool(holder.of(Verdict)), "the first one's verdict", AT_ONCE)
        holder.send(Cancel(1))
        other.send(replace(opening(2), documents=1))
        other.send(Propose(2, 1, 0, *PROPOSED))
        wait_until(lambda: bool(other.of(Verdict)), "the second one's, when the first is over", AT_ONCE)
        first, second = holder.of(Verdict)[0], other.of(Verdict)[0]
        assert (first.accepted, first.token, first.payload) == (second.accepted, second.token, second.payload)
        other.close()

    @pytest.mark.parametrize("fields", [NETWORK | {"eta": 0.0}, TestLongContext.ALONE], ids=lambda each: each["method"])
    def test_a_device_waits_for_its_turn(
        self, device: Resident, holder: Stranger, alone: list[int], long: float, fields: dict[str, Any]
    ) -> None:
        generation = device.begin(QUESTION, max_tokens=LENGTH, documents=1, **fields)
        (active,) = device.engine._active.values()
        wait_until(lambda: active.retry_at is not None, "the cloud is busy", AT_ONCE)
        holder.send(Cancel(1))
        *events, last = generation
        assert isinstance(last, Finished)
        assert [event.token for event in events if isinstance(event, TokenEvent)] == alone
        assert last.report.notes == ()

    def test_a_device_is_told_when_it_is_not_its_turn_for_long(self, device: Resident, holder: Stranger) -> None:
        with pytest.raises(AnswerFailed, match="it serves as many answers as it can"):
            tokens_of(device, documents=1, **NETWORK)
        assert holder.of(Error) == []


class TestStrangers:
    def test_a_bad_proposal(self, town: Town) -> None:
        stranger = town.stranger()
        stranger.send(opening(9))
        wait_until(lambda: bool(stranger.of(Ready)), "the stranger's answer is open")
        stranger.send(Propose(9, 1, 0, (digest(()),), (), (5, 6), encode_sparse([sparse(5, 6)] * 2)))
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
        message = Propose(12, 1, 0, (digest(()),), (), (5, 6), encode_sparse([sparse(5, 6)] * 3))
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
