"""Decode steps are measured while there is nothing to do, until that can't be better; a job ends it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from common.daemon import idle_profile
from common.daemon.idle_profile import IdleProfile
from common.daemon.profile import ROUGH, keep, kept_line, profiled_line
from common.engine.loop import Worker
from common.engine.model.decoder import Decoder
from common.process.lifetime import sole_process
from common.process.machine import Neighbours
from tests.common.engine.model.tiny_models import load_pair

ROWS = 2


@pytest.fixture
def decoder(tmp_path: Path) -> Decoder:
    return load_pair("llama", tmp_path).decoder


@pytest.fixture
def worker(decoder: Decoder) -> Iterator[Worker]:
    with closing(Worker(decoder, 0.003)) as worker:
        yield worker


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Cores that measurements lack, one look after the other: before one, after it, and so on; 0 at the end."""
    lacked: list[float] = []
    monkeypatch.setattr(Neighbours, "lacked", lambda others, threads: lacked.pop(0) if lacked else 0.0)
    return lacked


def measure(worker: Worker, folder: Path) -> IdleProfile:
    return IdleProfile(worker, ROWS, folder / "profile", folder / "shared" / "turns", pause=0.0, look=0.0)


def test_a_rough_line_is_replaced_and_a_good_one_stays(
    worker: Worker, decoder: Decoder, busy: list[float], tmp_path: Path
) -> None:
    folder = tmp_path / "profile"
    rough = profiled_line(decoder, ROWS, folder)
    measure(worker, tmp_path).join()
    kept = kept_line(decoder, ROWS, folder)
    assert kept is not None and kept.lacked == 0.0 and kept.line != rough
    assert decoder.memory.used_bytes == 0
    busy.append(7.0)
    measure(worker, tmp_path).join()
    assert busy == [7.0] and kept_line(decoder, ROWS, folder) == kept  # nobody looked


def test_the_better_one_of_two_is_kept(worker: Worker, decoder: Decoder, busy: list[float], tmp_path: Path) -> None:
    """While others have cores: one that lacked more is dropped, and where it would lack more none is made."""
    seen: list[float] = []
    busy += [0.5, 1.5, 0.5, 1.75, 2.0, 0.5, 1.0]  # the third try looks, and makes none

    class Watched(IdleProfile):
        def _lacked(self) -> float:
            seen.append(super()._lacked())
            return seen[-1]

    Watched(worker, ROWS, tmp_path / "profile", tmp_path / "shared" / "turns", pause=0.0, look=0.0).join()
    assert seen == [ROUGH, 1.5, 1.5, 1.5, 1.0, 0.0]


def test_one_process_at_a_time_measures(
    worker: Worker, decoder: Decoder, busy: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = Event()

    def trying(file: Path) -> Any:
        tried.set()
        return sole_process(file)

    monkeypatch.setattr(idle_profile, "sole_process", trying)
    (tmp_path / "shared").mkdir()
    with sole_process(tmp_path / "shared" / "turns"):
        measuring = measure(worker, tmp_path)
        assert tried.wait(60.0)
        measuring.close()
    assert kept_line(decoder, ROWS, tmp_path / "profile") is None


def test_a_job_ends_a_measurement(
    worker: Worker, decoder: Decoder, busy: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the next pass, with its memory given back; it is made again when the job is over."""
    passes: list[bool] = []
    forward = decoder.forward
    over = Event()

    def counted(*arguments: Any) -> Any:
        passes.append(over.is_set())
        return forward(*arguments)

    monkeypatch.setattr(decoder, "forward", counted)
    monkeypatch.setattr(Worker, "idle", property(lambda worker: over.is_set() or len(passes) < 3))
    rested = Event()
    give_back = decoder.memory.give_back

    def given_back(rows: Any) -> None:
        give_back(rows)
        rested.set()

    monkeypatch.setattr(decoder.memory, "give_back", given_back)
    measuring = measure(worker, tmp_path)
    assert rested.wait(60.0)
    assert passes == [False] * 3 and decoder.memory.used_bytes == 0
    over.set()
    measuring.join()
    assert kept_line(decoder, ROWS, tmp_path / "profile") is not None


def test_what_is_kept_is_asked_for_with_each_try(
    worker: Worker, decoder: Decoder, busy: list[float], tmp_path: Path
) -> None:
    """`dragon profile` may have measured meanwhile."""
    keep(decoder, ROWS, profiled_line(decoder, ROWS, tmp_path / "profile"), tmp_path / "profile")
    busy.append(7.0)
    measure(worker, tmp_path).join()
    assert busy == [7.0]
