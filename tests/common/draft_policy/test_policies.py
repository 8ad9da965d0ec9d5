"""Decisions: which proposal comes next, and what may not have a say in it."""

from __future__ import annotations

from itertools import product

import pytest

from common.draft_policy.policy import (
    NEARLY,
    SAVED,
    TRIED,
    ConfidenceAcceptance,
    FixedPlan,
    Goodput,
    Heuristic,
    PositionAcceptance,
    Trials,
    Undrafted,
)
from common.draft_policy.times import (
    RESTED,
    DraftPlan,
    RoundOutcome,
    RoundTimes,
    TokenSizes,
    ahead_seconds,
    eager_seconds,
    round_seconds,
    undrafted_seconds,
)
from tests.common.draft_policy.rounds_of import outcome

TIMES = RoundTimes(draft=0.005, verify=0.032)


class TestValues:
    def test_a_proposal_has_no_less_than_nothing(self) -> None:
        with pytest.raises(ValueError, match="fewer than no tokens"):
            DraftPlan(-1)
        with pytest.raises(ValueError, match="resolution"):
            DraftPlan(1, 0)

    @pytest.mark.parametrize("field", ["draft", "verify", "rtt", "up_overhead", "down_rejected"])
    def test_times_are_not_negative(self, field: str) -> None:
        with pytest.raises(ValueError, match="not negative"):
            RoundTimes(**({"draft": 1.0, "verify": 1.0} | {field: -1.0}))

    def test_rates_are_positive(self) -> None:
        with pytest.raises(ValueError, match="rates"):
            RoundTimes(draft=1.0, verify=1.0, up_rate=0.0)

    def test_outcomes_are_possible(self) -> None:
        with pytest.raises(ValueError, match="accepted 3"):
            outcome(2, 3)
        with pytest.raises(ValueError, match="as many confidences"):
            outcome(2, 1, confidences=(0.5,))
        with pytest.raises(ValueError, match="part of the whole"):
            RoundOutcome(
                length=1,
                accepted=1,
                tokens=2,
                seconds=1.0,
                verdict_seconds=2.0,
                verify_seconds=0.0,
                bytes_up=0,
                bytes_down=0,
            )


def test_fixed() -> None:
    policy = FixedPlan(4, 64)
    policy.observe(outcome(4, 0))
    assert policy.plan([], TIMES) == DraftPlan(4, 64)
    assert policy.extension(0.01, 3) == "more"


class TestHeuristic:
    def test_follows_the_paper_s_rule(self) -> None:
        policy = Heuristic(first=3, resolution=64)
        lengths = []
        for accepted in (3, 4, 2, 1, 0, 1):
            length = policy.plan([], TIMES).length
            lengths.append(length)
            policy.observe(outcome(length, min(accepted, length)))
        assert lengths == [3, 4, 5, 2, 1, 1]
        assert policy.plan([], TIMES) == DraftPlan(2, 64)

    def test_stays_within_limits(self) -> None:
        policy = Heuristic(first=16)
        policy.observe(outcome(16, 16))
        assert policy.plan([], TIMES).length == 16
        with pytest.raises(ValueError, match="first"):
            Heuristic(first=0)


class TestPositionAcceptance:
    def test_the_prior_and_what_overcomes_it(self) -> None:
        acceptance = PositionAcceptance(prior=0.7, weight=4)
        assert acceptance.overall == 0.7
        acceptance.observe(outcome(6, 0))  # one judged position: the five behind it say nothing
        assert acceptance.overall == pytest.approx(2.8 / 5)

    def test_a_resolution_of_its_own(self) -> None:
        acceptance = PositionAcceptance()
        for _ in range(200):
            acceptance.observe(outcome(4, 1, resolution=16))
            acceptance.observe(outcome(4, 4, resolution=256))
        assert acceptance.of(16) == pytest.approx(0.5, abs=0.03)
        assert acceptance.of(256) > 0.97
        assert acceptance.of(None) == acceptance.overall

    def test_resolutions_that_were_not_tried_are_worth_a_try(self) -> None:
        acceptance = PositionAcceptance()
        assert len({acceptance.of(resolution) for resolution in (16, 64, 256)}) == 1  # nothing is known
        for _ in range(200):
            acceptance.observe(outcome(4, 2, resolution=64))
        assert acceptance.of(16) == acceptance.of(64) == pytest.approx(2 / 3, abs=0.02)
        assert acceptance.of(64) < acceptance.of(128) < acceptance.of(256) < 7 / 9

    def test_what_was_before_a_rest_counts_little(self) -> None:
        """One round behind it tells as much as four others."""
        usual, rested = (PositionAcceptance() for _ in range(2))
        for each in (usual, rested):
            for _ in range(200):
                each.observe(outcome(4, 0))
        rested.observe(outcome(8, 8, rested=True))
        for _ in range(4):
            usual.observe(outcome(8, 8))
        assert rested.overall > usual.overall
        rested.observe(outcome(8, 0))
        rested.observe(outcome(8, 0, rested=True))
        assert rested.overall < 0.5

    def test_bad_prior(self) -> None:
        with pytest.raises(ValueError, match="prior"):
            PositionAcceptance(prior=1.0)

    def test_confidences_tell_positions_apart(self) -> None:
        acceptance = ConfidenceAcceptance()
        for _ in range(50):
            acceptance.observe(outcome(3, 1, confidences=(0.95, 0.15, 0.55)))
        assert acceptance.of(0.92, 0.5) > 0.9
        assert acceptance.of(0.12, 0.5) < 0.1
        assert acceptance.of(0.55, 0.5) == 0.5  # behind the rejected position: not judged
        assert acceptance.of(1.0, 0.5) > 0.9


