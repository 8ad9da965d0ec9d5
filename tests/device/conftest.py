"""A table engine behind a real HTTP server on a free port."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import openai
import pytest

from device.http.options import HttpOptions
from device.http.server import HttpServer
from tests.device.table_engine import WAIT, TableEngine

Serve = Callable[..., HttpServer]


@pytest.fixture(scope="session")
def shared_engine() -> TableEngine:
    return TableEngine()


@pytest.fixture(scope="session")
def shared_server(shared_engine: TableEngine) -> Iterator[HttpServer]:
    with HttpServer(shared_engine, HttpOptions(port=0)) as server:
        yield server


@pytest.fixture
def engine(shared_engine: TableEngine) -> Iterator[TableEngine]:
    """The engine of every server, as new; nothing may be left running in it."""
    shared_engine.reset()
    yield shared_engine
    assert all(generation.ended.wait(WAIT) for generation in shared_engine.generations)


@pytest.fixture
def server(shared_server: HttpServer, engine: TableEngine) -> HttpServer:
    """A server with the default options."""
    return shared_server


@pytest.fixture
def serve(engine: TableEngine) -> Iterator[Serve]:
    """Starts servers of `engine` with other options."""
    with ExitStack() as stack:

        def start(**options: Any) -> HttpServer:
            return stack.enter_context(HttpServer(engine, HttpOptions(port=0, **options)))

        yield start


@pytest.fixture
def client(server: HttpServer) -> Iterator[openai.OpenAI]:
    with openai_client(server) as client:
        yield client


def openai_client(server: HttpServer, api_key: str = "unused") -> openai.OpenAI:
    """The official client, unmodified."""
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key=api_key, max_retries=0, timeout=WAIT)
