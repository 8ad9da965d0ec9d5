"""Every finding from facts: its level, and that it says what to do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from device.doctor.checks import (
    Finding,
    findings,
    in_bytes,
    of_access,
    of_https,
    of_keys,
    of_library,
    of_link,
    of_machine,
    of_model,
    of_packages,
    of_port,
    of_reach,
    of_settings,
)
from device.doctor.facts import (
    Access,
    Facts,
    Https,
    Keys,
    LibraryState,
    Machine,
    Model,
    Package,
    Port,
    Reach,
    SettingsFile,
)

GB = 10**9
SETTINGS = SettingsFile("/c/device.toml", True)
KEYS = Keys("exchanged", "tcp://cloud:1", False, None, "aa-bb", ("cloud",))
LIBRARY = LibraryState("/l", True, None, 1, 2000, 0, "mini", "mini")
ACCESS = Access("127.0.0.1", True, False)
OPEN = Access("0.0.0.0", False, False)
HTTPS = Https(False, "/c.pem", ("device.example",), 80)
MACHINE = Machine(9 * GB, "/d", 9 * GB, 2 * GB, False)
FACTS = Facts("device", SETTINGS, (), 2026)


def test_the_last_start_is_told_by_stages() -> None:
    found = findings(replace(FACTS, start=(("importing", 4.0), ("loading", 2.25))))
    (told,) = [each for each in found if each.topic == "start"]
    assert (told.level, told.text) == ("ok", "the last one took 6.2 s: importing 4.0, loading 2.2")
    assert not [each for each in findings(FACTS) if each.topic == "start"]


def only(found: Any) -> Finding:
    (finding,) = [found] if isinstance(found, Finding) else list(found)
    return finding


@pytest.mark.parametrize(
    ("finding", "level", "text", "remedy"),
    [
        (of_settings(SETTINGS, "device"), "ok", "read from /c/device.toml", ""),
        (of_settings(replace(SETTINGS, there=False), "cloud"), "ok", "there is no /c/device.toml", ""),
        (
            of_settings(replace(SETTINGS, problem="no port"), "cloud"),
            "wrong",
            "no port",
            "`dragon config --role cloud`",
        ),
        (of_keys(KEYS, "device"), "ok", "own key aa-bb; trusted: cloud", ""),
        (of_keys(replace(KEYS, kind="none"), "device"), "ok", "no cloud takes part", ""),
        (of_keys(replace(KEYS, kind="shared"), "cloud"), "ok", "share on tcp://cloud:1", ""),
        (of_keys(replace(KEYS, kind="plain"), "cloud"), "warn", "not encrypted", "pair the machines"),
        (of_keys(replace(KEYS, kind="plain", loopback=True), "cloud"), "ok", "not encrypted", ""),
        (of_keys(replace(KEYS, peers=()), "cloud"), "wrong", "nobody is let in", "`dragon pair --role cloud --address"),
        (of_keys(replace(KEYS, problem="No key."), "device"), "wrong", "No key.", "`dragon pair CODE`"),
        (of_port(Port("u", "free"), "device"), "ok", "u is free; `dragon device` starts", ""),
        (of_port(Port("u", "daemon"), "cloud"), "ok", "the daemon answers at u", ""),
        (of_port(Port("u", "locked", "no key"), "device"), "wrong", "this user's key: no key", "another user's"),
        (of_port(Port("u", "unproven", "expired"), "device"), "wrong", "not this machine's daemon: expired", "anew"),
        (of_access(ACCESS), "ok", "127.0.0.1 is open to every program", ""),
        (of_access(replace(ACCESS, names=("a", "b"))), "ok", "open to 2 API keys: a, b", ""),
        (of_access(replace(ACCESS, problem="damaged: make new ones")), "wrong", "damaged: make new ones", ""),
        (of_access(OPEN), "wrong", "everybody who reaches 0.0.0.0", "`dragon api-keys create NAME`"),
        (of_access(replace(OPEN, insecure=True)), "warn", "and insecure = true", "leave insecure out"),
        (of_access(replace(OPEN, names=("a",))), "ok", "open to 1 API key: a", ""),
        (only(of_https(Https(False))), "warn", "in the clear", "set tls_certificate and tls_key"),
        (only(of_https(HTTPS)), "ok", "/c.pem for device.example holds for 80 days", ""),
        (only(of_https(replace(HTTPS, names=()))), "ok", "for no name", ""),
        (only(of_https(replace(HTTPS, days=20))), "warn", "expires in 20 days", "renew it"),
        (only(of_https(replace(HTTPS, days=1))), "warn", "expires in 1 day", "renew it"),
        (
            only(of_https(replace(HTTPS, days=-1, complaints=("expired on 1.",)))),
            "wrong",
            "expired on",
            "renew it",
        ),
        (only(of_https(replace(HTTPS, problem="no key"))), "wrong", "no key", "fit together"),
        (of_port(Port("u", "silent"), "device"), "wrong", "takes connections and does not answer", "set another port"),
        (of_port(Port("u", "taken"), "cloud"), "wrong", "another program", "set another bind"),
        (of_port(Port("u", "unusable", "no such host"), "device"), "wrong", "no such host", "host or port"),
        (of_reach(Reach("a", False, True, True)), "ok", "a takes connections", ""),
        (of_reach(Reach("a", False, False, False, "why")), "wrong", "not known here: why", "spelt"),
        (of_reach(Reach("a", False, True, False, "why")), "wrong", "no connections: why", "is the cloud running"),
        (of_reach(Reach("a", True, True, False, "why")), "warn", "no connections: why", "`dragon cloud`"),
        (of_model(Model("model", "/m/x.gguf", "there", 98 * 10**6)), "ok", "98 MB", ""),
        (of_model(Model("model", "x.gguf", "importable", 98 * 10**6)), "ok", "imported at the first start", ""),
        (of_model(Model("model", "a/b", "remote")), "warn", "downloads it", "be online"),
        (of_model(Model("tokenizer", "/t", "there")), "ok", "tokenizer /t: it is there", ""),
        (of_model(Model("draft_model", "/m", "wrong", problem="gone")), "wrong", "draft_model /m: gone", "draft_model"),
        (only(of_library(LIBRARY, "device")), "ok", "1 document, 2,000 chunks", ""),
        (
            only(of_library(replace(LIBRARY, there=False), "device")),
            "warn",
            "no documents",
            "`dragon library add FOLDER`",
        ),
        (only(of_library(replace(LIBRARY, documents=0), "cloud")), "warn", "no documents", "--role cloud"),
        (only(of_library(replace(LIBRARY, problem="damaged: move it"), "cloud")), "wrong", "damaged: move it", ""),
        (only(of_library(replace(LIBRARY, skipped=2), "device")), "warn", "2 documents could not", "library status"),
        (
            only(of_library(replace(LIBRARY, embedder="new"), "device")),
            "wrong",
            "new is configured",
            "--rebuild FOLDER",
        ),
        (only(of_library(replace(LIBRARY, embedded_with=None), "device")), "ok", "1 document", ""),
        (only(of_packages((Package("a", ">=1", "1.2", True),))), "ok", "1 are there", ""),
        (only(of_packages((Package("a", ">=1", None, False),))), "wrong", "a is missing", "pip install 'a>=1'"),
        (only(of_packages((Package("a", ">=2", "1", False),))), "warn", "a 1 is not >=2", "pip install 'a>=2'"),
    ],
)
def test_a_finding(finding: Finding, level: str, text: str, remedy: str) -> None:
    assert finding.level == level
    assert text in finding.text
    assert remedy in finding.remedy
    assert level == "ok" or finding.remedy or ": " in finding.text


def test_without_a_certificate_on_loopback_nothing_is_said() -> None:
    assert not [*of_https(Https(True))]


def test_a_key_that_others_can_read_is_told_beside_the_certificate() -> None:
    first, second = of_https(replace(HTTPS, complaints=("others can read it; run `chmod 600 k`",)))
    assert (first.level, second.level) == ("warn", "ok")


def test_an_embedder_that_is_gone_is_told_beside_the_library() -> None:
    first, second = of_library(replace(LIBRARY, embedder=None, embedder_problem="no such folder"), "device")
    assert (first.level, first.topic, first.text) == ("wrong", "embedder", "no such folder")
    assert second.level == "ok"


@pytest.mark.parametrize(
    ("cloud", "level", "text"),
    [
        ({"state": "connected", "detail": "", "rtt_ms": 12.34}, "ok", "round trip 12.3 ms"),
        ({"state": "connected", "detail": "", "rtt_ms": None}, "ok", "connected"),
        ({"state": "connected", "detail": "", "rtt_ms": 900.0}, "warn", "round trip 900.0 ms"),
        ({"state": "away", "detail": "It can't be reached.", "rtt_ms": None}, "warn", "away: It can't"),
        ({"state": "refused", "detail": "The tokenizers differ.", "rtt_ms": None}, "wrong", "The tokenizers differ."),
        ({"state": "off", "detail": "No cloud is configured.", "rtt_ms": None}, "ok", "No cloud is configured."),
    ],
)
def test_the_link(cloud: dict[str, Any], level: str, text: str) -> None:
    finding = of_link(replace(FACTS, status={"cloud": cloud}))
    assert (finding.level, finding.topic) == (level, "link")
    assert text in finding.text
    assert bool(finding.remedy) == (level != "ok")


@pytest.mark.parametrize(
    ("machine", "models", "level"),
    [
        (MACHINE, (), "ok"),
        (replace(MACHINE, memory=2 * GB), (), "warn"),
        (replace(MACHINE, memory=GB // 2), (), "wrong"),
        (MACHINE, (Model("model", "m", "there", 9 * GB),), "wrong"),
        (replace(MACHINE, gpu=True), (Model("model", "m", "there", 9 * GB),), "ok"),
        (MACHINE, (Model("model", "m", "importable", 3 * GB),), "wrong"),
        (MACHINE, (Model("local_target", "m", "there", 90 * GB, memory=GB),), "ok"),
        (MACHINE, (Model("model", "m", "there", GB),), "ok"),
        (replace(MACHINE, memory=5 * GB), (Model("model", "m", "there", GB),), "ok"),
        (
            replace(MACHINE, memory=5 * GB),
            (Model("model", "m", "there", GB), Model("draft_model", "d", "there")),
            "warn",
        ),
        (
            replace(MACHINE, memory=7 * GB),
            (
                Model("model", "m", "there", GB),
                Model("draft_model", "d", "there", GB),
                Model("local_target", "t", "there", 90 * GB, memory=GB),
            ),
            "ok",
        ),
        (replace(MACHINE, processes=5), (Model("model", "m", "there", GB),), "warn"),
        (replace(MACHINE, processes=9), (Model("model", "m", "there", GB),), "wrong"),
        (replace(MACHINE, processes=0), (Model("model", "m", "there", 90 * GB),), "ok"),  # which others have
    ],
)
def test_memory(machine: Machine, models: tuple[Model, ...], level: str) -> None:
    memory, disk = of_machine(machine, replace(FACTS, models=models))
    assert (memory.topic, memory.level) == ("memory", level)
    assert bool(memory.remedy) == (level != "ok")
    assert disk.level == "ok"


def test_a_daemon_that_runs_has_its_memory() -> None:
    poor = replace(MACHINE, memory=0)
    assert [each.topic for each in of_machine(poor, replace(FACTS, port=Port("u", "daemon")))] == ["disk"]


@pytest.mark.parametrize(("free", "level"), [(2 * GB, "ok"), (GB // 2, "warn"), (10**6, "wrong")])
def test_disk(free: int, level: str) -> None:
    _, disk = of_machine(replace(MACHINE, disk=free), FACTS)
    assert (disk.topic, disk.level, bool(disk.remedy)) == ("disk", level, level != "ok")
    assert "free in /d" in disk.text


def test_a_clock_that_stands_before_the_first_release() -> None:
    (clock,) = [each for each in findings(replace(FACTS, year=1970)) if each.topic == "clock"]
    assert (clock.level, "1970" in clock.text) == ("warn", True)
    assert not [each for each in findings(FACTS) if each.topic == "clock"]


def test_without_settings_the_rest_is_not_looked_at() -> None:
    found = findings(replace(FACTS, settings=replace(SETTINGS, problem="there is no setting 'prot'")))
    assert [each.topic for each in found] == ["settings", "packages"]


def test_sizes() -> None:
    assert [in_bytes(size) for size in (900, 9_400_000, 98_000_000, 1_640_000_000, 27 * GB)] == [
        "1 kB",
        "9.4 MB",
        "98 MB",
        "1.6 GB",
        "27 GB",
    ]
