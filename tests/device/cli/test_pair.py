"""`dragon pair`: two machines, two codes, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from common.transport import pairing as invitations
from common.transport.keys import KeyFolder
from common.transport.pairing import invitation_code
from device.cli import pair
from tests.device.cli.conftest import Done, Dragon

ADDRESS = "tcp://cloud.example:8601"


def code_of(done: Done) -> str:
    """The code in what a command printed."""
    assert done.returncode == 0, done.stderr
    (found,) = re.findall(r"\b(?:invite|reply)1_\w+", done.stdout)
    return str(found)


def fingerprints(done: Done) -> set[str]:
    return set(re.findall(r"(?:[0-9a-f]{4}-){7}[0-9a-f]{4}", done.stdout))


def keys(home: Path, role: str) -> KeyFolder:
    return KeyFolder(home / "dragon" / role / "keys")


def invite(home: Path, name: str = "", address: str = ADDRESS) -> str:
    """The code of a cloud whose keys are below `home`."""
    return invitation_code(invitations.invite(keys(home, "cloud"), address, name))


def settings_file(home: Path) -> Path:
    return home / "dragon" / "device.toml"


def test_both_trust_each_other_and_show_the_same_fingerprints(dragon: Dragon, tmp_path: Path) -> None:
    invited = dragon("pair", "--role", "cloud", "--address", ADDRESS, "--name", "laptop")
    accepted = dragon("pair", code_of(invited))
    (line,) = re.findall(r"^    dragon (pair --role cloud reply1_\w+ --name laptop)$", accepted.stdout, re.M)
    admitted = dragon(*line.split())
    assert admitted.returncode == 0, admitted.stderr
    assert fingerprints(admitted) == fingerprints(accepted) > fingerprints(invited) != set()
    cloud, device = keys(tmp_path, "cloud"), keys(tmp_path, "device")
    assert [(peer.name, peer.key) for peer in cloud.trusted()] == [("laptop", device.own().public)]
    assert device.device_keys().cloud == cloud.own().public
    assert f'cloud = "{ADDRESS}"' in dragon("config").stdout
    for path in (settings_file(tmp_path), cloud.path, *cloud.path.rglob("*"), device.path, *device.path.rglob("*")):
        assert path.stat().st_mode & 0o077 == 0, path
    for done in (invited, accepted, admitted):
        assert cloud.own().secret not in done.stdout and device.own().secret not in done.stdout


def test_keys_and_settings_that_are_there_stay(dragon: Dragon, tmp_path: Path) -> None:
    own = keys(tmp_path, "device").new()
    settings_file(tmp_path).parent.mkdir(exist_ok=True)
    settings_file(tmp_path).write_text("# mine\nport = 8700  # here\ncloud = 'none'\n")
    dragon("pair", invite(tmp_path))
    assert keys(tmp_path, "device").own() == own
    assert settings_file(tmp_path).read_text() == f'# mine\nport = 8700  # here\ncloud = "{ADDRESS}"\n'


def test_the_settings_file_may_be_another_one(dragon: Dragon, tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    assert dragon("pair", invite(tmp_path), "--config", str(mine)).returncode == 0
    assert mine.read_text() == f'cloud = "{ADDRESS}"\n'
    assert not settings_file(tmp_path).exists()


def test_the_name_is_the_devices_own_unless_there_is_another(
    dragon: Dragon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pair.socket, "gethostname", lambda: "My Böx.local")  # type: ignore[attr-defined]
    assert "--name My-B-x\n" in dragon("pair", invite(tmp_path)).stdout
    assert "--name laptop\n" in dragon("pair", invite(tmp_path, "laptop")).stdout
    assert "--name phone\n" in dragon("pair", invite(tmp_path, "laptop"), "--name", "phone").stdout
    monkeypatch.setattr(pair.socket, "gethostname", lambda: "ööö")  # type: ignore[attr-defined]
    assert "--name device\n" in dragon("pair", invite(tmp_path)).stdout


def test_another_cloud_is_refused_and_changes_nothing(dragon: Dragon, tmp_path: Path) -> None:
    dragon("pair", invite(tmp_path))
    before = keys(tmp_path, "device").trusted(), settings_file(tmp_path).read_text()
    keys(tmp_path, "cloud").new(replace=True)
    other = invite(tmp_path, address="tcp://other.example:1")
    done = dragon("pair", other)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "Another key is trusted as cloud" in done.stderr and "--replace" in done.stderr
    assert (keys(tmp_path, "device").trusted(), settings_file(tmp_path).read_text()) == before
    (former,) = before[0]
    assert f"forgotten   cloud  {former.fingerprint}\n" in dragon("pair", other, "--replace").stdout
    assert keys(tmp_path, "device").device_keys().cloud == keys(tmp_path, "cloud").own().public


def test_settings_that_forbid_the_address_change_nothing(dragon: Dragon, tmp_path: Path) -> None:
    done = dragon("pair", invite(tmp_path), DRAGON_DEVICE_CURVE="off")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "unencrypted" in done.stderr
    assert not settings_file(tmp_path).exists() and not keys(tmp_path, "device").path.exists()


def test_a_variable_that_counts_more_is_named(dragon: Dragon, tmp_path: Path) -> None:
    done = dragon("pair", invite(tmp_path), DRAGON_DEVICE_CLOUD="none", DRAGON_DEVICE_PRIVACY="offline")
    assert "$DRAGON_DEVICE_CLOUD says none" in done.stdout
    assert "privacy is offline ($DRAGON_DEVICE_PRIVACY)" in done.stdout


@pytest.mark.parametrize(
    ("bind", "address", "start"),
    [
        ("tcp://127.0.0.1:8601", ADDRESS, "dragon cloud --bind tcp://0.0.0.0:8601\n"),
        ("tcp://0.0.0.0:8601", ADDRESS, "dragon cloud\n"),
        ("tcp://10.0.0.7:1", ADDRESS, "dragon cloud --bind tcp://10.0.0.7:8601\n"),
        ("tcp://127.0.0.1:8601", "tcp://localhost:8601", "dragon cloud\n"),
    ],
)
def test_how_to_start_the_cloud_where_it_will_be_looked_for(
    dragon: Dragon, bind: str, address: str, start: str
) -> None:
    done = dragon("pair", "--role", "cloud", "--address", address, DRAGON_CLOUD_BIND=bind)
    assert done.stdout.endswith(f"Start this cloud with: {start}")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "paste the code"),
        (["--role", "cloud"], "--address tcp://HOST:PORT"),
        (["--role", "cloud", "--address", "cloud.example"], "write tcp://host:port"),
        (["--role", "cloud", "--address", "tcp://cloud.example:0"], "write tcp://host:port"),
        (["--role", "cloud", "--address", "tcp://0.0.0.0:8601"], "where a cloud listens"),
        (["--role", "cloud", "--address", ADDRESS, "--name", "a b"], "is not a valid name"),
        (["--role", "cloud", "reply1_nonsense"], "incomplete or has extra characters"),
        (["hello"], "not a pairing code"),
    ],
)
def test_what_can_not_be_done_is_one_line(dragon: Dragon, tmp_path: Path, arguments: list[str], text: str) -> None:
    done = dragon("pair", *arguments)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert text in done.stderr
    assert not (tmp_path / "dragon").exists()


def test_a_reply_to_nobodys_invitation(dragon: Dragon, tmp_path: Path) -> None:
    reply = code_of(dragon("pair", invite(tmp_path, "laptop")))
    keys(tmp_path, "cloud").new(replace=True)
    done = dragon("pair", "--role", "cloud", reply)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "This reply fits no open invitation" in done.stderr
