"""The JSON that is sent: OpenAI's objects, with the engine's report in the extra field `dragon`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from common.methods.report import Report, SideReport
from device.http.version import VERSION
from device.interface import EngineStatus, Finished

SHARE_DIGITS = 4  # of an attribution share
CHAT_CHUNK = "chat.completion.chunk"


@dataclass(frozen=True, slots=True)
class Envelope:
    """Fields that all JSON objects of one answer share; makes each of these objects."""

    identity: str  # without OpenAI's prefix
    created: int  # Unix time, seconds
    model: str
    chat: bool
    include_usage: bool = False  # of a stream

    def whole(self, finished: Finished, pieces: Sequence[str]) -> dict[str, Any]:
        """The answer of a request without `stream`."""
        choice: dict[str, Any] = {"index": 0}
        if self.chat:
            choice["message"] = {"role": "assistant", "content": finished.text, "refusal": None}
        else:
            choice["text"] = finished.text
        choice |= {"logprobs": None, "finish_reason": finished.reason}
        return self._object("chat.completion", [choice]) | {
            "usage": usage_json(finished.report),
            "dragon": report_json(finished.report, pieces),
        }

    def opening(self) -> list[dict[str, Any]]:
        """The chunks before the first token."""
        return [self._chunk({"role": "assistant", "content": ""})] if self.chat else []

    def piece(self, text: str) -> dict[str, Any]:
        """The chunk of text that became final."""
        return self._chunk({"content": text} if self.chat else {"text": text})

    def closing(self, finished: Finished, pieces: Sequence[str]) -> list[dict[str, Any]]:
        """The chunks after the last token; the very last one carries the report."""
        chunks = [self._chunk({} if self.chat else {"text": ""}, finished.reason)]
        if self.include_usage:
            chunks.append(self._object(CHAT_CHUNK, []) | {"usage": usage_json(finished.report)})
        chunks[-1]["dragon"] = report_json(finished.report, pieces)
        return chunks

    def _chunk(self, content: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0} | ({"delta": content} if self.chat else content)
        choice |= {"logprobs": None, "finish_reason": reason}
        chunk = self._object(CHAT_CHUNK, [choice])
        return chunk | {"usage": None} if self.include_usage else chunk

    def _object(self, chat_kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": f"{'chatcmpl' if self.chat else 'cmpl'}-{self.identity}",
            "object": chat_kind if self.chat else "text_completion",
            "created": self.created,
            "model": self.model,
            "system_fingerprint": None,
            "choices": choices,
        }


def usage_json(report: Report) -> dict[str, int]:
    """OpenAI's token counts."""
    return {
        "prompt_tokens": report.prompt_tokens,
        "completion_tokens": report.tokens,
        "total_tokens": report.prompt_tokens + report.tokens,
    }


def report_json(report: Report, pieces: Sequence[str]) -> dict[str, Any]:
    """The report, each side's acceptance, and `pieces`: the text of each token, beside `attribution`'s rows.

    A number that is not finite (no second token, so no inter-token latency) becomes null.
    """
    value: dict[str, Any] = _finite(asdict(report))
    value["device"]["acceptance"] = _acceptance(report.device)
    value["cloud"]["acceptance"] = _acceptance(report.cloud)
    value["attribution"] = [[round(float(share), SHARE_DIGITS) for share in row] for row in report.attribution]
    value["pieces"] = list(pieces)
    return value


def status_json(status: EngineStatus) -> dict[str, Any]:
    """`GET /status`."""
    value: dict[str, Any] = _finite(asdict(status))
    return {"version": VERSION} | value


def model_json(model: str, created: int) -> dict[str, Any]:
    """One entry of `GET /v1/models`; `created` is when the daemon started."""
    return {"id": model, "object": "model", "created": created, "owned_by": "dragon"}


def _acceptance(side: SideReport) -> float | None:
    share = side.acceptance
    return None if share is None else round(share, SHARE_DIGITS)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
