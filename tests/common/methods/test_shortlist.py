"""A method that drafts and verifies, which the project does not have, added as docs/contributing.md says.

That its answers are the verifier's, whatever is lost, repeated or late, is shown by `drafted/test_faults.py`. Here it
goes through real daemons' parts, and messages that it alone has are refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from common.answer.request import Request, RequestError
from common.configuration.settings import EMBEDDED_DRAFT, EMBEDDED_MODEL
from common.engine.model.prompt import Query
from common.methods.catalog import METHODS
from common.methods.open_message import open_message
from common.sampling.race import RaceKernel
from common.transport.cloud_link import CloudLink
from common.transport.sending import Peer
from device.http.errors import ApiError
from device.http.prompts import make_request
from device.interface import Finished, TokenEvent
from proto.messages import Message, Propose, Sync, Verdict
from scripts.netlab.faulty_proxy import FaultyProxy
from tests.cloud.town import Resident, Town
from tests.common.methods.drafted.pump import Length, Pair, table_model
from tests.common.methods.drafted.refusals import propose, refused_by_the_drafter, refused_by_the_verifier
from tests.common.methods.drafted.schemes import scheme_of
from tests.common.methods.shortlist.method import Shortlist, ShortlistRequest
from tests.common.methods.shortlist.payload import ID, encode_lists
from tests.common.methods.shortlist.scheme import Drafter

QUESTION = "What is the best-selling horror game?"
LENGTH = 24
TARGET = {"model": str(EMBEDDED_MODEL), "dtype": "float32"}
VOCABULARY = 7


@pytest.fixture(scope="module", autouse=True)
def listed() -> Iterator[None]:
    """The one line that a method adds to the catalog."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(METHODS, Shortlist.name, Shortlist())
        yield


@pytest.fixture(scope="module")
def town(fresh_data: Callable[[], Path]) -> Iterator[Town]:
    with Town(fresh_data(), **TARGET) as town:
        yield town


@pytest.fixture(scope="module")
def proxy(town: Town) -> Iterator[FaultyProxy]:
    with FaultyProxy(int(town.link.address.rpartition(":")[2])) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def device(town: Town, proxy: FaultyProxy) -> Resident:
    return town.device("drafting", proxy.address, **TARGET, draft_model=str(EMBEDDED_DRAFT), patience=2.0)


def tokens_of(device: Resident, **fields: Any) -> tuple[list[int], Finished]:
    *events, last = device.begin(QUESTION, **({"max_tokens": LENGTH, "temperature": 1.0} | fields))
    assert isinstance(last, Finished)
    return [event.token for event in events if isinstance(event, TokenEvent)], last


@dataclass
class Wire:
    """Both directions of the link. `times` says of the messages of rounds how often each of them is to arrive."""

    times: Callable[[Propose | Verdict | Sync], int] = lambda message: 1
    verdicts: list[Verdict] = field(default_factory=list)  # that were sent

    def passes(self, message: Message, send: Callable[[], int]) -> int:
        if isinstance(message, Verdict):
            self.verdicts.append(message)
        times = self.times(message) if isinstance(message, Propose | Verdict | Sync) else 1
        return max([1, *(send() for _ in range(times))])


@pytest.fixture
def wire(device: Resident, monkeypatch: pytest.MonkeyPatch) -> Wire:
    wire, connection, down = Wire(), device.engine.cloud.connection, CloudLink.send
    assert connection is not None
    up = connection.send
    monkeypatch.setattr(connection, "send", lambda message: wire.passes(message, lambda: up(message)))

    def send(link: CloudLink, peer: Peer, message: Message) -> int:
        return wire.passes(message, lambda: down(link, peer, message))

    monkeypatch.setattr(CloudLink, "send", send)
    return wire


class TestAnswer:
    @pytest.mark.parametrize("temperature", [0.0, 1.0])
    @pytest.mark.parametrize("fields", [{}, {"ahead": True}, {"runners_up": 0, "draft_policy": "goodput"}])
    def test_is_the_verifiers(self, device: Resident, temperature: float, fields: dict[str, Any]) -> None:
        alone, _ = tokens_of(device, sources="cloud", temperature=temperature)
        tokens, last = tokens_of(device, method="shortlist", temperature=temperature, **fields)
        assert tokens == alone
        assert (last.report.method, last.report.notes, last.report.degraded) == ("shortlist", (), ())
        # Where drafts take longer than they save, as on a busy machine, the policy asks for none.
        assert last.report.device.accepted > 0 or "draft_policy" in fields

    def test_messages_that_are_lost_or_repeated_change_nothing(self, device: Resident, wire: Wire) -> None:
        alone, _ = tokens_of(device, sources="cloud")
        came: dict[tuple[bool, int], int] = {}

        def times(message: Propose | Verdict | Sync) -> int:
            """A third of them is lost, and a third repeated, when it is sent first, behind the first round."""
            if isinstance(message, Sync) or message.round == 1:
                return 1
            key = isinstance(message, Verdict), message.round
            return 1 if key in came else came.setdefault(key, sum(key) % 3)

        wire.times = times
        tokens, last = tokens_of(device, method="shortlist", draft_length=3)
        assert tokens == alone
        assert last.report.degraded == ()
        assert set(came.values()) == {0, 1, 2}
        assert any(len(each.payload) == 1 for each in wire.verdicts), "no verdict was about a runner-up"

    def test_a_cut_changes_nothing(self, device: Resident, wire: Wire, proxy: FaultyProxy) -> None:
        alone, _ = tokens_of(device, sources="cloud")
        cut: list[int] = []

        def times(message: Propose | Verdict | Sync) -> int:
            if isinstance(message, Verdict) and message.round > 1 and not cut:
                cut.append(message.round)
                proxy.cut()
            return 1

        wire.times = times
        tokens, last = tokens_of(device, method="shortlist", ahead=True)
        assert cut
        assert tokens == alone
        assert last.report.degraded == ()

    def test_a_verifier_that_goes_away_leaves_it_to_the_drafter(self, device: Resident, wire: Wire) -> None:
        alone, _ = tokens_of(device, sources="cloud")
        dark: list[bool] = []

        def times(message: Propose | Verdict | Sync) -> int:
            if not isinstance(message, Sync) and message.round > 2:
                dark.append(True)
            return not dark

        wire.times = times
        tokens, last = tokens_of(device, method="shortlist")
        kept = last.report.degraded[0]
        assert tokens[:kept] == alone[:kept]
        assert kept == sum(each.accepted + 1 for each in wire.verdicts if each.round < 3) > 0
        assert last.report.degraded == tuple(range(kept, last.report.tokens))
        assert any("The cloud took no part" in note for note in last.report.notes)


