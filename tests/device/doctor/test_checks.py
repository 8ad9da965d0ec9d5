"""Every finding: its level, and that it says what to do."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from common.process.machine import Memory
from common.transport.keys import KeyFolder
from device.access.api_keys import ApiKeyFiles
from device.cli.doctor import models as on_models
from device.cli.doctor.models import Model, check_memory, check_model_files
from device.cli.doctor.ports import Port, check_port
from device.doctor import checks
from device.doctor.checks import (
    Finding,
    check_access,
    check_clock,
    check_disk,
    check_https,
    check_keys,
    check_library,
    check_link,
    check_packages,
    check_reach,
    in_bytes,
)
from device.doctor.packages import Package
from device.settings import DeviceSettings, TlsFiles
from proto.messages import Side
from tests.device.access.certificates import tls_files
from tests.device.cli.conftest import closed_port

GB = 10**9
FAR = "tcp://192.0.2.7:8601"  # an address that no machine has
Made = Callable[..., DeviceSettings]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """Settings whose folders are the test's own."""

    def make(**values: Any) -> DeviceSettings:
        given: dict[str, Any] = {"data_dir": tmp_path / "data", "torch_device": "cpu"}
        return DeviceSettings(**given | values)

    return make


def tell(finding: Finding, level: str, text: str, remedy: str = "") -> None:
    """A finding is of this level, and what is not well says what to do."""
    assert finding.level == level
    assert text in finding.text
    assert remedy in finding.remedy
    assert level == "ok" or finding.remedy or ": " in finding.text


class TestKeys:
    def test_a_link_without_keys(self, made: Made) -> None:
        tell(check_keys(made(), "device", None), "ok", "no cloud takes part")
        plain = made(curve="off", insecure=True)
        tell(check_keys(plain, "cloud", FAR), "warn", "not encrypted", "pair the machines")
        tell(check_keys(plain, "cloud", "tcp://127.0.0.1:1"), "ok", "not encrypted")

    def test_keys_that_are_shared_here(self, made: Made) -> None:
        tell(check_keys(made(), "cloud", "tcp://127.0.0.1:1"), "ok", "share on tcp://127.0.0.1:1")

    @pytest.mark.parametrize("role", ["device", "cloud"])
    def test_keys_that_were_exchanged(self, made: Made, role: Side) -> None:
        settings = made()
        pairing = "`dragon pair CODE`" if role == "device" else "`dragon pair --role cloud --address"
        tell(check_keys(settings, role, FAR), "wrong", "", pairing)
        folder = KeyFolder(settings.keys, role)
        own = folder.new()
        tell(check_keys(settings, role, FAR), "wrong", "", pairing)
        folder.trust("cloud" if role == "device" else "laptop", KeyFolder(settings.data / "other").new().public)
        tell(check_keys(settings, role, FAR), "ok", f"trusted: {'cloud' if role == 'device' else 'laptop'}")
        assert own.public not in check_keys(settings, role, FAR).text, "but its fingerprint"


class TestAccess:
    def test_by_api_keys(self, made: Made) -> None:
        here, everywhere = made(), made(host="0.0.0.0", insecure=True)
        tell(check_access(here), "ok", "127.0.0.1 is open to every program")
        tell(check_access(everywhere), "warn", "everybody who reaches 0.0.0.0", "leave insecure out")
        closed = everywhere.model_copy(update={"insecure": False})
        tell(check_access(closed), "wrong", "everybody who reaches 0.0.0.0", "`dragon api-keys create NAME`")
        keys = ApiKeyFiles(here.keys)
        keys.create("a")
        tell(check_access(closed), "ok", "open to 1 API key: a")
        keys.create("b")
        tell(check_access(here), "ok", "open to 2 API keys: a, b")
        keys.path.write_text("{")
        tell(check_access(here), "wrong", "are damaged: delete that file")

    def test_without_a_certificate(self, made: Made) -> None:
        assert not [*check_https(made())], "on loopback nothing is said"
        (told,) = check_https(made(host="0.0.0.0", insecure=True))
        tell(told, "warn", "not encrypted", "set tls_certificate and tls_key")

    @pytest.mark.parametrize(
        ("days", "level", "text", "remedy"),
        [
            ((-1, 81), "ok", "for device.example is valid for 80 days", ""),
            ((-1, 21), "warn", "expires in 20 days", "renew it, and restart"),
            ((-1, 1.5), "warn", "expires in 1 day", "renew it, and restart"),
            ((-9, -1), "wrong", "expired on", "renew it, and restart"),
        ],
        ids=["long", "soon", "tomorrow", "over"],
    )
    def test_a_certificate(
        self, made: Made, tmp_path: Path, days: tuple[float, float], level: str, text: str, remedy: str
    ) -> None:
        (told,) = check_https(made(**named(tls_files(tmp_path, "device.example", days=days))))
        tell(told, level, text, remedy)

    def test_a_certificate_for_nobody(self, made: Made, tmp_path: Path) -> None:
        (told,) = check_https(made(**named(tls_files(tmp_path))))
        tell(told, "ok", "for no name")

    def test_a_key_that_others_can_read_is_told_beside_the_certificate(self, made: Made, tmp_path: Path) -> None:
        files = tls_files(tmp_path, "device.example")
        files.key.chmod(0o644)
        first, second = check_https(made(**named(files)))
        assert (first.level, second.level) == ("warn", "ok")
        files.key.unlink()
        (told,) = check_https(made(**named(files)))
        tell(told, "wrong", "can't be read", "belong together")


