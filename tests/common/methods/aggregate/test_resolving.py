"""Resolved values stay known until their position is decided."""

from __future__ import annotations

from typing import cast

import pytest
import torch

from common.answer.values import Send, SideDraft
from common.estimates.estimators import SpeculationLimits
from common.estimates.policy import FixedSide
from common.methods.aggregate.session import (
    MOST_LOOK_UPS,
    Action,
    LookUp,
    Questions,
    Session,
    SessionConfig,
    draft_message,
)
from common.sampling.certificate import Decision, MissingHere, MissingThere, RaceView
from common.sampling.race import ENTRY_BYTES, LocalRace, RaceSampler
from proto.codes import EMPTY
from proto.errors import ProtocolError
from proto.framing import encode
from proto.messages import MOST_NAMED, Placement, Resolve, Resolved, Side
from tests.support.looking_up import settled

VOCABULARY = 16


def asked(actions: list[Action]) -> list[int]:
    """The lengths of the lists that are asked for."""
    sent = [action.message for action in actions if isinstance(action, Send)]
    return [message.depth for message in sent if isinstance(message, Resolve)]


class TestRepeatedDraft:
    def test_does_not_undo_what_was_resolved(self) -> None:
        """A `Sync` makes the cloud repeat its drafts while the lists that the device asked for are on their way."""
        aggregation = RaceSampler(1, 0.0, 1, VOCABULARY, hide_ids=True)
        config = SessionConfig(1, "device", frozenset(), 4, VOCABULARY)
        device = Session("device", config, aggregation, FixedSide("device"), SpeculationLimits(2))
        rising = torch.arange(1, VOCABULARY + 1, dtype=torch.float32)
        own, others = (aggregation.drafted(0, each / each.sum(), None) for each in (rising, rising.flip(0)))
        announced = draft_message(config, 0, SideDraft(others, 0.0), aggregation.pack(others))

        assert device.work is not None
        device.drafted(SideDraft(own, 0.0))
        assert asked(settled(device, device.received(announced))) == [2]
        for depth in (2, 4):
            payload = aggregation.supply(others, (), depth)
            assert asked(settled(device, device.received(Resolved(1, 0, EMPTY, depth, payload)))) == [2 * depth]
            assert asked(settled(device, device.received(announced))) == []
            assert asked(settled(device, device.stalled())) == [2 * depth]
            assert asked(settled(device, device.received(announced))) == []
            assert asked(settled(device, device.received(Resolved(1, 0, EMPTY, depth, payload)))) == []


