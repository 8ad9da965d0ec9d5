"""`dragon service`: what it writes, what systemd says to that, and what it refuses."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from device.cli.service import Service, outermost, unit_text
from tests.device.cli.conftest import Dragon
from tests.support.missing import skip_without

EXPOSURE = 60  # tenths, as `systemd-analyze security` counts; without the sandbox it is above 80
ODD = Path('/srv/a folder "of" 100%/$HOME')

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="user units are of Linux")


@pytest.fixture
def service() -> Service:
    return Service(
        "cloud",
        (sys.executable, "-P", "-m", "dragon_runtime", "cloud"),
        {"DRAGON_DATA_DIR": str(ODD)},
        (ODD, Path("/srv/other")),
        Path("/srv/hub"),
        True,
    )


@pytest.fixture
def own(dragon: Dragon, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Dragon:
    """The command without settings from variables, which a service would not see."""
    for name in [name for name in os.environ if name.startswith("DRAGON_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return dragon


def analyze(folder: Path, name: str, text: str, *words: str) -> subprocess.CompletedProcess[str]:
    if shutil.which("systemd-analyze") is None:
        skip_without("systemd-analyze", "apt-get install systemd")
    unit = folder / name
    unit.write_text(text)
    environment = os.environ | {"XDG_RUNTIME_DIR": str(folder)}
    command = ["systemd-analyze", "--user", *words, str(unit)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("sandbox", [True, False], ids=["sandbox", "none"])
def test_systemd_understands_the_unit(service: Service, tmp_path: Path, sandbox: bool) -> None:
    text = unit_text(service, sandbox)
    done = analyze(tmp_path, "dragon-cloud.service", text, "verify")
    assert (done.returncode, done.stderr) == (0, "")
    wrong = analyze(tmp_path, "dragon-cloud.service", text.replace("LockPersonality", "LokPersonality"), "verify")
    assert "LokPersonality" in wrong.stderr, "it would say so"


def test_the_sandbox_holds_what_it_can(service: Service, tmp_path: Path) -> None:
    words = ("security", "--offline=true", f"--threshold={EXPOSURE}")
    assert analyze(tmp_path, "dragon-cloud.service", unit_text(service, True), *words).returncode == 0
    bare = "[Service]\nExecStart=/bin/true\n"
    assert analyze(tmp_path, "bare.service", bare, *words).returncode != 0


def test_odd_paths_are_quoted(service: Service) -> None:
    lines = unit_text(service, True).splitlines()
    quoted = '/srv/a folder \\"of\\" 100%%/$HOME'
    assert f'ReadWritePaths="-{quoted}"' in lines
    assert f'Environment="DRAGON_DATA_DIR={quoted}"' in lines
    assert "ReadWritePaths=-/srv/other" in lines and "ReadWritePaths=-/srv/hub" in lines


def test_folders_within_others_need_no_line() -> None:
    paths = [Path(path) for path in ("/b/c", "/a", "/b", "/bc", "/a/x/y", "/a")]
    assert outermost(paths) == [Path("/a"), Path("/b"), Path("/bc")]


@pytest.mark.parametrize("role", ["device", "cloud"])
def test_a_unit_is_written_and_not_started(own: Dragon, tmp_path: Path, role: str) -> None:
    moved = tmp_path / "moved"
    shown = own("service", "show", "--role", role, DRAGON_DATA_DIR=str(moved))
    assert not moved.exists(), "showing makes nothing"
    done = own("service", "install", "--role", role, "--no-start", DRAGON_DATA_DIR=str(moved))
    assert (done.returncode, done.stderr) == (0, "")
    unit = tmp_path / "systemd" / "user" / f"dragon-{role}.service"  # XDG_CONFIG_HOME is `tmp_path`
    assert unit.read_text() == shown.stdout
    assert f"enable --now dragon-{role}.service" in done.stdout and str(unit) in done.stdout
    assert f"Environment=DRAGON_DATA_DIR={moved}\n" in shown.stdout
    assert f"ExecStart={sys.executable} -P -m dragon_runtime {role}\n" in shown.stdout
    assert moved.stat().st_mode & 0o777 == 0o700
    assert "Environment=HF_TOKEN_PATH=" in shown.stdout, "the user's login at the Hub"
    moved.chmod(0o755)
    assert own("service", "install", "--role", role, "--no-start", DRAGON_DATA_DIR=str(moved)).returncode == 0
    assert moved.stat().st_mode & 0o777 == 0o755, "it may be others', too"


def test_a_model_s_name_may_be_longer_than_a_file_s(own: Dragon, tmp_path: Path) -> None:
    (tmp_path / "dragon").mkdir()
    (tmp_path / "dragon" / "device.toml").write_text(f'model = "{"n" * 300}"\n')
    assert own("service", "show").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "variables", "text"),
    [
        (["install"], {"DRAGON_DEVICE_PRIVACY": "offline"}, "unset DRAGON_DEVICE_PRIVACY, and write"),
        (["show", "--role", "cloud"], {"DRAGON_CLOUD_THREADS": "1"}, "unset DRAGON_CLOUD_THREADS, and write"),
        (["install"], {"DRAGON_DATA_DIR": "/proc/nowhere"}, "/proc/nowhere: can't be written"),
        (["uninstall"], {}, "you have no service for the device daemon"),
        (["status"], {"PATH": "/nowhere"}, "this machine has no systemctl"),
    ],
    ids=["variable", "of-the-cloud", "folder", "none", "no-systemd"],
)
def test_what_can_not_be_done_is_one_line(
    own: Dragon, tmp_path: Path, arguments: list[str], variables: dict[str, str], text: str
) -> None:
    done = own("service", *arguments, **variables)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done
    assert text in done.stderr
    assert not (tmp_path / "systemd").exists()
