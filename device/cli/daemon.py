"""The client of the device daemon's HTTP interface."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any

import httpx

from device.cli.failures import (
    CommandFailed,
    ConversationTooLong,
    DaemonSilent,
    DaemonStarting,
    bad_input,
    not_reachable,
    unfinished_answer,
)
from device.cli.options import SPELT

CONNECT_PATIENCE = 3.0  # seconds
# Requests without a slot get nothing for up to a minute, then keep-alive comments.
SILENCE_PATIENCE = 90.0
READING_PATIENCE = 900.0  # the daemon may read files for minutes each
STARTING = "starting"  # error code and health status
TOO_LONG = "context_length_exceeded"  # error code
STARTING_STATUS = 503  # HTTP
SERVER_ERRORS = ("server_error", "rate_limit_error")


class DaemonClient:
    """A device daemon at `url`; a context manager. Methods raise `CommandFailed`.

    `trusted` replaces the usual authorities over https.
    """

    def __init__(self, url: str, api_key: str | None, trusted: ssl.SSLContext | None = None) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")  # daemons print it with /v1 for OpenAI clients
        self._met = False  # an HTTP answer has arrived
        if self.url.startswith("tcp://"):  # a cloud's address
            raise bad_input(_at_a_cloud(self.url))
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        timeout = httpx.Timeout(SILENCE_PATIENCE, connect=CONNECT_PATIENCE)
        self._reading = httpx.Timeout(READING_PATIENCE, connect=CONNECT_PATIENCE)
        try:
            # trust_env would send questions to the environment's proxy.
            self._http = httpx.Client(
                base_url=self.url, headers=headers, timeout=timeout, trust_env=False, verify=trusted or usual_trust(url)
            )
        except (httpx.InvalidURL, ValueError) as error:
            # An encoding error quotes text, perhaps the key.
            reason = "a character of the key can't be sent" if isinstance(error, UnicodeError) else str(error)
            raise bad_input(f"the daemon's address {url!r} or the API key can't be used: {reason}") from None

    def __enter__(self) -> DaemonClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def check_started(self) -> None:
        """Raises `DaemonStarting` while it can't answer. May be called often."""
        with self._failures():
            response = self._http.get("/health")
            self._met = True
            told: Any = {}
            if response.status_code == STARTING_STATUS:
                with suppress(ValueError):  # a proxy may answer with a page
                    told = response.json()
        if isinstance(told, dict) and told.get("status") == STARTING:
            raise DaemonStarting(f"The device daemon is starting: {told.get('doing')}.")

    def status(self) -> dict[str, Any]:
        with self._failures():
            response = self._http.get("/status")
            self._met = True
            _raise_for_error(response)
            value = response.json()
        if not isinstance(value, dict) or not isinstance(value.get("cloud"), dict):
            raise self._stranger()
        return value

    def chat(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yields an answer's chunks. Closing the iterator cancels the answer."""
        body = {"model": "dragon", "stream": True, "stream_options": {"include_usage": True}} | body
        patience = self._reading if body.get("files") else self._http.timeout
        with (
            self._failures(),
            self._http.stream("POST", "/v1/chat/completions", json=body, timeout=patience) as response,
        ):
            self._met = True
            _raise_for_error(response)
            if not response.headers.get("content-type", "").startswith("text/event-stream"):
                raise self._stranger()
            begun = False
            for line in response.iter_lines():
                if not line.startswith("data:"):
                    continue
                data = line.removeprefix("data:").strip()
                if data == "[DONE]":
                    return
                try:
                    chunk = json.loads(data)
                except json.JSONDecodeError:
                    if begun:  # a proxy ends a cut-off so
                        break
                    raise
                if not _is_chunk(chunk):
                    raise _failure(chunk) or self._stranger()
                begun = True
                yield chunk
        raise unfinished_answer("the connection ended in the middle of the answer")

    def upload(self, name: str, content: bytes) -> None:
        headers = {"content-type": "application/octet-stream"}
        with self._failures():
            sent = self._http.post(
                "/library/documents", params={"name": name}, content=content, headers=headers, timeout=self._reading
            )
            self._met = True
            _raise_for_error(sent)

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            problem = tls_problem(error)
            raise (not_reachable(self.url) if problem is None else bad_input(f"{self.url}: {problem}")) from None
        except httpx.UnsupportedProtocol:
            raise bad_input(f"the daemon's address must start with http:// or https://, not {self.url!r}") from None
        except (httpx.TimeoutException, httpx.NetworkError, httpx.RemoteProtocolError) as error:
            raise self._silence(error) from None
        except httpx.HTTPError:
            raise unfinished_answer("the connection ended in the middle of the answer") from None
        except (json.JSONDecodeError, UnicodeDecodeError):
            raise self._stranger() from None

    def _stranger(self) -> CommandFailed:
        return unfinished_answer(f"{self.url} is not a dragon device daemon")

    def _silence(self, error: httpx.TransportError) -> CommandFailed:
        if not self._met and self._is_cloud():
            return bad_input(_at_a_cloud(self.url))
        if isinstance(error, httpx.TimeoutException):
            return DaemonSilent()
        if self.url.startswith("http://") and "without sending a response" in str(error):
            return unfinished_answer(
                f"{self.url} closed the connection without an answer; does its address begin with https://?"
            )
        return unfinished_answer("the connection ended in the middle of the answer")

    def _is_cloud(self) -> bool:
        """Whether a cloud, which never answers HTTP, listens there."""
        from device.cli.doctor.ports import speaks_zmtp

        place = httpx.URL(self.url)
        return speaks_zmtp(place.host, place.port or 80)


def usual_trust(url: str) -> bool | ssl.SSLContext:
    """Returns httpx's authorities. Loads them (20 ms) only for https."""
    return True if url.lower().startswith("https:") else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # trusts nobody


def _at_a_cloud(url: str) -> str:
    from device.cli.settings import load_device, local_url

    try:
        usual = local_url(load_device())
    except CommandFailed:
        usual = "http://127.0.0.1:8600"
    return (
        f"{url} is a cloud's port, where devices connect. Questions go to the device daemon, by its settings at "
        f"{usual}: leave --url out, or give that address"
    )


def tls_problem(error: BaseException) -> str | None:
    """Returns a clause about the TLS failure, None for others."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    if cause is None:
        return None
    if isinstance(cause, ssl.SSLCertVerificationError):
        reason = cause.verify_message.rstrip(".").lower()
        return f"its certificate is not trusted: {reason} (--ca names a file of trusted certificates)"
    return "it does not speak TLS; does its address begin with http://?"


def _raise_for_error(response: httpx.Response) -> None:
    if response.is_success:
        return
    response.read()
    told = None
    with suppress(ValueError):
        told = response.json()
    raise _failure(told) or unfinished_answer(f"the server answered with HTTP status {response.status_code}")


def _is_chunk(told: object) -> bool:
    """Whether `told` has the shape of a chat's chunk."""
    if not isinstance(told, dict) or not isinstance(told.get("choices"), list):
        return False
    deltas = [each.get("delta") if isinstance(each, dict) else None for each in told["choices"]]
    return all(isinstance(each, dict) and isinstance(each.get("content") or "", str) for each in deltas)


def _failure(told: object) -> CommandFailed | None:
    """The failure in a body or stream event, None for a foreign form."""
    error = told.get("error") if isinstance(told, dict) else None
    if not isinstance(error, dict) or not isinstance(text := error.get("message"), str):
        return None
    if error.get("code") == STARTING:
        return DaemonStarting(text)
    for name, option in SPELT.items():
        text = text.replace(f"'{name}'", option)
    if error.get("code") == TOO_LONG:
        return ConversationTooLong(text)
    return unfinished_answer(text) if error.get("type") in SERVER_ERRORS else bad_input(text)
