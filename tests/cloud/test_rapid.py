"""Questions about one long document that a drafter reads in part, over real sockets and on one device."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from common.answer.request import RequestError, own_options
from common.configuration.settings import EMBEDDED_DRAFT, EMBEDDED_MODEL, EMBEDDED_TOKENIZER
from common.methods.rapid.method import RapidRequest, options_for_verifier
from common.methods.rapid.rapid import NOTHING_READ
from device.engine import DeviceEngine
from device.interface import Finished, TokenEvent
from device.settings import DeviceSettings
from proto.messages import Fetched, Ready
from scripts.netlab.faulty_proxy import FaultyProxy, Line
from tests.cloud.long_documents import (
    ALMANAC,
    LENGTH,
    NETWORK,
    QUESTION,
    READ,
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
from tests.cloud.town import Resident, Town
from tests.daemons.streaming import wait_until
from tests.support.generations import Iterated
from tests.support.sides import make_side

__all__ = ["alone", "data", "device", "private", "town"]


class TestNetwork:
    @pytest.mark.parametrize(
        ("codec", "length"),
        [({}, 1), ({}, 5), ({}, 10), ({"draft_codec": "lattice", "resolution": 32}, 5)],
    )
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
        assert whole + READ - 20 < last.report.prompt_tokens < whole + READ + 60
        assert last.report.notes == ()
        _, wider = tokens_of(device, **NETWORK | {"retrieval_tokens": None})
        assert wider.report.prompt_tokens > last.report.prompt_tokens + 400

    @pytest.mark.parametrize("base", [NETWORK, RESIDENT], ids=["network", "resident"])
    @pytest.mark.parametrize("fields", [{"retrieval_threshold": 1.0}, {"retrieval_tokens": 60}], ids=str)
    def test_no_passage(self, device: Resident, alone: list[int], base: dict[str, Any], fields: dict[str, Any]) -> None:
        """None is like the question, or one would be too long: the answer is the same, and says so."""
        tokens, last = tokens_of(device, **base | fields, eta=0.0)
        assert tokens == alone
        assert last.report.notes == (NOTHING_READ,)
        assert last.report.fetched_bytes < 100

    @pytest.mark.parametrize("base", ["network", "resident"])
    def test_the_drafter_reads_what_the_caller_gives_it(self, device: Resident, alone: list[int], base: str) -> None:
        """Whatever it is: the verifier reads its document."""
        fields = NETWORK | {"privacy": "balanced"} if base == "network" else RESIDENT
        tokens, last = tokens_of(device, **fields, eta=0.0, passages=["Cheese is made of milk."])
        assert tokens == alone
        assert last.report.fetched_bytes < 100
        _, longer = tokens_of(device, **fields, eta=0.0, passages=["Cheese is made of milk.", "Milk " * 100])
        assert longer.report.prompt_tokens > last.report.prompt_tokens + 90
        with pytest.raises(RequestError, match="the passages have more: send fewer") as refused:
            tokens_of(device, **fields, passages=["Milk " * 2000])
        assert refused.value.field == "passages"

    def test_what_the_caller_gives_does_not_travel(self, device: Resident) -> None:
        texts: dict[str, Any] = {"question": QUESTION, "prompt": QUESTION, "method": "rapid", "long_document": TITLE}
        options = options_for_verifier(RapidRequest(**texts, passages=("Cheese is made of milk.",)))
        assert "milk" not in options
        assert '"retrieval_tokens":1,' in options
        assert "passages" not in own_options(RapidRequest(**texts))
        for wrong in ("text", [""], [1], ["text"] * 257):
            with pytest.raises(ValueError, match="expected an array of up to 256 texts"):
                RapidRequest(**texts | {"passages": wrong})

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
        """In its order, which is another one than that of similarity."""
        stranger = town.stranger()
        stranger.send(opening(11, retrieval_tokens=600))
        wait_until(lambda: bool(stranger.of(Ready)), "the cloud has found the document")
        parts = stranger.of(Fetched)
        hits = town.cloud.library.passages(TITLE, QUESTION)
        nearest = sorted(hits, key=lambda hit: -hit.similarity)[:3]
        assert parts[0].count == len(parts) == 3 < len(hits)
        assert [part.payload.decode() for part in parts] == [hit.text for hit in hits if hit in nearest]
        assert [hit for hit in hits if hit in nearest] != nearest  # or the order says nothing
        stranger.close()


class TestFaults:
    """Round by round over a slow line, so that there is a middle of an answer."""

    FIELDS: ClassVar[dict[str, Any]] = NETWORK | {"draft_length": 1, "temperature": 1.0, "max_tokens": LENGTH}

    @pytest.fixture
    def proxy(self, town: Town) -> Iterator[FaultyProxy]:
        line = Line(delay=0.04)
        with FaultyProxy(int(town.link.address.rpartition(":")[2]), up=line, down=line, seed=1) as proxy:
            yield proxy

    def test_the_cloud_is_lost(self, town: Town, proxy: FaultyProxy) -> None:
        """The drafter goes on with the passages that it has."""
        device = town.device("cut off", proxy.address, **TARGET, draft_model=str(EMBEDDED_DRAFT), patience=0.5)

        def lost_after_a_token() -> tuple[bool, Finished]:
            """The end of an answer, and whether the cloud had a part in its first token."""
            events = iter(device.begin(QUESTION, **self.FIELDS))
            first = next(events)
            proxy.black_hole(True)
            *_, last = events
            proxy.black_hole(False)
            assert isinstance(first, TokenEvent) and isinstance(last, Finished)
            return not first.degraded, last

        for _ in range(5):  # on a busy machine its first words may come late
            there, last = lost_after_a_token()
            if there:
                break
            wait_until(lambda: device.engine.cloud.connected, "the cloud is back")
        degraded = last.report.degraded
        assert degraded
        assert last.report.fetched_bytes > 500
        assert degraded == tuple(range(degraded[0], last.report.tokens))
        assert "The cloud took no part after" in last.report.notes[0]

    def test_connections_that_are_cut_change_no_token(self, town: Town, proxy: FaultyProxy, device: Resident) -> None:
        fields = {name: value for name, value in self.FIELDS.items() if name != "max_tokens"}
        expected, undisturbed = tokens_of(device, **fields)
        patient = town.device("cut", proxy.address, **TARGET, draft_model=str(EMBEDDED_DRAFT))
        events, tokens = iter(patient.begin(QUESTION, **self.FIELDS)), []
        for event in events:
            if isinstance(event, Finished):
                assert event.report.degraded == ()
                assert event.report.prompt_tokens == undisturbed.report.prompt_tokens
                break
            assert isinstance(event, TokenEvent)
            tokens.append(event.token)
            if len(tokens) in (1, 3):
                proxy.cut()
        assert tokens == expected


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

    def test_a_device_without_a_cloud(self, town: Town, private: Resident) -> None:
        folder = town.data / "hermit"
        shutil.copytree(town.data / "device", folder)
        models: dict[str, Any] = TARGET | {"tokenizer": str(EMBEDDED_TOKENIZER), "draft_model": str(EMBEDDED_DRAFT)}
        settings = DeviceSettings(data=folder, cloud=None, privacy="offline", threads=1, **models)
        side = make_side("device", settings, draft=settings.draft)
        engine = DeviceEngine(settings, side)
        engine.start(None)
        try:
            prompt = f"\nQuestion: {QUESTION}\nAnswer:"
            asked = RapidRequest(question=QUESTION, prompt=prompt, seed=20, max_tokens=LENGTH, **RESIDENT)
            *events, last = Iterated(engine, asked)
        finally:
            engine.close()
            side.close()
        assert isinstance(last, Finished)
        assert last.report.notes == ()
        expected, _ = tokens_of(private, **RESIDENT)
        assert [event.token for event in events if isinstance(event, TokenEvent)] == expected
