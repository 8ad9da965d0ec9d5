"""Daemons that are told to stop end in order and within two seconds, whatever they are doing, and leave nothing."""

from __future__ import annotations

import json
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import filelock
import httpx
import psutil
import pytest

from common.library.commands import DONE, add_documents
from device.http.tokens import LONGEST_TEXT
from device.settings import DeviceSettings
from scripts.daemons import PATIENTLY, Daemon, Pair, free_port
from tests.common.engine.model.gguf_file import write_gguf
from tests.common.process.test_child import ENDLESS, gone
from tests.common.processors.schemas import COSTLY
from tests.daemons.ending import Ended, end
from tests.daemons.streaming import PATIENCE, TRIES, wait_until
from tests.daemons.wordy_model import SCORER, make_wordy_model

pytestmark = pytest.mark.timeout(400)

SOON = 20.0  # seconds until what a daemon leaves behind has ended, which otherwise never would
QUESTION = "Where is my dance class, and what could help me with my health problem?"
BODY: dict[str, Any] = {"model": "dragon", "messages": [{"role": "user", "content": QUESTION}]}
STEP_MS = 20.0
READ = 300.0  # seconds until a watched folder is read: that process lets everybody else go first
ENDLESS_ANSWER = 500  # tokens
TOGETHER = 16
STUCK_BYTES = 2**20
HOLD_OUT = 60.0  # seconds, a device's patience: whatever comes earlier did not come by it
GO_ON = 40.0


def children(daemon: Daemon) -> list[psutil.Process]:
    assert daemon.process is not None
    found: list[psutil.Process] = psutil.Process(daemon.process.pid).children(recursive=True)
    return found


def child(daemon: Daemon, module: str) -> psutil.Process | None:
    """The child of the daemon, or of one of its children, that runs `module`."""
    for each in children(daemon):
        with suppress(psutil.Error):
            if module in each.cmdline():
                return each
    return None


def maps(process: psutil.Process, name: str) -> bool:
    """Whether files of that name are in its memory."""
    return any(name in each.path for each in process.memory_maps())


def all_gone(processes: list[psutil.Process]) -> None:
    wait_until(lambda: all(gone(each) for each in processes), "the children have ended", SOON)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    return {"model": make_wordy_model(tmp_path_factory.mktemp("model")), "scorer": SCORER, "threads": 1}


@pytest.fixture
def alone(fresh_data: Callable[[], Path], model: dict[str, object]) -> Iterator[Callable[..., Daemon]]:
    """Makes a device without a cloud; it is started, and ended at last."""
    with ExitStack() as stack:

        def device(**flags: object) -> Daemon:
            data = fresh_data()
            settings = model | {"port": free_port(), "cloud": "none"} | flags
            daemon = Daemon("device", data, settings, data / "device.log")
            daemon.start()
            stack.callback(daemon.stop)
            return daemon

        yield device


@pytest.fixture
def pair(fresh_data: Callable[[], Path], model: dict[str, object]) -> Iterator[Pair]:
    slow = model | {"emulate_decode_ms": STEP_MS}
    with Pair(fresh_data(), slow | {"patience": HOLD_OUT, "privacy": "balanced"}, slow) as pair:
        yield pair


def url(daemon: Daemon) -> str:
    return f"http://127.0.0.1:{daemon.flags['port']}"


@contextmanager
def asking(daemon: Daemon, path: str, body: dict[str, Any]) -> Iterator[Future[httpx.Response]]:
    """A request under way; inside, and until it is answered."""
    with ThreadPoolExecutor(1) as pool, httpx.Client(base_url=url(daemon), timeout=PATIENCE, trust_env=False) as client:
        yield pool.submit(client.post, path, json=body)


class Reader:
    """A streamed answer that a thread reads to whatever end it has."""

    def __init__(self, url: str) -> None:
        self.pieces = 0
        self.last: list[str] = []  # events
        self.broken: Exception | None = None
        self._thread = threading.Thread(target=self._read, args=(url,), daemon=True)
        self._thread.start()

    def wait(self) -> None:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def _read(self, url: str) -> None:
        body = BODY | {"stream": True, "max_tokens": ENDLESS_ANSWER, "temperature": 1.0, "seed": 1}
        try:
            with (
                httpx.Client(base_url=url, timeout=PATIENCE, trust_env=False) as client,
                client.stream("POST", "/v1/chat/completions", json=body) as response,
            ):
                for line in response.iter_lines():
                    if line.startswith("data: "):
                        self.pieces += 1
                        self.last = [*self.last, line.removeprefix("data: ")][-2:]
        except httpx.HTTPError as error:
            self.broken = error

    def check_that_it_was_told(self, ended: Ended) -> None:
        """That the stream came to an end, with the reason, unless the machine took the time for that away."""
        self.wait()
        if self.broken is not None:
            assert ended.starved, (self.broken, ended)
            return
        (error,) = (json.loads(event)["error"] for event in self.last if '"error"' in event)
        assert error["code"] == "stopping"


