"""The JSON of `/v1/responses`: the response object, and the typed events of a stream."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import count
from typing import Any

from common.answer.request import Request
from common.methods.checks import top_p_of
from device.http.answers import Told
from device.http.errors import ApiError
from device.http.logprobs import chat_entries
from device.http.payloads import Served
from device.http.rendering import DONE, event
from device.http.responses.schema import ResponsesBody
from device.interface import TokenEvent, Unmatched


@dataclass(frozen=True, slots=True)
class Responses:
    """Implements `Rendering` for one answer."""

    served: Served
    body: ResponsesBody
    request: Request
    _numbers: count[int] = field(default_factory=count)

    def whole(self, answers: Sequence[Told]) -> dict[str, Any]:
        """The finished response object."""
        (told,) = answers
        complete = told.finished.reason == "stop"
        usage = self.served.usage(answers)
        return self._resource("completed" if complete else "incomplete") | {
            "completed_at": int(time.time()) if complete else None,
            "incomplete_details": None if complete else {"reason": "max_output_tokens"},
            "output": [self._message(told)],
            "usage": {
                "input_tokens": usage["prompt_tokens"],
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": usage["completion_tokens"],
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": usage["total_tokens"],
            },
            "dragon": self.served.report(told),
        }

    def opening(self) -> Iterable[bytes]:
        """The response begins, then its message, then the text in that."""
        response = self._resource("in_progress")
        yield self._event("response.created", response=response)
        yield self._event("response.in_progress", response=response)
        yield self._event("response.output_item.added", output_index=0, item=self._message(None))
        yield self._text_event("response.content_part.added", part=_part("", []))

    def piece(self, index: int, text: str, tokens: Sequence[TokenEvent]) -> Iterable[bytes]:
        """Text that became final."""
        yield self._text_event("response.output_text.delta", delta=text, logprobs=self._logprobs(tokens))

    def provisional(self, index: int, text: str) -> Iterable[bytes]:
        """Nothing: this format has no place for it."""
        return ()

    def waiting(self, index: int) -> Iterable[bytes]:
        """The response is still in progress."""
        yield self._event(
            "response.in_progress", response=self._resource("in_progress") | {"dragon": {"waiting": True}}
        )

    def unmatched(self, index: int, told: Unmatched) -> Iterable[bytes]:
        """The response is in progress, and its documents are far from the question."""
        yield self._event(
            "response.in_progress", response=self._resource("in_progress") | {"dragon": {"unmatched": asdict(told)}}
        )

    def finished(self, index: int, told: Told) -> Iterable[bytes]:
        """The text, its message and the response are done."""
        text, told_of = told.finished.text, self._logprobs(told.tokens)
        yield self._text_event("response.output_text.done", text=text, logprobs=told_of)
        yield self._text_event("response.content_part.done", part=_part(text, told_of))
        yield self._event("response.output_item.done", output_index=0, item=self._message(told))
        response = self.whole([told])
        yield self._event(f"response.{response['status']}", response=response)

    def closing(self) -> Iterable[bytes]:
        """The end of the stream."""
        yield DONE

    def failed(self, failure: ApiError) -> Iterable[bytes]:
        """The response ends with the error."""
        error = {"code": failure.code or failure.kind, "message": failure.message}
        yield self._event("response.failed", response=self._resource("failed") | {"error": error})

    def _logprobs(self, tokens: Sequence[TokenEvent]) -> list[dict[str, Any]]:
        return chat_entries(tokens, self.request.top_logprobs or 0)

    def _event(self, kind: str, **fields: Any) -> bytes:
        return event({"type": kind, "sequence_number": next(self._numbers)} | fields, kind)

    def _text_event(self, kind: str, **fields: Any) -> bytes:
        return self._event(kind, item_id=f"msg_{self.served.identity}", output_index=0, content_index=0, **fields)

    def _message(self, told: Told | None) -> dict[str, Any]:
        """The answer as an item; None: it has not begun."""
        status = "in_progress" if told is None else "completed" if told.finished.reason == "stop" else "incomplete"
        return {
            "type": "message",
            "id": f"msg_{self.served.identity}",
            "status": status,
            "role": "assistant",
            "content": [] if told is None else [_part(told.finished.text, self._logprobs(told.tokens))],
        }

    def _resource(self, status: str) -> dict[str, Any]:
        """The response object before there is an answer."""
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
            "text": {"format": self.body.text.format},
            # of what this daemon does not do
            "previous_response_id": None,
            "store": False,
            "background": False,
            "tools": [],
            "tool_choice": "auto",
            "parallel_tool_calls": False,
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


def _part(text: str, logprobs: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}
