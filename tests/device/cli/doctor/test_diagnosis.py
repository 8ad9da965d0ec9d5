"""`dragon doctor` on real folders, ports and servers."""

from __future__ import annotations

import json
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import zmq

from common.configuration.settings import EMBEDDED_MODEL, EMBEDDED_TOKENIZER
from common.library import checkpoint
from common.library.embedder import SentenceTransformerEmbedder
from common.library.library import Library
from common.transport.keys import KeyFolder
from device.access.admission import ApiKeyGate
from device.access.api_keys import ApiKeyFiles
from device.cli.doctor import ports
from device.doctor import packages
from device.doctor.checks import in_bytes
from device.settings import DeviceSettings
from tests.common.engine.model.gguf_file import write_gguf
from tests.common.library.toy_embedder import ToyEmbedder
from tests.device.access.certificates import tls_files
from tests.device.cli.conftest import Dragon, closed_port
from tests.device.conftest import Serve
from tests.device.table_engine import TableEngine

Diagnose = Callable[..., dict[str, tuple[str, str]]]


# What the same packages and the same model's files come to, without tenths of a second in every diagnosis.
packages_once, identity_once = cache(packages.packages), cache(checkpoint.identity)


@pytest.fixture
def diagnose(dragon: Dragon, monkeypatch: pytest.MonkeyPatch) -> Diagnose:
    """Runs the command, on free ports unless settings say otherwise; level and text of each topic."""
    monkeypatch.setattr("device.cli.doctor.diagnosis.packages", packages_once)
    monkeypatch.setattr(checkpoint, "identity", identity_once)

    def run(*arguments: str, **settings: object) -> dict[str, tuple[str, str]]:
        ports = {
            "DEVICE_PORT": closed_port(),
            "DEVICE_CLOUD": f"tcp://127.0.0.1:{closed_port()}",
            "CLOUD_BIND": f"tcp://127.0.0.1:{closed_port()}",
        }
        environment = {f"DRAGON_{name}": str(value) for name, value in (ports | settings).items()}
        done = dragon("doctor", "--json", *arguments, **environment)
        found = json.loads(done.stdout)["findings"]
        assert done.returncode == any(each["level"] == "wrong" for each in found), done
        return {each["topic"]: (each["level"], each["text"]) for each in found}

    return run


def test_a_fresh_machine_is_well_but_for_what_is_not_started(diagnose: Diagnose, tmp_path: Path) -> None:
    for role in ("device", "cloud"):
        found = diagnose("--role", role)
        assert not [topic for topic, (level, _) in found.items() if level == "wrong"], found
        assert "there is no " in found["settings"][1]
        assert found["keys"][0] == found["port"][0] == found["model"][0] == found["packages"][0] == "ok"
        assert found["library"][0] == "warn"
    assert not (tmp_path / "dragon").exists(), "nothing is changed"


def test_the_last_start_is_told_by_stages(diagnose: Diagnose, tmp_path: Path) -> None:
    file = DeviceSettings(data_dir=tmp_path / "dragon").last_start("device")
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"stages": [["importing", 4.0], ["loading", 2.25]]}))
    assert diagnose()["start"] == ("ok", "the last one took 6.2 s: importing 4.0, loading 2.2")


def test_lines_for_people(dragon: Dragon) -> None:
    done = dragon("doctor", DRAGON_DEVICE_PORT="0", DRAGON_DEVICE_CLOUD="none")
    assert done.returncode == 0, done
    assert "ok     keys      no keys are needed: no cloud takes part\n" in done.stdout
    assert "\nwarn   library   " in done.stdout
    assert "                 → add some with `dragon library add FOLDER`\n" in done.stdout


