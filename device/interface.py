"""The device's engine for its HTTP interface."""

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
    """A token's text and its natural log-probability before the temperature."""

    text: str
    logprob: float
    raw: bytes = b""  # of a partial character, else empty


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """Final text; empty while a multi-byte character is incomplete."""

    text: str
    token: int
    position: int
    degraded: bool  # decided while the cloud was away
    chances: tuple[TokenChance, ...] = ()  # if requested: the token's, then the most probable


@dataclass(frozen=True, slots=True)
class Provisional:
    """Likely text, until replaced or revoked by final text."""

    text: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """The answer waits for the cloud longer than usual, as requested."""


@dataclass(frozen=True, slots=True)
class PromptProgress:
    """Tokens of the prompt that this device has read, if that takes long."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Unmatched:
    """No document of the answer is close to its question. Precedes the first token."""

    closest: float  # cosine
    sentence: str  # for people


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event of a generation."""

    reason: FinishReason
    text: str
    report: Report


AnswerEvent = TokenEvent | Provisional | Waiting | PromptProgress | Unmatched | Finished


# Takes an answer's events, on any thread, and returns at once. The last is `Finished` or the failure: `AnswerFailed`,
# or `RequestError` for a late finding (a too long prompt). `Provisional` comes only on request.
Tell = Callable[[AnswerEvent | Exception], object]


class Generation(Protocol):
    def cancel(self) -> None:
        """Frees both sides at once, even before the report."""
        ...


@dataclass(frozen=True, slots=True)
class CloudStatus:
    """The link as the device sees it."""

    state: Literal["connected", "connecting", "away", "refused", "off"]
    address: str
    detail: str  # empty when connected
    rtt_ms: float | None
    model: str | None
    exactness: Exactness | None  # of the cloud's numbers


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """The data of `dragon status`."""

    name: str  # for people
    embedder: str  # for people
    number_type: str  # of the computation
    weights: str  # of the matrices
    threads: int  # of a pass
    privacy: Privacy  # most that may leave the device
    data: str  # folder of the daemon's data
    model: str  # identity
    exactness: Exactness  # of repeated computations
    tokenizer: str
    scorer: str
    documents: int
    chunks: int
    active: int
    served: int
    conversations: int  # kept in memory for their next turns
    conversation_bytes: int
    cloud: CloudStatus


@dataclass(frozen=True, slots=True)
class TextVectors:
    vectors: NDArray[np.float32]  # [texts, dimension], of length 1
    tokens: int  # read, over all texts
    cut: tuple[int, ...]  # indices of texts read in part


@dataclass(frozen=True, slots=True)
class Listing:
    documents: tuple[FileRecord, ...]  # by path
    watched: tuple[str, ...]  # folders
    readings: tuple[IngestRun, ...]  # the latest of every folder
    tags: Mapping[str, tuple[str, ...]]  # of those tagged themselves
    uploads: str  # folder


class Documents(Protocol):
    """The device's library. Methods are slow; they raise `LibraryError`, one sentence."""

    def listing(self) -> Listing: ...

    def search(self, query: str, count: int) -> list[Hit]:
        """Returns the most similar passages, best first. Raises `AnswerFailed`."""
        ...

    def passage(self, chunk: int) -> StoredChunk:
        """Raises `UnknownDocument`."""
        ...

    def most_bytes(self, name: str) -> int:
        """Raises `PathError` for an unusable name."""
        ...

    def put(self, name: str, content: bytes) -> bool:
        """Stores an upload, to be read soon. Returns whether it replaced another."""
        ...

    def forget(self, document: int) -> bool:
        """Removes a document, and an upload's file.

        Returns False if the document follows later, once others have changed the library.
        """
        ...

    def discard(self, name: str) -> bool:
        """Removes an upload's file, document or not; False as for `forget`."""
        ...

    def watch(self, folder: str) -> None:
        """Reads a folder, now and after changes."""
        ...

    def unwatch(self, folder: str) -> None:
        """Forgets a folder's documents; the files stay."""
        ...


class Engine(Protocol):
    """Serves requests."""

    @property
    def documents(self) -> Documents: ...

    @property
    def model(self) -> str:
        """The model's identity; equal ones compute alike. Must be cheap: every request reads it."""
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
        """Raises `ValueError`, one sentence."""
        ...

    @property
    def tools(self) -> ToolFormat:
        """Raises `ValueError`, one sentence, if unknown."""
        ...

    def encode(self, text: str) -> list[int]: ...

    def decode(self, tokens: Sequence[int]) -> str:
        """Raises `ValueError`, one sentence, for an unknown id."""
        ...

    def piece(self, token: int) -> str:
        """Returns a token's text as it stands between others."""
        ...

    def embed(self, texts: Sequence[str]) -> TextVectors:
        """Vectors of the library's embedding model; slow. Raises `AnswerFailed`."""
        ...

    def generate(
        self, request: Request, tell: Tell, number: int | None = None, wanted: Callable[[], bool] = always
    ) -> Generation:
        """Starts an answer and reports its events. Raises `RequestError`.

        `number` names it in reports and logs: random, 32 bits; None: drawn here. Reading files is slow. Meanwhile
        `wanted` is asked; once False, `AnswerFailed` is raised.
        """
        ...

    def diagnose(self) -> list[Finding]:
        """Returns a diagnosis; takes seconds if the cloud can't be reached."""
        ...

    def metrics(self) -> bytes:
        """Returns Prometheus' text format, without text of requests or documents."""
        ...

    def status(self) -> EngineStatus:
        """Returns the current state. May query the library, but not list it."""
        ...
