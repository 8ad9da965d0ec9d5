"""JSON of (chat) completions, with the engine's report in the extra field `dragon`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from common.answer.citations import citations, sentences
from common.answer.report import Report, SideReport, Source, sent_in_words
from common.process.version import VERSION
from common.processors.calls import CallShape
from device.http.answers import DONE, Aside, FinishedAnswer, aside_json, chat_entries, completion_lists, event
from device.http.calls import ArgumentsPiece, CallPiece, CallReader, CallStart, TextPiece
from device.http.errors import ApiError
from device.interface import EngineStatus, TokenEvent

SHARE_DIGITS = 4  # of an attribution share
FINGERPRINT_DIGITS = 12  # of the model's identity
CHAT_CHUNK = "chat.completion.chunk"


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """Facts shared by a request's answers."""

    identity: str  # without OpenAI's prefix
    created: int  # Unix time, seconds
    model: str
    fingerprint: str  # equal ones compute alike
    notes: tuple[str, ...] = ()  # about the request
    per_prompt: int = 1  # adjacent answers

    def report(self, told: FinishedAnswer) -> dict[str, Any]:
        """Returns the field `dragon` of an answer."""
        return report_json(told.finished.report, told.pieces, self.notes)

    def usage(self, answers: Sequence[FinishedAnswer]) -> dict[str, int]:
        """Returns OpenAI's counts. A prompt with several answers counts once."""
        read = sum(told.finished.report.prompt_tokens for told in answers[:: self.per_prompt])
        written = sum(told.finished.report.tokens for told in answers)
        return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


