"""A verifier that decides by itself, too: no slower than without a drafter, and not a token differs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.methods.coupled.scheme import encode_tokens
from common.methods.drafted.eager import MOST_AGAIN, EagerDrafting
from proto.codes import EMPTY, digest
from proto.errors import ProtocolError
from proto.framing import decode
from proto.messages import Decided, Propose, Sync, Verdict
from tests.common.methods.drafted.pump import Length, Model, Pair, mixture, table_model
from tests.common.methods.drafted.refusals import propose, refused_by_the_verifier
from tests.common.methods.drafted.schemes import scheme_of
from tests.common.methods.drafted.test_faults import FAULTY, Told, happen, settle

VOCABULARY, TOKENS, EOS = 7, 24, (6,)
VERIFIER = table_model(VOCABULARY, 1, sharpness=3.0)
DRAFTER = table_model(VOCABULARY, 2, sharpness=3.0, beside=VERIFIER)
NEVER = table_model(VOCABULARY, 9, sharpness=30.0)


def pair_of(
    seed: int = 3,
    drafter: Model = DRAFTER,
    decodes_on: Callable[[], bool] = lambda: True,
    length: int = 4,
    **fields: Any,
) -> Pair:
    scheme = scheme_of("coupled", VOCABULARY, TOKENS, EOS, seed=seed, **fields)
    return Pair(scheme, drafter, VERIFIER, Length(length), decodes_on=decodes_on)


def verifier_alone(seed: int, **fields: Any) -> list[int]:
    """The answer of the verifier's model."""
    tokens: list[int] = []
    pair = pair_of(seed, **fields)
    while not tokens or not pair.scheme.config.ends(tokens[-1], len(tokens)):
        tokens.append(pair.view(pair.scheme.verifier, len(tokens), mixture(VERIFIER, tokens)).token)
    return tokens


def passes(pair: Pair, steps: Callable[[], bool]) -> int:
    """Run to the end by `steps`, one pass of the verifier after each; returns how many passes there were."""
    count = 0
    while pair.device.finished is None:
        steps()
        count += pair.verify()
        while pair.deliver_down():
            pass
    return count


@pytest.mark.parametrize("seed", range(8))
def test_without_proposals_it_decides_a_token_in_each_pass(seed: int) -> None:
    pair = pair_of(seed)
    assert passes(pair, lambda: False) == len(pair.tokens)
    assert pair.tokens == verifier_alone(seed)
    assert pair.device.counters.bonus == len(pair.tokens)


@given(seed=st.integers(0, 40), choices=st.integers(0, 2**32), drafter=st.sampled_from([DRAFTER, VERIFIER, NEVER]))
@settings(max_examples=60)
def test_proposals_only_save_passes(seed: int, choices: int, drafter: Model) -> None:
    """Whatever comes when: every pass decides a token at least."""
    random = Random(choices)
    pair = pair_of(seed, drafter)

    def some() -> bool:
        while random.random() < 0.7:
            random.choice((pair.draft, pair.draft, pair.deliver_up))()
        return True

    assert passes(pair, some) <= len(pair.tokens)
    assert pair.tokens == verifier_alone(seed)
    assert pair.cloud.stale == 0 or drafter is not VERIFIER


def test_with_a_drafter_that_is_right_and_quick_it_needs_few_passes() -> None:
    pair = pair_of(drafter=VERIFIER)

    def all_that_is_drafted() -> bool:
        while pair.draft() or pair.deliver_up():
            pass
        return True

    assert passes(pair, all_that_is_drafted) == 1
    assert pair.device.counters.accepted == pair.device.counters.proposed == len(pair.tokens)


def test_what_lies_behind_the_decided_tokens_of_a_proposal_still_serves() -> None:
    pair = pair_of(drafter=VERIFIER)
    while not pair.up:
        pair.draft()
    assert pair.verify() and pair.verify()  # two tokens, before the proposal of four comes
    assert pair.deliver_up() and pair.verify()
    told = [decode(frame) for frame in pair.down]
    assert [len(each.tokens) for each in told if isinstance(each, Decided)] == [1, 1, 3]
    assert (pair.cloud.judged, pair.cloud.accepted, pair.cloud.stale) == (2, 2, 0)
    while pair.deliver_down():
        pass
    assert pair.tokens == verifier_alone(3)[:5]
    assert (pair.device.counters.proposed, pair.device.counters.accepted) == (4, 4)


def test_a_busy_cloud_decides_only_behind_proposals() -> None:
    pair = pair_of(decodes_on=lambda: False)
    assert pair.verify()  # the prompt's pass, which gives the first token
    assert not pair.verify()
    assert pair.run() == verifier_alone(3)


def run_with_silences(pair: Pair) -> int:
    """Run to the end; returns how often both sides waited for each other, until the device asked again."""
    silences = 0
    while pair.device.finished is None:
        if not (pair.draft() or pair.deliver_up() or pair.verify() or pair.deliver_down()):
            assert pair.device.waiting
            pair.act(pair.device.reminded())
            silences += 1
            assert silences < TOKENS, "the answer does not end"
    return silences


