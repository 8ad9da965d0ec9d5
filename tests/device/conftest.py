"""A table engine behind a real HTTP server on a free port."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import openai
import pytest

from device.access.api_keys import ApiKeyFiles
from device.http.options import HttpOptions
from device.http.server import HttpServer
from tests.device.key_files import admission_of
from tests.device.table_engine import WAIT, TableEngine

Serve = Callable[..., HttpServer]


@pytest.fixture(scope="session")
def shared_engine() -> TableEngine:
    return TableEngine()


@pytest.fixture(scope="session")
def shared_server(shared_engine: TableEngine) -> Iterator[HttpServer]:
    with HttpServer(HttpOptions(port=0)).serve(shared_engine) as server:
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
def key_files(tmp_path: Path) -> ApiKeyFiles:
    """Places of the keys of a started server."""
    return ApiKeyFiles(tmp_path / "keys of the server")


@pytest.fixture
def serve(engine: TableEngine, key_files: ApiKeyFiles) -> Iterator[Serve]:
    """Starts servers of `engine` with other options; `api_key`: the one key that there is."""
    with ExitStack() as stack:

        def start(api_key: str | None = None, **options: Any) -> HttpServer:
            if api_key is not None:
                options["admission"] = admission_of(key_files, api_key)
            return stack.enter_context(HttpServer(HttpOptions(port=0, **options)).serve(engine))

        yield start


@pytest.fixture
def client(server: HttpServer) -> Iterator[openai.OpenAI]:
    with openai_client(server) as client:
        yield client


def openai_client(server: HttpServer, api_key: str = "unused") -> openai.OpenAI:
    """The official client, unmodified."""
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key=api_key, max_retries=0, timeout=WAIT)