def seen(accepted: dict[int | None, float], rounds: int = 400) -> PositionAcceptance:
    """An estimate after many rounds of one position each, accepted at these rates."""
    acceptance = PositionAcceptance()
    for number in range(rounds):
        for resolution, rate in accepted.items():
            acceptance.observe(outcome(1, int((number + 1) * rate) - int(number * rate), resolution=resolution))
    return acceptance


SIZES: dict[int | None, float] = {16: 28.0, 64: 90.0, 256: 292.0}  # bytes of a token


class TestGoodput:
    @pytest.mark.parametrize(
        ("rate", "rtt", "overhead"), [*product((5_000.0, 50_000.0, float("inf")), (0.0, 0.1), (0.0, 150.0))]
    )
    def test_equals_brute_force(self, rate: float, rtt: float, overhead: float) -> None:
        acceptance = seen({16: 0.6, 64: 0.8, 256: 0.85})
        alpha = {at: acceptance.of(at) for at in SIZES}

        def seconds_per_token(length: int, at: int | None) -> float:
            one = (1 - alpha[at] ** (length + 1)) / (1 - alpha[at])
            return (length * 0.005 + 0.032 + rtt + (overhead + length * SIZES[at]) / rate) / one

        best = min(product(range(1, 17), SIZES), key=lambda choice: seconds_per_token(*choice))
        times = RoundTimes(draft=0.005, verify=0.032, rtt=rtt, up_rate=rate, up_overhead=overhead)
        assert Goodput(TokenSizes(SIZES), acceptance=acceptance).plan([], times) == DraftPlan(*best)

    def test_a_dear_rejection_makes_drafts_shorter(self) -> None:
        """DSSD's P_j comes with a rejection: the longer the draft, the likelier, so drafts get shorter."""
        acceptance = seen({None: 0.8})
        free = RoundTimes(draft=0.005, verify=0.032, rtt=0.02)
        dear = RoundTimes(draft=0.005, verify=0.032, rtt=0.02, down_rate=12.5e6, down_rejected=1e6)
        lengths = [
            Goodput(TokenSizes({None: 12.0}), acceptance=acceptance).plan([], one).length for one in (free, dear)
        ]
        assert lengths[1] < lengths[0]

    @pytest.mark.parametrize(("rate", "overhead"), [(5_000.0, 150.0), (12.5e6, 150.0), (600.0, 0.0), (300.0, 0.0)])
    def test_ahead_equals_brute_force(self, rate: float, overhead: float) -> None:
        acceptance = seen({None: 0.86})
        times = RoundTimes(draft=0.005, verify=0.032, rtt=0.05, up_rate=rate, up_overhead=overhead)
        kept_up = [length for length in range(1, 17) if (overhead + 2 * length) / rate <= length * 0.005]
        seconds = {one: ahead_seconds(times, acceptance.overall, one, 2.0) for one in kept_up or [16]}
        best = max(one for one in seconds if seconds[one] <= NEARLY * min(seconds.values()))
        assert Goodput(TokenSizes({None: 2.0}), ahead=True, acceptance=acceptance).plan([], times) == DraftPlan(best)

    def test_sizes_are_what_rounds_cost(self) -> None:
        policy = Goodput(TokenSizes({None: 1000.0}))
        times = RoundTimes(draft=0.005, verify=0.032, up_rate=5_000.0)
        before = policy.plan([], times).length
        for _ in range(60):
            policy.observe(outcome(4, 4, size=2))
        assert policy.plan([], times).length > before == 1

    def test_confidence_ends_a_proposal(self) -> None:
        policy = Goodput(TokenSizes({None: 2.0}), confidence=ConfidenceAcceptance())
        for _ in range(50):
            policy.observe(outcome(3, 1, confidences=(0.95, 0.15, 0.55)))
        plan = policy.plan([], TIMES)
        asked = [policy.extension(confidence, drafted) for drafted, confidence in enumerate((0.95, 0.95, 0.1))]
        assert plan.length == 16
        assert asked == ["more", "more", "last"]
        policy.plan([], TIMES)
        assert policy.extension(0.1, 0) == "last"  # a proposal has a token

    def test_a_position_that_is_not_worth_its_bytes_is_not_proposed(self) -> None:
        """Its step is spent in any case."""
        asked = []
        for size in (2.0, 60.0):
            policy = Goodput(TokenSizes({None: size}), confidence=ConfidenceAcceptance())
            for _ in range(50):
                policy.observe(outcome(3, 1, size=int(size), confidences=(0.95, 0.15, 0.55)))
            policy.plan([], RoundTimes(draft=0.001, verify=0.032, up_rate=5_000.0))
            asked.append([policy.extension(confidence, drafted) for drafted, confidence in enumerate((0.95, 0.1))])
        assert asked == [["more", "last"], ["more", "none"]]

    def test_confidences_that_tell_nothing_give_the_fixed_length(self) -> None:
        policy, by_confidence = (
            Goodput(TokenSizes({None: 90.0}), confidence=one) for one in (None, ConfidenceAcceptance())
        )
        for number in range(3000):
            accepted = 3 if number % 3 else 1
            for one in (policy, by_confidence):
                one.observe(outcome(3, accepted, confidences=(0.75,) * 3))
        for rate in (5_000.0, 50_000.0):
            times = RoundTimes(draft=0.005, verify=0.032, up_rate=rate)
            by_confidence.plan([], times)
            extensions = [by_confidence.extension(0.75, drafted) for drafted in range(16)]
            assert abs(extensions.index("last") + 1 - policy.plan([], times).length) <= 1
            assert "none" not in extensions[: extensions.index("last")]

    def test_bad_input(self) -> None:
        with pytest.raises(ValueError, match="resolution"):
            Goodput(TokenSizes({}))
        with pytest.raises(ValueError, match="choose one"):
            Goodput(TokenSizes({None: 2.0}), ahead=True, confidence=ConfidenceAcceptance())


