"""The model: passes over packed tokens and the rows `[document][query][answer so far]`."""

from __future__ import annotations

import hashlib
import inspect
import logging
import platform
import zlib
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import cache
from pathlib import Path

import torch
import transformers
from torch import Tensor
from transformers import Cache, PreTrainedModel

from common.configuration.settings import KV_SHARE, Settings
from common.engine.kv.documents import DocumentCache, DocumentStore, StoreOptions
from common.engine.kv.memory import DocumentStates, KvMemory, Need, Rows, limit_on
from common.engine.model.errors import ContextError, ModelError
from common.engine.model.exact import ANY_ROWS, OrderedAttention, can_pack, order_products, row_blocks
from common.engine.model.gguf import imported, is_gguf, source_of
from common.engine.model.hub import gguf_file, place_of
from common.engine.model.loading import DtypeName, LoadedModel, TorchDevice, load_model
from common.engine.model.packed import PLAIN_ATTENTION, Feed, LayerGate, PackedPass, attention_of
from common.engine.model.probes import (
    check_agreement,
    find_exactness,
    find_layout,
    find_turns,
    leading_layers,
    rotation_of,
)
from common.engine.model.prompt import DOCUMENT, QUESTION, ChatFormat, PromptFormat, TextFormat
from common.engine.model.proofs import Proof, Proofs
from common.engine.model.quantised import WeightsName, all_in_layers
from common.engine.model.short_pass import ShortPass
from common.engine.model.tokenizer import Tokenizer
from common.engine.streaming import Interrupt, StreamedLayers, Streaming, Waiting
from common.process.lifetime import Startup
from common.process.machine import give_back_memory, memory
from proto.messages import Exactness

# --- source
# Origin of computed numbers that outlive their process.

_PASSES = 5  # version of the computation


def numbers_source(model: PreTrainedModel, identity: str) -> str:
    """Names the exact bits of `model` in this process, as far as known.

    Includes all weights (`identity` is a sample), and whatever orders the sums: hardware, library versions, threads.
    Reads several GB per second.
    """
    place = next(weight.device for weight in model.parameters() if not weight.is_meta)
    digest = hashlib.sha256(f"{identity} {_PASSES}".encode())
    for name, weight in sorted(model.state_dict().items()):
        if weight.is_meta:  # its numbers are codes, in their own buffers
            continue
        flat = weight.detach().contiguous().reshape(-1).view(torch.uint8)
        digest.update(f"{name} {zlib.crc32(flat.cpu().numpy().data):08x}\n".encode())
    if place.type == "cpu":
        where = f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()} {torch.get_num_threads()}"
    else:
        where = torch.cuda.get_device_name(place)
    digest.update(f"{torch.__version__} {transformers.__version__} {place.type} {where}".encode())
    return digest.hexdigest()


# --- decoder

DOCUMENT_CACHE_BYTES = 512 * 2**20