class TestUnasked:
    """A side takes in no more than it has asked for, and that once: a list of a whole vocabulary takes long to read."""

    RISING = torch.arange(1, VOCABULARY + 1, dtype=torch.float32) / sum(range(VOCABULARY + 1))

    def sides(self, placement: Placement) -> tuple[Session, Session, RaceSampler]:
        aggregation = RaceSampler(1, 0.0, 1, VOCABULARY, hide_ids=True)
        config = SessionConfig(1, placement, frozenset(), 4, VOCABULARY)
        device, cloud = (
            Session(side, config, aggregation, FixedSide("device"), SpeculationLimits(2))
            for side in ("device", "cloud")
        )
        return device, cloud, aggregation

    def test_values(self) -> None:
        device, _, aggregation = self.sides("device")
        own, others = (aggregation.drafted(0, each, None) for each in (self.RISING, self.RISING.flip(0)))
        announced = draft_message(device.config, 0, SideDraft(others, 0.0), aggregation.pack(others))

        def told(depth: int, position: int = 0) -> int:
            """The length of the list that the device knows then."""
            settled(device, device.received(Resolved(1, position, EMPTY, depth, aggregation.supply(others, (), depth))))
            held = device.remote.get(0, EMPTY)
            assert held is not None
            return aggregation.footprint(cast(RaceView, held.known)) // ENTRY_BYTES

        device.received(announced)
        assert told(2) == 1  # nothing was asked yet
        assert device.work is not None
        assert asked(settled(device, device.drafted(SideDraft(own, 0.0)))) == [2]
        assert told(VOCABULARY) == 1
        assert told(2, position=1) == 1
        assert device.counters.stale == 3
        assert told(2) == 2
        assert told(2) == 2
        assert device.counters.stale == 4

    @pytest.mark.parametrize(
        ("ids", "depth"),
        [((2, 5), 0), ((2,), 0), ((2, 4, 5, 6), 0), ((2, 4, 6), 0), ((), 3)],
        ids=str,
    )
    def test_other_values_than_those_that_were_asked_for(self, ids: tuple[int, ...], depth: int) -> None:
        """Neither more nor fewer nor others, however few a list of the fastest may be."""
        aggregation = RaceSampler(1, 0.0, 1, VOCABULARY)
        others = aggregation.drafted(0, self.RISING.flip(0), None)
        known = aggregation.read("cloud", 0, aggregation.pack(others))
        named = () if depth else (2, 4, 5)
        told = aggregation.supply(others, named, depth and depth + 1)
        assert {*named} <= {*aggregation.complete(known, 0, named[::-1], depth and depth + 1, told).speed_of}
        with pytest.raises(ProtocolError, match=r"asked for|at most"):
            aggregation.complete(known, 0, ids, depth, told)

    @pytest.mark.parametrize(("placement", "kept"), [("device", 0), ("cloud", 1), ("mirrored", 1)])
    def test_drafts(self, placement: Placement, kept: int) -> None:
        """Under a placement by which the other side sends none."""
        _, cloud, aggregation = self.sides(placement)
        view = aggregation.drafted(0, self.RISING, None)
        draft = SideDraft(view, 0.0)
        cloud.received(draft_message(cloud.config, 0, draft, aggregation.pack(view)))
        assert (cloud.remote._count, cloud.counters.stale) == (kept, 1 - kept)


class TestMadeAnew:
    """After a reconnect the cloud's passes give other last bits: it tells of its new draft, and contradicts nothing."""

    RISING = torch.arange(1, VOCABULARY + 1, dtype=torch.float32)

    def start(self, moved: int) -> Session:
        """A device that holds a draft, of which it has asked for four tokens. In the other draft, `moved` is another
        token's probability. Two are listed.
        """
        self.falling, self.again = self.RISING.flip(0), self.RISING.flip(0)
        self.again[moved] *= 1.001
        aggregation = RaceSampler(1, 0.0, 2, VOCABULARY, hide_ids=True)
        config = SessionConfig(1, "device", frozenset(), 4, VOCABULARY)
        device = Session("device", config, aggregation, FixedSide("device"), SpeculationLimits(2))
        own, self.before, self.after = (
            aggregation.drafted(0, each / self.RISING.sum(), None) for each in (self.RISING, self.falling, self.again)
        )
        assert device.work is not None
        device.drafted(SideDraft(own, 0.0))
        assert self.drafted(device, self.before) == [4]
        return device

    def drafted(self, device: Session, view: LocalRace) -> list[int]:
        """The lengths of the lists that the device asks for, as the cloud has drafted."""
        draft = SideDraft(view, 0.0)
        message = draft_message(device.config, 0, draft, device.sampler.pack(view))
        return asked(settled(device, device.received(message)))

    def resolved(self, device: Session, view: LocalRace, depth: int) -> list[int]:
        """The same, as the cloud answers."""
        payload = device.sampler.supply(view, (), depth)
        return asked(settled(device, device.received(Resolved(1, 0, EMPTY, depth, payload))))

    def check_that_it_ends(self, device: Session, depths: list[int]) -> None:
        """The new draft decides."""
        while depths:
            depths = self.resolved(device, self.after, *depths)
        assert device.committed == (int((self.RISING + self.again).argmax()),)

    def test_what_was_listed_is_another_number(self) -> None:
        device = self.start(moved=1)
        assert self.resolved(device, self.before, 4) == [8]
        assert asked(settled(device, device.rejoined())) == [8]
        self.check_that_it_ends(device, self.drafted(device, self.after))

    def test_what_was_asked_for_is_another_number(self) -> None:
        device = self.start(moved=2)
        assert self.resolved(device, self.before, 4) == [8]
        assert asked(settled(device, device.rejoined())) == [8]
        assert self.drafted(device, self.after) == []  # as far as it is listed, it is the same
        self.check_that_it_ends(device, [8])

    def test_a_question_that_came_before_the_draft_is_asked_again(self) -> None:
        device = self.start(moved=1)
        assert asked(settled(device, device.rejoined())) == [4]
        assert self.drafted(device, self.after) == [4]