def check_refused(answer: Future[httpx.Response], ended: Ended) -> None:
    """That a client was told, unless the machine took the time away that is there for that."""
    try:
        response = answer.result(PATIENCE)
    except (httpx.RemoteProtocolError, httpx.ReadError):
        assert ended.starved, ended
        return
    assert (response.status_code, response.json()["error"]["code"]) == (503, "stopping")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_idle(alone: Callable[..., Daemon], number: int) -> None:
    device = alone()
    device.wait_for("device ready")
    with httpx.Client(base_url=url(device), **PATIENTLY) as client:  # its connection stays
        assert client.get("/health").status_code == 200
        end(device, number).check()
    assert "Traceback" not in device.log.read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_loading_its_model(alone: Callable[..., Daemon], number: int) -> None:
    for _ in range(TRIES):
        device = alone(model="embedded", scorer="auto")
        assert device.process is not None
        process = psutil.Process(device.process.pid)
        wait_until(partial(maps, process, "model.safetensors"), "it reads the weights")
        ended = end(device, number)
        assert "Traceback" not in device.log.read_text()
        ended.check()
        if "ready" not in device.log.read_text():  # else this test has looked too late
            return
    pytest.fail("it was ready each time")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_importing_a_model(
    alone: Callable[..., Daemon], tmp_path: Path, model: dict[str, object], number: signal.Signals
) -> None:
    file, models = tmp_path / "Tiny.gguf", tmp_path / "models"
    write_gguf(file)
    device = alone(model=file, models=models)
    wait_until(lambda: child(device, "common.engine.model.gguf_conversion") is not None, "the file is being converted")
    there = children(device)
    assert [path for path in models.iterdir() if path.is_dir()]
    ended = end(device, number)
    all_gone(there)
    with filelock.FileLock(models / "import.lock", timeout=SOON):
        left = [path for path in models.iterdir() if path.is_dir()]
    if number == signal.SIGKILL:
        return  # what is left is removed by the next import: see test_gguf
    assert not left
    ended.check()


@pytest.mark.timeout(400)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_reading_a_document_without_an_end(
    alone: Callable[..., Daemon], tmp_path: Path, number: signal.Signals
) -> None:
    documents = tmp_path / "documents"
    documents.mkdir()
    library = tmp_path / "library"
    assert add_documents(DeviceSettings(data=tmp_path / "device", library=library), [documents], watch=True) == DONE
    (documents / "endless.rst").write_bytes(ENDLESS)
    device = alone(library=library)
    wait_until(lambda: child(device, "common.library.readers") is not None, "the document is read", READ)
    reader = child(device, "common.library.readers")
    assert reader is not None
    wait_until(lambda: reader.cpu_times().user > 1.0, "it is within the document")
    there = children(device)
    ended = end(device, number)
    all_gone(there)
    ended.check(*([-number] if number == signal.SIGKILL else []))
    assert "endless" not in device.log.read_text()
    with filelock.FileLock(library / "writer.lock", timeout=SOON):  # the last of its threads may end late
        pass


def test_compiling_a_costly_schema(alone: Callable[..., Daemon]) -> None:
    device = alone()
    device.wait_for("device ready")
    schema = {"type": "json_schema", "json_schema": {"name": "costly", "schema": COSTLY["a wide repetition"]}}
    with asking(device, "/v1/chat/completions", BODY | {"response_format": schema}) as answer:
        wait_until(lambda: child(device, "common.processors.trial") is not None, "the schema is tried")
        there = children(device)
        ended = end(device)
        check_refused(answer, ended)
    all_gone(there)
    ended.check()


