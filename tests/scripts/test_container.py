"""Container files, by what they run and name: real keys, real daemons, and the options that the program has."""

from __future__ import annotations

import re
import shlex
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from cloud.settings import CloudSettings
from common.configuration.configuration import load_settings
from common.configuration.flags import parse_flags
from common.configuration.settings import Settings
from common.transport.keys import KeyFolder
from device.settings import DeviceSettings
from scripts.daemons import ROOT, Pair, exchange_keys
from tests.daemons.conftest import fresh_data, libraries, starts
from tests.device.access.certificates import tls_files

__all__ = ["fresh_data", "libraries", "starts"]

FOLDER = ROOT / "scripts" / "container"
CONTAINERFILE = (FOLDER / "Containerfile").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
GATEWAY: dict[str, Any] = yaml.safe_load((FOLDER / "compose.gateway.yaml").read_text())

pytestmark = pytest.mark.timeout(400)


def health(*ports: int) -> int:
    command = [sys.executable, "-I", str(FOLDER / "health.py"), *map(str, ports)]
    return subprocess.run(command, check=False, stdin=subprocess.DEVNULL).returncode


@contextmanager
def answering(said: bytes) -> Iterator[int]:
    """The port of something that says that to whoever comes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with closing(connection):
                    connection.sendall(said)

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


class Healthy(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()


def closed_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port: int = unused.getsockname()[1]
        return port


def test_pairing_gives_each_side_the_other_s_key_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DRAGON_DEVICE_MODEL", "DRAGON_CLOUD_MODEL"):
        monkeypatch.delenv(name, raising=False)
    binaries = tmp_path / "bin"
    binaries.mkdir()
    dragon = binaries / "dragon"
    dragon.write_text(f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(ROOT))} exec {sys.executable} -m device.cli.main "$@"\n')
    dragon.chmod(0o755)
    monkeypatch.setenv("PATH", f"{binaries}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path))
    sides = [tmp_path / side for side in ("device", "cloud")]
    keys = [KeyFolder(side / side.name / "keys") for side in sides]
    seen = []
    for _ in range(2):
        subprocess.run([FOLDER / "pair.sh", *sides], check=True, cwd=tmp_path)
        seen.append([folder.own().public for folder in keys])
        for folder, other, (name, public) in zip(
            keys, reversed(seen[-1]), (("cloud", seen[-1][1]), ("device", seen[-1][0])), strict=True
        ):
            assert public == other
            assert [(peer.name, peer.key) for peer in folder.trusted()] == [(name, public)]
    assert seen[0] == seen[1], "a second time makes no other keys"
    shutil.rmtree(sides[0] / "device")  # as a volume that is removed
    subprocess.run([FOLDER / "pair.sh", *sides], check=True, cwd=tmp_path)
    assert [peer.key for peer in keys[1].trusted()] == [keys[0].own().public] != [seen[0][0]]


def test_health_of_real_daemons(fresh_data: Callable[[], Path]) -> None:
    data = fresh_data()
    exchange_keys(data)  # as between containers
    with Pair(data) as pair:
        assert health(pair.http_port, closed_port()) == 0
        assert health(closed_port(), pair.cloud_port) == 0
        assert health(pair.cloud_port, pair.cloud_port) == 1, "a cloud is no device"
    assert health(pair.http_port, pair.cloud_port) == 1


def test_a_device_that_is_healthy_by_https(tmp_path: Path) -> None:
    """Whatever the names in its certificate are."""
    files = tls_files(tmp_path, "dragon.example")
    server = HTTPServer(("127.0.0.1", 0), Healthy)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        assert health(server.server_port, closed_port()) == 0
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    "said", [b"", b"HTTP/1.1 503 Service Unavailable\r\n\r\n", b"\xff" * 10], ids=["nothing", "stopping", "other"]
)
def test_what_serves_nothing_is_not_healthy(said: bytes) -> None:
    with answering(said) as port:
        assert health(port, closed_port()) == 1
        assert health(closed_port(), port) == 1


@pytest.mark.parametrize(
    ("compose", "role", "kind"),
    [(COMPOSE, "device", DeviceSettings), (COMPOSE, "cloud", CloudSettings), (GATEWAY, "cloud", CloudSettings)],
    ids=["device", "cloud", "gateway"],
)
def test_services_run_with_settings_that_there_are(compose: dict[str, Any], role: str, kind: type[Settings]) -> None:
    command, *flags = compose["services"][role]["command"]
    assert command == role
    _, given = parse_flags(kind, flags)
    assert load_settings(kind, overrides=given)


def test_nobody_else_reaches_them() -> None:
    services = COMPOSE["services"]
    assert [each["ports"] for each in services.values() if "ports" in each] == [["127.0.0.1:8600:8600"]]
    assert services["keys"]["network_mode"] == "none"
    assert COMPOSE["networks"]["link"]["internal"] is True and services["cloud"]["networks"] == ["link"]
    mounted = {role: {volume.split(":")[0] for volume in services[role]["volumes"]} for role in ("device", "cloud")}
    assert not mounted["device"] & mounted["cloud"]


def test_metrics_are_scraped_where_they_are_and_by_nobody_else() -> None:
    services, networks = GATEWAY["services"], COMPOSE["networks"] | GATEWAY["networks"]
    scrapes = yaml.safe_load(GATEWAY["configs"]["scrapes"]["content"])["scrape_configs"]
    places = {job["static_configs"][0]["targets"][0] for job in scrapes}
    _, given = parse_flags(CloudSettings, services["cloud"]["command"][1:])
    _, own = parse_flags(DeviceSettings, COMPOSE["services"]["device"]["command"][1:])
    cloud, device = load_settings(CloudSettings, overrides=given), load_settings(DeviceSettings, overrides=own)
    assert cloud.metrics is not None
    assert places == {f"cloud:{cloud.metrics.rpartition(':')[2]}", f"device:{device.port}"}
    inside = {name for name, each in services.items() if "metrics" in each["networks"]}
    assert networks["metrics"]["internal"] is True and inside == {"cloud", "device", "prometheus", "grafana"}
    assert set(COMPOSE["services"]["cloud"]["networks"]) <= set(services["cloud"]["networks"])
    assert [each["ports"] for each in services.values() if "ports" in each] == [["127.0.0.1:3000:3000"]]


def test_the_dashboard_is_the_one_that_is_documented() -> None:
    mounted = [volume.split(":") for volume in GATEWAY["services"]["grafana"]["volumes"]]
    (source, target) = next((each[0], Path(each[1])) for each in mounted if each[0].startswith("."))
    assert (FOLDER / source).resolve() == ROOT / "docs" / "monitoring" / "grafana.json"
    provider = yaml.safe_load(GATEWAY["configs"]["dashboards"]["content"])["providers"][0]
    assert Path(provider["options"]["path"]) == target.parent
    known = {name for each in (COMPOSE, GATEWAY) for name in each.get("configs", {})}
    assert {each["source"] for service in GATEWAY["services"].values() for each in service.get("configs", [])} == known


def test_files_that_are_copied_are_there_and_let_in() -> None:
    own = [line.split()[1:-1] for line in CONTAINERFILE.splitlines() if re.match(r"COPY (?!--from)", line)]
    named = [name for names in own for name in names if not name.startswith("--")]
    assert len(named) > 8
    let_in = (FOLDER / "Containerfile.dockerignore").read_text().splitlines()
    for name in named:
        assert (ROOT / name).exists(), name
        patterns = [line[1:] for line in let_in if line.startswith("!")]
        assert any(Path(name).match(pattern) or name.startswith(f"{pattern}/") for pattern in patterns), name
