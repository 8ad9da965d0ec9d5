"""The device's engine as its HTTP interface sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from common.answer.report import Report
from common.answer.request import Privacy, Request
from common.engine.model.prompt import Conversation, Query, ToolFormat
from common.library.hit import Hit
from common.library.readings import IngestRun
from common.library.store import FileRecord, StoredChunk
from common.processors.trial import always
from device.doctor.checks import Finding
from proto.messages import Exactness

FinishReason = Literal["stop", "length", "cancelled"]


@dataclass(frozen=True, slots=True)
class TokenChance:
    """A token's text and its log-probability, natural, before the temperature."""

    text: str
    logprob: float
    raw: bytes = b""  # of a part of a character, which is no text; else empty


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """Text that became final. `text` may be empty while a multi-byte character is incomplete."""

    text: str
    token: int
    position: int
    degraded: bool  # decided by the device alone because the cloud was away
    chances: tuple[TokenChance, ...] = ()  # where asked for: the token's, then those of the most probable ones


@dataclass(frozen=True, slots=True)
class Provisional:
    """Text that is likely to follow, in place of what was told so before. Whatever becomes final takes it back."""

    text: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """The answer waits for the cloud, as its request asks, for longer than it would otherwise."""


@dataclass(frozen=True, slots=True)
class Unmatched:
    """No document that the answer reads is close to its question. Comes before the first token."""

    closest: float  # cosine of the closest document and the question
    sentence: str  # for people


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event of a generation."""

    reason: FinishReason
    text: str
    report: Report


AnswerEvent = TokenEvent | Provisional | Waiting | Unmatched | Finished


# Takes the events of an answer, on any thread of the engine, and returns at once. The last one is `Finished`, or what
# the answer fails with: `AnswerFailed`, or `RequestError` for what shows only on the way (a prompt that is too long).
# `Provisional` comes only where the request asks for it.
Tell = Callable[[AnswerEvent | Exception], object]


class Generation(Protocol):
    """A running answer."""

    def cancel(self) -> None:
        """Free both sides at once, also of an answer of which only the report lacks."""
        ...


@dataclass(frozen=True, slots=True)
class CloudStatus:
    """The link as the device sees it."""

    state: Literal["connected", "connecting", "away", "refused", "off"]
    address: str
    detail: str  # a sentence when not connected
    rtt_ms: float | None
    model: str | None
    exactness: Exactness | None  # of the cloud's numbers


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """The facts and figures of `dragon status`."""

    name: str  # of the model, for people
    embedder: str  # the same of the embedding model
    number_type: str  # in which the model computes
    weights: str  # numbers of the model's matrices
    threads: int  # of the model's passes
    privacy: Privacy  # what may leave the device at most
    data: str  # folder of all that the daemon keeps
    model: str  # its identity
    exactness: Exactness  # of the numbers that repeated computations give
    tokenizer: str
    scorer: str
    documents: int
    chunks: int
    active: int
    served: int
    cloud: CloudStatus


@dataclass(frozen=True, slots=True)
class TextVectors:
    """Vectors of texts."""

    vectors: NDArray[np.float32]  # [texts, dimension], of length 1
    tokens: int  # that the embedding model read, of all texts together
    cut: tuple[int, ...]  # indices of the texts of which it read the beginning only


@dataclass(frozen=True, slots=True)
class Listing:
    """Contents of the device's library."""

    documents: tuple[FileRecord, ...]  # by path
    watched: tuple[str, ...]  # folders
    readings: tuple[IngestRun, ...]  # the latest of every folder
    tags: Mapping[str, tuple[str, ...]]  # of every folder and document that was tagged itself
    uploads: str  # folder of the files that were uploaded


class Documents(Protocol):
    """The device's library. Its methods take their time, and raise `LibraryError`, one sentence."""

    def listing(self) -> Listing:
        """All documents, and how far the folders have been read."""
        ...

    def search(self, query: str, count: int) -> list[Hit]:
        """The `count` passages most similar to a text, best first. Raises `AnswerFailed`."""
        ...

    def passage(self, chunk: int) -> StoredChunk:
        """One passage. Raises `UnknownDocument`."""
        ...

    def most_bytes(self, name: str) -> int:
        """Most bytes of an upload of this name. Raises `PathError` for a name that can't be taken."""
        ...

    def put(self, name: str, content: bytes) -> bool:
        """Keep an upload, in place of an earlier one of the same name, and tell whether there was one; it is read
        soon.
        """
        ...

    def forget(self, document: int) -> bool:
        """Remove a document by its number; an upload's file, too. False where the file is removed and the document will
        be as soon as others have changed the library.
        """
        ...

    def discard(self, name: str) -> bool:
        """Remove an upload's file by its name, whether that is a document or none; False as for `forget`."""
        ...

    def watch(self, folder: str) -> None:
        """Read a folder, and whatever changes in it from now on."""
        ...

    def unwatch(self, folder: str) -> None:
        """Forget a folder and its documents; the files stay."""
        ...


class Engine(Protocol):
    """Serves requests."""

    @property
    def documents(self) -> Documents:
        """The device's library."""
        ...

    @property
    def model(self) -> str:
        """The model's identity: equal ones compute alike. Must cost nothing: every request asks for it."""
        ...

    @property
    def name(self) -> str:
        """The model's name for people."""
        ...

    @property
    def embedder(self) -> str:
        """The embedding model's name for people."""
        ...

    def put(self, conversation: Conversation) -> Query:
        """A conversation as the model reads it. Raises `ValueError`, one sentence, for one that can't be put."""
        ...

    @property
    def tools(self) -> ToolFormat:
        """The form in which the model calls tools. Raises `ValueError`, one sentence, where it is unknown."""
        ...

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`."""
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of `tokens`. Raises `ValueError`, one sentence, for an id that the model does not have."""
        ...

    def piece(self, token: int) -> str:
        """The text of one of the model's tokens as it stands between others."""
        ...

    def embed(self, texts: Sequence[str]) -> TextVectors:
        """Vectors of `texts` by the library's embedding model; takes its time. Raises `AnswerFailed`."""
        ...

    def generate(
        self, request: Request, tell: Tell, number: int | None = None, wanted: Callable[[], bool] = always
    ) -> Generation:
        """Start an answer, whose events are told. Raises `RequestError` for input that can't be served.

        `number` is the one by which reports and logs name it, random and of 32 bits; None: the engine draws one.
        Reading a request's files takes its time: `wanted` is asked meanwhile, and where nobody wants the answer any
        more, `AnswerFailed` is raised.
        """
        ...

    def diagnose(self) -> list[Finding]:
        """Findings of a diagnosis, good and bad, with what to do; takes seconds where the cloud can't be reached."""
        ...

    def metrics(self) -> bytes:
        """Figures for operators in Prometheus' text format, without any text of requests or documents."""
        ...

    def status(self) -> EngineStatus:
        """The present state and figures. May query the library, but must not list it."""
        ...
