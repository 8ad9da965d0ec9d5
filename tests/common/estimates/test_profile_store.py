"""Profiles survive restarts and crashes; damaged ones are measured again."""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from common.estimates import profile_store
from common.estimates.estimators import DecodeLine
from common.estimates.profile_store import KeptLine, ProfileKey, ProfileStore

KEY = ProfileKey(model="org/model:1a2b", torch_device="cuda:0", rows=4)
LINE = DecodeLine.of(slope=1.25e-5, intercept=0.0123456789, context=512.0)
KEPT = KeptLine(LINE, lacked=0.75)


def only_file(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def test_a_profile_is_read_back_exactly(tmp_path: Path) -> None:
    ProfileStore(tmp_path / "data" / "profiles").save(KEY, KEPT)
    assert ProfileStore(tmp_path / "data" / "profiles").load(KEY) == KEPT


def test_nothing_saved_is_nothing(tmp_path: Path) -> None:
    assert ProfileStore(tmp_path / "missing").load(KEY) is None


@pytest.mark.parametrize("other", [{"model": "org/model:ffff"}, {"torch_device": "cpu"}, {"rows": 5}])
def test_another_key_is_another_profile(tmp_path: Path, other: dict[str, str | int]) -> None:
    store = ProfileStore(tmp_path)
    store.save(KEY, KEPT)
    changed = replace(KEY, **other)  # type: ignore[arg-type]
    assert store.load(changed) is None
    second = KeptLine(DecodeLine.of(1e-5, 0.5, 100.0))
    store.save(changed, second)
    assert (store.load(KEY), store.load(changed)) == (KEPT, second)


def test_saving_again_replaces(tmp_path: Path) -> None:
    store = ProfileStore(tmp_path)
    store.save(KEY, KEPT)
    newer = KeptLine(LINE.updated(300.0, 0.2))
    store.save(KEY, newer)
    assert store.load(KEY) == newer
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"format": 1}',
        b"[" * 10**6,
        b" " * 2**24,
        b'{"format": 3, "key": {}, "line": {}}',
        None,
    ],
)
def test_a_damaged_file_is_no_profile(tmp_path: Path, content: bytes | None) -> None:
    """None: half of a file that was whole."""
    store = ProfileStore(tmp_path)
    store.save(KEY, KEPT)
    path = only_file(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] if content is None else content)
    assert store.load(KEY) is None


def test_a_folder_in_its_place_is_no_profile(tmp_path: Path) -> None:
    store = ProfileStore(tmp_path)
    store.save(KEY, KEPT)
    path = only_file(tmp_path)
    path.unlink()
    path.mkdir()
    assert store.load(KEY) is None


@pytest.mark.parametrize("name", ["numerator", "denominator", "intercept"])
@pytest.mark.parametrize("number", [math.nan, -1.0, "many", None, math.inf, 1e300, 10**400])
def test_impossible_numbers_are_no_profile(tmp_path: Path, name: str, number: object) -> None:
    """Under a checksum that is right."""
    store = ProfileStore(tmp_path)
    store.save(KEY, KEPT)
    damaged = profile_store._written(KEY, asdict(LINE) | {name: number}, KEPT.lacked)
    only_file(tmp_path).write_text(json.dumps(damaged), "utf-8")
    assert store.load(KEY) is None


@pytest.mark.parametrize("lacked", [math.nan, -1.0, "many", None])
def test_a_measurement_that_lacked_no_number_of_cores_is_no_profile(tmp_path: Path, lacked: object) -> None:
    store = ProfileStore(tmp_path)
    store.save(KEY, KEPT)
    damaged = profile_store._written(KEY, asdict(LINE), lacked)  # type: ignore[arg-type]
    only_file(tmp_path).write_text(json.dumps(damaged), "utf-8")
    assert store.load(KEY) is None


def test_a_flipped_bit_is_no_other_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = ProfileStore(tmp_path)
    store.save(KEY, KEPT)
    path = only_file(tmp_path)
    whole = path.read_bytes()
    for position in range(len(whole)):
        for bit in range(8):
            broken = bytearray(whole)
            broken[position] ^= 1 << bit
            path.write_bytes(broken)
            caplog.clear()
            found = store.load(KEY)
            assert found in (None, KEPT), (position, bit)
            assert len(caplog.messages) == (found is None)
    assert "is damaged" in caplog.messages[0] or found == KEPT


def test_a_failed_save_leaves_the_old_profile_and_no_rubbish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that wrote in place would lose the old one here."""
    store = ProfileStore(tmp_path)
    store.save(KEY, KEPT)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        store.save(KEY, KeptLine(LINE.updated(300.0, 0.2)))
    assert store.load(KEY) == KEPT
    assert len(list(tmp_path.iterdir())) == 1


def test_a_file_in_the_wrong_place_is_no_profile(tmp_path: Path) -> None:
    """A data folder may have been copied about by hand: what the file says of itself counts."""
    store = ProfileStore(tmp_path)
    store.save(KEY, KEPT)
    content = only_file(tmp_path).read_bytes()
    moved = replace(KEY, rows=8)
    store.save(moved, KEPT)
    for path in tmp_path.iterdir():
        path.write_bytes(content)
    assert store.load(KEY) == KEPT
    assert store.load(moved) is None