@dataclass(frozen=True, slots=True)
class Completions:
    """Implements `Rendering` for both kinds of completions.

    A single answer's report is in the response; several choices have their own.
    """

    served: RequestFacts
    chat: bool
    count: int = 1
    include_usage: bool = False  # of a stream
    logprobs: int | None = None  # alternatives; None: no log-probabilities
    shape: CallShape | None = None  # of a chat's tool calls
    formed: bool = False  # other text has a format
    _readers: dict[int, CallReader] = field(default_factory=dict)  # of a stream's calls, by index
    _told: dict[int, FinishedAnswer] = field(default_factory=dict)  # of a stream, by index
    _shown: dict[int, int] = field(default_factory=dict)  # characters of a stream, by index

    def whole(self, answers: Sequence[FinishedAnswer]) -> dict[str, Any]:
        choices = [self._choice(index, told) for index, told in enumerate(answers)]
        value = self._object("chat.completion", choices) | {"usage": self.served.usage(answers)}
        return value | {"dragon": self.served.report(answers[0])} if self.count == 1 else value

    def opening(self) -> Iterable[bytes]:
        """A chunk with the role for each answer of a chat."""
        if self.chat:
            for index in range(self.count):
                yield event(self._chunk(index, {"role": "assistant", "content": ""}))

    def piece(self, index: int, text: str, tokens: Sequence[TokenEvent]) -> Iterable[bytes]:
        """A chunk of text, or one per part if calls are possible."""
        logprobs = self._logprobs(tokens, self._shown.get(index, 0))
        self._shown[index] = self._shown.get(index, 0) + len(text)
        if self.shape is None:
            deltas = [{"content": text} if self.chat else {"text": text}]
        else:
            reader = self._readers.setdefault(index, CallReader(self.shape, self.formed))
            deltas = [self._delta(index, part) for part in reader.read(text, tokens)]
            if not deltas and logprobs is not None:
                deltas = [{}]
        for delta in deltas:
            chunk = self._chunk(index, delta)
            chunk["choices"][0]["logprobs"], logprobs = logprobs, None
            yield event(chunk)

    def aside(self, index: int, told: Aside) -> Iterable[bytes]:
        """A chunk without content; `dragon` has the aside."""
        yield event(self._chunk(index, {} if self.chat else {"text": ""}) | {"dragon": aside_json(told)})

    def finished(self, index: int, told: FinishedAnswer) -> Iterable[bytes]:
        """The chunk with the reason, and the report unless a usage chunk has it."""
        self._told[index] = told
        reader = self._readers.get(index)
        for part in reader.finish() if reader is not None else ():
            yield event(self._chunk(index, self._delta(index, part)))
        chunk = self._chunk(index, {} if self.chat else {"text": ""}, _reason(told, reader))
        if self.count > 1:
            chunk["choices"][0]["dragon"] = self.served.report(told)
        elif not self.include_usage:
            chunk["dragon"] = self.served.report(told)
        yield event(chunk)

    def closing(self) -> Iterable[bytes]:
        """The chunk with the usage, if requested."""
        if self.include_usage:
            answers = [self._told[index] for index in range(self.count)]
            chunk = self._object(CHAT_CHUNK, []) | {"usage": self.served.usage(answers)}
            yield event(chunk | {"dragon": self.served.report(answers[0])} if self.count == 1 else chunk)
        yield DONE

    def failed(self, failure: ApiError) -> Iterable[bytes]:
        """The error in place of a chunk."""
        yield event(failure.body())

    def _choice(self, index: int, told: FinishedAnswer) -> dict[str, Any]:
        text = told.finished.text
        choice: dict[str, Any] = {"index": index}
        reader = None if self.shape is None else read_calls(CallReader(self.shape, self.formed), told)
        if self.chat:
            message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None, "annotations": []}
            if reader is not None:
                message["content"] = reader.text or (None if reader.calls else "")
                calls = [self._call(index, n, made.name, made.arguments) for n, made in enumerate(reader.calls)]
                message |= {"tool_calls": calls} if calls else {}
            choice["message"] = message
        else:
            choice["text"] = text
        choice |= {"logprobs": self._logprobs(told.tokens, 0), "finish_reason": _reason(told, reader)}
        return choice | {"dragon": self.served.report(told)} if self.count > 1 else choice

    def _delta(self, index: int, part: CallPiece) -> dict[str, Any]:
        match part:
            case TextPiece(text):
                return {"content": text}
            case CallStart(number, name):
                return {"tool_calls": [{"index": number} | self._call(index, number, name, "")]}
            case ArgumentsPiece(number, text):
                return {"tool_calls": [{"index": number, "function": {"arguments": text}}]}

    def _call(self, index: int, number: int, name: str, arguments: str) -> dict[str, Any]:
        identity = f"call_{self.served.identity}_{index}_{number}"
        return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}

    def _logprobs(self, tokens: Sequence[TokenEvent], offset: int) -> dict[str, Any] | None:
        if self.logprobs is None:
            return None
        if self.chat:
            return {"content": chat_entries(tokens, self.logprobs), "refusal": None}
        return completion_lists(tokens, self.logprobs, offset)

    def _chunk(self, index: int, content: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        choice = {"index": index} | ({"delta": content} if self.chat else content)
        choice |= {"logprobs": None, "finish_reason": reason}
        chunk = self._object(CHAT_CHUNK, [choice])
        return chunk | {"usage": None} if self.include_usage else chunk

    def _object(self, chat_kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": f"{'chatcmpl' if self.chat else 'cmpl'}-{self.served.identity}",
            "object": chat_kind if self.chat else "text_completion",
            "created": self.served.created,
            "model": self.served.model,
            "system_fingerprint": self.served.fingerprint,
            "choices": choices,
        }


def read_calls(reader: CallReader, told: FinishedAnswer) -> CallReader:
    """Reads a finished answer."""
    shown = "".join(told.pieces)
    for token in told.tokens:
        reader.read(token.text, [token])
    reader.read(told.finished.text[len(shown) :] if told.finished.text.startswith(shown) else "", ())
    reader.finish()
    return reader


def _reason(told: FinishedAnswer, reader: CallReader | None) -> str:
    if reader is None or not reader.calls or told.finished.reason != "stop":
        return told.finished.reason
    return "tool_calls" if reader.complete else "length"  # ended early, as for repetition


def report_json(report: Report, pieces: Sequence[str], notes: Sequence[str] = ()) -> dict[str, Any]:
    """Returns the report with acceptances and `pieces` (token texts, parallel to `attribution`).

    `notes` precede the report's. Non-finite numbers (latency without a second token) become null.
    """
    value: dict[str, Any] = _finite(asdict(report))
    value |= {"sent_bytes": report.sent_bytes, "sent_in_words": sent_in_words(report.sent)}
    value["device"]["acceptance"] = _acceptance(report.device)
    value["cloud"]["acceptance"] = _acceptance(report.cloud)
    value["sources"] = [_source(source) for source in report.sources]
    value["attribution"] = [[round(float(share), SHARE_DIGITS) for share in row] for row in report.attribution]
    found = citations(report.attribution, pieces, report.passages)
    del value["passages"]
    # None: the cloud's are unknown. Empty: no document supports the answer.
    unknown = report.sources and (found is None or (not found and report.unattributed))
    value["citations"] = None if unknown else [asdict(citation) for citation in found or ()]
    value["sentences"] = [asdict(sentence) for sentence in sentences(report.attribution, pieces)]
    value["notes"] = [*notes, *report.notes]
    value["pieces"] = list(pieces)
    return value


def _source(source: Source) -> dict[str, Any]:
    """Adds the location to a passage of this device's library."""
    value: dict[str, Any] = {"side": source.side, "title": source.title}
    return value if source.origin is None else value | asdict(source.origin)


def status_json(status: EngineStatus) -> dict[str, Any]:
    value: dict[str, Any] = _finite(asdict(status))
    return {"version": VERSION} | value


def model_json(model: str, created: int) -> dict[str, Any]:
    """Returns an entry of `GET /v1/models`; `created` is the daemon's start."""
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
