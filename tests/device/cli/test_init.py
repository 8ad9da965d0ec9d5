"""`dragon init`: what is asked, what is written, and what never is."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from common.configuration.configuration import load_settings
from common.engine.model.hub import file_on_hub
from common.library import commands
from common.process import machine
from device.cli.init import PAIRS, proposal
from device.settings import DeviceSettings
from tests.common.library.test_commands import ConfiguredToy
from tests.device.cli.conftest import Dragon, Typed

ROOT = Path(__file__).resolve().parents[3]


def written(home: Path) -> dict[str, dict[str, object]]:
    """The settings files by role."""
    return {path.stem: tomllib.loads(path.read_text()) for path in (home / "dragon").glob("*.toml")}


def test_defaults_are_of_one_machine(dragon: Dragon, tmp_path: Path) -> None:
    done = dragon("init", "--yes")
    assert done.returncode == 0, done.stderr
    address = "tcp://127.0.0.1:8601"
    assert written(tmp_path) == {"device": {"cloud": address, "privacy": "strict"}, "cloud": {"bind": address}}
    shown, _, following = done.stdout.partition("Next:\n")
    for role in ("device", "cloud"):
        path = tmp_path / "dragon" / f"{role}.toml"
        assert f"# {path}\n{path.read_text()}" in shown
        assert path.stat().st_mode & 0o777 == 0o600
    assert "    dragon up\n" in following
    assert load_settings(DeviceSettings).cloud == address


def test_a_device(dragon: Dragon, tmp_path: Path) -> None:
    done = dragon("init", "--role", "device", "--address", "tcp://cloud.example:8601", "--privacy", "balanced")
    assert written(tmp_path) == {"device": {"cloud": "tcp://cloud.example:8601", "privacy": "balanced"}}
    assert "    dragon pair CODE" in done.stdout and "    dragon device\n" in done.stdout
    alone = dragon("init", "--role", "device", "--address", "none", "--yes", "--replace")
    assert written(tmp_path)["device"]["cloud"] == "none"
    assert "pair" not in alone.stdout


@pytest.mark.parametrize("role", ["both", "device"])
def test_a_device_that_no_cloud_takes_part_with(dragon: Dragon, role: str) -> None:
    far = [] if role == "both" else ["--address", "tcp://cloud.example:8601"]
    done = dragon("init", "--yes", "--role", role, "--privacy", "offline", *far)
    assert done.stdout.partition("Next:\n")[2].splitlines()[0] == "    dragon device"
    assert "dragon up" not in done.stdout and "dragon pair" not in done.stdout


def test_a_pair_of_models(dragon: Dragon, tmp_path: Path) -> None:
    done = dragon("init", "--yes", "--models", "qwen2.5")
    assert done.returncode == 0, done.stderr
    models = {role: values["model"] for role, values in written(tmp_path).items()}
    assert models == {role: model.setting for role, model in PAIRS["qwen2.5"].items()}
    following = done.stdout.partition("Next:\n")[2].splitlines()
    assert following[:2] == [f"    dragon models pull {models[role]}" for role in ("device", "cloud")]
    assert "    dragon up" in following
    refused = dragon("init", "--yes", "--replace", "--models", "gpt-4o")
    assert refused.returncode == 2 and "is not one of default, smollm2" in refused.stderr


def test_the_documents_have_the_same_pairs() -> None:
    text = (ROOT / "docs" / "models.md").read_text("utf-8")
    for name, pair in PAIRS.items():
        device, cloud = pair["device"], pair["cloud"]
        licences = ", ".join(dict.fromkeys((device.licence, cloud.licence)))
        line = f"| `{name}` | {device.title} | {cloud.title} | {device.size} + {cloud.size} GB | {licences} |"
        assert line in text
        for model in pair.values():
            hub_id, file = model.setting.rsplit("/", 1)
            assert file_on_hub(model.setting) == (hub_id, file)


@pytest.mark.parametrize(
    ("gigabytes", "cores", "pair"),
    [
        (2, 1, "default"),
        (8, 1, "default"),
        (8, 2, "qwen2.5"),
        (12, 8, "llama3"),
        (16, 2, "qwen2.5"),
        (16, 8, "llama3-large"),
    ],
)
def test_the_largest_pair_that_a_machine_can_run(
    gigabytes: float, cores: int, pair: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = int(gigabytes * 1e9)
    monkeypatch.setattr(machine, "memory", lambda: machine.Memory(size, size))
    monkeypatch.setattr(machine, "usable_cores", lambda: cores)
    assert proposal(["device", "cloud"]) == pair


def test_a_cloud(dragon: Dragon, tmp_path: Path) -> None:
    done = dragon("init", "--role", "cloud", "--address", "tcp://0.0.0.0:8601")
    assert written(tmp_path) == {"cloud": {"bind": "tcp://0.0.0.0:8601"}}
    assert "    dragon pair --role cloud --address tcp://HOST:8601" in done.stdout


def test_what_is_not_given_is_asked_for_until_it_can_be(dragon: Dragon, tmp_path: Path) -> None:
    answers = [
        "phone",
        "device",
        "cloud.example",
        "tcp://cloud.example:1",
        "none at all",
        "balanced",
        "gpt-4o",
        "default",
        "/nowhere",
        "none",
    ]
    done = dragon("init", given=Typed("\n".join([*answers, "y", ""])))
    assert done.returncode == 0, done.stderr
    assert written(tmp_path) == {"device": {"cloud": "tcp://cloud.example:1", "privacy": "balanced"}}
    for said in ("'phone' is not one of device, cloud, both", "write tcp://host:port", "there is no /nowhere"):
        assert said in done.stdout


@pytest.mark.parametrize(("answers", "code"), [("both\n\n\n\n\nn\n", 2), ("both\n", 130)])
def test_nothing_is_written_without_a_yes(dragon: Dragon, tmp_path: Path, answers: str, code: int) -> None:
    assert dragon("init", given=Typed(answers)).returncode == code
    assert written(tmp_path) == {}


def test_settings_that_are_there_stay(dragon: Dragon, tmp_path: Path) -> None:
    mine = tmp_path / "dragon" / "cloud.toml"
    mine.parent.mkdir()
    mine.write_text("threads = 1\n")
    done = dragon("init", "--yes")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert str(mine) in done.stderr and "--replace" in done.stderr
    assert written(tmp_path) == {"cloud": {"threads": 1}}
    assert "privacy = " in done.stdout, "it shows what it would have written"
    assert dragon("init", "--yes", "--replace").returncode == 0
    assert written(tmp_path)["cloud"] == {"bind": "tcp://127.0.0.1:8601"}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "give --role, or --yes"),
        (["--role", "device"], "give --address, or --yes"),
        (["--role", "device", "--address", "none"], "give --privacy, or --yes"),
        (["--role", "cloud"], "give --address, or --yes"),
        (["--role", "moon"], "moon"),
        (["--role", "device", "--address", "cloud.example", "--yes"], "write tcp://host:port"),
        (["--role", "device", "--address", "tcp://0.0.0.0:1", "--yes"], "where a cloud listens"),
        (["--role", "cloud", "--address", "tcp://cloud.example:1"], "is not an address of this machine"),
        (["--role", "cloud", "--address", "tcp://0.0.0.0:0"], "needs a port"),
        (["--role", "both", "--address", "tcp://0.0.0.0:8601", "--yes"], "is not a loopback address"),
        (["--role", "cloud", "--privacy", "strict", "--yes"], "--privacy is for a device"),
        (["--role", "cloud", "--documents", "/", "--yes"], "--documents is for a device"),
        (["--yes", "--documents", "/nowhere"], "there is no /nowhere"),
        (["--yes", "--documents", "~nobody-at-all"], "there is no ~nobody-at-all"),
        (["--yes", "--documents", "n" * 300], "there is no nnn"),
    ],
)
def test_what_can_not_be_done_is_one_line(dragon: Dragon, tmp_path: Path, arguments: list[str], text: str) -> None:
    done = dragon("init", *arguments)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done
    assert text in done.stderr
    assert written(tmp_path) == {}


def test_one_file_can_not_be_that_of_both(dragon: Dragon, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    done = dragon("init", "--yes", DRAGON_CONFIG=str(file))
    assert (done.returncode, "unset it" in done.stderr, file.exists()) == (2, True, False)
    assert dragon("init", "--yes", "--role", "device", DRAGON_CONFIG=str(file)).returncode == 0
    assert "privacy" in file.read_text()


def test_settings_with_a_name_that_no_file_can_have(dragon: Dragon) -> None:
    done = dragon("init", "--yes", "--role", "device", DRAGON_CONFIG="n" * 300)
    assert (done.returncode, done.stderr.count("\n"), "file name too long" in done.stderr) == (2, 1, True)


def test_documents_are_added_and_watched(dragon: Dragon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "SentenceTransformerEmbedder", ConfiguredToy)
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "kettle.md").write_text("The kettle is in the kitchen.")
    done = dragon("init", "--yes", "--documents", str(notes))
    assert done.returncode == 0, done.stderr
    status = dragon("library", "status").stdout
    assert status.startswith("1 document, 1 chunk") and status.endswith(", watched\n")
    assert dragon("library", "list", "--role", "cloud").stdout == ""
