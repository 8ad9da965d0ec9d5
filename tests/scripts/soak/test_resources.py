"""Every process that answers is looked at: the daemons, and the workers behind a gateway."""

from __future__ import annotations

import subprocess
from pathlib import Path

import psutil
import pytest

from scripts.daemons import Daemon
from scripts.soak.resources import Lives

SLEEPING = ("sleep", "60")


def test_a_gateway_and_its_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cloud").mkdir()
    (tmp_path / "temporary").mkdir()
    sleeping = (subprocess.Popen(SLEEPING) for _ in range(3))
    with next(sleeping) as gateway, next(sleeping) as worker, next(sleeping) as other:
        monkeypatch.setattr(Daemon, "workers", [psutil.Process(worker.pid), psutil.Process(other.pid)])
        cloud = Daemon("cloud", tmp_path, {}, tmp_path / "cloud.log", gateway)
        lives = Lives({"cloud": cloud}, tmp_path / "temporary", lambda: 1.0)
        lives.look()
        lives.look()
        worker.kill()
        worker.wait()
        lives.look()
        other.kill()
        gateway.kill()
    own = {"MB", "descriptors", "threads"}
    assert {
        name: {quantity: len(each) for quantity, each in samples.items()} for name, samples in lives.samples.items()
    } == {
        f"cloud {gateway.pid}": dict.fromkeys(own | {"files", "temporary"}, 3),
        f"cloud worker {worker.pid}": dict.fromkeys(own, 2),
        f"cloud worker {other.pid}": dict.fromkeys(own, 3),
    }
