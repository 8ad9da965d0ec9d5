"""Messages that are lost, repeated, late or out of order, and verifiers that are gone and back, change no token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.answer.values import Action
from common.methods.coupled.scheme import encode_tokens
from common.methods.drafted.drafting import Drafting
from common.methods.drafted.verifying import Verifying
from common.sampling.compiled import Purpose, SeededDraws
from common.sampling.race import RaceWinner
from proto.codes import digest
from proto.errors import ProtocolError
from proto.messages import Propose, Sync, Verdict
from tests.common.methods.drafted.pump import Length, Pair, mixture, table_model
from tests.common.methods.drafted.schemes import DRAFTED, RACED, cases, scheme_of

VOCABULARY, TOKENS, EOS = 7, 24, (6,)
VERIFIER = table_model(VOCABULARY, 1, sharpness=3.0)
DRAFTER = table_model(VOCABULARY, 2, sharpness=3.0, beside=VERIFIER)
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "dsd": [{"top_k": 4}],
    "dssd": [{"top_k": 4}],
    "qsv": [{"resolution": 8}],
    "rapid": [{"top_k": 4}, {"draft_codec": "lattice", "resolution": 8, "top_k": 0, "residual": "paper"}],
}
METHODS = cases(DRAFTED, OPTIONS)
# What may happen between two events of a healthy link.
FAULTY = [
    *("draft", "verify", "up", "down") * 3,
    *("lose up", "lose down", "repeat up", "repeat down", "swap up", "swap down"),
    *("stall", "reconnect"),
]
EVENTS = st.lists(st.sampled_from(FAULTY), max_size=120)


def pair_of(method: str, fields: dict[str, Any], seed: int, length: int = 4) -> Pair:
    scheme = scheme_of(method, VOCABULARY, TOKENS, EOS, seed=seed, **fields)
    return Pair(scheme, DRAFTER, VERIFIER, Length(length))


def pair_alone(seed: int) -> list[int]:
    """The answer of the draft model."""
    pair = pair_of("coupled", {"ahead": True}, seed)
    pair.act(pair.device.out_of_patience())
    while pair.draft():
        pass
    return pair.tokens


def happen(pair: Pair, event: str) -> None:
    link = pair.up if event.endswith("up") else pair.down
    match event.split()[0]:
        case "draft":
            pair.draft()
        case "verify":
            pair.verify()
        case "up":
            pair.deliver_up()
        case "down":
            pair.deliver_down()
        case "lose" if link:
            link.popleft()
        case "repeat" if link:
            link.append(link[0])
        case "swap" if len(link) > 1:
            link[0], link[1] = link[1], link[0]
        case "stall":
            pair.act(pair.device.reminded())
        case "reconnect":
            pair.up.clear()
            pair.down.clear()
            pair.renew_cloud()
            pair.act(pair.device.rejoined())


def settle(pair: Pair) -> list[int]:
    """Run to the end; whoever waits for a message that was lost asks again."""
    for _ in range(10_000):
        if pair.device.finished is not None:
            return pair.tokens
        if not (pair.draft() or pair.deliver_up() or pair.verify() or pair.deliver_down()):
            pair.act(pair.device.reminded())
    raise AssertionError("the answer does not end")


@cache
def faultless(method: int, seed: int) -> list[int]:
    """The answer of a pair of `METHODS` over a healthy link."""
    return pair_of(*METHODS[method], seed).run()


@pytest.mark.parametrize(("method", "fields"), METHODS)
@given(events=EVENTS, seed=st.integers(0, 50))
@settings(max_examples=30)
def test_the_same_tokens(method: str, fields: dict[str, Any], events: list[str], seed: int) -> None:
    expected = faultless(METHODS.index((method, fields)), seed)
    pair = pair_of(method, fields, seed)
    for event in events:
        happen(pair, event)
    assert settle(pair) == expected
    assert pair.device.degraded == []


@pytest.mark.parametrize("method", ["dsd", "qsv"])
def test_proposals_for_which_there_is_no_room_are_as_good_as_lost(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are sent again. Of an answer's proposals, so many bytes wait, and one whatever it takes."""
    fields = OPTIONS[method][0] | {"ahead": True}
    expected = pair_of(method, fields, 3, 2).run()
    for most, held in ((1, 1), (10**6, 2)):
        monkeypatch.setattr("common.methods.drafted.verifying.MOST_PENDING_BYTES", most)
        pair = pair_of(method, fields, 3, 2)
        pair.act(pair.device.begin())
        while pair.draft() or pair.deliver_up():
            assert len(pair.cloud._pending) <= 1 or most > 1
        assert len(pair.cloud._pending) >= held
        assert settle(pair) == expected


