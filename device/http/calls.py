"""Recognises tool calls in an arriving text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from common.processors.calls import CallShape
from device.interface import TokenEvent

_HEAD: Final = re.compile(r'\{"name": "([^"]*)", "[a-z_]+": ')  # with the format's spaces


@dataclass(frozen=True, slots=True)
class TextPiece:
    """Text outside calls."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    number: int  # among the answer's calls
    name: str


@dataclass(frozen=True, slots=True)
class ArgumentsPiece:
    """A piece of a call's arguments (JSON)."""

    number: int
    text: str


CallPiece = TextPiece | CallStart | ArgumentsPiece


@dataclass(slots=True)
class MadeCall:
    name: str
    arguments: str = ""
    whole: bool = False


@dataclass(slots=True)
class CallReader:
    """Separates an answer's calls, in the format `shape`, from other text."""

    shape: CallShape
    formed: bool  # other text has a format: it may quote the trigger, and no calls follow it
    calls: list[MadeCall] = field(default_factory=list)
    text: str = ""  # outside calls
    _held: str = ""
    _calling: bool = False  # the text is over: only calls and delimiters follow
    _depth: int = 0  # of brackets
    _quoted: bool = False
    _escaped: bool = False

    def read(self, text: str, tokens: Sequence[TokenEvent]) -> list[CallPiece]:
        """Returns the parts that `text` with its `tokens` completes."""
        at = 0
        for token in tokens:
            at += len(token.text)
            if token.token == self.shape.trigger and not self._calling:
                parts = [*self._feed(text[:at]), *self._end_text()]
                self._calling = True
                return [*parts, *self._feed(text[at:])]
        return [*self._feed(text)]

    def finish(self) -> list[CallPiece]:
        """Returns the held text at the end."""
        held, self._held = self._held, ""
        return [] if self._calling or not held else [self._said(held)]

    @property
    def complete(self) -> bool:
        return bool(self.calls) and self.calls[-1].whole

    def _feed(self, text: str) -> Iterator[CallPiece]:
        self._held += text
        if not self._calling:
            yield from self._before_calls()
        while self._calling and self._held:
            if not self.calls or self.calls[-1].whole:
                head = _HEAD.search(self._held)
                if head is None:
                    return
                self._held = self._held[head.end() :]
                self.calls.append(MadeCall(head[1]))
                yield CallStart(len(self.calls) - 1, head[1])
            else:
                yield self._argued()

    def _before_calls(self) -> Iterator[CallPiece]:
        """Holds back a possible trigger, and the space before it."""
        trigger = self.shape.trigger
        begun = self._held.find(trigger) if isinstance(trigger, str) and trigger else -1
        if trigger == "" and not self.text and self._held.lstrip()[:1] == "{":
            begun = 0
        if begun >= 0 and not (self.formed and (self.text or self._held[:begun].strip())):
            self._held, after = self._held[:begun], self._held[begun + len(str(trigger)) :]
            yield from self._end_text()
            self._held, self._calling = after, True
            return
        kept = len(self._held) - (_overlap(self._held, trigger) if isinstance(trigger, str) else 0)
        kept = len(self._held[:kept].rstrip())
        if kept:
            said, self._held = self._held[:kept], self._held[kept:]
            yield self._said(said)

    def _end_text(self) -> Iterator[CallPiece]:
        """Drops the space before a call."""
        said, self._held = self._held.rstrip(), ""
        if said:
            yield self._said(said)

    def _said(self, text: str) -> TextPiece:
        self.text += text
        return TextPiece(text)

    def _argued(self) -> ArgumentsPiece:
        call, end = self.calls[-1], len(self._held)
        for at, character in enumerate(self._held):
            if self._in_text(character):
                continue
            self._depth += (character in "{[") - (character in "}]")
            if not self._depth:
                call.whole, end = True, at + 1
                break
        text, self._held = self._held[:end], self._held[end:]
        call.arguments += text
        return ArgumentsPiece(len(self.calls) - 1, text)

    def _in_text(self, character: str) -> bool:
        """Whether the character is part of a JSON string, with its quotes."""
        before = self._quoted
        if self._escaped:
            self._escaped = False
        elif self._quoted and character == "\\":
            self._escaped = True
        elif character == '"':
            self._quoted = not self._quoted
        return before or self._quoted


def _overlap(text: str, trigger: str) -> int:
    """Longest suffix of `text` that is a proper prefix of `trigger`."""
    return next((n for n in range(min(len(text), len(trigger) - 1), 0, -1) if text.endswith(trigger[:n])), 0)
