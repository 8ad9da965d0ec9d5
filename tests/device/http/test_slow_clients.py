"""Clients that take places and give nothing, on real sockets; a good client beside them is answered in time."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest

from device.http.server import HttpServer
from tests.device.conftest import Serve
from tests.device.http.test_connections import connect, post, read_until
from tests.device.table_engine import WAIT, TableEngine

IN_TIME = 20.0  # seconds; an answer of the table takes milliseconds, an idle machine given
GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.fixture
def crowd() -> Iterator[ExitStack]:
    """Connections of slow or hostile clients."""
    with ExitStack() as stack:
        yield stack


def good_answer(server: HttpServer) -> None:
    """A new client asks and is answered in time."""
    began = time.monotonic()
    with connect(server) as client:
        client.sendall(post("/v1/completions", {"model": "dragon", "prompt": "a b c"}))
        answer = read_until(client, b'"pieces"')
    assert b" 200 OK" in answer
    assert b'"text":"a b c"' in answer
    assert time.monotonic() - began < IN_TIME


def is_closed(client: socket.socket) -> bool:
    """Whether the server ends the connection before the test's patience does."""
    with contextlib.suppress(ConnectionError):
        while client.recv(65536):
            pass
    return True  # else the socket's time-out was raised


def drip(client: socket.socket, part: bytes) -> bytes:
    """Send `part` now and then until the server ends the connection; returns what the server sent meanwhile."""
    client.settimeout(0.02)
    received, deadline = b"", time.monotonic() + WAIT
    with contextlib.suppress(ConnectionError):
        while True:
            assert time.monotonic() < deadline, "the connection stays"
            client.sendall(part)
            with contextlib.suppress(TimeoutError):
                if not (more := client.recv(65536)):
                    break
                received += more
    return received


def first_answer(server: HttpServer, request: bytes, marker: bytes) -> tuple[socket.socket, bytes]:
    """A new connection, and the answer to its first request up to `marker`: the next one where a busy machine was as
    silent as a client may not be.
    """
    while True:
        began = time.monotonic()
        client, answer = connect(server), b""
        with contextlib.suppress(ConnectionError):
            client.sendall(request)
            answer = read_until(client, marker)
        if marker in answer or time.monotonic() - began < 0.2:
            return client, answer
        client.close()


def is_answered(client: socket.socket) -> bool:
    """Ask once more on the connection: False if the server has ended it."""
    try:
        client.sendall(GET)
        return b"ok" in read_until(client, b"ok")
    except ConnectionError:
        return False


def asked_without_a_pause(server: HttpServer, seconds: float, pause: float) -> bool:
    """Whether requests came on one connection for `seconds`, and each was answered: a `pause` that a busy machine makes
    is a silent client's, and ends it.
    """
    begun = asked = time.monotonic()
    with connect(server) as client:
        while asked < begun + seconds:
            answered = is_answered(client)
            time.sleep(0.05)
            before, asked = asked, time.monotonic()
            if asked - before > pause:
                return False
            assert answered
    return True


