"""Connections that are cut in the middle of answers: a verifier that reads its prompt again is waited for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from common.engine.loop import MinimumTimes
from common.methods.drafted.device import LATE, UNREAD
from device.interface import Finished, TokenEvent
from scripts.netlab.faulty_proxy import FaultyProxy
from tests.cloud.town import Resident, Town
from tests.daemons.wordy_model import SCORER, make_wordy_model

QUESTION = "Where is my dance class, and what could help me with my health problem?"
PATIENCE = 0.5  # seconds
PROMPT_MS = 5.0  # per token: a prompt takes longer than patience
STEP_MS = 10.0
LENGTH = 60
CUTS = (30, 45)  # tokens, so that most verdicts before took no longer than a pass
UNTOLD = re.compile(rf"The cloud did not send the shares of its documents for (\d+) of {LENGTH} tokens")
METHODS: tuple[dict[str, Any], ...] = (
    {"method": "coupled", "sources": "cloud"},
    {"method": "dssd", "sources": "cloud", "draft_length": 2},
    {"placement": "device"},
)


@pytest.fixture(scope="module")
def town(fresh_data: Callable[[], Path]) -> Iterator[Town]:
    data = fresh_data()
    model = {"model": make_wordy_model(data / "model"), "scorer": SCORER, "tokenizer": None}
    with Town(data, **model, emulate_prompt_ms=PROMPT_MS, emulate_decode_ms=STEP_MS) as town:
        yield town


@pytest.fixture(scope="module")
def device(town: Town, proxy: FaultyProxy) -> Resident:
    model = {name: getattr(town.cloud.settings, name) for name in ("model", "scorer", "tokenizer")}
    return town.device("laptop", address=proxy.address, patience=PATIENCE, **model)


@pytest.mark.parametrize("fields", METHODS, ids=lambda fields: fields.get("method", "speculative"))
def test_cut_again_and_again(device: Resident, proxy: FaultyProxy, fields: dict[str, Any]) -> None:
    chosen: dict[str, Any] = {"max_tokens": LENGTH, "temperature": 1.0} | fields
    expected = with_the_cloud(lambda: device.ask(QUESTION, **chosen), told=True)

    def cut() -> Finished:
        for event in device.begin(QUESTION, **chosen):
            if isinstance(event, TokenEvent) and event.position in CUTS:
                proxy.cut()
        assert isinstance(event, Finished)
        return event

    last = with_the_cloud(cut)
    assert expected.report.degraded == last.report.degraded == ()
    assert last.text == expected.text, (expected.report.notes, last.report.notes)
    # The cloud's new session knows nothing of what its documents made of the tokens before.
    assert (expected.report.unattributed, UNTOLD.search("\n".join(expected.report.notes))) == (0, None)
    assert CUTS[0] < last.report.unattributed <= LENGTH
    told = UNTOLD.search("\n".join(last.report.notes))
    assert told is not None and told[1] == str(last.report.unattributed)


def with_the_cloud(answer: Callable[[], Finished], told: bool = False) -> Finished:
    """An answer for whose passages and tokens the device did not lose its patience, as on a busy machine it does now
    and then: of its own drafts without them, a method that is not raced makes other tokens. Nor for the cloud's part of
    the report, if that is to be `told`.
    """
    for _ in range(10):
        last = answer()
        without_passages = {LATE.format(0), UNREAD.format(0)} & set(last.report.notes)
        if not last.report.degraded and not without_passages and not (told and last.report.unattributed):
            break
    return last


def test_a_library_that_grew_before_the_question_has_not_changed_since(
    town: Town, device: Resident, proxy: FaultyProxy, tmp_path: Path
) -> None:
    """Since the device connected it has; since the answer began it has not."""
    names = (f"{number}.md" for number in count())

    def grown_and_cut(method: str, sources: str) -> Finished:
        (tmp_path / next(names)).write_text("Delthcine House has a garden.")
        town.cloud.library.add(tmp_path)
        for event in device.begin(QUESTION, max_tokens=LENGTH, temperature=1.0, method=method, sources=sources):
            if isinstance(event, TokenEvent) and event.position == CUTS[0]:
                proxy.cut()
        assert isinstance(event, Finished)
        return event

    for method, sources in (("speculative", "both"), ("coupled", "cloud")):
        report = with_the_cloud(partial(grown_and_cut, method, sources)).report
        (note,) = report.notes
        assert UNTOLD.match(note) and report.degraded == ()


def test_degraded_positions_are_no_disagreements(
    device: Resident, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under `mirrored` the cloud decides for both where the device goes on alone."""
    # As slow as a cloud that comes back, and may have its prompt to read again, needs it.
    monkeypatch.setattr(device.side.decoding, "_minimum", MinimumTimes(3 * STEP_MS / 1e3))

    def darkened() -> Finished:
        dark = False
        for event in device.begin(QUESTION, max_tokens=3 * LENGTH, temperature=1.0, placement="mirrored"):
            if isinstance(event, TokenEvent) and event.position == CUTS[0]:
                proxy.black_hole(True)
                dark = True
            elif dark and isinstance(event, TokenEvent) and event.degraded:
                proxy.black_hole(False)
                dark = False
        proxy.black_hole(False)
        assert isinstance(event, Finished)
        return event

    for _ in range(3):
        report = darkened().report
        assert report.degraded
        assert report.disagreements == 0
        if came_back := report.degraded[-1] < 3 * LENGTH - 1:
            break
    assert came_back
