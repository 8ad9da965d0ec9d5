"""Tokens that are left to the verifier, between proposals and instead of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.draft_policy.times import DraftPlan, Extension
from common.methods.drafted.drafting import Drafting
from common.methods.drafted.verifying import MOST_PENDING
from proto.codes import EMPTY, digest
from proto.errors import ProtocolError
from proto.framing import decode
from proto.messages import MOST_PROPOSED, Decided, Defer, Propose, Verdict
from tests.common.methods.drafted.pump import Pair
from tests.common.methods.drafted.schemes import RACED, Case, scheme_of
from tests.common.methods.drafted.slow_link import VERIFY, SlowLink, SlowPair
from tests.common.methods.drafted.test_adaptive_law import p_value_of_answers
from tests.common.methods.drafted.test_faults import DRAFTER, EOS, EVENTS, METHODS, VERIFIER, VOCABULARY, happen, settle
from tests.common.methods.drafted.test_law import DRAFTER as DRAFTER_OF_FEW
from tests.common.methods.drafted.test_law import OPTIONS, TOKENS, distance, verifiers_law, with_draws
from tests.common.methods.drafted.test_law import VERIFIER as ENUMERATED
from tests.common.methods.drafted.test_law import VOCABULARY as FEW
from tests.support.enumeration import EXACT, law_of

LONG = 90  # tokens: more than are left at once
SESSION = 1
PATTERNS = [[0], [0, 3], [3, 0], [0, 0, 2, 1]]


@dataclass
class Pattern:
    """Lengths that come again and again."""

    lengths: Sequence[int]
    most_ahead: int = 64
    plans: int = 0
    undrafted_tokens: int = 0
    rounds: list[int] = field(default_factory=list)

    def plan(self, confidences: Sequence[float]) -> DraftPlan:
        self.plans += 1
        return DraftPlan(self.lengths[(self.plans - 1) % len(self.lengths)])

    def extension(self, confidence: float, drafted: int) -> Extension:
        return "more"

    def proposed(self, message: Propose, confidences: Sequence[float], steps: Sequence[float]) -> None:
        self.rounds.append(message.round)

    def undrafted(self, message: Decided, tokens: int) -> None:
        self.undrafted_tokens += tokens

    def judged(self, message: Verdict | Decided, accepted: Sequence[int], last: int, token: bool) -> None:
        pass


def defers(case: Case) -> bool:
    return scheme_of(case[0], VOCABULARY, LONG, EOS, **case[1]).config.defers


LEFT = [case for case in METHODS if defers(case)]
DRAWN_LEFT = [case for case in LEFT if case[0] not in RACED]


def pair_of(case: Case, lengths: Sequence[int], seed: int, tokens: int = LONG, eos: tuple[int, ...] = ()) -> Pair:
    scheme = scheme_of(case[0], VOCABULARY, tokens, eos, seed=seed, **case[1])
    return Pair(scheme, DRAFTER, VERIFIER, Pattern(lengths))


def test_who_may_leave_tokens() -> None:
    """Only with a bonus, where tokens depend on who drafts them: by its places they do already."""
    names = {name for name, _ in LEFT}
    assert names >= {"coupled", "dsd", "dssd", "qsv", "shortlist"}
    assert "rapid" not in names  # its verifier can decide nothing that is not proposed
    assert not any(fields.get("ahead") for name, fields in LEFT if name not in RACED)
    assert not any(fields.get("eager", name == "coupled") for name, fields in LEFT if fields.get("ahead"))


@cache
def faultless(case: int, lengths: tuple[int, ...], seed: int) -> list[int]:
    pair = pair_of(LEFT[case], lengths, seed, eos=EOS)
    pair.run()
    assert isinstance(pair.lengths, Pattern)
    return pair.tokens


class TestFaults:
    @pytest.mark.parametrize("case", LEFT)
    @given(events=EVENTS, seed=st.integers(0, 20), lengths=st.sampled_from(PATTERNS))
    @settings(max_examples=25)
    def test_change_no_token(self, case: Case, events: list[str], seed: int, lengths: list[int]) -> None:
        expected = faultless(LEFT.index(case), tuple(lengths), seed)
        pair = pair_of(case, lengths, seed, eos=EOS)
        pair.act(pair.device.begin())
        for event in events:
            happen(pair, event)
        assert settle(pair) == expected
        assert pair.device.degraded == []

    def test_mutant_what_is_left_again_ends_elsewhere(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Then what follows is drawn by other uniforms."""
        rejoined = Drafting.rejoined

        def anew(machine: Drafting) -> list[Any]:
            machine._deferred.clear()
            return rejoined(machine)

        monkeypatch.setattr(Drafting, "rejoined", anew)
        wrong = 0
        for seed in range(10):
            pair = pair_of(DRAWN_LEFT[0], [0, 3], seed)
            expected = pair_of(DRAWN_LEFT[0], [0, 3], seed).run()
            pair.run(until=40)
            happen(pair, "reconnect")
            wrong += settle(pair) != expected
        assert wrong > 0

    @pytest.mark.parametrize("case", DRAWN_LEFT[:2])
    def test_a_verifier_that_returns_before_anything_is_decided_alone(self, case: Case) -> None:
        """Whether it fell silent may depend on what it decided: it decides the same again, whatever is planned."""
        expected = pair_of(case, [0], 4).run()
        pair = pair_of(case, [0], 4)
        pair.run(until=35)
        pair.act(pair.device.out_of_patience())
        pair.device._plan = replace(pair.device._plan, length=2)
        happen(pair, "reconnect")
        pair.device._plan = replace(pair.device._plan, length=0)
        assert settle(pair) == expected

    @pytest.mark.parametrize("case", LEFT)
    def test_without_the_verifier_the_drafter_decides(self, case: Case) -> None:
        pair = pair_of(case, [0], 2)
        pair.run(until=10)
        pair.act(pair.device.out_of_patience())
        for _ in range(5):
            assert pair.draft()
        assert pair.device.degraded == list(range(10, 15))
        happen(pair, "reconnect")
        settle(pair)
        assert pair.degraded[15:] == [False] * (LONG - 15)


