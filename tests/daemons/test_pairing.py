"""A device and a cloud that know each other by two pasted codes answer together, over an encrypted link."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

from common.transport.keys import KeyFolder
from scripts.daemons import Pair, dragon


def pasted(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The command for the other machine that this one printed."""
    assert done.returncode == 0, done.stderr
    (line,) = re.findall(r"^    dragon (pair .*)$", done.stdout, re.M)
    return str(line).split()


def test_from_two_codes_to_an_answer(fresh_data: Callable[[], Path]) -> None:
    data = fresh_data()
    pair = Pair(data, device={"patience": 60.0})
    settings = data / "config" / "dragon" / "device.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(f"port = {pair.http_port}\n")
    address = f"tcp://127.0.0.1:{pair.cloud_port}"
    invited = dragon("pair", "--role", "cloud", "--address", address, "--name", "laptop", data=data)
    accepted = dragon(*pasted(invited), data=data)
    assert dragon(*pasted(accepted), data=data).returncode == 0
    assert settings.read_text() == f'port = {pair.http_port}\ncloud = "{address}"\n'

    pair.device.flags = {name: value for name, value in pair.device.flags.items() if name not in ("cloud", "port")}
    with pair:
        (device,) = KeyFolder(data / "cloud" / "keys").trusted()
        assert f"the device with the fingerprint {device.fingerprint} connected" in pair.cloud.log.read_text()
        assert not (data / "local-keys").exists()
        asked = dragon("ask", "Where is my dance class?", "--json", data=data)
        assert asked.returncode == 0, asked.stderr
        answered = json.loads(asked.stdout)
        assert answered["answer"] and not answered["dragon"]["degraded"]
        assert {source["side"] for source in answered["dragon"]["sources"]} == {"device", "cloud"}
        found = {
            role: json.loads(dragon("doctor", "--json", "--role", role, data=data).stdout)["findings"]
            for role in ("device", "cloud")
        }
    # The cloud's daemon has its port from a flag, and `doctor` knows settings only.
    levels = {role: {each["topic"]: each["level"] for each in found[role]} for role in found}
    topics = (
        "settings",
        "keys",
        "access",
        "port",
        "cloud",
        "link",
        "model",
        "tokenizer",
        "library",
        "formats",
        "packages",
        "start",
    )
    assert levels["device"] == dict.fromkeys(topics, "ok") | {"disk": levels["device"]["disk"]}
    assert levels["cloud"]["keys"] == levels["cloud"]["library"] == "ok"
    assert any("round trip" in each["text"] for each in found["device"] if each["topic"] == "link")