class TestOptions:
    def test_its_own_are_limited_like_all_others(self) -> None:
        defaults = Request(question="", prompt="")
        request = make_request({"method": "shortlist", "runners_up": 15}, defaults, QUESTION, Query("?"))
        assert isinstance(request, ShortlistRequest)
        assert (request.runners_up, request.sampler, request.sources) == (15, "race", "cloud")
        for wrong in (-1, 16, "2", 1.5):
            with pytest.raises(ApiError, match="runners_up"):
                make_request({"method": "shortlist", "runners_up": wrong}, defaults, QUESTION, Query("?"))

    @pytest.mark.parametrize(
        ("fields", "said"),
        [
            ({"sampler": "rejection"}, "draws by 'race'"),
            ({"sources": "both"}, "cloud's documents on both sides"),
            ({"draft_policy": "ddqn"}, "has none to choose"),
        ],
    )
    def test_what_does_not_go_together_is_refused(self, fields: dict[str, Any], said: str) -> None:
        with pytest.raises(RequestError, match=said):
            scheme_of("shortlist", VOCABULARY, LENGTH, **fields)

    @pytest.mark.parametrize("sent", [{"runners_up": 16}, {"runners_up": 2, "seed": 1}])
    def test_out_of_their_limits_they_open_no_session(self, town: Town, device: Resident, sent: dict[str, int]) -> None:
        request = ShortlistRequest(question=QUESTION, prompt="?", method="shortlist")
        opening = open_message(Shortlist(), request, 1, device.side.profiler.nobody.estimates, device.side.eos)
        stranger = town.stranger()
        stranger.send(replace(opening, options=json.dumps(sent)))
        assert stranger.code() == "unservable"
        town.check_that_all_is_free()


def test_runners_up_are_the_next_of_the_race() -> None:
    """The draft is whom a race of one finds, and each of the others is whom it would find without those before."""
    drafter, kernel = Drafter(5, 0.8, 3), RaceKernel(VOCABULARY, "cpu")
    weights = torch.from_numpy(np.random.default_rng(1).dirichlet(np.ones(VOCABULARY)).astype(np.float32))
    (found,) = kernel.run(weights[None], [drafter.race(4)])
    drafted = drafter.drafted(4, weights, found)
    for expected in (drafted.token, *drafted.runners_up):
        (one,) = kernel.run(weights[None], [replace(drafter.race(4), depth=1)])
        assert one[0].tolist() == [expected]
        weights[expected] = 0.0
    (found,) = kernel.run(weights[None], [drafter.race(4)])  # three are left
    assert len(drafter.drafted(4, weights, found).runners_up) == VOCABULARY - 4 - 1


def pair() -> Pair:
    model = table_model(VOCABULARY, 1)
    return Pair(scheme_of("shortlist", VOCABULARY, LENGTH, (6,), runners_up=2, seed=8), model, model, Length(4))


class TestHostile:
    @pytest.mark.parametrize(
        ("tokens", "payload", "said"),
        [
            ((1, 2), b"\0", "say how many"),
            ((1,), encode_lists([(2, 3, 4)]), "at most 2"),
            ((1,), encode_lists([(2, 3)])[:-1], "as many runners-up as are announced"),
            ((1,), encode_lists([(2, 3)]) + bytes(ID.itemsize), "as many runners-up as are announced"),
            ((1,), encode_lists([(2, VOCABULARY)]), "below 7"),
            ((), b"", "1 to 64 tokens"),
            ((1,) * 65, bytes(65), "within the answer"),
        ],
    )
    def test_device(self, tokens: tuple[int, ...], payload: bytes, said: str) -> None:
        refused_by_the_verifier(pair(), propose(tokens, payload), said)

    @pytest.mark.parametrize("payload", [b"", b"\2", b"\0\0"])
    def test_cloud(self, payload: bytes) -> None:
        refused_by_the_drafter(pair(), "place of a runner-up", accepted=1, token=(), payload=payload)