@pytest.mark.parametrize(("method", "fields"), cases(RACED, OPTIONS))
@given(seed=st.integers(0, 30), temperature=st.sampled_from([0.0, 0.5, 1.0, 1.7]), length=st.integers(1, 9))
@settings(max_examples=20)
def test_raced_tokens_are_the_verifiers_alone(
    method: str, fields: dict[str, Any], seed: int, temperature: float, length: int
) -> None:
    scheme = scheme_of(method, VOCABULARY, TOKENS, EOS, seed=seed, temperature=temperature, **fields)
    pair = Pair(scheme, VERIFIER, VERIFIER, Length(length))
    alone: list[int] = []
    while not alone or not scheme.config.ends(alone[-1], len(alone)):
        alone.append(pair.view(scheme.verifier, len(alone), mixture(VERIFIER, alone)).token)
    for drafter in (DRAFTER, table_model(VOCABULARY, 9)):
        assert Pair(scheme, drafter, VERIFIER, Length(length)).run() == alone
    assert pair.run() == alone
    assert pair.device.counters.accepted == pair.device.counters.proposed  # this drafter is the verifier


@dataclass(frozen=True, slots=True)
class Told(Length):
    """Notes how many tokens proposals have, and of how many steps they are told."""

    proposals: list[tuple[int, int]] = field(default_factory=list)

    def proposed(self, message: Propose, confidences: Sequence[float], steps: Sequence[float]) -> None:
        self.proposals.append((len(confidences), len(steps)))