@pytest.mark.parametrize("seed", range(8))
def test_a_device_that_rests_drafts_for_a_cloud_that_waits(seed: int) -> None:
    """Drafts that do not pay are better than none: one silence, and from then on there are some."""
    pair = pair_of(seed, decodes_on=lambda: False, length=0)
    expected = verifier_alone(seed)
    assert run_with_silences(pair) == (len(expected) > 1)
    assert (pair.tokens, pair.device.degraded) == (expected, [])


def test_a_device_that_rests_does_so_as_long_as_the_cloud_decides() -> None:
    pair = pair_of(length=0)
    assert run_with_silences(pair) == 0
    assert (pair.tokens, pair.device.counters.drafted) == (verifier_alone(3), 0)


@pytest.mark.parametrize("position", [0, 3])
def test_a_device_that_rests_does_so_behind_another_connection_and_a_long_prompt(position: int) -> None:
    """A cloud that reads its prompt is silent, and not for want of proposals."""
    pair = pair_of(length=0)
    pair.run(until=position)
    pair.act(pair.device.reminded() if position == 0 else pair.device.rejoined())
    assert run_with_silences(pair) == 0
    assert (pair.tokens, pair.device.counters.drafted) == (verifier_alone(3), 0)


def test_a_device_that_rests_drafts_for_a_cloud_that_was_away() -> None:
    """Patience may end before the device asks again, over a long way."""
    pair = pair_of(decodes_on=lambda: False, length=0)
    pair.run(until=1)
    pair.act(pair.device.out_of_patience())
    assert pair.draft()
    pair.act(pair.device.rejoined())
    assert run_with_silences(pair) == 0
    assert pair.device.degraded == [1]


@pytest.mark.parametrize(("share", "length"), [(0.0, 4), (0.5, 4), (0.0, 0), (0.5, 0)])
def test_faults_while_it_is_busy_now_and_then(share: float, length: int) -> None:
    """Nothing waits for ever, and not a token differs, though it decides nothing by itself for a while or at all."""
    for seed in range(200):
        random = Random(seed)
        pair = pair_of(seed, decodes_on=partial(happens, random, share), length=length)
        for _ in range(80):
            happen(pair, random.choice(FAULTY))
        assert settle(pair) == verifier_alone(seed)
        assert pair.device.degraded == []


def happens(random: Random, share: float) -> bool:
    return random.random() < share


def test_steps_of_drafts_that_it_was_quicker_with_are_none_of_the_next_proposals() -> None:
    """Drafts of tokens that were decided meanwhile say nothing of how long a proposal takes."""
    pair = pair_of(drafter=VERIFIER)
    told = pair.lengths = pair.device._lengths = Told(4)
    while not told.proposals:
        assert pair.draft() and pair.draft()
        assert pair.verify() and pair.deliver_down()
    assert told.proposals == [(4, 4)]


@pytest.mark.parametrize("known", [0, 2, 3])
def test_a_device_that_asks_is_told_what_it_lacks(known: int) -> None:
    """And nothing is begun anew: neither the pass that is under way nor the proposals that wait."""
    pair = pair_of(drafter=VERIFIER)
    while len(pair.up) < 2:
        pair.draft()
    for _ in range(3):
        assert pair.verify()
    pair.deliver_up()
    tokens, before = verifier_alone(3), pair.cloud.work()
    pair.down.clear()
    pair.received_by_cloud(Sync(1, 0, tuple(tokens[:known]), "cloud", True))
    reply, *told = [decode(frame) for frame in pair.down]
    assert isinstance(reply, Sync) and list(reply.tokens) == tokens[:known]
    assert [token for each in told if isinstance(each, Decided) for token in each.tokens] == tokens[known:3]
    assert pair.cloud.work() == before


def test_what_is_asked_for_without_an_end_is_refused() -> None:
    """A few bytes ask for a whole answer."""
    pair = pair_of()
    while pair.verify():
        pass
    told = 0
    with pytest.raises(ProtocolError, match="sent 16 times"):
        for _ in range(10_000):
            pair.down.clear()
            pair.received_by_cloud(Sync(1, 0, (), "cloud", False))
            told += sum(len(each.tokens) for each in map(decode, pair.down) if isinstance(each, Decided))
    assert pair.cloud.position < told <= MOST_AGAIN * TOKENS


def test_proposals_that_do_not_follow_cost_no_look_at_the_others() -> None:
    """Nor do they push out those that do."""
    pair = pair_of(drafter=VERIFIER, decodes_on=lambda: False)
    pair.verify()
    pair.deliver_down()
    while len(pair.up) < 2:
        pair.draft()
    for _ in range(2):
        pair.deliver_up()
    waiting = list(pair.cloud._pending)
    assert len(waiting) == 2
    for number in range(100):
        stray = propose((), encode_tokens((1,), VOCABULARY), round=10 + number, position=2, digest=(number,))
        assert pair.cloud.proposed(stray, 0.0) == []
    assert (list(pair.cloud._pending), pair.cloud.stale) == (waiting, 100)
    assert pair.cloud.wants(propose((), b"", round=10))
    assert pair.run() == verifier_alone(3)