def named(files: TlsFiles) -> dict[str, Path]:
    return {"tls_certificate": files.certificate, "tls_key": files.key}


def test_the_way_to_the_cloud() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        tell(check_reach(address), "ok", f"{address} accepts connections")
    tell(check_reach(f"tcp://127.0.0.1:{closed_port()}"), "warn", "accepts no connections: ", "`dragon cloud`")
    tell(check_reach("tcp://nowhere.invalid:1"), "wrong", "can't be resolved: ", "spelling")


def test_a_way_to_another_machine_that_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> socket.socket:
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(socket, "create_connection", refused)
    tell(check_reach(FAR), "wrong", "no connections: connection refused", "check that the cloud runs")


@pytest.mark.parametrize(
    ("state", "detail", "trip", "level", "text"),
    [
        ("connected", "", 12.34, "ok", "round trip 12.3 ms"),
        ("connected", "", None, "ok", "connected"),
        ("connected", "", 900.0, "warn", "round trip 900.0 ms"),
        ("away", "It can't be reached.", None, "warn", "away: It can't"),
        ("refused", "The tokenizers differ.", None, "wrong", "The tokenizers differ."),
        ("off", "No cloud is configured.", None, "ok", "No cloud is configured."),
    ],
)
def test_the_link(state: str, detail: str, trip: float | None, level: str, text: str) -> None:
    finding = check_link(state, detail, trip)
    assert (finding.level, finding.topic) == (level, "link")
    assert text in finding.text
    assert bool(finding.remedy) == (level != "ok")


def test_the_library(made: Made) -> None:
    settings = made()
    tell(check_library(settings, "device", 1, 2000, 0, "mini", "mini"), "ok", "1 document, 2,000 chunks")
    tell(check_library(settings, "device", 0, 0, 0), "warn", "no documents", "`dragon library add FOLDER`")
    tell(check_library(settings, "cloud", 0, 0, 0), "warn", "no documents", "--role cloud")
    tell(check_library(settings, "device", 3, 9, 2), "warn", "2 documents could not", "library status")
    tell(check_library(settings, "device", 1, 1, 0, "mini", "new"), "wrong", "new is configured", "--rebuild FOLDER")
    tell(check_library(settings, "device", 1, 1, 0, None, "new"), "ok", "1 document, 1 chunk")


@pytest.mark.parametrize(
    ("finding", "level", "text", "remedy"),
    [
        (check_port(Port("u", "free"), "device"), "ok", "u is free; `dragon device` starts", ""),
        (check_port(Port("u", "daemon"), "cloud"), "ok", "the daemon answers at u", ""),
        (check_port(Port("u", "locked", "no key"), "device"), "wrong", "this user's key: no key", "another user"),
        (
            check_port(Port("u", "unproven", "expired"), "device"),
            "wrong",
            "not this machine's daemon: expired",
            "restart the daemon",
        ),
        (
            check_port(Port("u", "silent"), "device"),
            "wrong",
            "accepts connections and does not answer",
            "set another port",
        ),
        (check_port(Port("u", "taken"), "cloud"), "wrong", "another program", "set another bind"),
        (check_port(Port("u", "unusable", "no such host"), "device"), "wrong", "no such host", "host or port"),
        (check_model_files(Model("model", "/m/x.gguf", "there", 98 * 10**6)), "ok", "98 MB", ""),
        (
            check_model_files(Model("model", "x.gguf", "importable", 98 * 10**6)),
            "ok",
            "converted at the first start",
            "",
        ),
        (check_model_files(Model("model", "a/b", "remote")), "warn", "downloads it", "be online"),
        (check_model_files(Model("tokenizer", "/t", "there")), "ok", "tokenizer /t: it is there", ""),
        (
            check_model_files(Model("draft_model", "/m", "wrong", problem="gone")),
            "wrong",
            "draft_model /m: gone",
            "draft_model",
        ),
        (*check_packages([Package("a", ">=1", "1.2", True)]), "ok", "1 are installed", ""),
        (*check_packages([Package("a", ">=1", None, False)]), "wrong", "a is missing", "pip install 'a>=1'"),
        (
            *check_packages([Package("a", ">=2", "1", False)]),
            "warn",
            "a 1 is installed, and this release was made for >=2",
            "pip install 'a>=2'",
        ),
    ],
)
def test_a_finding(finding: Finding, level: str, text: str, remedy: str) -> None:
    tell(finding, level, text, remedy)