class TestAway:
    """A position whose cloud draft is there is decided from both, as far as this side can do that by itself."""

    def decided(self, own: dict[int, float], others: dict[int, float], likeliest: int = 0) -> tuple[int, list[int]]:
        """The token at the first position, and the degraded ones. The rest of both mixtures is spread evenly."""
        aggregation = RaceSampler(1, 0.0, 3, VOCABULARY, likeliest, logprobs=likeliest)
        config = SessionConfig(1, "device", frozenset(), 4, VOCABULARY)
        device = Session("device", config, aggregation, FixedSide("device"), SpeculationLimits(2))
        drafts = []
        for named in (own, others):
            spread = torch.full((VOCABULARY,), (1 - sum(named.values())) / (VOCABULARY - len(named)))
            spread[list(named)] = torch.tensor(list(named.values()))
            drafts.append(SideDraft(aggregation.drafted(0, spread, None), 0.0))
        device.received(draft_message(config, 0, drafts[1], device.sampler.pack(drafts[1].view)))
        device.out_of_patience()
        assert device.work is not None
        settled(device, device.drafted(drafts[0]))
        (token,) = device.committed
        return token, device.counters.degraded

    def test_its_own_values_are_looked_up(self) -> None:
        """Token 5 leads by the lists, with .45 to .65, and 6 has .40 to .60; in truth they have .46 and .59."""
        assert self.decided({3: 0.25, 4: 0.22, 5: 0.01, 6: 0.19, 7: 0.2}, {5: 0.45, 6: 0.4}) == (6, [])

    def test_what_only_the_cloud_knows(self) -> None:
        assert self.decided({3: 0.3, 4: 0.29, 5: 0.2}, {8: 0.3, 9: 0.25, 10: 0.24, 4: 0.1}) == (3, [0])

    def test_log_probabilities_change_no_token(self) -> None:
        """The device does not list the target, and looks its probability up."""
        own, others = {3: 0.25, 4: 0.24, 5: 0.23, 6: 0.1}, {8: 0.9}
        assert self.decided(own, others) == self.decided(own, others, likeliest=1) == (8, [])


class TestLookUps:
    """Look-ups for the other side are made a few at a time; those that are done make room."""

    ASKED = 3 * MOST_LOOK_UPS

    def answered(self) -> int:
        """Of `ASKED` questions, each asked when the one before is done."""
        aggregation = RaceSampler(1, 0.0, 1, VOCABULARY, hide_ids=True)
        config = SessionConfig(1, "device", frozenset(), 4, VOCABULARY)
        cloud = Session("cloud", config, aggregation, FixedSide("device"), SpeculationLimits(2))
        rising = torch.arange(1, VOCABULARY + 1, dtype=torch.float32)
        assert cloud.work is not None
        cloud.drafted(SideDraft(aggregation.drafted(0, rising / rising.sum(), None), 0.0))
        actions: list[Action] = []
        for _ in range(self.ASKED):
            actions += settled(cloud, cloud.received(Resolve(1, 0, EMPTY, (), 2)))
        return sum(isinstance(action, Send) and isinstance(action.message, Resolved) for action in actions)

    def test_every_question_is_answered(self) -> None:
        assert self.answered() == self.ASKED

    def test_mutant_those_done_are_not_counted_down(self, monkeypatch: pytest.MonkeyPatch) -> None:
        looked_up = Questions.looked_up

        def kept(self: Questions, look_up: LookUp, payload: bytes) -> list[Action]:
            actions = looked_up(self, look_up, payload)
            self._others += look_up.asked
            return actions

        monkeypatch.setattr(Questions, "looked_up", kept)
        assert self.answered() == MOST_LOOK_UPS