class TestLaw:
    @pytest.mark.parametrize("method", ["dsd", "dssd", "qsv"])
    @pytest.mark.parametrize("lengths", [[0], [0, 1], [1, 0]])
    def test_answers_follow_the_verifiers_law(self, method: str, lengths: list[int]) -> None:
        scheme = scheme_of(method, FEW, TOKENS, **OPTIONS[method][0])

        def answer(draws: Any) -> tuple[int, ...]:
            return tuple(Pair(with_draws(scheme, draws), DRAFTER_OF_FEW, ENUMERATED, Pattern(lengths)).run())

        assert distance(law_of(answer), verifiers_law(scheme)) < EXACT

    @pytest.mark.parametrize("method", ["dsd", "dssd", "qsv"])
    def test_a_policy_that_leaves_some(self, method: str) -> None:
        """Learnt from what was discarded, too, with real seeds."""
        found, lengths = p_value_of_answers(method, "goodput", verify=0.1, top_k=0)
        assert found > 1e-6
        assert {0} < lengths


@pytest.mark.parametrize("case", [case for case in LEFT if case[0] in RACED])
@pytest.mark.parametrize("lengths", PATTERNS)
def test_raced_tokens_are_the_same_whatever_is_left(case: Case, lengths: list[int]) -> None:
    assert pair_of(case, lengths, 7).run() == pair_of(case, [4], 7).run()


class TestStream:
    @pytest.mark.parametrize("case", LEFT)
    def test_the_verifier_never_waits_to_be_left_more(self, case: Case) -> None:
        """Over a way of as many passes as half of what is left at a time: each token takes a pass, no more."""
        scheme = scheme_of(case[0], VOCABULARY, LONG, seed=3, **case[1])
        link = SlowLink(0.0, 1e9)
        pair = SlowPair(scheme, DRAFTER, VERIFIER, Pattern([0]), link=link)
        pair.act(pair.device.begin())
        passes = 0
        while pair.device.finished is None:
            pair.deliver_up()
            if passes:
                assert pair.cloud.work() is not None or pair.cloud.position == LONG
            if pair.verify():
                passes += 1
            if passes % 16 == 0 or pair.cloud.position == LONG:
                while pair.deliver_down():
                    pass
        assert passes == LONG
        assert link.now == pytest.approx(LONG * VERIFY)

    @pytest.mark.parametrize("case", LEFT)
    def test_nothing_is_drafted_meanwhile(self, case: Case) -> None:
        pair = pair_of(case, [0], 1)
        assert pair.run() and pair.device.counters.drafted == 0
        assert pair.device.counters.bonus == LONG
        assert isinstance(pair.lengths, Pattern) and pair.lengths.undrafted_tokens == LONG

    @pytest.mark.parametrize("case", LEFT)
    def test_drafts_begin_where_what_was_left_ends(self, case: Case) -> None:
        pair = pair_of(case, [0, 3], 1)
        pair.act(pair.device.begin())
        while not (pair.device.counters.sent and pair.up):
            assert pair.draft() or pair.deliver_up() or pair.verify() or pair.deliver_down()
        message = decode(pair.up[-1])
        assert isinstance(message, Propose) and message.position == MOST_PROPOSED == len(pair.tokens)

    @pytest.mark.parametrize("case", LEFT)
    def test_where_all_is_left_nothing_is_planned_any_more(self, case: Case) -> None:
        """A trial that is planned is paid for."""
        pair = pair_of(case, [0, 3], 1, tokens=MOST_PROPOSED)
        assert len(pair.run()) == MOST_PROPOSED
        assert isinstance(pair.lengths, Pattern) and pair.lengths.plans == 1

    def test_the_end_of_the_answer(self) -> None:
        """No more is left than the answer may have, and nothing is decided behind its end."""
        for seed in range(30):
            pair = pair_of(LEFT[0], [0], seed, eos=EOS)
            tokens = pair.run()
            assert tokens[-1] in EOS or len(tokens) == LONG
            assert pair.cloud.work() is None and pair.device.work() is None
            assert pair.cloud.position == len(tokens)

    def test_waiting_is_waiting(self) -> None:
        """The patience for a verifier counts, though no proposal is under way."""
        pair = pair_of(LEFT[0], [0], 1)
        pair.act(pair.device.begin())
        assert pair.device.waiting
        eager = pair_of(("coupled", {"ahead": True, "eager": True}), [0], 1)
        assert eager.device.begin() == [] and eager.device.waiting and eager.device.work() is None
        assert eager.run() == pair_of(("coupled", {"ahead": True, "eager": True}), [4], 1).run()