class TestSilentClients:
    @pytest.mark.parametrize("sent", [b"", b"GET /he", HEAD, b"\r\n\r\n"])
    def test_lose_their_place_after_a_while(self, serve: Serve, crowd: ExitStack, sent: bytes) -> None:
        server = serve(head_patience=0.3)
        slow = [crowd.enter_context(connect(server)) for _ in range(10)]
        for client in slow:
            client.sendall(sent)
        good_answer(server)
        assert all(is_closed(client) for client in slow)

    def test_also_when_they_send_a_byte_now_and_then(self, serve: Serve) -> None:
        with connect(serve(head_patience=0.3)) as client:
            client.sendall(b"GET / HTTP/1.1\r\nX: ")
            assert drip(client, b"x") == b""

    def test_and_after_an_answer(self, serve: Serve) -> None:
        client, answer = first_answer(serve(head_patience=0.3), GET, b"ok")
        with client:
            assert b" 200 OK" in answer
            assert drip(client, b"G") == b""

    def test_who_asks_again_and_again_is_not_silent(self, serve: Serve) -> None:
        """No check of the server's sees that it is busy: each answer is there at once."""
        patience = 0.3
        server = serve(head_patience=patience)
        deadline = time.monotonic() + WAIT
        while not asked_without_a_pause(server, 5 * patience, patience / 2):
            assert time.monotonic() < deadline, "the machine makes pauses all the time"

    def test_a_body_that_drips_after_the_refusal(self, serve: Serve) -> None:
        request = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n"
        client, answer = first_answer(serve(head_patience=0.3), request, b"unsupported_media_type")
        with client:
            assert b" 415 " in answer
            drip(client, b"x")

    def test_slow_bodies_leave_time_for_others(self, serve: Serve, crowd: ExitStack) -> None:
        server = serve(body_patience=0.3)
        slow = [crowd.enter_context(connect(server)) for _ in range(20)]
        for client in slow:
            client.sendall(HEAD + b"Content-Length: 1000\r\n\r\n{")
        good_answer(server)
        assert all(b" 408 " in read_until(client, b"timeout") for client in slow)

    def test_a_slow_answer_is_not_a_slow_client(self, serve: Serve, engine: TableEngine) -> None:
        engine.allowed = 0
        with connect(serve(head_patience=1.0, stall_limit=0.1)) as client:
            client.sendall(post("/v1/completions", {"model": "dragon", "prompt": "a b"}))
            generation = engine.generation()
            assert not generation.cancelled.wait(2.0)
            generation.allow(2)
            assert b'"text":"a b"' in read_until(client, b'"pieces"')


class TestManyClients:
    def test_silent_ones_make_room(self, serve: Serve, crowd: ExitStack) -> None:
        server = serve(max_connections=8)
        slow = [crowd.enter_context(connect(server)) for _ in range(8)]
        with httpx.Client(base_url=server.url, timeout=WAIT, trust_env=False) as http:
            deadline = time.monotonic() + WAIT
            while True:  # silent for less than they may be, they keep their places
                with contextlib.suppress(httpx.TransportError):
                    if http.get("/health").status_code == 200:
                        break
                assert time.monotonic() < deadline
        good_answer(server)
        assert is_closed(slow[0])

    def test_more_than_are_answered_are_refused_at_once(
        self, serve: Serve, engine: TableEngine, crowd: ExitStack
    ) -> None:
        server = serve(max_connections=4)
        engine.allowed = 0
        asking = [crowd.enter_context(connect(server)) for _ in range(4)]
        for client in asking:
            client.sendall(post("/v1/completions", {"model": "dragon", "prompt": "a b"}))
        engine.generation(count=4)
        for _ in range(3):
            began = time.monotonic()
            with connect(server) as late:
                refusal = read_until(late, b"too_many_connections")
            assert refusal.startswith(b"HTTP/1.1 503 ")
            body = json.loads(refusal.partition(b"\r\n\r\n")[2])
            assert body["error"]["message"].startswith("4 connections are open already")
            assert time.monotonic() - began < IN_TIME
        for number in range(4):
            engine.generation(number).allow(2)
        assert all(b'"text":"a b"' in read_until(client, b'"pieces"') for client in asking)
        for client in asking:
            client.close()
        engine.allowed = None
        good_answer(server)

    def test_a_place_is_free_when_its_client_is_gone(self, serve: Serve) -> None:
        server = serve(max_connections=1)
        for _ in range(20):
            with httpx.Client(base_url=server.url, timeout=WAIT, trust_env=False) as http:
                deadline = time.monotonic() + WAIT
                while http.get("/health").status_code != 200:
                    assert time.monotonic() < deadline


class TestClientsThatNeverRead:
    def test_are_cut_off_and_others_answered(self, serve: Serve, engine: TableEngine, crowd: ExitStack) -> None:
        server = serve(stall_limit=0.3, max_connections=8)
        server.listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        engine.answers["long"] = [f" {number:0500d}" for number in range(2000)]
        for stream in (False, True, False, True, False, True):
            client = crowd.enter_context(connect(server, receive_buffer=4096))
            body = {"model": "dragon", "prompt": "long", "max_tokens": 5000, "stream": stream}
            client.sendall(post("/v1/completions", body))
        engine.generation(count=6)
        good_answer(server)
        deadline = time.monotonic() + 5 * WAIT
        while server.connections:
            assert time.monotonic() < deadline, "an unread answer holds its place"
            time.sleep(0.01)
        good_answer(server)