class TestAlone:
    @pytest.mark.parametrize(("method", "fields"), METHODS)
    @given(before=st.integers(0, 40), alone=st.integers(1, 12), seed=st.integers(0, 20))
    @settings(max_examples=15)
    def test_a_verifier_that_returns_verifies_again(
        self, method: str, fields: dict[str, Any], before: int, alone: int, seed: int
    ) -> None:
        pair = pair_of(method, fields, seed)
        for _ in range(before):
            if pair.device.finished is None and not (
                pair.draft() or pair.deliver_up() or pair.verify() or pair.deliver_down()
            ):
                break
        verified = len(pair.tokens)
        pair.act(pair.device.out_of_patience())
        for _ in range(alone):
            pair.draft()
        assert pair.degraded[verified:] == [True] * (len(pair.tokens) - verified)
        taken = len(pair.tokens)
        pair.up.clear()
        pair.down.clear()
        pair.renew_cloud()
        pair.act(pair.device.rejoined())
        settle(pair)
        assert pair.degraded[taken:] == [False] * (len(pair.tokens) - taken)
        assert pair.device.degraded == list(range(verified, taken))

    @pytest.mark.parametrize(("method", "fields"), METHODS)
    @given(before=st.integers(0, 40), tokens=st.lists(st.integers(2, 4), max_size=5), seed=st.integers(0, 20))
    @settings(max_examples=15)
    def test_another_model_decides_until_the_verifier_returns(
        self, method: str, fields: dict[str, Any], before: int, tokens: list[int], seed: int
    ) -> None:
        pair = pair_of(method, fields, seed)
        for _ in range(before):
            if pair.device.finished is None:
                pair.draft() or pair.deliver_up() or pair.verify() or pair.deliver_down()
        device = pair.device
        assert device.decide(device.position, 2) == []  # there is a verifier
        pair.act(device.out_of_patience(relieved=True))
        begun = device.position
        for token in tokens:
            if device.finished is None:
                assert not pair.draft()
                pair.act(device.decide(device.position, token))
                pair.act(device.decide(device.position - 1, token))  # comes too late
        assert device.decided[begun:] == tokens[: device.position - begun]
        taken = len(pair.tokens)
        pair.up.clear()
        pair.down.clear()
        pair.renew_cloud()
        pair.act(device.rejoined())
        assert device.decide(device.position, 2) == []
        settle(pair)
        assert pair.degraded[taken:] == [False] * (len(pair.tokens) - taken)

    def test_a_verifier_that_returns_before_that_model_decides_judges_the_same_proposal(self) -> None:
        """And not one of another length: whether its verdict was lost may depend on what it said."""
        pair = pair_of("dsd", {"top_k": 4}, 3)
        while not pair.down:
            assert pair.draft() or pair.deliver_up() or pair.verify()
        pair.down.clear()
        pair.act(pair.device.out_of_patience(relieved=True))
        pair.lengths = pair.device._lengths = Length(1)
        pair.act(pair.device.rejoined())
        pair.renew_cloud()
        expected = pair_of("dsd", {"top_k": 4}, 3)
        while not expected.deliver_down():
            assert expected.draft() or expected.deliver_up() or expected.verify()
        while not pair.deliver_down():
            assert pair.deliver_up() or pair.verify()
        assert pair.tokens == expected.tokens
        assert pair.device.counters.proposed == expected.device.counters.proposed > 1

    def test_drafts_decide_where_that_model_fails(self) -> None:
        pair = pair_of("coupled", {"ahead": True}, 3)
        pair.draft()
        pair.act(pair.device.out_of_patience(relieved=True))
        assert pair.tokens == []
        pair.act(pair.device.relief_failed())
        while pair.draft():
            pass
        assert pair.device.finished is not None
        assert pair.tokens == pair_alone(3)

    @pytest.mark.parametrize("relieved", [False, True])
    def test_steps_before_the_verifier_returns_are_none_of_the_next_proposals(self, relieved: bool) -> None:
        """Drafts would seem to take as much longer as there were tokens without it."""
        pair = pair_of("coupled", {"ahead": True, "eager": False}, 3)
        told = pair.lengths = pair.device._lengths = Told(4)
        pair.draft()
        pair.act(pair.device.out_of_patience(relieved))
        if relieved:
            pair.act(pair.device.decide(0, 2))
        while pair.draft() and pair.device.position < 6:
            pass
        pair.act(pair.device.rejoined())
        while not told.proposals:
            assert pair.draft()
        assert [tokens for tokens, _ in told.proposals] == [steps for _, steps in told.proposals]

    def test_tokens_behind_degraded_ones_are_the_verifiers(self) -> None:
        """Coupled: what the verifier decides behind the drafter's own tokens is what it would decide there anyway."""
        pair = pair_of("coupled", {"ahead": True}, 3)
        pair.act(pair.device.out_of_patience())
        for _ in range(5):
            pair.draft()
        kept = list(pair.tokens)
        pair.act(pair.device.rejoined())
        settle(pair)
        again = pair_of("coupled", {"ahead": False}, 3)
        again.act(again.device.out_of_patience())
        for _ in range(5):
            again.draft()
        again.act(again.device.rejoined())
        assert kept == again.tokens[: len(kept)]
        assert settle(again) == pair.tokens


