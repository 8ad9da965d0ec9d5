"""`dragon data`: everything that is kept is listed, and goes when that is said."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from cloud.settings import CloudSettings
from common.configuration.configuration import ConfigurationError
from common.daemon.start import stay_alone
from common.process.lifetime import sole_process
from device.http.options import HttpOptions
from device.http.server import HttpServer
from device.settings import DeviceSettings
from tests.device.cli.conftest import Dragon, Typed, closed_port
from tests.device.table_engine import TableEngine

FOLDERS = ("device/library", "device/keys", "device/uploads", "cloud/library", "local-keys", "models", "cache")


@pytest.fixture
def data(dragon: Dragon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with a file of 3 kB in each of `FOLDERS`, where it is by default; no daemon is at its port."""
    monkeypatch.setenv("DRAGON_DEVICE_PORT", str(closed_port()))
    folder = tmp_path / "dragon"
    for name in FOLDERS:
        (folder / name).mkdir(parents=True)
        (folder / file_in(name)).write_bytes(b"x" * 3000)
    (folder / "device.toml").write_text("threads = 1\n")  # settings and data lie in one folder in these tests
    return folder


def file_in(name: str) -> str:
    """The file in one of `FOLDERS`; a library's, without which another folder would be taken for one by mistake."""
    return f"{name}/{'library.sqlite' if name.endswith('/library') else 'file'}"


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


@pytest.mark.parametrize("command", [("show",), ("remove", "--yes")])
def test_a_folder_that_can_not_be_looked_at_is_not_passed_over(dragon: Dragon, command: tuple[str, ...]) -> None:
    done = dragon("data", *command, DRAGON_DATA_DIR="n" * 300)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.endswith("can't be read: file name too long\n")


def test_all_of_it_is_removed_but_settings(dragon: Dragon, data: Path) -> None:
    (data / "mine").write_text("not dragon's")
    done = dragon("data", "remove", "--role", "both", "--yes")
    assert done.returncode == 0, done.stderr
    assert left(data) == {"device.toml", "mine"}
    assert not (data / "device").exists() and not (data / "cloud").exists()
    assert "nothing to remove" in dragon("data", "remove", "--role", "both", "--yes").stdout


@pytest.mark.parametrize("arguments", [(), ("--role", "device"), ("--role", "cloud")])
def test_one_role_leaves_what_the_other_uses(dragon: Dragon, data: Path, arguments: tuple[str, ...]) -> None:
    """The device's go where no role is named, and none that the other one needs."""
    role = arguments[-1] if arguments else "device"
    assert dragon("data", "remove", "--yes", *arguments).returncode == 0
    kept = {file_in(name) for name in FOLDERS if not name.startswith(f"{role}/")}
    assert left(data) == {*kept, "device.toml"}


@pytest.mark.parametrize(
    ("given", "text"), [("", "give --yes"), (Typed("n\n"), "nothing was removed")], ids=["pipe", "no"]
)
def test_nothing_goes_without_a_yes(dragon: Dragon, data: Path, given: str, text: str) -> None:
    before = left(data)
    done = dragon("data", "remove", given=given)
    assert (done.returncode, text in done.stderr) == (2, True)
    assert left(data) == before
    assert dragon("data", "remove", "--role", "both", given=Typed("y\n")).returncode == 0
    assert left(data) == {"device.toml"}


def test_what_a_setting_put_elsewhere_stays(dragon: Dragon, data: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine.gguf").write_text("a model of the user's")
    variables = {f"DRAGON_{role}_MODELS": str(elsewhere) for role in ("DEVICE", "CLOUD")}
    done = dragon("data", "remove", "--role", "both", "--yes", **variables)
    assert f"stays: {elsewhere}" in done.stdout
    assert left(elsewhere) == {"mine.gguf"}
    assert left(data) == {"device.toml", "models/file"}


def test_what_a_link_put_elsewhere_stays(dragon: Dragon, data: Path, tmp_path: Path) -> None:
    large = tmp_path / "large"
    (data / "models").rename(large)
    (data / "models").symlink_to(large)
    for _ in range(2):
        done = dragon("data", "remove", "--role", "both", "--yes")
        assert done.returncode == 0, done.stderr
        assert f"stays: {data / 'models'}" in done.stdout
    assert left(large) == {"file"} and left(data) == {"device.toml"}


def test_another_program_at_the_port_keeps_nothing(dragon: Dragon, data: Path) -> None:
    before = left(data)
    with socket.create_server(("127.0.0.1", 0)) as cloud:
        address = f"tcp://127.0.0.1:{cloud.getsockname()[1]}"
        # What listens there is no cloud, and holds no data.
        assert dragon("data", "remove", "--role", "cloud", "--yes", DRAGON_CLOUD_BIND=address).returncode == 0
    assert left(data) == before - {file_in("cloud/library")}


def test_a_daemon_with_another_data_folder_keeps_what_is_shared(
    dragon: Dragon, data: Path, engine: TableEngine
) -> None:
    before = left(data)
    with HttpServer(HttpOptions(port=0)) as server:
        server.serve(engine)
        done = dragon("data", "remove", "--yes", DRAGON_DEVICE_PORT=server.url.rpartition(":")[2])
        assert (done.returncode, done.stderr) == (2, f"dragon: the device daemon runs at {server.url}; stop it first\n")
    assert left(data) == before


@pytest.mark.parametrize("role", ["device", "cloud"])
def test_a_daemon_that_runs_keeps_its_own(dragon: Dragon, data: Path, role: str) -> None:
    """Whichever its port is, and whether or not it answers there."""
    before = left(data)
    settings = {"device": DeviceSettings, "cloud": CloudSettings}[role](data_dir=data)
    with sole_process(settings.lock):
        for named in ("both", role):
            done = dragon("data", "remove", "--yes", "--role", named)
            assert (done.returncode, done.stdout) == (2, "")
            assert done.stderr == f"dragon: the {role} daemon runs, and uses {data / role}; stop it first\n"
        assert left(data) == before | {f"{role}/{role}.lock"}
        other = "cloud" if role == "device" else "device"
        assert dragon("data", "remove", "--yes", "--role", other).returncode == 0
        assert left(data) == {each for each in before if not each.startswith(f"{other}/")} | {f"{role}/{role}.lock"}
    assert dragon("data", "remove", "--yes", "--role", "both").returncode == 0
    assert left(data) == {"device.toml"}


def test_what_both_roles_settings_name_belongs_to_both(dragon: Dragon, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    (shared / "library").mkdir(parents=True)
    (shared / "library" / "library.sqlite").write_bytes(b"x")
    where = {"DRAGON_DEVICE_DATA": str(shared), "DRAGON_CLOUD_DATA": str(shared)}
    with sole_process(CloudSettings(data=shared).lock):
        assert dragon("data", "remove", "--yes", **where).returncode == 0
        assert "the cloud daemon runs" in dragon("data", "remove", "--yes", "--role", "both", **where).stderr
        assert (shared / "library" / "library.sqlite").exists()
    assert dragon("data", "remove", "--yes", "--role", "both", **where).returncode == 0
    assert not (shared / "library").exists()


def test_no_daemon_starts_while_it_asks(dragon: Dragon, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: object, **__: object) -> bool:
        with pytest.raises(ConfigurationError), ExitStack() as stack:
            stay_alone(DeviceSettings(data_dir=data), stack)
        return True

    monkeypatch.setattr("typer.confirm", asked)
    assert dragon("data", "remove", "--role", "both", given=Typed("")).returncode == 0
    assert left(data) == {"device.toml"}