class TestNothingDrafted:
    """No drafts are made that don't save time."""

    def policy(self, undrafted: Undrafted, alpha: float, trials: Trials | None = None) -> Goodput:
        ahead = undrafted == "eager"
        sizes = TokenSizes({None: 2.0})
        return Goodput(sizes, ahead=ahead, acceptance=seen({None: alpha}), undrafted=undrafted, trials=trials)

    @pytest.mark.parametrize("undrafted", ["deferred", "eager"])
    @pytest.mark.parametrize("alpha", [0.3, 0.6, 0.9, 0.97])
    @pytest.mark.parametrize("rtt", [0.0, 0.04, 0.1, 0.3, 0.6])
    def test_just_where_the_verifier_alone_is_as_quick(self, undrafted: Undrafted, alpha: float, rtt: float) -> None:
        times = RoundTimes(draft=0.005, verify=0.032, rtt=rtt)
        never = self.policy("never", alpha).plan([], times)
        found = self.policy(undrafted, alpha, Trials(0.0)).plan([], times)
        known = seen({None: alpha}).overall
        if undrafted == "eager":
            length = Goodput(TokenSizes({None: 2.0}), ahead=True, acceptance=seen({None: alpha})).plan([], times).length
            seconds = eager_seconds(times, known, length, 2.0)
        else:
            length = never.length
            seconds = round_seconds(times, known, length, 2.0) * (1 - known) / (1 - known ** (length + 1))
        assert found.length == (length if NEARLY * seconds < undrafted_seconds(times) else 0)

    def test_drafts_come_back_with_a_quicker_link(self) -> None:
        policy = self.policy("deferred", 0.9, Trials(0.0))
        slow, quick = (RoundTimes(draft=0.005, verify=0.032, rtt=rtt) for rtt in (0.6, 0.02))
        assert [policy.plan([], times).length > 0 for times in (slow, quick, slow)] == [False, True, False]

    @pytest.mark.parametrize("undrafted", ["deferred", "eager"])
    def test_a_link_that_was_slow_is_tried(self, undrafted: Undrafted) -> None:
        """Nothing tells that it carries more by now, as long as nothing is sent."""
        times = RoundTimes(draft=0.005, verify=0.032, rtt=0.02, up_rate=50.0)
        assert self.policy(undrafted, 0.9, Trials(0.0)).plan([], times).length == 0
        assert self.policy(undrafted, 0.9, Trials(10.0)).plan([], times).length > 0

    @pytest.mark.parametrize("undrafted", ["deferred", "eager"])
    def test_models_that_begin_to_agree_are_found_out(self, undrafted: Undrafted) -> None:
        """And it costs little to look: of the time without drafts, two hundredths."""
        times, trials = RoundTimes(draft=0.005, verify=0.032, rtt=0.02), Trials(0.0)
        policy = self.policy(undrafted, 0.02, trials)
        tried, spent, tokens = 0, 0.0, 3000
        for _ in range(tokens):
            plan = policy.plan([], times)
            if plan.length:
                tried += 1
                cost = round_seconds(times, 0.0, plan.length, 2.0) if undrafted == "deferred" else plan.length * 0.005
                spent += cost
                policy.observe(outcome(plan.length, 0))
            trials.earn(0.032)
        assert tried > 0
        assert spent <= TRIED * tokens * 0.032
        rested = 0
        for _ in range(2000):
            plan = policy.plan([], times)
            if plan.length:
                policy.observe(outcome(plan.length, plan.length, rested=rested >= RESTED))
            rested = 0 if plan.length else rested + 1
            trials.earn(0.032)
        assert policy.plan([], times).length > 0 and policy.acceptance.overall > 0.9

    def test_a_long_rest_is_not_followed_by_minutes_of_trials(self) -> None:
        """Hours behind a way on which drafts can't pay, which becomes one on which they could, if models agreed."""
        trials = Trials(0.0)
        policy = self.policy("deferred", 0.02, trials)
        slow, quick = (RoundTimes(draft=0.005, verify=0.032, rtt=rtt) for rtt in (0.4, 0.1))
        trials.earn(4 * 3600.0)
        assert policy.plan([], slow).length == 0
        costs = list[float]()
        while length := policy.plan([], quick).length:
            costs.append(round_seconds(quick, 0.0, length, 2.0))
            policy.observe(outcome(length, 0))
        assert 0.5 * SAVED < sum(costs[1:]) <= SAVED

    def test_a_trial_that_is_dearer_than_what_is_saved_is_waited_for(self) -> None:
        """Of a link that is believed to be that slow nothing would be known otherwise for as long as it lasts."""
        times, trials = RoundTimes(draft=0.005, verify=0.032, rtt=0.02, up_rate=0.1), Trials(SAVED)
        policy = self.policy("deferred", 0.9, trials)
        assert policy.plan([], times).length == 0
        trials.earn(3600.0)
        assert policy.plan([], times).length > 0

    def test_a_trial_of_several_drafts_costs_at_most_twice_one_of_one(self) -> None:
        """It tells more; but not where drafts are what is dear, or is taken to be."""
        quick, slow = (RoundTimes(draft=draft, draft_least=0.005, verify=0.032, rtt=0.02) for draft in (0.005, 0.2))
        assert self.policy("deferred", 0.02, Trials(9.0)).plan([], quick).length > 4
        assert self.policy("deferred", 0.9, Trials(9.0)).plan([], slow).length == 2

    def test_at_the_beginning_it_is_tried(self) -> None:
        """Over a way on which drafts pay only where models agree more than is believed of models that nobody knows."""
        times = RoundTimes(draft=0.005, verify=0.032, rtt=0.3)
        policy = Goodput(TokenSizes({None: 2.0}), ahead=True, undrafted="eager", trials=Trials())
        assert policy.plan([], times).length > 0
        assert (
            Goodput(TokenSizes({None: 2.0}), ahead=True, undrafted="eager", trials=Trials(0.0)).plan([], times).length
            == 0
        )

    def test_steps_that_were_quicker_once_are_tried(self) -> None:
        for least, tried in ((0.005, True), (0.04, False)):
            trials = Trials(1e9)
            times = RoundTimes(draft=0.08, draft_least=least, verify=0.032, rtt=0.01)
            for undrafted in ("deferred", "eager"):
                assert (self.policy(undrafted, 0.9, trials).plan([], times).length > 0) == tried
            assert (trials.seconds < 1e9) == tried

    def test_what_could_not_pay_is_not_tried(self) -> None:
        trials = Trials(1e9)
        times = RoundTimes(draft=0.04, verify=0.032, rtt=0.3)
        for undrafted in ("deferred", "eager"):
            assert self.policy(undrafted, 0.5, trials).plan([], times).length == 0
        assert trials.seconds == 1e9
