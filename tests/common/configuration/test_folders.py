"""Caches lie in a chosen data folder, and the user's login at the Hub stays what it is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from common.configuration.configuration import keep_caches, load_settings
from device.settings import DeviceSettings


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One that is put back afterwards."""
    monkeypatch.setattr(os, "environ", os.environ.copy())
    for name in ("HF_HOME", "HF_TOKEN_PATH", "XDG_CACHE_HOME"):
        os.environ.pop(name, None)
    os.environ["HOME"] = str(tmp_path)


def test_a_chosen_folder_has_the_caches_and_no_login(tmp_path: Path) -> None:
    keep_caches(load_settings(DeviceSettings, overrides={"data_dir": tmp_path / "chosen"}))
    assert os.environ["HF_HOME"] == str(tmp_path / "chosen" / "cache" / "huggingface")
    assert os.environ["HF_TOKEN_PATH"] == str(tmp_path / ".cache" / "huggingface" / "token")


def test_variables_that_are_set_count_more(tmp_path: Path) -> None:
    os.environ["HF_HOME"] = "/srv/hub"
    keep_caches(load_settings(DeviceSettings, overrides={"data_dir": tmp_path / "chosen"}))
    assert os.environ["HF_HOME"] == "/srv/hub" and "HF_TOKEN_PATH" not in os.environ