@pytest.mark.parametrize(
    ("free", "models", "processes", "level"),
    [
        (9 * GB, [], 1, "ok"),
        (2 * GB, [], 1, "warn"),
        (GB // 2, [], 1, "wrong"),
        (9 * GB, [Model("model", "m", "there", 9 * GB)], 1, "wrong"),
        (9 * GB, [Model("model", "m", "importable", 3 * GB)], 1, "wrong"),
        (9 * GB, [Model("local_target", "m", "there", 90 * GB, memory=GB)], 1, "ok"),
        (9 * GB, [Model("model", "m", "there", GB)], 1, "ok"),
        (5 * GB, [Model("model", "m", "there", GB)], 1, "ok"),
        (5 * GB, [Model("model", "m", "there", GB), Model("draft_model", "d", "there")], 1, "warn"),
        (
            7 * GB,
            [
                Model("model", "m", "there", GB),
                Model("draft_model", "d", "there", GB),
                Model("local_target", "t", "there", 90 * GB, memory=GB),
            ],
            1,
            "ok",
        ),
        (9 * GB, [Model("model", "m", "there", GB)], 5, "warn"),
        (9 * GB, [Model("model", "m", "there", GB)], 9, "wrong"),
        (9 * GB, [Model("model", "m", "there", 90 * GB)], 0, "ok"),  # which others have
    ],
)
def test_memory(
    made: Made, monkeypatch: pytest.MonkeyPatch, free: int, models: list[Model], processes: int, level: str
) -> None:
    monkeypatch.setattr(on_models, "memory", lambda: Memory(8 * GB, free))
    memory = check_memory(made(), models, processes)
    assert (memory.topic, memory.level) == ("memory", level)
    assert bool(memory.remedy) == (level != "ok")
    on_gpu = check_memory(made(torch_device="cuda"), models, processes)
    assert (on_gpu.level, "the models use GPU memory" in on_gpu.text) == ("ok", True)


class Disk(NamedTuple):
    free: int


@pytest.mark.parametrize(("free", "level"), [(2 * GB, "ok"), (GB // 2, "warn"), (10**6, "wrong")])
def test_disk(made: Made, monkeypatch: pytest.MonkeyPatch, free: int, level: str) -> None:
    settings = made()
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: Disk(free))
    disk = check_disk(settings)
    assert (disk.topic, disk.level, bool(disk.remedy)) == ("disk", level, level != "ok")
    assert f"free in {settings.data}" in disk.text


def test_a_clock_that_stands_before_the_first_release() -> None:
    (clock,) = check_clock(1970)
    assert (clock.level, "1970" in clock.text) == ("warn", True)
    assert not [*check_clock(2026)]


def test_sizes() -> None:
    assert [in_bytes(size) for size in (900, 9_400_000, 98_000_000, 1_640_000_000, 27 * GB)] == [
        "1 kB",
        "9.4 MB",
        "98 MB",
        "1.6 GB",
        "27 GB",
    ]


def test_formats(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing program is no fault; the text says how to get it."""
    for scans, program, text in (
        (
            False,
            "",
            "scanned pages are not read without `pip install 'dragon-runtime[ocr]'`; .doc and .ppt are not read",
        ),
        (True, "/bin/soffice", "scanned pages are read by rapidocr; .doc, .ppt and .xls by /bin/soffice"),
    ):
        monkeypatch.setattr(checks, "can_read_scans", lambda scans=scans: scans)
        monkeypatch.setattr(checks, "converter", lambda program=program: program)
        found = checks.check_formats()
        assert (found.level, found.topic, found.remedy) == ("ok", "formats", "")
        assert found.text.startswith(text)
