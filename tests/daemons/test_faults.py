"""Faults under a running answer: the device finishes it, and takes the cloud back in when it is there again."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import zmq

from cloud.settings import CloudSettings
from common.answer.report import untold
from common.library.commands import DONE, add_documents
from scripts.daemons import Daemon, Pair, free_port
from scripts.netlab.faulty_proxy import FaultyProxy
from tests.daemons.intruder import let_in
from tests.daemons.streaming import PATIENCE, Stream, complete_together, wait_until
from tests.daemons.wordy_model import SCORER, make_wordy_model

QUESTION = "Where is my dance class, and what could help me with my health problem?"
STEP_MS = 25.0  # of the device, so that there is time to do harm
BEGUN = 5  # pieces of text after which an answer is in full swing
UNDER_WAY = 80  # more pieces than the cloud can be ahead
# Tokens of an answer. Harm is done to the long ones: a busy machine may do it seconds late, or be slow to mend it.
LONG = 320  # at the device's pace 8 s
SHORT = 60
FLOOD = 1000  # messages that an attack takes at least
SAMPLED: dict[str, Any] = {"temperature": 1.0, "seed": 7}
JUNK = (b"", b"\x93", b"\xc1" * 50, b"\x92\xcd\xff\xff\x01", b"\xdd\xff\xff\xff\xff", b"x" * 2000)


class Place:
    """An impatient and a patient device, a cloud for one answer at a time and a spare one, behind one proxy."""

    def __init__(self, data: Path, proxy: FaultyProxy, port: int) -> None:
        self.intruder = let_in(data)
        model = {"model": make_wordy_model(data / "model"), "scorer": SCORER}
        cloud = model | {"max_sessions": 1}
        device = model | {"emulate_decode_ms": STEP_MS}
        between = int(proxy.address.rpartition(":")[2])
        self.pair = Pair(data, device | {"patience": 0.5}, cloud, between=between, cloud_port=port)
        # Each with a folder of its own, as daemons of one role must have, and the same documents.
        own = {"data": data / "patient"} | {name: data / "device" / name for name in ("library", "keys")}
        self.patient = Pair(data, device | own | {"patience": 60.0}, between=between)
        self.patient.device.log = data / "patient.log"
        self.proxy = proxy
        self.port = port  # of the cloud that serves
        spare_port = free_port()
        bind = {"threads": 1, "bind": f"tcp://127.0.0.1:{spare_port}"}
        own = {"data": data / "spare"} | {name: data / "cloud" / name for name in ("library", "keys")}
        spare = Daemon("cloud", data, cloud | own | bind, data / "spare.log")
        self._clouds = {port: self.pair.cloud, spare_port: spare}

    def __enter__(self) -> Place:
        try:
            for daemon in self._daemons():
                daemon.start()
            for daemon in self._daemons():
                daemon.wait_for(f"{daemon.role} ready")
            self.repair()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        for daemon in self._daemons():
            daemon.stop()

    @property
    def cloud(self) -> Daemon:
        """The cloud that serves."""
        return self._clouds[self.port]

    @property
    def other_cloud(self) -> Daemon:
        return self._clouds[self._other_port]

    @property
    def _other_port(self) -> int:
        (port,) = self._clouds.keys() - {self.port}
        return port

    def use_the_other_cloud(self) -> None:
        """Lead connections from now on to the other cloud."""
        self.port = self._other_port
        self.proxy.set_target(self.port)

    def replace_cloud(self) -> None:
        """Kill the cloud that serves, and lead connections to the other one."""
        replaced = self.cloud
        self.use_the_other_cloud()
        replaced.kill()

    def start_both_clouds(self) -> None:
        for cloud in self._clouds.values():
            if not cloud.running:
                cloud.start()
            cloud.wait_for("cloud ready")

    def repair(self) -> None:
        """Start everything that is needed, and wait until both devices are connected to the cloud."""
        for daemon in (self.cloud, self.patient.device):
            if not daemon.running:
                daemon.start()
        for pair in (self.pair, self.patient):
            pair.wait_for_cloud("connected")

    def _daemons(self) -> tuple[Daemon, ...]:
        return self.pair.device, self.patient.device, *self._clouds.values()


@pytest.fixture(scope="module")
def damaged(fresh_data: Callable[[], Path]) -> Iterator[Place]:
    port = free_port()
    with FaultyProxy(port) as proxy, Place(fresh_data(), proxy, port) as place:
        yield place


@pytest.fixture
def place(damaged: Place) -> Place:
    """A place that was repaired, whatever the test before did to it."""
    damaged.repair()
    return damaged


@contextmanager
def running(pair: Pair, tokens: int) -> Iterator[Stream]:
    """An answer in which both sides already take part."""
    with Stream(pair.url, QUESTION, max_tokens=tokens, **SAMPLED) as stream:
        stream.read(BEGUN)
        yield stream


def together(pair: Pair) -> dict[str, Any]:
    """An answer that goes as it should; its report."""
    report: dict[str, Any] = complete_together(pair, QUESTION, max_tokens=SHORT, **SAMPLED)["dragon"]
    assert report["notes"] == []
    assert {source["side"] for source in report["sources"]} == {"device", "cloud"}
    return report


class TestCloud:
    def test_replaced_in_the_middle(self, place: Place) -> None:
        """A process that knows nothing of the answer gets what there is of it, and takes part in the rest."""
        with running(place.pair, LONG) as stream:
            place.replace_cloud()
            report = stream.finish()
        assert report["tokens"] == LONG
        assert not set(report["degraded"]) - set(range(BEGUN, LONG - SHORT))
        assert report["cloud"]["drafted"] > 0  # as the new process counts
        together(place.pair)

    def test_replaced_by_another_one(self, place: Place, tmp_path: Path) -> None:
        """The answer goes on with the documents of the new one, and says from which token on."""
        documents, library = tmp_path / "documents", tmp_path / "library"
        documents.mkdir()
        (documents / "more.md").write_text("Delthcine House has a garden.")
        shutil.copytree(place.pair.data / "cloud" / "library", library)
        assert add_documents(CloudSettings(data=tmp_path / "cloud", library=library), [documents]) == DONE
        other, usual = place.other_cloud, place.other_cloud.flags
        other.stop()
        other.flags = {**usual, "library": library}
        try:
            place.start_both_clouds()
            with running(place.pair, LONG) as stream:
                place.replace_cloud()
                report = stream.finish()
            assert report["tokens"] == LONG
            (note,) = (note for note in report["notes"] if "library" in note)
            (position,) = map(int, re.findall(r"^From token (\d+) on, another cloud took part", note))
            assert BEGUN <= position < LONG
            together(place.pair)
        finally:
            other.stop()
            other.flags = usual

    def test_killed_in_the_middle(self, place: Place) -> None:
        """The device finishes alone and says so; a cloud on the same port is taken back in."""
        with running(place.pair, LONG) as stream:
            place.cloud.kill()
            report = stream.finish()
        degraded = report["degraded"]
        assert report["tokens"] == LONG
        assert BEGUN <= degraded[0] < LONG
        assert degraded == list(range(degraded[0], LONG))
        assert report["notes"] == [
            (
                f"The cloud was away for {len(degraded)} of {LONG} tokens:"
                " only this device's documents were used for them."
            ),
            untold(degraded[0], LONG),
        ]
        place.pair.wait_for_cloud("away")
        alone = place.pair.complete(QUESTION, max_tokens=SHORT, **SAMPLED)["dragon"]
        assert alone["degraded"] == list(range(SHORT))
        assert len(alone["notes"]) == 1
        assert alone["notes"][0].startswith("The cloud did not take part: ")
        place.repair()
        together(place.pair)

    def test_stopped_for_a_while(self, place: Place) -> None:
        cloud = place.cloud.process
        assert cloud is not None
        with running(place.pair, LONG) as stream:
            cloud.send_signal(signal.SIGSTOP)
            try:
                stream.read(UNDER_WAY)
            finally:
                cloud.send_signal(signal.SIGCONT)
            report = stream.finish()
        degraded = report["degraded"]
        assert report["tokens"] == LONG
        assert degraded[0] >= BEGUN
        assert degraded[-1] < LONG - BEGUN
        assert report["disagreements"] == 0
        together(place.pair)


class TestNetwork:
    def test_connections_that_are_cut_again_and_again(self, place: Place) -> None:
        """With patience, they cost time and change no token."""
        expected = place.patient.complete(QUESTION, max_tokens=SHORT, **SAMPLED)
        with running(place.patient, SHORT) as stream:
            for _ in range(5):
                place.proxy.cut()
                stream.read(BEGUN)
            report = stream.finish()
        assert stream.text == expected["choices"][0]["message"]["content"]
        assert report["pieces"] == expected["dragon"]["pieces"]
        assert report["degraded"] == []
        assert report["disagreements"] == 0

    def test_flood_of_malformed_frames(self, place: Place) -> None:
        """From a connection of its own, with a trusted key; the cloud tells of it now and then, not each time."""
        expected = place.patient.complete(QUESTION, max_tokens=SHORT, **SAMPLED)
        stop, sent = threading.Event(), list[bytes]()

        def flood() -> None:
            context = zmq.Context[zmq.Socket[bytes]]()
            attacker = context.socket(zmq.DEALER)
            attacker.linger = 0
            public, secret, cloud = place.intruder
            attacker.curve_publickey, attacker.curve_secretkey = public.encode(), secret.encode()
            attacker.curve_serverkey = cloud.encode()
            attacker.connect(f"tcp://127.0.0.1:{place.port}")
            while not stop.is_set():
                if attacker.poll(100, zmq.POLLOUT):
                    sent.append(JUNK[len(sent) % len(JUNK)])
                    attacker.send(sent[-1], zmq.DONTWAIT)
            attacker.close()
            context.term()

        attack = threading.Thread(target=flood)
        with running(place.patient, SHORT) as stream:
            attack.start()
            reports = [stream.finish()]
            try:
                while len(sent) <= FLOOD:  # a busy machine floods slowly
                    reports.append(together(place.patient))
            finally:
                stop.set()
                attack.join()
        assert stream.text == expected["choices"][0]["message"]["content"]
        # How busy the machine is may change meanwhile, so it is looked at before and after.
        quiet = max(expected["dragon"]["seconds"], together(place.patient)["seconds"])
        assert min(report["seconds"] for report in reports) < 3 * quiet + 1.0  # a busy machine only adds
        for report in reports:
            assert report["pieces"] == expected["dragon"]["pieces"]
            assert report["degraded"] == []
        assert 1 <= place.cloud.log.read_text().count("malformed") < 30


def taken(pair: Pair) -> tuple[int, int]:
    """Answers under way, and those before."""
    status = pair.status()
    return status["active"], status["served"]


class TestReader:
    def test_who_does_not_read_delays_nobody(self, place: Place) -> None:
        """The answer is made at its own pace, and is all there when the client reads at last."""
        body = {"model": "dragon", "stream": True, "max_tokens": SHORT, "sources": "device"} | SAMPLED
        data = json.dumps(body | {"messages": [{"role": "user", "content": QUESTION}]}).encode()
        head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        served = sum(taken(place.pair))
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            client.settimeout(PATIENCE)
            client.connect(("127.0.0.1", place.pair.http_port))
            client.sendall(head.encode() + f"Content-Length: {len(data)}\r\n\r\n".encode() + data)
            wait_until(lambda: sum(taken(place.pair)) > served, "the answer is begun")
            together(place.pair)
            wait_until(lambda: place.pair.status()["active"] == 0, "the unread answer is served")
            received = b""
            while b"[DONE]" not in received:
                part = client.recv(2**16)
                assert part
                received += part
        assert b'"tokens": 60' in received


class TestDevice:
    def test_killed_in_the_middle(self, place: Place) -> None:
        """Its place on the cloud, the only one, is free at once."""
        with running(place.patient, LONG) as stream:
            busy = place.pair.complete(QUESTION, max_tokens=SHORT, **SAMPLED)["dragon"]
            assert busy["degraded"] == list(range(SHORT))
            assert busy["notes"] == ["The cloud did not take part: it serves as many answers as it can."]
            place.patient.device.kill()
            stream.close()
        together(place.pair)