def test_a_device_that_has_decided_otherwise_is_followed() -> None:
    pair = pair_of()
    for _ in range(4):
        assert pair.verify()
    pair.act(pair.device.out_of_patience())
    while len(pair.tokens) < 2 or pair.tokens == verifier_alone(3)[: len(pair.tokens)]:
        pair.draft()
    kept = list(pair.tokens)
    pair.act(pair.device.rejoined())
    while pair.device.finished is None:
        assert pair.draft() or pair.deliver_up() or pair.verify() or pair.deliver_down()
    assert pair.tokens[: len(kept)] == kept
    for position in range(len(kept), len(pair.tokens)):
        view = pair.view(pair.scheme.verifier, position, mixture(VERIFIER, pair.tokens[:position]))
        assert pair.tokens[position] == view.token


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (propose((), encode_tokens((1,), VOCABULARY), digest=()), "digest of its prefix"),
        (propose((), encode_tokens((1,), VOCABULARY), tail=(1,), position=1), "no tail"),
    ],
)
def test_a_proposal_without_its_prefix_is_refused(message: Propose, said: str) -> None:
    refused_by_the_verifier(pair_of(), message, said)


def decided(tokens: tuple[int, ...], position: int = 0, prefix: int = EMPTY) -> Decided:
    return Decided(1, 0, position, prefix, tokens, 0)


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (decided((VOCABULARY,)), "of the vocabulary"),
        (decided((1, 6, 1)), "after the end"),
        (decided((1,) * (TOKENS + 1)), "within the answer"),
        (Verdict(1, 1, 0, 1, (), 0, b""), "no verdicts"),
    ],
)
def test_what_no_eager_verifier_says_is_refused(message: Decided | Verdict, said: str) -> None:
    pair = pair_of()
    while not pair.up:
        pair.draft()
    before = pair.device.work()
    with pytest.raises(ProtocolError, match=said):
        pair.received_by_device(message)
    assert pair.device.work() == before
    assert pair.run() == verifier_alone(3)


def other(token: int) -> int:
    return (token + 1) % (VOCABULARY - 1)


class TestFences:
    """Tokens that don't follow what the device has are dropped, and change nothing."""

    def begun(self) -> Pair:
        """Three tokens are decided, and some are drafted."""
        pair = pair_of()
        while len(pair.tokens) < 3:
            assert pair.verify() and pair.deliver_down()
        pair.draft()
        return pair

    @pytest.mark.parametrize("case", ["gap", "past", "prefix", "overlap", "alone"])
    def test_dropped(self, case: str) -> None:
        pair = self.begun()
        tokens, behind = pair.tokens, digest(pair.tokens)
        token = verifier_alone(3)[3]
        message = {
            "gap": decided((token,), 4, digest([*tokens, token])),
            "past": decided(tuple(tokens[1:]), 1, digest(tokens[:1])),
            "prefix": decided((token,), 3, behind ^ 1),
            "overlap": decided((other(tokens[2]), token), 2, digest(tokens[:2])),
            "alone": decided((token,), 3, behind),
        }[case]
        if case == "alone":
            pair.device.out_of_patience(relieved=True)
        before, stale = pair.device.work(), pair.device.counters.stale
        assert pair.device.decided_by_verifier(message) == []
        assert (pair.device.work(), pair.device.counters.stale) == (before, stale + 1)
        assert pair.tokens == verifier_alone(3)[:3]

    @pytest.mark.parametrize("fenced", [True, False])
    def test_late_tokens_of_a_prefix_that_was_left(self, fenced: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        """The device went on alone by as many tokens as the verifier decided meanwhile, and is back."""
        if not fenced:  # by the prefix's digest
            monkeypatch.setattr("common.answer.values.extend", lambda digest, token: 0)
            monkeypatch.setattr("common.answer.values.EMPTY", 0)
        taken = 0
        for seed in range(20):
            pair = pair_of(seed)
            if not all(pair.verify() for _ in range(3)):  # a short answer
                continue
            pair.act(pair.device.out_of_patience())
            while len(pair.tokens) < 2 and pair.draft():
                pass
            if pair.device.finished or len(pair.tokens) != 2 or pair.tokens == pair.cloud._prefix.path[:2]:
                continue
            pair.act(pair.device.rejoined())
            late = decode(pair.down[2])
            assert isinstance(late, Decided) and late.position == 2
            taken += bool(pair.device.decided_by_verifier(late))
        assert (taken == 0) == fenced


def test_only_who_drafts_ahead_can_follow_an_eager_verifier() -> None:
    assert isinstance(pair_of().device, EagerDrafting)
    assert not isinstance(pair_of(ahead=False).device, EagerDrafting)
