"""The checker notices what must not be: each test breaks a run that is right, in one place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from statistics import median
from typing import Any

import pytest

from scripts.soak import resources
from scripts.soak.checker import Reference, bad_lines, judge
from scripts.soak.client import Outcome
from scripts.soak.plan import CLOUD_FILE, PROMISES, Ask, Law
from scripts.soak.resources import growth
from scripts.soak.results import Results, record, tables
from scripts.soak.world import private_marks, texts, titles

PIECES = (" Rex", " lives", " in", " Oslo", ".", "")
ELSEWHERE = (" Rex", " lives", " in", " Rome", ".", "")
ALONE = (" Rex", " is", " a", " dog", ".", "")
TITLES: dict[str, Any] = {"oslo": "first", "rome": "other"}
SEED = 7


def reference(pieces: tuple[str, ...]) -> Reference:
    return Reference(pieces, "".join(pieces).strip(), "stop")


REFERENCES: dict[Any, Reference] = {
    (0, "first"): reference(PIECES),
    (0, "other"): reference(ELSEWHERE),
    (0, "alone"): reference(ALONE),
}


def ask(promise: str = "both", **fields: Any) -> Ask:
    (found,) = (each for each in PROMISES if each.name == promise)
    law = {"seed": SEED, "max_tokens": 12}
    return Ask(3, Law(0, found, "Where does Rex live?", law), law | {"method": "speculative"} | fields, False, None)


def answer(pieces: tuple[str, ...] = PIECES, **report: Any) -> Outcome:
    told = {
        "tokens": len(pieces),
        "degraded": [],
        "notes": ["The cloud was away."] if report.get("degraded") else [],
        "seed": SEED,
        "method": "speculative",
        "pieces": list(pieces),
        "sources": [{"side": "device", "title": "dog"}, {"side": "cloud", "title": "oslo"}],
    } | report
    return Outcome("answered", 1.0, 2.0, 0, "".join(pieces).strip(), "stop", len(pieces), report=told)


def wrong(outcome: Outcome, request: Ask | None = None) -> tuple[str, ...]:
    return judge(request or ask(), outcome, REFERENCES, TITLES).wrong


def test_answers_that_are_right() -> None:
    assert judge(ask(), answer(), REFERENCES, TITLES).compared == len(PIECES)
    other = [{"side": "cloud", "title": "rome"}]
    assert not wrong(answer(ELSEWHERE, sources=other))
    assert not wrong(replace(answer(PIECES[:3]), reason="length"), ask(max_tokens=3))
    degraded = judge(ask(), answer((*PIECES[:3], " a", " boat"), degraded=[3, 4]), REFERENCES, TITLES)
    assert (degraded.wrong, degraded.compared, degraded.degraded) == ((), 3, 2)
    assert not wrong(answer(ALONE, degraded=list(range(len(ALONE))), sources=[]))
    changed = "From token 3 on, another cloud took part: its library has changed."
    unread = "From token 3 on, the device drafted without the cloud's passages, which did not arrive in time."
    for note in (changed, unread):
        assert not wrong(answer((*PIECES[:3], " Paris", ""), notes=[note]))
        assert wrong(answer((*PIECES[:2], " Paris", ""), notes=[note]))
    assert not wrong(Outcome("cancelled", 0.0))
    assert not wrong(Outcome("failed", 0.0, code="answer_failed", sentence="The cloud can't be reached."))


@pytest.mark.parametrize("position", range(len(PIECES) - 1))
def test_one_changed_token(position: int) -> None:
    mutant = (*PIECES[:position], " x", *PIECES[position + 1 :])
    (found,) = wrong(answer(mutant))
    assert f"token {position} of 6 is ' x'" in found
    assert wrong(answer(mutant, degraded=[5])), "it is before the first degraded position"
    assert position == 0 or not wrong(answer(mutant, degraded=[position])), "behind that nothing is compared"


def mutants() -> Iterator[tuple[str, Outcome, Ask]]:
    yield "lost", Outcome("lost", 0.0, sentence="no end within 240 s"), ask()
    yield "error engine", Outcome("failed", 0.0, code="engine", sentence="Something failed."), ask()
    yield "error answer_failed", Outcome("failed", 0.0, code="answer_failed", sentence=" "), ask()
    away = Outcome("failed", 0.0, code="answer_failed", sentence="The cloud can't be reached.")
    yield "it was to wait", away, ask(wait=True)
    yield "though it waits", answer(degraded=[5]), ask(wait=True)
    yield "no note", answer(degraded=[5], notes=[]), ask()
    yield "does not have", answer(degraded=[6]), ask()
    yield "out of order", answer(degraded=[5, 4]), ask()
    yield "more tokens", answer(), ask(max_tokens=5)
    yield "cut before", replace(answer(), reason="length"), ask()
    yield "ends by stop", answer(PIECES[:4]), ask()
    yield "in the usage", replace(answer(), tokens=5), ask()
    yield "not its text", replace(answer(), text="Rex"), ask()
    yield "another seed", answer(seed=8), ask()
    yield "another method", answer(method="dsd"), ask()
    yield "pieces for 6 tokens", answer(PIECES[:2], tokens=6), ask()
    yield "token 3", answer(ELSEWHERE), ask()  # of the other cloud, while it names documents of the first
    yield "token 1", answer(degraded=list(range(6))), ask()  # all of it alone, and not what the device says alone
    yield "no cloud takes part", answer(degraded=[5]), ask("device")
    yield "token 0", answer((" The", *PIECES[1:]), sources=[]), ask("device", privacy="offline")


@pytest.mark.parametrize(("sentence", "outcome", "asked"), list(mutants()))
def test_mutant(sentence: str, outcome: Outcome, asked: Ask) -> None:
    found = wrong(outcome, asked)
    assert any(sentence in each for each in found), found


def test_growth_and_what_is_none() -> None:
    seconds = [float(3 * at) for at in range(100)]
    wavy = [(at, 500.0 + 20 * (at % 4)) for at in seconds]
    assert not growth("MB", wavy).grows
    assert growth("MB", [(at, value + 0.4 * at) for at, value in wavy]).grows
    assert growth("descriptors", [(at, 20 + at // 10) for at in seconds]).grows
    assert not growth("MB", [(at, 300 + min(400.0, 5 * at)) for at in seconds]).grows, "it warms up in the first half"
    assert not growth("MB", [*wavy[:-3], *((at, 900.0) for at, _ in wavy[-3:])]).grows, "a moment is no trend"
    assert growth("MB", wavy[:8]).per_minute is None, "too short to tell"


def test_growth_over_days_takes_no_more_pairs_than_over_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = list[int]()

    def counted(slopes: Iterator[float]) -> float:
        each = list(slopes)
        counts.append(len(each))
        return median(each)

    monkeypatch.setattr(resources, "median", counted)
    flat, rising = ([(3.0 * at, 500.0 + slope * at) for at in range(5_000)] for slope in (0.0, 0.1))
    assert not growth("MB", flat).grows
    assert growth("MB", rising).per_minute == pytest.approx(2.0)
    assert max(counts) < 500_000
    counts.clear()
    growth("MB", flat[:2_000])
    assert counts == [499_500], "what an hour and a half has is all compared"


def test_lines_of_a_log() -> None:
    quiet = "2026-01-01 10:00:00,000 INFO req_1 POST /v1/chat/completions 200 2.0 s\n"
    marks = frozenset({"Selkin"})
    assert not bad_lines(quiet, marks)
    for line in (
        "Traceback (most recent call last):",
        "2026-01-01 10:00:00,000 ERROR the link",
        "INFO asked of Selkin",
    ):
        assert len(bad_lines(quiet + line, marks)) == 1


def test_libraries_tell_whose_they_are() -> None:
    marks = private_marks()
    assert "Selkin" in marks
    assert not marks & {"Tuesday", "Reminder", "Since"}
    known = titles()
    assert set(known.values()) == {"first", "other"}
    assert not {CLOUD_FILE.removesuffix(".md"), *texts("device")} & known.keys(), "both clouds, or none, have them"


def test_tables_tell_of_failures() -> None:
    results = Results(5, 1.0, "make soak MINUTES=1 SEED=5")
    request, outcome = ask(), answer((" x", *PIECES[1:]))
    results.add(request, answer(), judge(request, answer(), REFERENCES, TITLES))
    assert "nothing wrong" in tables(results)
    results.add(request, outcome, judge(request, outcome, REFERENCES, TITLES))
    results.resources = [("device 1", [growth("MB", [(3.0 * at, 100.0 + 2 * at) for at in range(100)])])]
    shown = tables(results)
    assert "2 failures; the same again: make soak MINUTES=1 SEED=5" in shown
    assert "1 wrong, 0 lost" in shown
    assert "GROWS" in shown
    assert len(record(results)["failures"]) == 2
