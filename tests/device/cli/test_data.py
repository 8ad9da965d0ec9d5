"""`dragon data`: everything that is kept is listed, and goes when that is said."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.device.cli.conftest import Dragon, Typed

FOLDERS = ("device/library", "device/keys", "device/uploads", "cloud/library", "local-keys", "models", "cache")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder with a file of 3 kB in each of `FOLDERS`, where it is by default."""
    folder = tmp_path / "dragon"
    for name in FOLDERS:
        (folder / name).mkdir(parents=True)
        (folder / name / "file").write_bytes(b"x" * 3000)
    (folder / "device.toml").write_text("threads = 1\n")  # settings and data lie in one folder in these tests
    return folder


def left(data: Path) -> set[str]:
    return {path.relative_to(data).as_posix() for path in data.rglob("*") if path.is_file()}


def test_every_folder_is_shown_with_its_size(dragon: Dragon, data: Path) -> None:
    lines = dragon("data", "show").stdout.splitlines()
    for name in FOLDERS:
        (line,) = [line for line in lines if line.endswith(f"  {data / name}")]
        assert "  3 kB  " in line
        assert line.split()[0] == (name.split("/")[0] if "/" in name else "both")
    assert any("nothing yet" in line and line.endswith("cloud/keys") for line in lines)
    assert any(line.split() == ["device", "settings", "there", str(data / "device.toml")] for line in lines)


def test_all_of_it_is_removed_but_settings(dragon: Dragon, data: Path) -> None:
    (data / "mine").write_text("not dragon's")
    done = dragon("data", "remove", "--yes")
    assert done.returncode == 0, done.stderr
    assert left(data) == {"device.toml", "mine"}
    assert not (data / "device").exists() and not (data / "cloud").exists()
    assert "nothing to remove" in dragon("data", "remove", "--yes").stdout


def test_one_role_leaves_what_the_other_uses(dragon: Dragon, data: Path) -> None:
    assert dragon("data", "remove", "--role", "device", "--yes").returncode == 0
    kept = {f"{name}/file" for name in FOLDERS if not name.startswith("device/")}
    assert left(data) == {*kept, "device.toml"}


@pytest.mark.parametrize(
    ("given", "text"), [("", "give --yes"), (Typed("n\n"), "nothing was removed")], ids=["pipe", "no"]
)
def test_nothing_goes_without_a_yes(dragon: Dragon, data: Path, given: str, text: str) -> None:
    before = left(data)
    done = dragon("data", "remove", given=given)
    assert (done.returncode, text in done.stderr) == (2, True)
    assert left(data) == before
    assert dragon("data", "remove", given=Typed("y\n")).returncode == 0
    assert left(data) == {"device.toml"}


def test_what_a_setting_put_elsewhere_stays(dragon: Dragon, data: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine.gguf").write_text("a model of the user's")
    variables = {f"DRAGON_{role}_MODELS": str(elsewhere) for role in ("DEVICE", "CLOUD")}
    done = dragon("data", "remove", "--yes", **variables)
    assert f"stays: {elsewhere}" in done.stdout
    assert left(elsewhere) == {"mine.gguf"}
    assert left(data) == {"device.toml", "models/file"}


def test_another_program_at_the_port_keeps_nothing(dragon: Dragon, data: Path) -> None:
    before = left(data)
    with socket.create_server(("127.0.0.1", 0)) as cloud:
        address = f"tcp://127.0.0.1:{cloud.getsockname()[1]}"
        # What listens there is no cloud, and holds no data.
        assert dragon("data", "remove", "--role", "cloud", "--yes", DRAGON_CLOUD_BIND=address).returncode == 0
    assert left(data) == before - {"cloud/library/file"}