class Decoder:
    """A decoder-only Transformers model over KV memory.

    One thread owns a decoder and alone takes, feeds and crops rows. `interrupt` is polled before every layer, and may
    read another thread's flag. On a GPU it only saves layers that are not enqueued yet.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        document_cache_bytes: int = DOCUMENT_CACHE_BYTES,
        document_store: StoreOptions | None = None,
        kv_bytes: int | None = None,
        proofs: Path | None = None,
    ) -> None:
        """Takes over a loaded model. Raises `ModelError` if packed passes change its results.

        `proofs` is a folder.
        """
        self._model = loaded.model
        self._cache_keyword = cache_keyword(loaded.model)
        self.architecture = type(loaded.model).__name__
        # The check's documents are neither cached nor counted.
        self._documents, self._source = DocumentCache(0), ""
        self.tokenizer = loaded.tokenizer
        self.torch_device = loaded.torch_device
        self.vocabulary = loaded.tokenizer.size
        self.eos = loaded.eos
        self.max_context = loaded.max_context
        self.streamed: StreamedLayers | None = loaded.streamed
        self._gate = LayerGate(loaded.layers, loaded.streamed)
        first = torch.zeros(1, dtype=torch.int64, device=loaded.torch_device)
        self.layout = find_layout(loaded, lambda tokens, cache: self._run(tokens, cache, tokens, first))
        self.parameters = sum(part.numel() for part in loaded.model.parameters())  # shared ones count once
        self.identity = loaded.identity()
        self.weights = loaded.weights  # for people
        stored = document_store if document_store is not None and document_store.limit_bytes else None
        source = self.identity if stored is None else numbers_source(loaded.model, self.identity)
        self._blocks, self._attention = ANY_ROWS, None
        self._short: ShortPass | None = None
        if self.torch_device.type == "cpu" and self.dtype == torch.bfloat16:
            blocks, self._attention = row_blocks(), OrderedAttention(torch.get_num_threads())
            order_products(loaded.model, blocks, pack=loaded.streamed is None and can_pack())
            # Products with codes need no blocks, and plain layers make their own.
            self._blocks = ANY_ROWS if loaded.coded and all_in_layers(loaded.model) else blocks
            if ShortPass.serves(loaded, self.layout):
                self._short = ShortPass(loaded, self.layout)
        self.memory = KvMemory(self.layout, self.max_context)
        sparing = self.streamed is not None
        kept = None if proofs is None or sparing else Proofs(proofs, loaded, self._blocks)
        if (proof := None if kept is None else kept.load()) is None:
            with leading_layers(loaded, self.layout) if sparing else nullcontext():
                check_agreement(self, loaded.window, sparing)
                proof = Proof(find_exactness(self, sparing), find_turns(loaded, self.layout, self._plain))
            if kept is not None:
                kept.save(proof)
        self.exactness: Exactness = proof.exactness
        self.rotation = rotation_of(loaded, proof.turns)  # None: documents can't be moved in their rows
        self.memory = KvMemory(self.layout, self.max_context, limit_on(self.torch_device, kv_bytes))
        self._source = source
        store = None if stored is None else DocumentStore(stored, source, self.layout)
        self._documents = DocumentCache(document_cache_bytes, store)

    @classmethod
    def load(
        cls,
        folder_or_hub_id: str,
        *,
        tokenizer: str | None = None,
        torch_device: TorchDevice = "cpu",
        dtype: DtypeName = "auto",
        threads: int | None = None,
        document_cache_bytes: int = DOCUMENT_CACHE_BYTES,
        document_store: StoreOptions | None = None,
        kv_bytes: int | None = None,
        streaming: Streaming | None = None,
        proofs: Path | None = None,
        weights: WeightsName = "stored",
    ) -> Decoder:
        """Loads a local folder or Hub id; `tokenizer` is another folder or id.

        `document_cache_bytes` limits documents' states in memory, `document_store` those on disk, `kv_bytes` those of
        running answers (None: unlimited). With `streaming`, states in memory and weights share a budget, and every pass
        reads the layers beyond it. That needs a CPU and `kv_bytes`. `weights` stay as stored, or are rounded to eight
        or four bits.

        Reads only safetensors and runs no code of a checkpoint. `threads` is for the whole process. Raises `ModelError`
        for a model that

        * is missing or not decoder-only,
        * has layers without attention, or with an unsupported one,
        * has no or incomplete safetensors,
        * doesn't fit the tokenizer, or
        * can't be streamed within its budget.
        """
        if threads is not None:
            torch.set_num_threads(threads)
        if streaming is not None:
            if kv_bytes is None or (document_store is not None and document_store.limit_bytes):
                raise ModelError(
                    f"{folder_or_hub_id}: a streamed model needs a limit for keys and values (kv_bytes), and "
                    "document_store_bytes must be 0"
                )
            streaming = streaming.beside(kv_bytes + document_cache_bytes)
        loaded = load_model(folder_or_hub_id, tokenizer, torch_device, dtype, streaming, weights)
        give_back_memory()
        try:
            return cls(loaded, document_cache_bytes, document_store, kv_bytes, proofs)
        except BaseException:
            if loaded.streamed is not None:
                loaded.streamed.close()
            raise

    @property
    def document_cache(self) -> DocumentCache:
        return self._documents

    def close(self) -> None:
        """Writes waiting documents and ends all threads."""
        self._documents.close()
        if self._attention is not None:
            self._attention.close()
        if self.streamed is not None:
            self.streamed.close()

    @property
    def threads(self) -> int:
        return torch.get_num_threads()

    @property
    def dtype(self) -> torch.dtype:
        return self.layout.dtype

    @property
    def token_bytes(self) -> int:
        return self.layout.token_bytes

    # --- passes

    @torch.inference_mode()
    def forward(
        self, feeds: Sequence[Feed], interrupt: Interrupt | None = None, waiting: Waiting | None = None
    ) -> Tensor:
        """Runs one pass over `feeds` and extends their rows.

        Each feed has its own rows or positions. Returns float32 `[logits, vocabulary]` in order of feeds, rows and
        tokens. Raises `Preempted` if `interrupt()` was true, `ContextError` for too many tokens, `ValueError` for
        unknown ids. Then no rows have changed.

        While a streamed layer loads, calls `waiting` on this thread until it returns False, for useful work such as
        another decoder's step. Raises `ModelError` if a layer can't be read.
        """
        if not feeds:
            return torch.empty((0, self.vocabulary), device=self.torch_device)
        places = {(id(rows.chunk), rows.start, rows.starts[0] + rows.fed) for rows in (feed.rows for feed in feeds)}
        if len(places) < len(feeds):
            raise ValueError("a row may take part in a pass only once")
        for feed in feeds:
            self.check_feed(feed)
        packed = PackedPass(feeds, self.layout, self._blocks, self._attention)
        with self._gate.passing(interrupt, waiting):
            if self._short is not None:
                logits = self._short.run(packed, self._gate)
            else:
                logits = self._run(packed.tokens, packed, packed.positions, packed.wanted)[0]
        for feed in feeds:
            feed.rows.fed += len(feed.tokens)
        return logits[: packed.logits, : self.vocabulary].float()

    def check_feed(self, feed: Feed) -> None:
        """Raises the errors of `forward` for `feed` alone."""
        if not feed.tokens or not 0 <= feed.logits <= len(feed.tokens):
            raise ValueError("a pass needs at least one token of each feed, and as many as logits are asked for")
        self.check_ids(feed.tokens)
        feed.rows.check_room(len(feed.tokens))
        feed.tree()

    @torch.inference_mode()
    def fresh_logits(self, tokens: Sequence[int]) -> Tensor:
        """Reference logits after `tokens` from a pass without a cache, float32 `[vocabulary]`.

        Uses the class's own attention and masks in Transformers.
        """
        ids = torch.tensor([list(tokens)], device=self.torch_device)
        with attention_of(self._model, PLAIN_ATTENTION), self._gate.passing():
            logits: Tensor = self._model(input_ids=ids, use_cache=False).logits
        return logits[0, -1, : self.vocabulary].float()

    def _plain(self, tokens: Tensor, cache: Cache, positions: Tensor) -> None:
        """A pass with the class's own attention, over tokens and positions `[1, n]`."""
        with attention_of(self._model, PLAIN_ATTENTION), self._gate.passing():
            self._run(tokens, cache, positions, torch.zeros(1, dtype=torch.int64, device=self.torch_device))

    def _run(self, tokens: Tensor, cache: Cache, positions: Tensor, wanted: Tensor) -> Tensor:
        logits: Tensor = self._model(
            input_ids=tokens,
            position_ids=positions,
            use_cache=True,
            logits_to_keep=wanted,
            **{self._cache_keyword: cache},
        ).logits
        return logits

    # --- one answer at a time

    @torch.inference_mode()
    def open(
        self,
        documents: Sequence[Sequence[int]],
        query: Sequence[int],
        reserve: int,
        interrupt: Interrupt | None = None,
        given: Mapping[int, DocumentStates] | None = None,
    ) -> tuple[Rows, Tensor]:
        """Starts an answer: one row `[document][query]` per document, with `reserve` tokens of room.

        Returns the rows and float32 logits `[docs, vocabulary]` at the last query token. Cached documents have the same
        numbers. The states `given` for rows are not cached. Raises as `take_rows` and `forward` do.
        """
        rows = self.take_rows(documents, query, reserve)
        try:
            for row, document in enumerate(documents):
                if len(document):
                    states = given[row] if given and row in given else self.document_states(document, interrupt)
                    rows.fill(row, states)
            return rows, self.forward([Feed(rows, query)], interrupt)
        except BaseException:
            self.memory.give_back(rows)
            raise

    def step(self, rows: Rows, tokens: Sequence[int], interrupt: Interrupt | None = None) -> Tensor:
        """Feeds answer tokens to every row. Returns logits at the last one, float32 `[docs, vocabulary]`."""
        self._documents.release()
        return self.forward([Feed(rows, tokens)], interrupt)

    # --- rows and documents

    def take_rows(self, documents: Sequence[Sequence[int]], query: Sequence[int], reserve: int) -> Rows:
        """Takes empty rows for `documents` with `query` and `reserve` answer tokens.

        Raises `ContextError` beyond `max_context`, `KvMemoryFullError` without free memory, `ValueError` for missing
        documents or query and for unknown ids.
        """
        need = self.need(documents, query, reserve)
        rows = self.memory.take(need.rows, need.tokens)
        rows.query = len(query)
        return rows

    def need(self, documents: Sequence[Sequence[int]], query: Sequence[int], reserve: int) -> Need:
        """Memory for `take_rows`. Raises `ContextError` and `ValueError` as it does. From any thread."""
        return Need(self.memory, len(documents), self._check_open(documents, query, reserve) + len(query) + reserve)

    @torch.inference_mode()
    def prefill(self, document: Sequence[int]) -> bool:
        """Computes a document's states and writes them to disk. Returns False if known.

        `document_cache.counters` shows failed writes. Raises `ContextError` for too many tokens, `ValueError` for none
        or unknown ids.
        """
        self._check_open([document], document[:1], 0)
        known = self.known_document(document) is not None
        if not known:
            self._compute_document(document, None)
        self._documents.flush()
        return not known

    @torch.inference_mode()
    def document_states(self, document: Sequence[int], interrupt: Interrupt | None) -> DocumentStates:
        """A document's keys and values, read-only. Raises `Preempted`."""
        states = self.known_document(document)
        return self._compute_document(document, interrupt) if states is None else states

    def known_document(self, document: Sequence[int]) -> DocumentStates | None:
        """Keys and values of a known document, read-only, or None."""
        return self._documents.get(DocumentCache.key(self._source, document))

    @torch.inference_mode()
    def keep_document(self, document: Sequence[int], states: DocumentStates) -> None:
        """Caches a document's states. They must not change afterwards."""
        self._documents.put(DocumentCache.key(self._source, document), states)

    def _compute_document(self, document: Sequence[int], interrupt: Interrupt | None) -> DocumentStates:
        rows = self.memory.take(1, len(document))
        try:
            self.forward([Feed(rows, document, logits=0)], interrupt)
            states = rows.states(0)
        finally:
            self.memory.give_back(rows)
        self.keep_document(document, states)
        return states

    def moved(self, states: DocumentStates, by: int) -> DocumentStates:
        """A document's states moved `by` tokens on. Raises `ValueError` without a `rotation`."""
        if self.rotation is None:
            raise ValueError(f"documents of a {self.architecture} can't be moved to another position")
        return self.rotation.moved(states, by)

    def check_ids(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            if not 0 <= token < self.vocabulary:
                raise ValueError(f"token id {token} is not in the vocabulary of {self.vocabulary}")

    def _check_open(self, documents: Sequence[Sequence[int]], query: Sequence[int], reserve: int) -> int:
        """Returns the length of the longest document."""
        if not documents or not query:
            raise ValueError("an answer needs at least one document (it may be empty) and a query")
        if reserve < 0:
            raise ValueError(f"the reserve must not be negative, got {reserve}")
        longest = max(len(document) for document in documents)
        needed = longest + len(query) + reserve
        if needed > self.max_context:
            raise ContextError(
                f"the longest document ({longest} tokens), the query ({len(query)}) and the answer (up to "
                f"{reserve}) need {needed} tokens, and the model's context has {self.max_context}",
                needed=needed,
                limit=self.max_context,
                longest_document=longest,
            )
        for tokens in (*documents, query):
            self.check_ids(tokens)
        return longest


def cache_keyword(model: PreTrainedModel) -> str:
    """The class's keyword for a cache; Transformers 5.24 changed it."""
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"


# --- configured

log = logging.getLogger(__name__)


def kv_limit(kv_bytes: int | None) -> int:
    """Bytes for running answers' states: `kv_bytes`, or a share of all memory."""
    return kv_bytes or memory().total // KV_SHARE


def threads_of(shares_machine: bool) -> int:
    """Default threads of a daemon; half of torch's on a shared machine."""
    return max(1, _found_threads() // 2) if shares_machine else _found_threads()


@cache
def _found_threads() -> int:
    return torch.get_num_threads()


def model_place(model: str, models: Path, startup: Startup | None = None, converted: bool = False) -> str:
    """Folder or Hub id of a model, possibly named in `models`.

    Imports a GGUF file. With `converted` the folder has plain weights. Raises `ModelError`.
    """
    if (folder := place_of(model, models)) is not None:
        source = source_of(folder) if converted else None
        return str(folder if source is None else imported(source.path, models, startup, converted))
    return str(imported(gguf_file(model), models, startup, converted)) if is_gguf(model) else model


def load_decoder(settings: Settings, startup: Startup | None = None) -> Decoder:
    """Loads the same decoder as the role's daemon. Raises `ModelError`."""
    return Decoder.load(
        model_place(settings.model, settings.models, startup),
        tokenizer=settings.tokenizer,
        torch_device=settings.torch_device,
        dtype=settings.dtype,
        threads=settings.threads or threads_of(settings.shares_machine),
        document_store=StoreOptions(settings.document_store, settings.document_store_bytes),
        kv_bytes=kv_limit(settings.kv_bytes),
        proofs=settings.profiles,
        weights=settings.weights,
    )


def load_format(settings: Settings, tokenizer: Tokenizer) -> PromptFormat:
    """The prompt's format: from the settings, else the chat template, else plain text."""
    plain = TextFormat(tokenizer, settings.document_format or DOCUMENT, settings.query_format or QUESTION)
    if settings.document_format or settings.query_format or not tokenizer.has_chat_template:
        return plain
    try:
        return ChatFormat(tokenizer, settings.instruction)
    except ValueError as error:
        log.warning("prompts are plain text: %s", error)
        return plain