@pytest.mark.parametrize("role", ["device", "cloud"])
def test_settings(diagnose: Diagnose, tmp_path: Path, role: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("threads = 1\n")
    assert diagnose("--role", role, "--config", str(file))["settings"] == ("ok", f"read from {file}")
    file.write_text("treads = 1\n")
    found = diagnose("--role", role, "--config", str(file))
    assert found["settings"][0] == "wrong" and "did you mean 'threads'" in found["settings"][1]
    assert found.keys() == {"settings", "packages", "formats"}
    level, text = diagnose("--role", role, "--config", "n" * 300)["settings"]
    assert (level, "can't be read: file name too long" in text) == ("wrong", True)


class TestKeys:
    def test_of_a_device(self, diagnose: Diagnose, tmp_path: Path) -> None:
        far = f"tcp://localhost.localdomain:{closed_port()}"  # not known to be loopback
        assert diagnose(DEVICE_CLOUD=far)["keys"][0] == "wrong"
        folder = KeyFolder(tmp_path / "dragon" / "device" / "keys")
        folder.new()
        level, text = diagnose(DEVICE_CLOUD=far)["keys"]
        assert (level, "The cloud's key is not known" in text) == ("wrong", True)
        folder.trust("cloud", KeyFolder(tmp_path / "other").new().public)
        level, text = diagnose(DEVICE_CLOUD=far)["keys"]
        assert (level, "trusted: cloud" in text) == ("ok", True)
        (folder.path / "own.json").chmod(0o644)
        level, text = diagnose(DEVICE_CLOUD=far)["keys"]
        assert (level, "Others can read" in text) == ("wrong", True)

    def test_of_a_cloud(self, diagnose: Diagnose, tmp_path: Path) -> None:
        bind = f"tcp://0.0.0.0:{closed_port()}"
        assert diagnose("--role", "cloud", CLOUD_BIND=bind)["keys"][0] == "wrong"
        folder = KeyFolder(tmp_path / "dragon" / "cloud" / "keys")
        folder.new()
        level, text = diagnose("--role", "cloud", CLOUD_BIND=bind)["keys"]
        assert (level, "nobody can connect" in text) == ("wrong", True)
        folder.trust("laptop", KeyFolder(tmp_path / "other").new().public)
        assert "trusted: laptop" in diagnose("--role", "cloud", CLOUD_BIND=bind)["keys"][1]

    def test_shared_ones_that_others_can_reach(self, diagnose: Diagnose, tmp_path: Path) -> None:
        shared = tmp_path / "shared"
        shared.mkdir(mode=0o755)
        shared.chmod(0o755)
        level, text = diagnose(DEVICE_LOCAL_KEYS=shared)["keys"]
        assert (level, "chmod 700" in text) == ("wrong", True)

    def test_none(self, diagnose: Diagnose) -> None:
        assert "not encrypted" in diagnose(DEVICE_CURVE="off")["keys"][1]
        assert "no keys are needed" in diagnose(DEVICE_PRIVACY="offline")["keys"][1]


class TestAccess:
    def test_keys(self, diagnose: Diagnose, tmp_path: Path) -> None:
        own = ApiKeyFiles(tmp_path / "dragon" / "device" / "keys")
        assert diagnose()["access"] == (
            "ok",
            "127.0.0.1 is open to every program of this machine: there are no API keys",
        )
        assert diagnose(DEVICE_HOST="0.0.0.0")["access"][0] == "wrong"
        assert diagnose(DEVICE_HOST="0.0.0.0", DEVICE_INSECURE="true")["access"][0] == "warn"
        own.create("laptop")
        assert diagnose(DEVICE_HOST="0.0.0.0")["access"] == ("ok", "0.0.0.0 is open to 1 API key: laptop")
        own.path.write_text("{")
        level, text = diagnose()["access"]
        assert (level, "are damaged: delete that file" in text) == ("wrong", True)

    def test_certificates(self, diagnose: Diagnose, tmp_path: Path) -> None:
        assert "tls" not in diagnose()
        assert diagnose(DEVICE_HOST="0.0.0.0", DEVICE_INSECURE="true")["tls"][0] == "warn"
        for days, level, text in (
            (90, "ok", "is valid for 89 days"),
            (9, "warn", "in 8 days"),
            (-1, "wrong", "expired"),
        ):
            files = tls_files(tmp_path, "device.example", days=(-9, days))
            found = diagnose(DEVICE_TLS_CERTIFICATE=files.certificate, DEVICE_TLS_KEY=files.key)["tls"]
            assert (found[0], text in found[1]) == (level, True), found
        files.key.unlink()
        found = diagnose(DEVICE_TLS_CERTIFICATE=files.certificate, DEVICE_TLS_KEY=files.key)["tls"]
        assert (found[0], "can't be read" in found[1]) == ("wrong", True)

    def test_the_cloud_has_no_http(self, diagnose: Diagnose) -> None:
        assert not {"access", "tls"} & diagnose("--role", "cloud").keys()


class TestPorts:
    def test_a_device_daemon(self, diagnose: Diagnose, serve: Serve, tmp_path: Path) -> None:
        own = ApiKeyFiles(tmp_path / "dragon" / "device" / "keys")
        own.create("laptop")
        url = serve(admission=ApiKeyGate(own)).url
        port = url.rpartition(":")[2]
        found = diagnose(DEVICE_PORT=port)
        assert found["port"] == ("ok", f"the daemon answers at {url}")
        assert found["link"][0] == "ok" and "memory" not in found
        level, text = diagnose(DEVICE_PORT=port, DEVICE_KEYS=tmp_path / "other")["port"]
        assert (level, "refuses this user's key" in text) == ("wrong", True)

    def test_a_device_daemon_with_a_certificate(self, diagnose: Diagnose, serve: Serve, tmp_path: Path) -> None:
        files, other = tls_files(tmp_path / "a", "device.example"), tls_files(tmp_path / "b", "device.example")
        url = serve(tls=files).url
        port = url.rpartition(":")[2]
        for each, level in ((files, "ok"), (other, "wrong")):
            found = diagnose(DEVICE_PORT=port, DEVICE_TLS_CERTIFICATE=each.certificate, DEVICE_TLS_KEY=each.key)
            assert found["port"][0] == level and url in found["port"][1]
        assert "not this machine's daemon" in found["port"][1]

    def test_another_program(self, diagnose: Diagnose) -> None:
        with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as other, ThreadPoolExecutor(1) as pool:
            served = pool.submit(other.handle_request)
            level, text = diagnose(DEVICE_PORT=other.server_port)["port"]
            assert (level, "is in use by another program" in text) == ("wrong", True)
            served.result()

    def test_a_daemon_that_is_suspended(self, diagnose: Diagnose, monkeypatch: pytest.MonkeyPatch) -> None:
        """The system takes connections for it."""
        monkeypatch.setattr(ports, "PATIENCE", 0.2)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            cloud = f"tcp://127.0.0.1:{port}"
            for found in (diagnose(DEVICE_PORT=port), diagnose("--role", "cloud", CLOUD_BIND=cloud)):
                assert (found["port"][0], "does not answer" in found["port"][1]) == ("wrong", True)

    def test_a_daemon_that_hangs_behind_its_port(
        self, diagnose: Diagnose, serve: Serve, engine: TableEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("device.cli.daemon.SILENCE_PATIENCE", 0.2)
        go_on = threading.Event()
        monkeypatch.setattr(engine, "status", go_on.wait)
        level, text = diagnose(DEVICE_PORT=serve().url.rpartition(":")[2])["port"]
        go_on.set()
        assert (level, "does not answer" in text) == ("wrong", True)

    def test_an_address_of_another_machine(self, diagnose: Diagnose) -> None:
        level, text = diagnose(DEVICE_HOST="203.0.113.1", DEVICE_INSECURE="true")["port"]
        assert (level, "can't listen at" in text) == ("wrong", True)
        level, text = diagnose("--role", "cloud", CLOUD_BIND="tcp://203.0.113.1:8601")["port"]
        assert (level, "can't listen at" in text) == ("wrong", True)

    def test_a_cloud_daemon_and_another_program(self, diagnose: Diagnose, listening: int) -> None:
        bind = f"tcp://127.0.0.1:{listening}"
        assert diagnose("--role", "cloud", CLOUD_BIND=bind)["port"] == ("ok", f"the daemon answers at {bind}")
        assert diagnose(DEVICE_CLOUD=bind)["cloud"] == ("ok", f"{bind} accepts connections")
        with socket.create_server(("127.0.0.1", 0)) as other:
            bind = f"tcp://127.0.0.1:{other.getsockname()[1]}"
            other.close()
        assert diagnose(DEVICE_CLOUD=bind)["cloud"][0] == "warn"

    def test_a_name_that_nobody_knows(self, diagnose: Diagnose) -> None:
        level, text = diagnose(DEVICE_CLOUD="tcp://nowhere.invalid:8601")["cloud"]
        assert (level, "nowhere.invalid:8601 can't be resolved" in text) == ("wrong", True)

    @pytest.fixture
    def listening(self) -> Iterator[int]:
        """The port of a ZeroMQ socket, as a cloud's is."""
        with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
            yield router.bind_to_random_port("tcp://127.0.0.1")


class TestModels:
    def test_a_folder(self, diagnose: Diagnose, tmp_path: Path) -> None:
        copy = shutil.copytree(EMBEDDED_MODEL, tmp_path / "mine")
        size = (copy / "model.safetensors").stat().st_size
        assert diagnose(DEVICE_MODEL=copy)["model"] == ("ok", f"model mine: {in_bytes(size)}")
        (copy / "model.safetensors").unlink()
        level, text = diagnose(DEVICE_MODEL=copy)["model"]
        assert (level, "no safetensors weights" in text) == ("wrong", True)
        level, text = diagnose(DEVICE_MODEL=tmp_path / "gone")["model"]
        assert (level, "no such folder" in text) == ("wrong", True)

    def test_a_gguf_file(self, diagnose: Diagnose, tmp_path: Path) -> None:
        file = tmp_path / "Tiny.gguf"
        assert diagnose(DEVICE_MODEL=file)["model"][0] == "wrong"
        write_gguf(file)
        level, text = diagnose(DEVICE_MODEL=file)["model"]
        assert (level, "converted at the first start" in text) == ("ok", True)

    def test_a_hub_id_is_not_asked_for(self, diagnose: Diagnose) -> None:
        for setting, topic in (("MODEL", "model"), ("TOKENIZER", "tokenizer"), ("EMBEDDER", "embedder")):
            level, text = diagnose(**{f"DEVICE_{setting}": "nobody/nothing-7B"})[topic]
            assert (level, "the first start downloads it" in text) == ("warn", True)

    def test_a_tokenizer(self, diagnose: Diagnose, tmp_path: Path) -> None:
        assert diagnose(DEVICE_TOKENIZER=EMBEDDED_TOKENIZER)["tokenizer"][0] == "ok"
        (tmp_path / "empty").mkdir()
        for name, problem in (("empty", "no tokenizer (tokenizer.json)"), ("gone", "no such folder")):
            level, text = diagnose("--role", "cloud", CLOUD_TOKENIZER=tmp_path / name)["tokenizer"]
            assert (level, problem in text) == ("wrong", True)

    def test_a_cross_encoder(self, diagnose: Diagnose, tmp_path: Path) -> None:
        folder = tmp_path / "judge"
        settings = {"DEVICE_SCORER": "cross-encoder", "DEVICE_SCORER_MODEL": folder}
        level, text = diagnose(**settings)["scorer"]
        assert (level, "is neither a folder here nor" in text or "no such folder" in text) == ("wrong", True)
        folder.mkdir()
        level, text = diagnose(**settings)["scorer"]
        assert (level, "is neither a cross-encoder" in text) == ("wrong", True)
        (folder / "config.json").write_text('{"architectures": ["BertForSequenceClassification"]}')
        level, text = diagnose(**settings)["scorer"]
        assert (level, "no safetensors weights" in text) == ("wrong", True)
        (folder / "model.safetensors").write_bytes(bytes(3000))
        assert diagnose(**settings)["scorer"] == ("ok", f"scorer_model {folder}: 3 kB")
        level, text = diagnose(**settings | {"DEVICE_SCORER": "static"})["scorer"]
        assert (level, "it is for scorer = 'cross-encoder'" in text) == ("wrong", True)
        level, text = diagnose(**settings | {"DEVICE_SCORER_MODEL": "nobody/nothing"})["scorer"]
        assert (level, "the first start downloads it" in text) == ("warn", True)

    def test_workers_have_one_each(self, diagnose: Diagnose) -> None:
        assert "; the daemon takes about" in diagnose("--role", "cloud")["memory"][1]
        assert "; the 3 workers take about" in diagnose("--role", "cloud", CLOUD_WORKERS=3)["memory"][1]
        elsewhere = diagnose("--role", "cloud", CLOUD_WORKERS=99, CLOUD_RAY="192.0.2.7:6379")
        assert elsewhere["memory"][1].endswith("; the daemon takes about 734 MB")


class TestLibrary:
    @staticmethod
    def filled(folder: Path, identity: str) -> Path:
        documents = folder / "documents"
        documents.mkdir()
        (documents / "note.md").write_text("The kettle is in the kitchen.")
        (documents / "broken.pdf").write_text("no pdf")
        with Library(folder / "library", ToyEmbedder(identity)) as library:
            library.add(documents / "note.md")
        return folder / "library"

    def test_counts_and_the_embedder(self, diagnose: Diagnose, tmp_path: Path) -> None:
        library = self.filled(tmp_path, SentenceTransformerEmbedder().identity)
        before = {path: path.read_bytes() for path in library.rglob("*") if path.is_file()}
        assert diagnose(DEVICE_LIBRARY=library)["library"] == ("ok", f"{library}: 1 document, 1 chunk")
        assert {path: path.read_bytes() for path in library.rglob("*") if path.is_file()} == before
        with Library(library, ToyEmbedder(SentenceTransformerEmbedder().identity)) as changed:
            changed.add(tmp_path / "documents")
        level, text = diagnose(DEVICE_LIBRARY=library)["library"]
        assert (level, "1 document could not be read" in text) == ("warn", True)

    def test_of_another_embedder(self, diagnose: Diagnose, tmp_path: Path) -> None:
        library = self.filled(tmp_path, "toy")
        level, text = diagnose(DEVICE_LIBRARY=library)["library"]
        assert (level, "embedded with toy, and " in text) == ("wrong", True)
        found = diagnose(DEVICE_LIBRARY=library, DEVICE_EMBEDDER=str(tmp_path / "gone"))
        assert found["embedder"][0] == "wrong" and found["library"][0] == "ok"

    @pytest.mark.parametrize("damage", [(b"note.md", b"nope.md"), (b"kitchen", b"chicken"), (bytes(4000), b"x" * 4000)])
    def test_damaged(self, diagnose: Diagnose, tmp_path: Path, damage: tuple[bytes, bytes]) -> None:
        library = self.filled(tmp_path, "toy")
        database = library / "library.sqlite"
        database.write_bytes(database.read_bytes().replace(*damage))
        level, text = diagnose(DEVICE_LIBRARY=library)["library"]
        assert (level, "is damaged" in text) == ("wrong", True)


@pytest.mark.parametrize(
    ("setting", "topic"), [("LIBRARY", "library"), ("KEYS", "keys"), ("LOCAL_KEYS", "keys"), ("MODEL", "model")]
)
def test_what_the_system_refuses_to_read(diagnose: Diagnose, tmp_path: Path, setting: str, topic: str) -> None:
    place = tmp_path / ("x" * 300)  # longer than a name may be
    level, text = diagnose(**{f"DEVICE_{setting}": f"{place}.gguf" if topic == "model" else place})[topic]
    assert (level, "name too long" in text) == ("wrong", True)


def test_a_data_folder_that_is_not_there_yet(diagnose: Diagnose, tmp_path: Path) -> None:
    assert diagnose(DEVICE_DATA=tmp_path / "a" / "b")["disk"][1].endswith(f" free in {tmp_path}/a/b")


class TestPackages:
    def test_every_one_of_pyproject_is_there(self) -> None:
        found = {each.name: each for each in packages.packages()}
        assert all(each.fits for each in found.values())
        assert {"Python", "torch", "typer", "pyzmq"} <= found.keys() and "pytest" not in found

    def test_missing_and_too_old_ones(self, monkeypatch: pytest.MonkeyPatch) -> None:
        version = metadata.version

        def other(name: str) -> str:
            if name == "lxml":
                raise metadata.PackageNotFoundError(name)
            return "0.1" if name == "typer" else version(name)

        monkeypatch.setattr(metadata, "version", other)
        bad = {each.name: each.installed for each in packages.packages() if not each.fits}
        assert bad == {"lxml": None, "typer": "0.1"}

    def test_an_installation_says_it_by_its_metadata(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(packages, "ROOT", tmp_path)
        found: dict[str, Any] = {each.name: each.wanted for each in packages.packages()}
        assert found["torch"] and "pytest" not in found
