"""The items of one answer in `/v1/responses`: a message, then calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from device.http.answers import FinishedAnswer, chat_entries
from device.http.calls import ArgumentsPiece, CallPiece, CallReader, CallStart, TextPiece
from device.interface import TokenEvent

Fields = dict[str, Any]
Event = tuple[str, Fields]  # type and fields, valid until the next event is taken


@dataclass(slots=True)
class Output:
    """Builds one answer's items from its pieces, with their events.

    Without calls (`reader` is None) the message begins before the text, else with it.
    """

    identity: str
    reader: CallReader | None  # of the answer's calls
    alternatives: int  # per token's log-probability
    items: list[Fields] = field(default_factory=list)
    complete: bool = False  # ended by itself, with complete calls
    _unsaid: list[TokenEvent] = field(default_factory=list)  # text held back

    def begin(self) -> Iterator[Event]:
        """Events before the first piece."""
        if self.reader is None:
            yield from self._begin_message()

    def read(self, text: str, tokens: Sequence[TokenEvent]) -> Iterator[Event]:
        """Events of final text and its tokens."""
        self._unsaid += tokens
        for part in [TextPiece(text)] if self.reader is None else self.reader.read(text, tokens):
            yield from self._tell(part)

    def finish(self, told: FinishedAnswer) -> Iterator[Event]:
        """Events after the last piece."""
        for part in () if self.reader is None else self.reader.finish():
            yield from self._tell(part)
        if not self.items:
            yield from self._begin_message()
        if self.reader is None:
            self._part["text"] = told.finished.text
        cut = self.reader is not None and self.reader.calls and not self.reader.complete
        self.complete = told.finished.reason == "stop" and not cut
        yield from self._end("completed" if self.complete else "incomplete")

    def whole(self, told: FinishedAnswer) -> None:
        for text, tokens in [*((token.text, [token]) for token in told.tokens), (told.held_back, [])]:
            for _ in self.read(text, tokens):
                pass
        for _ in self.finish(told):
            pass

    @property
    def _part(self) -> Fields:
        part: Fields = self.items[0]["content"][0]
        return part

    def _tell(self, part: CallPiece) -> Iterator[Event]:
        match part:
            case TextPiece(text):
                if not self.items:
                    yield from self._begin_message()
                logprobs, self._unsaid = chat_entries(self._unsaid, self.alternatives), []
                self._part["text"] += text
                self._part["logprobs"] += logprobs
                yield self._event("output_text.delta", content_index=0, delta=text, logprobs=logprobs)
            case CallStart(number, name):
                yield from self._end("completed")
                call = {"call_id": f"call_{self.identity}_{number}", "name": name, "arguments": ""}
                self.items.append({"type": "function_call", "id": f"fc_{self.identity}_{number}", **call})
                yield self._added(self.items[-1])
            case ArgumentsPiece(_, text):
                self.items[-1]["arguments"] += text
                yield self._event("function_call_arguments.delta", delta=text)

    def _begin_message(self) -> Iterator[Event]:
        message = {"type": "message", "id": f"msg_{self.identity}", "role": "assistant"}
        part: Fields = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        self.items.append(message | {"content": [part]})
        yield self._added(message | {"content": []})
        yield self._event("content_part.added", content_index=0, part=part)

    def _end(self, status: str) -> Iterator[Event]:
        if not self.items:
            return
        item = self.items[-1]
        if item["type"] == "message":
            text, logprobs = self._part["text"], self._part["logprobs"]
            yield self._event("output_text.done", content_index=0, text=text, logprobs=logprobs)
            yield self._event("content_part.done", content_index=0, part=self._part)
        else:
            yield self._event("function_call_arguments.done", name=item["name"], arguments=item["arguments"])
        item["status"] = status
        yield "response.output_item.done", {"output_index": len(self.items) - 1, "item": item}

    def _added(self, item: Fields) -> Event:
        return "response.output_item.added", {
            "output_index": len(self.items) - 1,
            "item": item | {"status": "in_progress"},
        }

    def _event(self, kind: str, **fields: Any) -> Event:
        place = {"item_id": self.items[-1]["id"], "output_index": len(self.items) - 1}
        return f"response.{kind}", place | fields
