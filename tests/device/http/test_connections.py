"""Effects of a client's connection on its answer: raw sockets against a real server."""

from __future__ import annotations

import json
import socket
import threading
from urllib.parse import urlsplit

import pytest

from device.http.server import HttpServer
from tests.device.conftest import Serve
from tests.device.table_engine import WAIT, TableEngine


def connect(server: HttpServer, receive_buffer: int | None = None) -> socket.socket:
    address = urlsplit(server.url)
    client = socket.socket()
    if receive_buffer is not None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    client.settimeout(WAIT)
    client.connect((address.hostname, address.port))
    return client


def post(path: str, body: dict[str, object]) -> bytes:
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return head.encode() + f"Content-Length: {len(data)}\r\n\r\n".encode() + data


def read_until(client: socket.socket, marker: bytes) -> bytes:
    received = b""
    while marker not in received:
        part = client.recv(65536)
        if not part:
            break
        received += part
    return received


class TestDisconnect:
    @pytest.mark.parametrize("stream", [False, True])
    def test_cancels_the_answer_at_once(self, server: HttpServer, engine: TableEngine, stream: bool) -> None:
        engine.allowed = 1
        with connect(server) as client:
            client.sendall(post("/v1/completions", {"model": "dragon", "prompt": "a b c", "stream": stream}))
            generation = engine.generation()
            if stream:
                assert b'"a"' in read_until(client, b'"a"')
            assert not generation.cancelled.is_set()
        assert generation.cancelled.wait(WAIT)
        assert generation.ended.wait(WAIT)

    def test_a_half_closed_connection_counts_as_gone(self, server: HttpServer, engine: TableEngine) -> None:
        engine.allowed = 0
        with connect(server) as client:
            client.sendall(post("/v1/completions", {"model": "dragon", "prompt": "a b c", "stream": True}))
            generation = engine.generation()
            client.shutdown(socket.SHUT_WR)
            assert generation.cancelled.wait(WAIT)

    def test_before_the_engine_took_the_request(self, server: HttpServer, engine: TableEngine) -> None:
        engine.allowed = 0
        engine.entry = threading.Event()
        with connect(server) as client:
            client.sendall(post("/v1/completions", {"model": "dragon", "prompt": "a b c"}))
            assert engine.waiting.wait(WAIT)
        engine.entry.set()
        assert engine.generation().cancelled.wait(WAIT)

    def test_a_finished_answer_is_not_cancelled(self, server: HttpServer, engine: TableEngine) -> None:
        with connect(server) as client:
            client.sendall(post("/v1/completions", {"model": "dragon", "prompt": "a b", "stream": True}))
            assert b"[DONE]" in read_until(client, b"[DONE]")
        assert engine.generation().ended.is_set()
        assert not engine.generation().cancelled.is_set()

    def test_other_answers_go_on(self, server: HttpServer, engine: TableEngine) -> None:
        engine.allowed = 1
        with connect(server) as stays:
            stays.sendall(post("/v1/completions", {"model": "dragon", "prompt": "a b c", "stream": True}))
            kept = engine.generation()
            with connect(server) as leaves:
                leaves.sendall(post("/v1/completions", {"model": "dragon", "prompt": "d e f", "stream": True}))
                left = engine.generation(count=2)
            assert left.cancelled.wait(WAIT)
            kept.allow(2)
            assert b'" c"' in read_until(stays, b"[DONE]")


class TestSlowReader:
    def serve_with_small_buffers(self, serve: Serve, **options: object) -> HttpServer:
        server = serve(**options)
        # What the kernel buffers hides a slow reader; accepted connections inherit the listener's size.
        server.listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        return server

    def test_never_blocks_the_engine_and_is_cancelled(self, serve: Serve, engine: TableEngine) -> None:
        server = self.serve_with_small_buffers(serve, unread_limit=50)
        engine.answers["long"] = [f" {n:0500d}" for n in range(1000)]
        engine.allowed = 400  # the rest is far more than the limit
        with connect(server, receive_buffer=4096) as client:
            body = {"model": "dragon", "prompt": "long", "stream": True, "max_tokens": 5000}
            client.sendall(post("/v1/completions", body))
            generation = engine.generation()
            assert generation.cancelled.wait(WAIT)
            received = read_until(client, b"slow_reader")
            assert b'"code": "slow_reader"' in received
            assert b"[DONE]" not in received

    def test_a_write_that_waits_too_long_gives_up(self, serve: Serve, engine: TableEngine) -> None:
        server = self.serve_with_small_buffers(serve, stall_limit=0.2)
        engine.answers["long"] = [f" {n:0500d}" for n in range(1000)]
        engine.allowed = 600
        with connect(server, receive_buffer=4096) as client:
            body = {"model": "dragon", "prompt": "long", "stream": True, "max_tokens": 5000}
            client.sendall(post("/v1/completions", body))
            assert engine.generation().cancelled.wait(WAIT)

    def test_a_fast_engine_alone_is_not_a_slow_reader(self, server: HttpServer, engine: TableEngine) -> None:
        engine.answers["burst"] = [f" {n}" for n in range(900)]
        with connect(server) as client:
            body = {"model": "dragon", "prompt": "burst", "stream": True, "max_tokens": 5000}
            client.sendall(post("/v1/completions", body))
            assert b'" 899"' in read_until(client, b"[DONE]")


class TestKeepAlive:
    def test_comments_fill_a_long_prefill(self, serve: Serve, engine: TableEngine) -> None:
        server = serve(keep_alive=0.02)
        engine.allowed = 0
        with connect(server) as client:
            client.sendall(post("/v1/completions", {"model": "dragon", "prompt": "a b", "stream": True}))
            assert b": keep-alive\n\n" in read_until(client, b": keep-alive\n\n")
            engine.generation().allow(2)
            rest = read_until(client, b"[DONE]")
        assert b'"text": "a"' in rest
        assert b'"finish_reason": "stop"' in rest


class TestStop:
    def test_stopping_ends_running_answers(self, serve: Serve, engine: TableEngine) -> None:
        server = serve()
        engine.allowed = 1
        with connect(server) as whole, connect(server) as streamed:
            whole.sendall(post("/v1/completions", {"model": "dragon", "prompt": "a b"}))
            streamed.sendall(post("/v1/completions", {"model": "dragon", "prompt": "c d", "stream": True}))
            engine.generation(count=2)
            read_until(streamed, b'"c"')
            server.stop()
            assert b"503 Service Unavailable" in read_until(whole, b"stopping")
            assert b'"code": "stopping"' in read_until(streamed, b"stopping")
        assert all(generation.cancelled.is_set() for generation in engine.generations)

    def test_the_address_is_free_afterwards(self, serve: Serve) -> None:
        server = serve()
        port = urlsplit(server.url).port
        server.stop()
        server.stop()
        with socket.socket() as again:
            again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            again.bind(("127.0.0.1", port))

    def test_an_address_in_use_is_an_error_at_once(self, server: HttpServer, serve: Serve) -> None:
        from device.http.options import HttpOptions

        with pytest.raises(OSError, match="in use"):
            HttpServer(HttpOptions(port=urlsplit(server.url).port or 0)).serve(TableEngine())
