"""Changing one setting of a file: what else is in it stays, and a file that can't be read is left alone."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from common.configuration.configuration import ConfigurationError
from common.configuration.settings_file import set_in_file, settings_text, with_setting

NEW = "tcp://new:1"
LINE = f'cloud = "{NEW}"'


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", f"{LINE}\n"),
        ("port = 5", f"port = 5\n{LINE}\n"),
        ("# mine\nport = 5  # five\n", f"# mine\nport = 5  # five\n{LINE}\n"),
        ("cloud = 'old' # why\nport = 5\n", f"{LINE} # why\nport = 5\n"),
        ('# cloud = "x"\n  cloud="o\\"ld"\n', f'# cloud = "x"\n{LINE}\n'),
        ('model = "cloud = 1"\ncloud = "none"', f'model = "cloud = 1"\n{LINE}'),
        ("cloud_2 = 1\ncloud = 2\n", f"cloud_2 = 1\n{LINE}\n"),
    ],
)
def test_one_line_changes(before: str, after: str) -> None:
    assert with_setting(before, "cloud", NEW) == after


@pytest.mark.parametrize(
    "text",
    [
        'instruction = """\ncloud = "in a text"\n"""\ncloud = "old"\n',
        'cloud = """old"""\n',
        "[other]\nport = 1\n",
        "cloud = \n",
        "\xff = ",
    ],
)
def test_what_is_not_understood_is_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "device.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=r"can't be changed .*; write `cloud = ") as refused:
        set_in_file(path, "cloud", NEW)
    assert path.read_text() == text and str(path) in str(refused.value)


def test_a_new_file_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "device.toml"
    assert set_in_file(path, "cloud", NEW)
    assert path.read_text() == f"{LINE}\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert not set_in_file(path, "cloud", NEW)
    assert [each.name for each in path.parent.iterdir()] == ["device.toml"]


def test_rights_and_links_stay(tmp_path: Path) -> None:
    real = tmp_path / "real.toml"
    real.write_text("port = 5\n")
    real.chmod(0o640)
    link = tmp_path / "device.toml"
    link.symlink_to(real)
    set_in_file(link, "cloud", NEW)
    assert link.is_symlink() and real.stat().st_mode & 0o777 == 0o640
    assert real.read_text() == f"port = 5\n{LINE}\n"


def test_a_folder_that_can_not_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="can't be written"):
        set_in_file(tmp_path / "file" / "device.toml", "cloud", NEW)


def test_a_whole_file() -> None:
    assert tomllib.loads(settings_text({"cloud": None, "port": 1, "privacy": 'a"b'})) == {
        "cloud": "none",
        "port": 1,
        "privacy": 'a"b',
    }
