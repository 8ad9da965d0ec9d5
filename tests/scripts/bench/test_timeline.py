"""The timeline suite in its short form: two traced daemons, a picture and a Perfetto file for each mode."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts.bench.results import Results
from scripts.bench.timeline import MODES, run

pytestmark = pytest.mark.suite


def test_a_short_run_draws_and_exports_every_mode(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = Results("timeline", tmp_path, short=True)
    run(results)
    printed = capsys.readouterr().out
    for mode in MODES:
        assert f"| {mode.name} |" in printed
        assert (tmp_path / f"timeline-{mode.name}.png").is_file()
        events = json.loads((tmp_path / f"timeline-{mode.name}.perfetto.json").read_text())["traceEvents"]
        assert {event["pid"] for event in events} >= {1, 2}, "both sides"
        assert results.record["samples"]["steps"][mode.name]
