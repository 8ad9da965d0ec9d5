"""The client's side of the device daemon's HTTP interface."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import httpx

from device.cli.failures import CommandFailed, answer_failed, bad_input, not_reachable

CONNECT_PATIENCE = 3.0  # seconds
# A stream is never silent for longer than the daemon's keep-alive comments.
SILENCE_PATIENCE = 60.0
SERVER_ERRORS = ("server_error", "rate_limit_error")


class Daemon:
    """A device daemon at `url`; a context manager. Every method raises `CommandFailed`."""

    def __init__(self, url: str, api_key: str | None) -> None:
        self.url = url.rstrip("/")
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        timeout = httpx.Timeout(SILENCE_PATIENCE, connect=CONNECT_PATIENCE)
        try:
            # trust_env would send questions to whatever proxy the environment names.
            self._http = httpx.Client(base_url=self.url, headers=headers, timeout=timeout, trust_env=False)
        except (httpx.InvalidURL, ValueError) as error:
            raise bad_input(f"the daemon's address {url!r} or the API key can't be used: {error}") from None

    def __enter__(self) -> Daemon:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def status(self) -> dict[str, Any]:
        """`GET /status`."""
        with self._failures():
            response = self._http.get("/status")
            _raise_for_error(response)
            value = response.json()
        if not isinstance(value, dict):
            raise answer_failed(f"{self.url} is not a dragon device daemon")
        return value

    def chat(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The chunks of `POST /v1/chat/completions`; closing the iterator cancels the answer."""
        body = {"model": "dragon", "stream": True, "stream_options": {"include_usage": True}} | body
        with self._failures(), self._http.stream("POST", "/v1/chat/completions", json=body) as response:
            _raise_for_error(response)
            for line in response.iter_lines():
                if not line.startswith("data:"):
                    continue
                data = line.removeprefix("data:").strip()
                if data == "[DONE]":
                    return
                chunk = json.loads(data)
                if "error" in chunk:
                    raise _from_error(chunk["error"])
                yield chunk
        raise answer_failed("the connection ended in the middle of the answer")

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except (httpx.ConnectError, httpx.ConnectTimeout):
            raise not_reachable(self.url) from None
        except httpx.UnsupportedProtocol:
            raise bad_input(f"the daemon's address must start with http://, not {self.url!r}") from None
        except httpx.TimeoutException:
            raise answer_failed("the device daemon stopped answering") from None
        except (httpx.HTTPError, json.JSONDecodeError):
            raise answer_failed("the connection ended in the middle of the answer") from None


def _raise_for_error(response: httpx.Response) -> None:
    if response.is_success:
        return
    response.read()
    try:
        error = response.json()["error"]
    except (ValueError, KeyError, TypeError):
        raise answer_failed(f"the server answered with HTTP status {response.status_code}") from None
    raise _from_error(error)


def _from_error(error: dict[str, Any]) -> CommandFailed:
    text = str(error.get("message"))
    return answer_failed(text) if error.get("type") in SERVER_ERRORS else bad_input(text)
