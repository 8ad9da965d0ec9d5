"""Paths as people write them, at each place that takes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.engine.model.errors import ModelError
from common.engine.model.gguf import imported
from common.engine.model.hub import find_decoder_files, is_folder, link
from common.process.files import expanded

NOBODY = "~nobody-at-all"  # slips of `~/nobody-at-all`


def test_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert (expanded("~/a"), expanded(Path("~"))) == (tmp_path / "a", tmp_path)
    assert expanded("a/~/b") == Path("a/~/b")


def test_that_of_nobody_is_a_name_like_others() -> None:
    assert expanded(NOBODY) == Path(NOBODY)
    assert expanded(Path(NOBODY, "a")) == Path(NOBODY, "a")


def test_models_of_nobody_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for look in (is_folder, find_decoder_files):
        with pytest.raises(ModelError, match="no such folder"):
            look(NOBODY)
    with pytest.raises(ModelError, match="can't be read: no such file"):
        imported(Path(NOBODY, "a.gguf"), tmp_path / "models")
    (tmp_path / NOBODY).mkdir()
    assert link(Path(NOBODY), tmp_path / "models") == NOBODY