LARGE = 16384  # tokens, many more than one `Resolve` can name
Mixtures = tuple[torch.Tensor, torch.Tensor]  # of the side that aggregates, and of the other one


def mixture(weights: dict[int, float], rest: float = 0.0, among: range = range(0)) -> torch.Tensor:
    """Probabilities of tokens by id; the `rest` is spread evenly over the tokens `among`."""
    made = torch.zeros(LARGE)
    made[list(among)] = rest / max(1, len(among))
    for token, weight in weights.items():
        made[token] = weight
    return made


VAGUE = mixture({}, 1.0, range(6000))
PAIRS = {
    "a name the other side hardly knows": (VAGUE, mixture({5900: 0.9}, 0.1, range(LARGE))),
    "a name the other side does not know": (VAGUE, mixture({7000: 1.0})),
    "a name of its own": (mixture({7000: 0.9}, 0.1, range(LARGE)), VAGUE),
}


class TestLargeVocabularies:
    """Lists are as short as there are, so that each certificate fails."""

    def resolve(
        self, mixtures: Mixtures, role: Side = "device", temperature: float = 0.0, hide_ids: bool = False
    ) -> list[MissingHere | MissingThere | Decision]:
        """All that the certificates come to until the target is found; every question can be sent."""
        aggregation = RaceSampler(1, temperature, 1, LARGE, hide_ids=hide_ids)
        own, others = (aggregation.drafted(0, each, None) for each in mixtures)
        local, remote = own, aggregation.read("cloud", 0, aggregation.pack(others))
        found: list[MissingHere | MissingThere | Decision] = []
        while True:
            device, cloud = (local, remote) if role == "device" else (remote, local)
            found.append(verdict := aggregation.aggregate(role, 0, device, cloud, (0.0, 0.0)))
            if isinstance(verdict, MissingHere):
                payload = aggregation.supply(own, verdict.ids, verdict.depth)
                local = aggregation.complete(local, 0, verdict.ids, verdict.depth, payload)
            elif isinstance(verdict, MissingThere):
                encode(Resolve(1, 0, EMPTY, verdict.ids, verdict.depth))
                payload = aggregation.supply(others, verdict.ids, verdict.depth)
                remote = aggregation.complete(remote, 0, verdict.ids, verdict.depth, payload)
            else:
                return found

    def target(self, mixtures: Mixtures, temperature: float) -> Decision:
        """The target, of two sides that know all of each other."""
        everything = RaceSampler(1, temperature, LARGE, LARGE)
        first, second = (everything.drafted(0, each, None) for each in mixtures)
        found = everything.aggregate("device", 0, first, second, (0.0, 0.0))
        assert isinstance(found, Decision)
        return found

    @pytest.mark.parametrize("pair", PAIRS)
    @pytest.mark.parametrize("temperature", [0.0, 1.0])
    @pytest.mark.parametrize(("role", "hide_ids"), [("device", False), ("device", True), ("cloud", False)])
    def test_neither_list_is_looked_up_to_its_end(
        self, pair: str, temperature: float, role: Side, hide_ids: bool
    ) -> None:
        mixtures = PAIRS[pair]
        *lacking, target = self.resolve(mixtures, role, temperature, hide_ids)
        assert isinstance(target, Decision) and target.token == self.target(mixtures, temperature).token
        assert all(isinstance(each, MissingHere | MissingThere) and each.depth <= 64 for each in lacking)
        named = [each.ids for each in lacking if isinstance(each, MissingThere)]
        assert sum(map(len, named)) <= (0 if hide_ids else 16)

    def test_more_tokens_than_a_question_holds_are_named_one_part_after_the_other(self) -> None:
        """Each of the 5,000 could win but for what the other side says of it, and no unnamed one."""
        vague = mixture({}, 0.95, range(5000))
        mixtures = vague, mixture({16000: 3e-4}, 0.99, range(8000, 14600))
        *lacking, target = self.resolve(mixtures)
        assert target == self.target(mixtures, 0.0)
        assert [len(each.ids) for each in lacking if isinstance(each, MissingThere) and each.ids] == [MOST_NAMED, 904]
