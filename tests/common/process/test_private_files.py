"""Private files: made so, or mended; what the user names follows the user's umask."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from common.process.files import make_private, private_folder

ROOT = Path(__file__).resolve().parents[3]
OTHERS = 0o077


def open_to_others(folder: Path) -> list[str]:
    """Paths that others have rights to, of `folder` and all below."""
    found = [folder, *folder.rglob("*")]
    return [str(path) for path in found if not path.is_symlink() and path.stat().st_mode & OTHERS]


def permissive(folder: Path) -> Path:
    (folder / "below").mkdir(parents=True)
    for name in ("file", "below/other"):
        (folder / name).write_text("private")
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o777 if path.is_dir() else 0o666)
    return folder


def test_a_tree_is_mended_and_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = permissive(tmp_path / "library")
    with caplog.at_level(logging.INFO):
        make_private([folder, tmp_path / "nowhere"])
        make_private([folder])
    assert open_to_others(folder) == []
    (line,) = caplog.messages
    assert line == f"others could read 4 files and folders of {folder}; now only this user can"
    assert (folder / "file").read_text() == "private"


def test_links_are_not_followed_but_for_the_folder_itself(tmp_path: Path) -> None:
    elsewhere = permissive(tmp_path / "elsewhere")
    folder = permissive(tmp_path / "library")
    (folder / "link").symlink_to(elsewhere / "file")
    (folder / "folder").symlink_to(elsewhere)
    (tmp_path / "as configured").symlink_to(folder)
    make_private([tmp_path / "as configured"])
    assert open_to_others(folder) == []
    assert len(open_to_others(elsewhere)) == 4


def test_a_folder_is_made_private_or_becomes_so(tmp_path: Path) -> None:
    private_folder(tmp_path / "new" / "one")
    private_folder(permissive(tmp_path / "old"))
    assert not (tmp_path / "new" / "one").stat().st_mode & OTHERS
    assert not (tmp_path / "old").stat().st_mode & OTHERS


@pytest.mark.parametrize("umask", [0o022, 0o002])
def test_a_process_keeps_what_it_makes_private_but_for_what_its_user_names(tmp_path: Path, umask: int) -> None:
    code = """
import subprocess, sys
from pathlib import Path
from common.process.files import keep_private, named_by_user
keep_private()
Path("own").write_text("")
subprocess.run([sys.executable, "-c", "open('a child\\\\'s', 'w')"], check=True)
for name in ("named", "there"):
    with named_by_user(Path(name)):
        Path(name).write_text("")
"""
    (tmp_path / "there").touch()
    (tmp_path / "there").chmod(0o640)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, umask=umask, check=True)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {"own": 0o600, "a child's": 0o600, "named": 0o666 & ~umask, "there": 0o640}