def defer(count: int = 1, number: int = 1, position: int = 0, **fields: Any) -> Defer:
    return Defer(SESSION, number, position, **({"digest": (EMPTY,), "tail": ()} | fields), count=count)


class TestHostile:
    @pytest.mark.parametrize(
        ("case", "message", "said"),
        [
            (("coupled", {"ahead": True, "eager": True}), defer(), "nothing may be deferred"),
            (("dssd", {"ahead": True}), defer(), "nothing may be deferred"),
            (("rapid", {}), defer(), "nothing may be deferred"),
            (("coupled", {"ahead": False}), defer(MOST_PROPOSED, position=LONG - 1), "within the answer"),
            (("coupled", {"ahead": False}), defer(position=1, tail=(VOCABULARY,)), "of the vocabulary"),
            (("coupled", {"ahead": False}), defer(position=1, tail=EOS), "after the end"),
            (("coupled", {"ahead": False}), defer(tail=(1,)), "lie within"),
        ],
    )
    def test_refused_by_the_verifier(self, case: Case, message: Defer, said: str) -> None:
        pair = pair_of(case, [0], 1, eos=EOS)
        before = pair.cloud.work()
        with pytest.raises(ProtocolError, match=said):
            pair.received_by_cloud(message)
        assert pair.cloud.work() == before

    def test_a_flood_is_refused(self) -> None:
        pair = pair_of(("coupled", {"ahead": False}), [0], 1)
        pair.received_by_cloud(defer())
        for number in range(2, MOST_PENDING + 1):
            pair.received_by_cloud(defer(1, number, 1, digest=()))
        with pytest.raises(ProtocolError, match="may wait"):
            pair.received_by_cloud(defer(1, MOST_PENDING + 1, 1, digest=()))

    @pytest.mark.parametrize(
        ("message", "said"),
        [
            (Decided(SESSION, 1, 0, EMPTY, (1,) * 64, 0), None),
            (Decided(SESSION, 1, 0, EMPTY, (VOCABULARY,), 0), "of the vocabulary"),
            (Decided(SESSION, 1, 0, EMPTY, (6, 1), 0), "after the end"),
        ],
    )
    def test_what_the_device_takes(self, message: Decided, said: str | None) -> None:
        pair = pair_of(LEFT[0], [0], 1, eos=EOS)
        assert pair.device.decided_by_verifier(message) == []  # nothing was left
        pair.act(pair.device.begin())
        if said is None:
            pair.received_by_device(message)
            assert pair.tokens == list(message.tokens)
        else:
            with pytest.raises(ProtocolError, match=said):
                pair.received_by_device(message)
            assert pair.tokens == []

    def test_more_than_was_left(self) -> None:
        pair = pair_of(LEFT[0], [0, 3], 1)
        pair.run(until=40)
        left = MOST_PROPOSED - 40
        message = Decided(SESSION, 1, 40, digest(pair.tokens), (1,) * (left + 1), 0)
        with pytest.raises(ProtocolError, match="no more than it was left"):
            pair.received_by_device(message)
        assert len(pair.tokens) == 40
