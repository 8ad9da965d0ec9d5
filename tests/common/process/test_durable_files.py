"""Files take their place at once, with their mode, and are on the disk before and after they do."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from common.process.files import put_in_place, replacing


@pytest.mark.parametrize("temporary", [None, ".unfinished"])
class TestReplacing:
    @staticmethod
    def write(path: Path, temporary: str | None, content: bytes, mode: int = 0o600) -> None:
        with replacing(path, mode=mode, temporary=path.with_name(temporary) if temporary else None) as file:
            file.write(content)

    def test_the_old_file_is_there_until_the_new_one_is_whole(self, tmp_path: Path, temporary: str | None) -> None:
        path = tmp_path / "file"
        self.write(path, temporary, b"old")
        with replacing(path, temporary=path.with_name(temporary) if temporary else None) as file:
            file.write(b"new")
            file.flush()
            assert path.read_bytes() == b"old"
            file.seek(0)
            assert file.read() == b"new"
        assert path.read_bytes() == b"new"
        assert os.listdir(tmp_path) == ["file"]

    def test_a_block_that_raises_changes_nothing(self, tmp_path: Path, temporary: str | None) -> None:
        path = tmp_path / "file"
        self.write(path, temporary, b"old")
        with (
            pytest.raises(KeyboardInterrupt),
            replacing(path, temporary=path.with_name(temporary) if temporary else None) as file,
        ):
            file.write(b"half")
            raise KeyboardInterrupt
        assert path.read_bytes() == b"old"
        assert os.listdir(tmp_path) == ["file"]

    @pytest.mark.parametrize("mode", [0o600, 0o640])
    def test_its_mode_is_as_said_whatever_was_there(self, tmp_path: Path, temporary: str | None, mode: int) -> None:
        path = tmp_path / "file"
        for left in (path, tmp_path / ".unfinished"):
            left.write_bytes(b"what others may read, and is longer")
            left.chmod(0o666)
        self.write(path, temporary, b"new", mode)
        assert path.stat().st_mode & 0o777 == mode
        assert path.read_bytes() == b"new"

    def test_content_is_on_the_disk_before_the_renaming_and_the_renaming_after_it(
        self, tmp_path: Path, temporary: str | None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        done: list[str] = []

        def noted(name: str, real: Any) -> None:
            def called(*given: object) -> None:
                done.append(name)
                real(*given)

            monkeypatch.setattr(os, name, called)

        noted("fsync", os.fsync)
        noted("replace", os.replace)
        self.write(tmp_path / "file", temporary, b"new")
        assert done == ["fsync", "replace", "fsync"]


def test_what_is_kept_stays(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for content in (b"first", b"second"):
        with replacing(path, keep=True) as file:
            file.write(content)
    assert path.read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["file"]


def test_a_link_in_the_way_of_a_new_file_is_not_followed(tmp_path: Path) -> None:
    elsewhere, unfinished = tmp_path / "elsewhere", tmp_path / ".unfinished"
    elsewhere.write_bytes(b"another's")
    unfinished.symlink_to(elsewhere)
    with pytest.raises(OSError), replacing(tmp_path / "file", temporary=unfinished):
        raise AssertionError("it was opened")
    assert elsewhere.read_bytes() == b"another's"


def test_a_folder_takes_its_place_whole(tmp_path: Path) -> None:
    made = tmp_path / "made"
    made.mkdir()
    (made / "file").write_bytes(b"content")
    put_in_place(made, tmp_path / "place")
    assert (tmp_path / "place" / "file").read_bytes() == b"content"
    assert not made.exists()