@pytest.mark.parametrize("path", ["/tokenize", "/v1/embeddings"])
def test_at_long_texts(alone: Callable[..., Daemon], path: str) -> None:
    """Several clients' at a time, so that some wait for their turns."""
    device = alone()
    device.wait_for("device ready")
    text = "7a b" * (LONGEST_TEXT // 4)
    bodies: dict[str, dict[str, Any]] = {
        "/tokenize": {"content": text, "with_pieces": True},
        "/v1/embeddings": {"model": "dragon", "input": [text] * 4},
    }
    statuses: set[int] = set()
    begun, broken = threading.Barrier(5), list[Exception]()

    def client() -> None:
        with httpx.Client(base_url=url(device), timeout=PATIENCE, trust_env=False) as http:
            http.get("/health")
            begun.wait(PATIENCE)
            while 503 not in statuses:
                try:
                    statuses.add(http.post(path, json=bodies[path]).status_code)
                except httpx.ConnectError:
                    return
                except httpx.HTTPError as error:
                    broken.append(error)
                    return

    with ThreadPoolExecutor(4) as pool:
        clients = [pool.submit(client) for _ in range(4)]
        begun.wait(PATIENCE)
        assert device.process is not None
        process = psutil.Process(device.process.pid)
        before = process.cpu_times().user
        wait_until(lambda: process.cpu_times().user > before + 0.2, "texts are worked on")
        ended = end(device)
        for each in clients:
            each.result(PATIENCE)
    ended.check()
    assert statuses <= {200, 503}
    assert 503 in statuses or ended.starved, ended


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel tells what a connection has not sent")
def test_with_a_client_that_reads_nothing(alone: Callable[..., Daemon]) -> None:
    """It can't be told, and is not waited for."""
    device = alone()
    device.wait_for("device ready")
    request = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        client.connect(("127.0.0.1", int(str(device.flags["port"]))))
        client.setblocking(False)

        def stuck() -> bool:
            with suppress(BlockingIOError):
                client.send(request)
            return unsent(client) > STUCK_BYTES

        wait_until(stuck, "the client is sent nothing more")
        end(device).check()


def unsent(client: socket.socket) -> int:
    """Bytes that the other end of a connection of this machine has not got rid of."""
    ports = [f"{port:04X}" for _, port in (client.getpeername(), client.getsockname())]
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if [field.partition(":")[2] for field in fields[1:3]] == ports:
            return int(fields[4].partition(":")[0], 16)
    return 0


def test_the_device_in_the_middle_of_answers(pair: Pair) -> None:
    readers = [Reader(pair.url) for _ in range(3)]
    wait_until(lambda: all(reader.pieces > 5 for reader in readers), "all answers are under way")
    ended = end(pair.device)
    for reader in readers:
        reader.check_that_it_was_told(ended)
    wait_until(lambda: "is gone" in pair.cloud.log.read_text(), "the cloud knows", SOON)
    ended.check()
    end(pair.cloud).check()


def test_the_cloud_with_sixteen_answers_and_the_device_without_a_cloud(
    fresh_data: Callable[[], Path], model: dict[str, object]
) -> None:
    """Of two devices, which serve eight at a time each. They go on alone at once, and stop as well."""
    slow = model | {"emulate_decode_ms": STEP_MS}
    patient = slow | {"patience": HOLD_OUT, "privacy": "balanced"}
    with Pair(fresh_data(), patient, slow) as pair, ExitStack() as stack:
        data = fresh_data()
        settings = dict(pair.device.flags) | {"port": free_port(), "local_keys": pair.data / "local-keys"}
        other = Daemon("device", data, settings, data / "device.log")
        stack.callback(other.stop)
        other.start()
        other.wait_for("connected to the cloud")
        readers = [Reader(each) for each in (pair.url, url(other)) for _ in range(TOGETHER // 2)]
        wait_until(lambda: all(reader.pieces > 3 for reader in readers), "all answers are under way")
        ended = end(pair.cloud)
        told = [reader.pieces for reader in readers]
        on = [old + 8 for old in told]
        wait_until(lambda: all(new.pieces > old for new, old in zip(readers, on, strict=True)), "they go on", GO_ON)
        ended.check()
        for device in (pair.device, other):
            assert "is stopping" in device.log.read_text()
        for device, half in ((pair.device, readers[: TOGETHER // 2]), (other, readers[TOGETHER // 2 :])):
            ended = end(device)
            ended.check()
            for reader in half:
                reader.check_that_it_was_told(ended)
