"""One request and its end: an answer, an error with a sentence, or neither."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import httpx

from scripts.daemons import LOCALLY
from scripts.soak.plan import Ask

BOUND: Final = 240.0  # seconds in which a request must have ended, with a processor that others use, too
RETRIED: Final = ("starting", "stopping", "rate_limit_exceeded", "too_many_connections")  # codes: ask again later
PAUSE: Final = 0.3

End = Literal["answered", "failed", "cancelled", "lost"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a request. `code` and `sentence` are the error's, or say what was missing of a lost one."""

    end: End
    started: float  # seconds of the run
    seconds: float = 0.0
    retries: int = 0
    text: str = ""
    reason: str = ""  # why the answer ended
    tokens: int = 0  # as the usage has it
    code: str = ""
    sentence: str = ""
    report: Mapping[str, Any] = field(default_factory=dict)


class Broken(Exception):
    """The connection ended before the answer did; the text says how."""


def asked(url: str, ask: Ask, clock: Callable[[], float], lives: Callable[[], int]) -> Outcome:
    """Ask until the request has ended. A connection that breaks is asked again only where the daemon was killed."""
    begun, retries, outcome = clock(), 0, Outcome("lost", clock())
    leaves = None if ask.cancelled is None else begun + ask.cancelled
    while clock() - begun < BOUND:
        life = lives()
        try:
            outcome = _attempt(url, ask, clock, begun + BOUND if leaves is None else leaves)
        except (httpx.TransportError, Broken) as error:
            if leaves is not None and clock() >= leaves:
                outcome = Outcome("cancelled", begun)
            elif isinstance(error, httpx.ConnectError | httpx.ConnectTimeout) or _killed(life, lives):
                retries += 1
                time.sleep(PAUSE)
                continue
            else:
                outcome = Outcome("lost", begun, sentence=f"the connection broke: {type(error).__name__} {error}")
        if outcome.code in RETRIED:
            if leaves is None or clock() < leaves:
                retries += 1
                time.sleep(PAUSE)
                continue
            outcome = Outcome("cancelled", begun)
        return replace(outcome, started=begun, seconds=clock() - begun, retries=retries)
    sentence = f"no end within {BOUND:.0f} s, {retries} retries; last: {outcome.code or 'no connection'}"
    return Outcome("lost", begun, clock() - begun, retries, sentence=sentence)


def _killed(life: int, lives: Callable[[], int]) -> bool:
    """Whether the daemon was killed since, looked at a moment later: the end of one is noticed before it is counted."""
    time.sleep(PAUSE)
    return lives() != life


def _attempt(url: str, ask: Ask, clock: Callable[[], float], until: float) -> Outcome:
    body = {"model": "dragon", "messages": [{"role": "user", "content": ask.law.question}], **ask.fields}
    patience = httpx.Timeout(5.0, read=max(0.05, until - clock()))
    with httpx.Client(base_url=url, timeout=patience, **LOCALLY) as client:
        if not ask.stream:
            response = client.post("/v1/chat/completions", json=body)
            return _failed(response.status_code, response.json()) if response.is_error else _whole(response.json())
        with client.stream("POST", "/v1/chat/completions", json=body | {"stream": True}) as stream:
            if stream.is_error:
                return _failed(stream.status_code, json.loads(stream.read()))
            return _streamed(stream, lambda: clock() >= until)


def _whole(body: Mapping[str, Any]) -> Outcome:
    (choice,), tokens = body["choices"], body["usage"]["completion_tokens"]
    text, reason = choice["message"]["content"], choice["finish_reason"]
    return Outcome("answered", 0.0, text=text, reason=reason, tokens=tokens, report=body["dragon"])


def _streamed(stream: httpx.Response, over: Callable[[], bool]) -> Outcome:
    text, reason, report = "", "", dict[str, Any]()
    for line in stream.iter_lines():
        if over():
            raise Broken("the client left")
        data = line.removeprefix("data: ")
        if data == "[DONE]":
            if not report:
                raise Broken("the stream ended without a report")
            return Outcome("answered", 0.0, text=text, reason=reason, tokens=report["tokens"], report=report)
        if not data.startswith("{"):
            continue
        chunk = json.loads(data)
        if "error" in chunk:
            return _failed(200, chunk)
        for choice in chunk["choices"]:
            text += choice["delta"].get("content") or ""
            reason = choice["finish_reason"] or reason
            if choice["finish_reason"]:
                report = chunk["dragon"]
    raise Broken("the stream ended without its last event")


def _failed(status: int, body: Mapping[str, Any]) -> Outcome:
    error = body["error"]
    return Outcome("failed", 0.0, code=error["code"] or str(status), sentence=error["message"])
