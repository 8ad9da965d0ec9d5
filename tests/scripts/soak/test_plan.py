"""Plans: requests and faults are a function of the seed, and all of them may come."""

from __future__ import annotations

from itertools import islice

import pytest

from common.methods.catalog import METHODS
from scripts.soak.plan import KILLED_UNTIL, KILLS, LANES, PROMISES, Plan, reference_of
from tests.common.methods.shortlist.method import Shortlist

SECONDS = 3600.0
MANY = 500


def plan(seed: int, seconds: float = SECONDS) -> Plan:
    return Plan(seed, seconds, ("What is the name of my newspaper?", "To whom does the bank I use belong?"), end=1)


def test_seed_gives_the_same_run_again() -> None:
    one, again, other = plan(1), plan(1), plan(2)
    for what in (
        lambda each: each.laws,
        lambda each: each.faults(),
        lambda each: list(islice(each.asks(), MANY)),
        lambda each: [each.clients(float(at)) for at in range(600)],
    ):
        assert what(one) == what(again)
        assert what(one) != what(other)


@pytest.mark.parametrize("added", [False, True])
def test_every_method_is_asked(monkeypatch: pytest.MonkeyPatch, added: bool) -> None:
    """One of which the table says nothing, too."""
    if added:
        monkeypatch.setitem(METHODS, Shortlist.name, Shortlist())
    assert {ask.method for ask in islice(plan(3).asks(), MANY)} == METHODS.keys()
    assert {ask.law.promise.name for ask in islice(plan(3).asks(), MANY)} >= {each.name for each in PROMISES}


@pytest.mark.parametrize("seed", range(4))
def test_requests_are_taken_by_their_methods(seed: int) -> None:
    asked = [dict(ask.fields) for ask in islice(plan(seed).asks(), MANY)]
    for fields in [*asked, *map(reference_of, plan(seed).laws)]:
        method = METHODS[fields["method"]]
        assert fields.keys() <= method.request.model_fields.keys()
        method.check(method.request(question="?", prompt="?", **fields))


def test_a_way_to_ask_leaves_the_law_alone() -> None:
    for ask in islice(plan(5).asks(), MANY):
        for name, value in ask.law.fields.items():
            assert ask.fields[name] == value or (name == "max_tokens" and ask.tokens < value and ask.law.promise.cut)


def test_faults_of_a_lane_follow_one_another() -> None:
    for lane, faults in zip(LANES, plan(7).faults(), strict=True):
        assert {fault.kind for fault in faults} == lane.keys()
        ends = [0.0, *(fault.at + fault.seconds for fault in faults)]
        assert all(fault.at > end for fault, end in zip(faults, ends, strict=False))
        assert ends[-1] <= SECONDS
        assert all(fault.at <= KILLED_UNTIL * SECONDS for fault in faults if fault.kind in KILLS)
