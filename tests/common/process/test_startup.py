"""The stages of a start and their seconds, as they are told and kept."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from common.process.lifetime import Startup, last_start


def test_stages_are_kept_with_their_seconds(tmp_path: Path) -> None:
    ticks = itertools.count(100.0, 2.5)
    startup = Startup(clock=lambda: next(ticks))
    startup.at("loading")
    startup.at("loading", 0.5)  # the same stage, one more tick
    startup.at("opening")
    startup.over(tmp_path / "start.json")
    stages = last_start(tmp_path / "start.json")
    assert stages[1:] == [("loading", 5.0), ("opening", 2.5)]
    name, seconds = stages[0]
    assert name == "beginning" and seconds > 2.5  # since the process began


def test_what_is_no_file_of_stages_has_none(tmp_path: Path) -> None:
    file = tmp_path / "start.json"
    assert last_start(file) == []
    for content in (b"", b"{}", b"[]", b'{"stages": [["x"]]}', b'{"stages": [["x", "y"]]}', b"\xff"):
        file.write_bytes(content)
        assert last_start(file) == [], content
    file.write_text(json.dumps({"stages": [["x", 1.5]]}))
    assert last_start(file) == [("x", 1.5)]


def test_where_it_can_not_be_kept_the_log_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    Startup().over(tmp_path / "file" / "start.json")
    assert "can't be written" in caplog.text
