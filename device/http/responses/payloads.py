"""JSON of `/v1/responses`: the response and a stream's events."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from common.answer.request import Request
from common.methods.interface import top_p_of
from common.processors.calls import CallShape
from device.http.answers import DONE, Aside, FinishedAnswer, aside_json, event
from device.http.calls import CallReader
from device.http.errors import ApiError
from device.http.payloads import RequestFacts
from device.http.responses.output import Event, Output
from device.http.responses.schema import ResponsesBody
from device.http.tools import Choice, FlatToolBody
from device.interface import Provisional, TokenEvent


@dataclass(slots=True)
class Responses:
    """Implements `Rendering` for one answer."""

    served: RequestFacts
    body: ResponsesBody
    request: Request
    shape: CallShape | None = None  # of the answer's possible tool calls
    _numbers: count[int] = field(default_factory=count)
    _output: Output = field(init=False)

    def __post_init__(self) -> None:
        formed = self.request.response_format is not None
        reader = None if self.shape is None else CallReader(self.shape, formed)
        self._output = Output(self.served.identity, reader, self.request.top_logprobs or 0)

    def whole(self, answers: Sequence[FinishedAnswer]) -> dict[str, Any]:
        (told,) = answers
        self._output.whole(told)
        return self._finished(told)

    def opening(self) -> Iterable[bytes]:
        """Begins the response, and its message if certain."""
        response = self._resource("in_progress")
        yield self._event("response.created", response=response)
        yield self._event("response.in_progress", response=response)
        yield from self._events(self._output.begin())

    def piece(self, index: int, text: str, tokens: Sequence[TokenEvent]) -> Iterable[bytes]:
        yield from self._events(self._output.read(text, tokens))

    def aside(self, index: int, told: Aside) -> Iterable[bytes]:
        """Repeats the response. The format has no provisional text."""
        if not isinstance(told, Provisional):
            response = self._resource("in_progress") | {"dragon": aside_json(told)}
            yield self._event("response.in_progress", response=response)

    def finished(self, index: int, told: FinishedAnswer) -> Iterable[bytes]:
        yield from self._events(self._output.finish(told))
        response = self._finished(told)
        yield self._event(f"response.{response['status']}", response=response)

    def closing(self) -> Iterable[bytes]:
        yield DONE

    def failed(self, failure: ApiError) -> Iterable[bytes]:
        error = {"code": failure.code or failure.kind, "message": failure.message}
        yield self._event("response.failed", response=self._resource("failed") | {"error": error})

    def _event(self, kind: str, **fields: Any) -> bytes:
        return event({"type": kind, "sequence_number": next(self._numbers)} | fields, kind)

    def _events(self, events: Iterable[Event]) -> Iterator[bytes]:
        for kind, fields in events:
            yield self._event(kind, **fields)

    def _finished(self, told: FinishedAnswer) -> dict[str, Any]:
        usage, complete = self.served.usage([told]), self._output.complete
        return self._resource("completed" if complete else "incomplete") | {
            "completed_at": int(time.time()) if complete else None,
            "incomplete_details": None if complete else {"reason": "max_output_tokens"},
            "output": self._output.items,
            "usage": {
                "input_tokens": usage["prompt_tokens"],
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": usage["completion_tokens"],
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": usage["total_tokens"],
            },
            "dragon": self.served.report(told),
        }

    def _resource(self, status: str) -> dict[str, Any]:
        """The response object without an answer."""
        return {
            "id": f"resp_{self.served.identity}",
            "object": "response",
            "created_at": self.served.created,
            "completed_at": None,
            "status": status,
            "incomplete_details": None,
            "error": None,
            "model": self.served.model,
            "instructions": self.body.instructions,
            "output": [],
            "usage": None,
            "max_output_tokens": self.request.max_tokens,
            "temperature": self.request.temperature,
            "top_p": top_p_of(self.request),
            "metadata": self.body.metadata or {},
            "text": {"format": self.body.format},
            "tools": [_tool(tool) for tool in self.body.tools],
            "tool_choice": _choice(self.body.tool_choice),
            "parallel_tool_calls": bool(self.body.tools) and self.body.parallel_tool_calls is not False,
            # unsupported features
            "previous_response_id": None,
            "store": False,
            "background": False,
            "max_tool_calls": None,
            "truncation": "disabled",
            "presence_penalty": self.request.presence_penalty,
            "frequency_penalty": self.request.frequency_penalty,
            "top_logprobs": self.request.top_logprobs or 0,
            "reasoning": None,
            "service_tier": "default",
            "safety_identifier": None,
            "prompt_cache_key": None,
        }


def _tool(tool: FlatToolBody) -> dict[str, Any]:
    return tool.model_dump() | {"strict": True}  # regardless of the request


def _choice(choice: Choice) -> str | dict[str, str]:
    return choice.mode if choice.named is None else {"type": "function", "name": choice.named}
