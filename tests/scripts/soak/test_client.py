"""A request ends as its connection did: what never ends, or breaks without a cause, is lost."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from scripts.soak import client
from scripts.soak.client import Outcome, asked
from scripts.soak.plan import Ask
from tests.scripts.soak.test_checker import ask

HEAD = "HTTP/1.1 {} OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n"
HALF = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {}\n\n"


def reply(status: int, body: object) -> bytes:
    text = json.dumps(body)
    return (HEAD.format(status, len(text)) + text).encode()


ANSWER = reply(
    200,
    {
        "choices": [{"message": {"content": "Oslo."}, "finish_reason": "stop"}],
        "usage": {"completion_tokens": 3},
        "dragon": {},
    },
)
STARTING = reply(503, {"error": {"code": "starting", "message": "The daemon starts."}})
BROKEN = HALF.format(json.dumps({"choices": [{"delta": {"content": "Os"}, "finish_reason": None}]})).encode()


LAST = {"choices": [{"delta": {"content": "lo."}, "finish_reason": "stop"}], "dragon": {"tokens": 3}}
STREAM = BROKEN + f"data: {json.dumps(LAST)}\n\ndata: [DONE]\n\n".encode()

Serve = Callable[[Sequence[bytes | None]], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """A server that gives one reply to each connection; None: it stays silent."""
    with socket.create_server(("127.0.0.1", 0)) as listener, pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "BOUND", 2.0)
        patch.setattr(client, "PAUSE", 0.05)
        held = list[socket.socket]()

        def run(replies: Sequence[bytes | None]) -> None:
            for each in replies:
                connection, _ = listener.accept()
                connection.recv(2**16)
                if each is None:
                    held.append(connection)
                    continue
                connection.sendall(each)
                connection.close()

        def begin(replies: Sequence[bytes | None]) -> str:
            threading.Thread(target=run, args=(replies,), daemon=True).start()
            return f"http://127.0.0.1:{listener.getsockname()[1]}"

        yield begin
        for connection in held:
            connection.close()


def end(
    url: str, lives: Callable[[], int] = lambda: 1, stream: bool = False, cancelled: float | None = None
) -> Outcome:
    request = ask()
    return asked(url, Ask(0, request.law, request.fields, stream, cancelled), time.monotonic, lives)


def test_answer_after_a_start(serve: Serve) -> None:
    outcome = end(serve([STARTING, ANSWER]))
    assert (outcome.end, outcome.text, outcome.retries) == ("answered", "Oslo.", 1)


def test_a_client_that_leaves_while_the_daemon_starts_has_left(serve: Serve) -> None:
    outcome = end(serve([STARTING]), cancelled=0.0)
    assert (outcome.end, outcome.code, outcome.retries) == ("cancelled", "", 0)


def test_error_with_a_sentence(serve: Serve) -> None:
    outcome = end(serve([reply(503, {"error": {"code": "answer_failed", "message": "The cloud is away."}})]))
    assert (outcome.end, outcome.code, outcome.sentence) == ("failed", "answer_failed", "The cloud is away.")


def test_one_that_never_ends_is_lost(serve: Serve) -> None:
    assert end(serve([None])).end == "lost"


def test_a_stream_that_breaks_is_lost(serve: Serve) -> None:
    outcome = end(serve([BROKEN]), stream=True)
    assert outcome.end == "lost"
    assert outcome.sentence.startswith("the connection broke: ")  # or its stream ended, whichever is noticed first


def test_a_stream_that_breaks_is_asked_again_where_the_daemon_was_killed(serve: Serve) -> None:
    lives = iter(range(9))
    outcome = end(serve([BROKEN, BROKEN, STREAM]), lambda: next(lives), stream=True)
    assert (outcome.end, outcome.text, outcome.retries) == ("answered", "Oslo.", 2)