class TestMutants:
    """Faults change tokens where something that fences or repeats them is missing."""

    def differ(self, method: str, fields: dict[str, Any]) -> int:
        """In how many of 60 answers with random faults tokens differ from those without, or the answer fails."""
        random = Random(5)
        found = 0
        for seed in range(60):
            expected = pair_of(method, fields, seed).run()
            pair = pair_of(method, fields, seed)
            try:
                for _ in range(80):
                    happen(pair, random.choice(FAULTY))
                found += settle(pair) != expected
            except (AssertionError, ProtocolError):
                found += 1
        return found

    def test_nothing_differs_without_one(self) -> None:
        """Of the method that the mutants change; `test_the_same_tokens` is about all of them."""
        assert self.differ("dsd", {"top_k": 4}) == 0

    @pytest.mark.parametrize("fenced", [True, False])
    def test_without_the_prefixs_digest(self, fenced: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        """A verdict is lost, the device goes on alone for as many tokens, and what it says of them is lost, too: the
        verifier has a prefix of the same length with other tokens, and must not judge behind it.
        """
        if not fenced:
            monkeypatch.setattr("common.answer.values.extend", lambda digest, token: 0)
            monkeypatch.setattr("common.methods.drafted.verifying.extend", lambda digest, token: 0)
            monkeypatch.setattr("common.answer.values.EMPTY", 0)
        judged = 0
        for seed in range(40):
            pair = pair_of("dsd", {"top_k": 4}, seed)
            while not pair.down:
                assert pair.draft() or pair.deliver_up() or pair.verify()
            pair.down.clear()
            pair.act(pair.device.out_of_patience())
            while len(pair.tokens) < pair.cloud.position:
                pair.draft()
            if len(pair.tokens) > pair.cloud.position or pair.device.finished:
                continue
            if pair.tokens == pair.cloud._prefix.committed():  # by chance
                continue
            pair.act(pair.device.rejoined())
            pair.up.clear()
            while pair.draft():
                pass
            pair.deliver_up()
            judged += pair.verify()
        assert (judged == 0) == fenced

    @pytest.mark.parametrize("fenced", [True, False])
    def test_behind_a_proposal_that_did_not_hold(self, fenced: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        """The next proposal, sent ahead, begins where the answer is, though the last token before was replaced."""
        if not fenced:
            monkeypatch.setattr(
                Verifying, "_whole", property(lambda self: True, lambda self, value: None), raising=False
            )
        pairs = [pair_of("coupled", {"ahead": True, "eager": False}, seed, length=2) for seed in range(20)]
        for pair in pairs:
            while pair.device.finished is None:
                for step in (pair.draft, pair.draft, pair.draft, pair.draft, pair.deliver_up, pair.deliver_up):
                    step()
                if not (pair.verify() or pair.deliver_down()):
                    pair.act(pair.device.rejoined())
        assert (sum(pair.cloud.judged - pair.device.counters.proposed for pair in pairs) == 0) == fenced

    @pytest.mark.parametrize("fenced", [True, False])
    def test_a_pass_behind_a_prefix_that_was_replaced(self, fenced: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        """While a pass is under way the device tells of another prefix of the same length, and proposes behind it."""
        if not fenced:
            synchronised = Verifying.synchronised

            def same_epoch(self: Verifying, message: Sync) -> list[Action]:
                epoch = self.epoch
                actions = synchronised(self, message)
                self.epoch = epoch
                return actions

            monkeypatch.setattr(Verifying, "synchronised", same_epoch)
        cloud = pair_of("coupled", {"ahead": False}, 0).cloud
        tokens = encode_tokens((1, 2), VOCABULARY)
        under_way = []
        for prefix in ((5,), (4,)):
            cloud.synchronised(Sync(1, 0, prefix, "cloud", False))
            cloud.proposed(Propose(1, 1, 1, (digest(prefix),), (), (), tokens), 0.0)
            found = cloud.work()
            assert found is not None
            under_way.append(found)
        views = [RaceWinner(token) for token in (1, 2, 3)]
        assert (cloud.drawn(under_way[0], views, 0.0, 0.0) == []) == fenced
        if fenced:
            assert cloud.position == 1
            assert cloud.drawn(under_way[1], views, 0.0, 0.0) != []

    def test_with_fresh_randomness_for_a_repeated_proposal(self, monkeypatch: pytest.MonkeyPatch) -> None:
        random = Random(7)

        def fresh(self: SeededDraws, purpose: Purpose, probability: float) -> bool:
            return random.random() < probability

        monkeypatch.setattr(SeededDraws, "happens", fresh)
        assert self.differ("dsd", {"top_k": 4}) > 0

    def test_without_the_tail(self, monkeypatch: pytest.MonkeyPatch) -> None:
        judged = Drafting.judged

        def forgetful(self: Drafting, verdict: Verdict) -> list[Action]:
            actions = judged(self, verdict)
            self._known = self.position
            return actions

        monkeypatch.setattr(Drafting, "judged", forgetful)
        with pytest.raises(AssertionError, match="nobody has anything to do"):
            pair_of("dssd", {"top_k": 4}, 1).run()
