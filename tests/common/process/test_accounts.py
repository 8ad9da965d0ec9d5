"""An account lets no more work through than its rate and its burst, but for what is under way when it is even."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from common.process.threads import TENANTS, Accounts, TokenBucket

STEPS = st.lists(st.tuples(st.floats(0.0, 3.0), st.floats(0.0, 5.0)), min_size=1, max_size=100)


@given(rate=st.floats(0.1, 2.0), burst=st.floats(0.1, 5.0), steps=STEPS)
def test_work_is_bounded_by_rate_and_burst(rate: float, burst: float, steps: list[tuple[float, float]]) -> None:
    """Over any time: the burst, the rate's share, and the work that was begun last."""
    account, now, done = TokenBucket(rate, burst, 0.0), 0.0, list[tuple[float, float]]()
    for pause, cost in steps:
        now += pause
        if not account.wait(now):
            account.charge(now, cost)
            done.append((now, cost))
    for first, (began, _) in enumerate(done):
        for last in range(first, len(done)):
            spent = sum(cost for _, cost in done[first:last])
            assert spent <= burst + rate * (done[last][0] - began) + 1e-6


@given(rate=st.floats(0.1, 2.0), cost=st.floats(0.0, 50.0))
def test_it_is_even_after_the_time_told(rate: float, cost: float) -> None:
    account = TokenBucket(rate, 1.0, 0.0)
    account.charge(10.0, cost)
    wait = account.wait(10.0)
    assert wait == 0 if cost <= 1.0 else account.wait(10.0 + 0.99 * wait) > 0
    assert account.wait(10.0 + 1.01 * wait + 1e-6) == 0
    assert account.wait(5.0) == wait  # a clock that steps back gives nothing


def test_whoever_comes_back_has_the_account_that_it_had() -> None:
    accounts = Accounts(1.0, 1.0)
    accounts.of("greedy", 0.0).charge(0.0, 5.0)
    for number in range(3 * TENANTS):
        accounts.of(number, 1.0)
    assert accounts.of("greedy", 1.0).wait(1.0) == 3.0
    assert accounts.of("other", 1.0).wait(1.0) == 0.0
    assert len(accounts._kept) <= TENANTS + 2
