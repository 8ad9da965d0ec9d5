"""The sessions suite: played devices answer on a real cloud. How fast anything is, is not tested."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from common.settings import EMBEDDED_MODEL
from proto.messages import Closed
from scripts.bench.results import Results
from scripts.bench.sessions.bare import BareBatch
from scripts.bench.sessions.measure import KINDS, SHORT, gaps_within, steady_time, within
from scripts.bench.sessions.player import Played
from scripts.bench.sessions.suite import run

pytestmark = pytest.mark.suite

CLOSED = Closed(1, 0, 0, 0, 0, 0, 0)


def played(*times: float) -> Played:
    return Played(0.0, times, tuple(range(len(times))), 40, None, 0, 0, 0.0, CLOSED)


class TestSteadyTime:
    def test_is_while_every_session_decodes(self) -> None:
        found = [played(1.0, 2.0, 3.0, 4.0), played(1.5, 2.5, 3.5, 4.5)]
        steady = steady_time(found, settling=1)
        assert steady == (2.5, 4.0)
        assert [within(one, steady) for one in found] == [2, 1]
        assert [gaps_within(one, steady) for one in found] == [[1.0], [1.0]]

    def test_is_nothing_where_one_begins_after_another_has_ended(self) -> None:
        with pytest.raises(RuntimeError, match="steady"):
            steady_time([played(1.0, 2.0), played(2.0, 3.0)], settling=0)


def test_the_bare_model_starts_anew_when_its_cache_is_full() -> None:
    batch = BareBatch(EMBEDDED_MODEL, 2, 6, 7)
    assert all(batch.seconds(3) > 0 for _ in range(3))
    with pytest.raises(ValueError, match="room"):
        batch.seconds(6)


def test_a_short_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every answer is complete, and is what the cloud says alone."""
    results = Results("sessions", tmp_path, short=True)
    run(results)
    assert "0 of 32 answers" in capsys.readouterr().out
    samples = json.loads(results.write().read_text())["samples"]
    found = samples["runs"]
    (larger,) = samples["larger models"]
    assert Counter((ran["kind"], ran["sessions"], ran["steady"]) for ran in larger["runs"]) == {
        (kind, 2, True): 1 for kind in KINDS
    }
    assert all(ran["tokens"] == 2 * SHORT.tokens and not ran["differing"] for ran in larger["runs"])
    assert 0 < larger["parameters"] != found["parameters"]
    assert Counter((ran["kind"], ran["sessions"], ran["steady"]) for ran in found["runs"]) == {
        (kind, count, steady): SHORT.repeats for kind in KINDS for count in SHORT.sessions for steady in (False, True)
    }
    for ran in found["runs"]:
        tokens = ran["tokens"]
        assert tokens == ran["sessions"] * SHORT.tokens
        assert ran["accepted"] + ran["rollbacks"] <= tokens
        if ran["kind"] == "listening":
            assert (ran["accepted"], ran["rollbacks"], ran["device_weight"]) == (tokens, 0, None)
    drafting = [ran for ran in found["runs"] if ran["kind"] == "drafting"]
    assert sum(ran["rollbacks"] for ran in drafting) > 0
    assert all(ran["device_weight"] == pytest.approx(SHORT.weight, abs=0.1) for ran in drafting)
    assert {count: len(rates) for count, rates in found["bare"].items()} == {
        str(count): SHORT.repeats for count in SHORT.sessions
    }
    assert (tmp_path / "sessions-throughput.png").stat().st_size > 1000
