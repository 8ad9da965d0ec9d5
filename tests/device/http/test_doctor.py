"""`GET /doctor`: what the page shows of the daemon's own diagnosis."""

from __future__ import annotations

import threading

import httpx
import pytest

from device.doctor.checks import Finding
from device.http import app
from tests.device.conftest import Serve
from tests.device.table_engine import WAIT, TableEngine


class TestDoctor:
    def test_findings_are_the_engines_and_behind_the_key(self, serve: Serve, engine: TableEngine) -> None:
        with httpx.Client(base_url=serve(api_key="right").url, timeout=WAIT, trust_env=False) as http:
            assert http.get("/doctor").status_code == 401
            found = http.get("/doctor", headers={"authorization": "Bearer right"}).json()["findings"]
        assert [(each["level"], each["topic"]) for each in found] == [("ok", "disk"), ("warn", "keys")]
        assert found[1]["remedy"] == "pair the machines"

    def test_one_at_a_time_and_nobody_waits_for_ever(
        self, serve: Serve, engine: TableEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        go_on, runs = threading.Event(), list[None]()

        def slow() -> list[Finding]:
            runs.append(None)
            go_on.wait(WAIT)
            return []

        monkeypatch.setattr(app, "_DIAGNOSIS", 0.05)
        monkeypatch.setattr(engine, "diagnose", slow)
        with httpx.Client(base_url=serve().url, timeout=WAIT, trust_env=False) as http:
            for _ in range(3):
                late = http.get("/doctor")
                assert (late.status_code, late.json()["error"]["code"]) == (503, "diagnosis_late")
            assert http.get("/status").status_code == 200
            go_on.set()
        assert len(runs) == 1
