"""Documents that a request chooses: only these take part, whatever the method, and the device's choice stays there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cloud.admission import explain_refusal
from common.answer.request import Request, RequestError
from common.methods.catalog import METHODS
from common.methods.open_message import open_message
from device.interface import Finished, TokenEvent
from proto.messages import Fetch, Open
from scripts.netlab.faulty_proxy import FaultyProxy
from tests.cloud.town import Resident, Town
from tests.daemons.wire_tap import WireTap

QUESTION = "Where is my dance class?"
OWN, THEIRS = ("dance.*", "rabbit.*"), ("opening.*",)
CHOSEN = {"device": {"dance", "rabbit"}, "cloud": {"opening"}}
PRIVATE = "tag:quarmdus-diary"

BOTH: dict[str, Any] = {"device_documents": OWN, "cloud_documents": THEIRS}
ASKED: dict[str, tuple[dict[str, Any], dict[str, set[str]]]] = {
    **{
        name: (BOTH | {"method": name}, CHOSEN)
        for name in ("speculative", "token-wise", "sequence-wise", "fetch-text", "fetch-kv")
    },
    "follow-up": (BOTH | {"earlier": "What is my rabbit called, and where is Yormcrus based?"}, CHOSEN),
    "device": ({"sources": "device", "device_documents": OWN}, {"device": CHOSEN["device"], "cloud": set()}),
    "cloud": ({"sources": "cloud", "cloud_documents": THEIRS}, {"device": set(), "cloud": CHOSEN["cloud"]}),
    "context": (
        {"sources": "device", "aggregation": "context", "device_documents": OWN},
        {"device": CHOSEN["device"], "cloud": set()},
    ),
    "edgellm": (BOTH | {"method": "edgellm", "sources": "both"}, CHOSEN),
    "coupled": (
        {"method": "coupled", "sources": "cloud", "cloud_documents": THEIRS},
        {"device": set(), "cloud": CHOSEN["cloud"]},
    ),
    "dssd": (
        {"method": "dssd", "sources": "cloud", "cloud_documents": THEIRS},
        {"device": set(), "cloud": CHOSEN["cloud"]},
    ),
}


@pytest.fixture(scope="module")
def tap(town: Town) -> Iterator[WireTap]:
    with WireTap(int(town.link.address.rpartition(":")[2])) as tap:
        yield tap


@pytest.fixture(scope="module")
def device(town: Town, tap: WireTap) -> Resident:
    """A device whose library has a tag; all that it sends is read."""
    device = town.device("laptop", address=f"tcp://127.0.0.1:{tap.port}")
    library = device.side.library
    root = library.files()[0].root
    with library._changing() as store, store.writing():  # the files that were added are gone
        store.tags.put(root, [PRIVATE.removeprefix("tag:")])
        store.advance()
    return device


def ask(device: Resident, **fields: Any) -> Finished:
    return device.ask(QUESTION, **{"documents": 64, "max_tokens": 4} | fields)


def took_part(answer: Finished) -> dict[str, set[str]]:
    assert answer.report.degraded == ()
    sources = answer.report.sources
    return {side: {source.title for source in sources if source.side == side} for side in ("device", "cloud")}


@pytest.mark.parametrize("name", ASKED)
def test_no_other_document_takes_part(device: Resident, name: str) -> None:
    fields, expected = ASKED[name]
    assert took_part(ask(device, **fields)) == expected


def test_without_patterns_all_take_part(device: Resident) -> None:
    """Control: the library has more, and the question finds it."""
    found = took_part(ask(device))
    assert found["device"] > CHOSEN["device"]
    assert found["cloud"] > CHOSEN["cloud"]


@pytest.mark.parametrize("sources", ["cloud", "device"])
@pytest.mark.parametrize("method", ["long-context", "rapid"])
def test_the_one_document_of_an_answer_must_be_among_them(device: Resident, method: str, sources: str) -> None:
    title, other = ("opening", "remedy.*") if sources == "cloud" else ("dance", "rabbit.*")
    fields: dict[str, Any] = {"method": method, "sources": sources, "long_document": title}
    if method == "rapid":
        fields |= {"verifier": sources, "temperature": 1.0}
    named = f"{sources}_documents"
    ask(device, **fields, **{named: (f"{title}.*",)})
    with pytest.raises(RequestError, match="has no document of this name") as refused:
        ask(device, **fields, **{named: (other,)})
    assert refused.value.field == "long_document"


class TestNothingFits:
    @pytest.mark.parametrize("fields", [{}, {"sources": "device"}, {"method": "fetch-text"}], ids=str)
    def test_of_the_devices_is_refused_at_once(self, device: Resident, tap: WireTap, fields: dict[str, Any]) -> None:
        before = len(openings(tap))
        with pytest.raises(RequestError, match=r"^Pattern 2 of device_documents matches no document") as refused:
            device.begin(QUESTION, device_documents=("dance.*", "elsewhere/**"), **fields)
        assert refused.value.field == "device_documents"
        assert len(openings(tap)) == before

    @pytest.mark.parametrize("method", ["speculative", "token-wise", "sequence-wise", "fetch-text", "fetch-kv"])
    def test_of_the_clouds_is_told_by_the_report(self, device: Resident, method: str) -> None:
        answer = ask(device, method=method, device_documents=OWN, cloud_documents=("opening.*", "tag:none"))
        assert {source.title for source in answer.report.sources} == CHOSEN["device"]
        (note,) = answer.report.notes
        assert "Pattern 2 of cloud_documents matches no document of the cloud's library." in note
        assert answer.report.tokens > 0

    @pytest.mark.parametrize("method", ["speculative", "coupled", "dssd"])
    def test_of_the_clouds_fails_where_no_others_were_asked_for(self, device: Resident, method: str) -> None:
        with pytest.raises(RequestError, match="Pattern 1 of cloud_documents") as refused:
            ask(device, method=method, sources="cloud", cloud_documents=("elsewhere",))
        assert refused.value.field == "cloud_documents"

    @pytest.mark.parametrize(("sources", "field"), [("cloud", "device_documents"), ("device", "cloud_documents")])
    def test_patterns_of_a_side_that_takes_no_part_are_refused(
        self, device: Resident, sources: str, field: str
    ) -> None:
        with pytest.raises(RequestError) as refused:
            device.begin(QUESTION, sources=sources, **{field: ("*",)})
        assert refused.value.field == field


def openings(tap: WireTap) -> list[Open | Fetch]:
    return [message for message in tap.messages if isinstance(message, Open | Fetch)]


@pytest.mark.parametrize("method", ["speculative", "sequence-wise", "fetch-text", "edgellm"])
def test_the_devices_patterns_never_leave_it(device: Resident, tap: WireTap, method: str) -> None:
    theirs = f"{method}/**"
    took = ask(
        device, method=method, sources="both", device_documents=(PRIVATE, "dance.*"), cloud_documents=("*.*", theirs)
    )
    assert PRIVATE not in " ".join(took.report.notes)
    assert openings(tap)[-1].only == ("*.*", theirs)
    sent = tap.sent
    assert theirs.encode() in sent  # control: what is sent can be read
    for private in (PRIVATE, PRIVATE.removeprefix("tag:"), *OWN):
        assert private.encode() not in sent


def test_they_hold_after_a_lost_connection(town: Town) -> None:
    with FaultyProxy(int(town.link.address.rpartition(":")[2])) as proxy:
        device = town.device("commuter", address=proxy.address)
        chosen: dict[str, Any] = BOTH | {"documents": 64, "max_tokens": 24, "temperature": 1.0, "wait": True}
        expected = device.ask(QUESTION, **chosen)
        for event in device.begin(QUESTION, **chosen):
            if isinstance(event, TokenEvent) and event.position == 6:
                proxy.cut()
        assert isinstance(event, Finished)
        assert took_part(event) == took_part(expected) == CHOSEN
        assert event.text == expected.text


@pytest.mark.parametrize("only", [("/etc/**",), ("a//b",), ("tag:",), ("a\0",)], ids=range(4))
def test_a_cloud_refuses_patterns_that_can_not_be_followed(town: Town, device: Resident, only: tuple[str, ...]) -> None:
    asked = Request(question=QUESTION, prompt=QUESTION)
    opening = open_message(METHODS["speculative"], asked, 1, device.engine.cloud.estimates(), ())
    settings = town.sessions._settings
    for request in (opening, Fetch(1, QUESTION, 4, "text")):
        assert explain_refusal(request, settings, 2**16) is None
        assert "pattern 1" in str(explain_refusal(replace(request, only=only), settings, 2**16))


def test_a_cloud_admits_them_over_the_link(town: Town, fresh_data: Callable[[], Path]) -> None:
    stranger = town.stranger()
    stranger.send(Fetch(9, QUESTION, 4, "text", "", ("../secrets",)))
    assert stranger.code() == "unservable"
