"""A small real engine for the interface's tests: looks its answers up in a table, in threads of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from common.answer.report import Report, SentBytes, SideReport, Source
from common.answer.request import Request, RequestError, TooLong
from common.engine.model.prompt import PLAIN_TOOLS, Conversation, Query, ToolFormat, in_plain_words, text_query
from common.processors.trial import always
from device.doctor.checks import Finding
from device.interface import (
    CloudStatus,
    Documents,
    EngineStatus,
    Finished,
    FinishReason,
    Tell,
    TextVectors,
    TokenEvent,
    Waiting,
)

MODEL = "table-1"
EMBEDDER = "lengths-1"
MOST_CHARACTERS = 256  # ids of them; a text's others stand for themselves, too, but have no way back
MOST_READ = 20
WAIT = 60.0  # seconds until a test that waits for the engine or a process has failed: a machine may be busy
SOURCES = (Source("device", "Diary"), Source("cloud", "Atlas"))
MAX_QUESTION = 2**14  # bytes


class TableEngine:
    """Answers from `answers`, or with the question's own words.

    `allowed` is how many tokens each generation may produce before it waits for `allow` (None: no limit).
    A question that starts with "crash" fails in the middle, one that starts with "refuse" is refused. A request that
    waits for the cloud does so before its second token.
    """

    documents: Documents  # of tests that ask for them

    def __init__(self) -> None:
        self._started = threading.Condition()
        self.reset()

    def reset(self) -> None:
        self.answers: dict[str, Sequence[str]] = {}
        self.allowed: int | None = None
        self.model = MODEL
        self.tool_format = PLAIN_TOOLS
        self.generations: list[TableGeneration] = []
        self.entry: threading.Event | None = None  # `generate` waits for it
        self.most_prompt = 2**18  # characters
        self.waiting = threading.Event()

    def generate(
        self, request: Request, tell: Tell, number: int | None = None, wanted: Callable[[], bool] = always
    ) -> TableGeneration:
        generations = self.generations  # of this test, whenever the request is done
        if len(request.question.encode()) > MAX_QUESTION:
            raise TooLong(f"The question is longer than {MAX_QUESTION} bytes.")
        if len(request.prompt) > self.most_prompt:
            raise TooLong(f"The conversation has {len(request.prompt)} tokens of {self.most_prompt}.")
        if request.question.startswith("refuse"):
            raise RequestError("The placement 'cloud' needs privacy 'balanced'.", "placement")
        if request.question.startswith("unready"):
            raise OSError(f"lost while reading {request.question}")
        if self.entry is not None:
            self.waiting.set()
            self.entry.wait(WAIT)
        words = request.question.split()
        pieces = self.answers.get(request.question, [word if n == 0 else f" {word}" for n, word in enumerate(words)])
        generation = TableGeneration(request, pieces, self.allowed, tell, number or 0)
        with self._started:
            generations.append(generation)
            self._started.notify_all()
        generation.start()
        return generation

    @property
    def name(self) -> str:
        return self.model

    @property
    def embedder(self) -> str:
        return EMBEDDER

    def encode(self, text: str) -> list[int]:
        return [ord(character) for character in text]

    def decode(self, tokens: Sequence[int]) -> str:
        if not all(token < MOST_CHARACTERS for token in tokens):
            raise ValueError(f"a token id is from 0 to {MOST_CHARACTERS - 1}")
        return "".join(map(chr, tokens))

    def piece(self, token: int) -> str:
        return chr(token)

    def embed(self, texts: Sequence[str]) -> TextVectors:
        """One of two unit vectors, by the length of the text; texts of more than `MOST_READ` characters are cut."""
        vectors = np.eye(2, dtype=np.float32)[[len(text) % 2 for text in texts]]
        cut = tuple(number for number, text in enumerate(texts) if len(text) > MOST_READ)
        return TextVectors(vectors, sum(min(len(text), MOST_READ) for text in texts), cut)

    def put(self, conversation: Conversation) -> Query:
        return text_query(in_plain_words(conversation))

    @property
    def tools(self) -> ToolFormat:
        return self.tool_format

    def metrics(self) -> bytes:
        return b"# TYPE dragon_table gauge\ndragon_table 1.0\n"

    def diagnose(self) -> list[Finding]:
        return [Finding("ok", "disk", "1 GB free"), Finding("warn", "keys", "not encrypted", "pair the machines")]

    def status(self) -> EngineStatus:
        active = sum(not generation.ended.is_set() for generation in self.generations)
        cloud = CloudStatus("connected", "tcp://cloud.example:8601", "", 12.5, MODEL, "near")
        return EngineStatus(
            name=self.name,
            embedder=EMBEDDER,
            number_type="bfloat16",
            weights="int4",
            threads=2,
            privacy="strict",
            data="/home/table/device",
            model=self.model,
            exactness="bit-exact",
            tokenizer="tok-hash",
            scorer="race-1",
            documents=3,
            chunks=17,
            active=active,
            served=len(self.generations) - active,
            conversations=0,
            conversation_bytes=0,
            cloud=cloud,
        )

    def generation(self, number: int = -1, count: int = 1) -> TableGeneration:
        """One of the generations, once there are `count`."""
        with self._started:
            assert self._started.wait_for(lambda: len(self.generations) >= count, WAIT)
            return self.generations[number]


class TableGeneration:
    """One answer, told by a thread."""

    def __init__(self, request: Request, pieces: Sequence[str], allowed: int | None, tell: Tell, number: int) -> None:
        self.request = request
        self.cancelled = threading.Event()
        self.ended = threading.Event()
        self._pieces = pieces
        self._allowed = allowed
        self._changed = threading.Condition()
        self._tell = tell
        self._number = number

    def start(self) -> None:
        threading.Thread(target=self._decode, daemon=True).start()

    def allow(self, count: int) -> None:
        """Let the generation produce `count` more tokens."""
        with self._changed:
            self._allowed = (self._allowed or 0) + count
            self._changed.notify_all()

    def cancel(self) -> None:
        with self._changed:
            self.cancelled.set()
            self._changed.notify_all()

    def _decode(self) -> None:
        text, tokens, reason = "", 0, "stop"
        for position, piece in enumerate(self._pieces):
            if position >= self.request.max_tokens:
                reason = "length"
                break
            if self.request.wait and position == 1:
                self._tell(Waiting())
            if self.request.question.startswith("crash") and position == 1:
                self.ended.set()
                self._tell(RuntimeError(f"crashed at {self.request.prompt}"))
                return
            with self._changed:
                self._changed.wait_for(partial(self._may, position))
            if self.cancelled.is_set():
                reason = "cancelled"
                break
            tokens += 1
            kept = cut_at_stop(text + piece, self.request.stop)
            self._tell(TokenEvent(kept[len(text) :], 100 + position, position, False))
            stopped, text = kept != text + piece, kept
            if stopped:
                break
        self.ended.set()
        self._tell(Finished(as_reason(reason), text, report(self.request, tokens, self._number, text)))

    def _may(self, position: int) -> bool:
        return self.cancelled.is_set() or self._allowed is None or position < self._allowed


def cut_at_stop(text: str, stop: Sequence[str]) -> str:
    """`text` up to the first stop string."""
    return text[: min((at for word in stop if (at := text.find(word)) >= 0), default=len(text))]


def as_reason(reason: str) -> FinishReason:
    return "stop" if reason == "stop" else "length" if reason == "length" else "cancelled"


def report(request: Request, tokens: int, number: int = 0, text: str = "The cat sat.") -> Report:
    """A plausible report of `tokens` tokens; even positions come from the diary, odd ones from the atlas.

    Both have the `text`.
    """
    return Report(
        request=f"{number:08x}",
        tokens=tokens,
        prompt_tokens=len(request.prompt.split()),
        seconds=0.5,
        ttft=0.2,
        inter_token=0.01 if tokens > 1 else float("nan"),
        per_token=0.01,
        device=SideReport(tokens, tokens, 0),
        cloud=SideReport(tokens, max(tokens - 1, 0), 1),
        sent=SentBytes(question=400, earlier_turns=1000, tokens=12 * tokens, control=6),
        received_bytes=30 * tokens,
        fetched_bytes=0,
        rtt_ms=12.5,
        switches=0,
        certificate_failures=0,
        disagreements=0,
        degraded=(),
        seed=7 if request.seed is None else request.seed,
        weights="210 int4, 1 int8",
        method=request.method,
        aggregation=request.aggregation,
        sampler=request.sampler,
        placement=request.placement,
        sources=SOURCES,
        passages=(text, text),
        attribution=tuple((0.75, 0.25) if n % 2 == 0 else (0.25, 0.75) for n in range(tokens)),
    )
