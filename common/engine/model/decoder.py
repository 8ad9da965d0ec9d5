"""The model: passes over packed tokens, and the rows `[document][query][answer so far]` that they read and extend."""

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
# Origin of computed numbers: needed where they outlive the process that computed them.

_PASSES = 5  # which of the ways to compute that there were


def numbers_source(model: PreTrainedModel, identity: str) -> str:
    """Names the very bits that `model` (its `identity` is a sample only) computes in this process, as far as is known.

    Every weight enters, and what orders the summations: hardware, versions of the libraries, threads. Reads all
    weights once, several GB per second.
    """
    place = next(weight.device for weight in model.parameters() if not weight.is_meta)
    digest = hashlib.sha256(f"{identity} {_PASSES}".encode())
    for name, weight in sorted(model.state_dict().items()):
        if weight.is_meta:  # its numbers are codes, which are beside it
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

    One thread owns a decoder: it alone takes rows, feeds and crops them. Passes are pre-empted by `interrupt`, which is
    polled before every decoder layer, so it may read what another thread sets. (On a GPU the layers are only
    enqueued at that moment; what is saved is what was not enqueued yet.)
    """

    def __init__(
        self,
        loaded: LoadedModel,
        document_cache_bytes: int = DOCUMENT_CACHE_BYTES,
        document_store: StoreOptions | None = None,
        kv_bytes: int | None = None,
        proofs: Path | None = None,
    ) -> None:
        """Take over a loaded model. Raises `ModelError` if packed passes change what it computes.

        What was proven of this model on this machine is read from the folder `proofs`, and kept there.
        """
        self._model = loaded.model
        self._cache_keyword = cache_keyword(loaded.model)
        self.architecture = type(loaded.model).__name__
        # The check's documents are not the user's: they are neither kept nor counted.
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
            # Products with codes need no blocks, and plain layers among them make their own.
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
        self.rotation = rotation_of(loaded, proof.turns)  # None: no document can be moved in its row
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
        """Load a local folder or Hub id; `tokenizer` is another folder or id, where it isn't the model's own.

        `document_cache_bytes` of documents' keys and values stay in memory, and those of `document_store` on disk.
        Running answers have `kv_bytes` for theirs, unlimited with None. With `streaming` these and weights share a
        budget: the leading layers that fit stay, the others are read in every pass. That needs a CPU and `kv_bytes`.
        `weights` are as the files have them, or rounded to eight or four bits.

        Only safetensors are read and no code is run that a checkpoint brings. `threads` sets PyTorch's
        threads for the whole process. Raises `ModelError` when the model is missing, not decoder-only, has
        layers without attention or with one that packed passes don't know, has no safetensors or incomplete ones,
        doesn't fit the tokenizer, or can't be streamed within its budget.
        """
        if threads is not None:
            torch.set_num_threads(threads)
        if streaming is not None:
            if kv_bytes is None or (document_store is not None and document_store.limit_bytes):
                raise ModelError(
                    f"{folder_or_hub_id}: a streamed model needs a limit for keys and values (kv_bytes), which are part"
                    " of its budget, and keeps no documents on disk (document_store_bytes must be 0)"
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
        """The documents' keys and values kept between requests, with its counters."""
        return self._documents

    def close(self) -> None:
        """Write the documents that wait for the disk, and end the threads that write, read and compute."""
        self._documents.close()
        if self._attention is not None:
            self._attention.close()
        if self.streamed is not None:
            self.streamed.close()

    @property
    def threads(self) -> int:
        """Of its passes, on a CPU."""
        return torch.get_num_threads()

    @property
    def dtype(self) -> torch.dtype:
        """The type the model computes in."""
        return self.layout.dtype

    @property
    def token_bytes(self) -> int:
        """Bytes of keys and values per token and row."""
        return self.layout.token_bytes

    # --- passes

    @torch.inference_mode()
    def forward(
        self, feeds: Sequence[Feed], interrupt: Interrupt | None = None, waiting: Waiting | None = None
    ) -> Tensor:
        """One pass over all of `feeds`, each of other rows, or of other places in them, as a document and what follows
        it; the rows then hold their tokens, too.

        Gives the logits that the feeds ask for, feed by feed, within a feed row by row, within a row in the order of
        the tokens: float32 `[logits, vocabulary]`. Raises `Preempted` if `interrupt()` was true, `ContextError` for
        more tokens than a row has room for, `ValueError` for ids that don't exist; then no rows have moved.

        While a streamed layer is not there yet, `waiting` is called, on this thread, until it returns False: it does
        something useful for a moment, such as a step of another decoder. Raises `ModelError` if a layer can't be read.
        """
        if not feeds:
            return torch.empty((0, self.vocabulary), device=self.torch_device)
        places = {(id(rows.chunk), rows.start, rows.starts[0] + rows.fed) for rows in (feed.rows for feed in feeds)}
        if len(places) < len(feeds):
            raise ValueError("places of rows may take part in a pass only once")
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
        """Raise what `forward` would raise for `feed` alone."""
        if not feed.tokens or not 0 <= feed.logits <= len(feed.tokens):
            raise ValueError("a pass needs at least one token of each feed, and as many as logits are asked for")
        self.check_ids(feed.tokens)
        feed.rows.check_room(len(feed.tokens))
        feed.tree()

    @torch.inference_mode()
    def fresh_logits(self, tokens: Sequence[int]) -> Tensor:
        """Logits after `tokens` from a pass without a cache, float32 `[vocabulary]`: what to compare with.

        Attention and masks are those that Transformers writes out for the class.
        """
        ids = torch.tensor([list(tokens)], device=self.torch_device)
        with attention_of(self._model, PLAIN_ATTENTION), self._gate.passing():
            logits: Tensor = self._model(input_ids=ids, use_cache=False).logits
        return logits[0, -1, : self.vocabulary].float()

    def _plain(self, tokens: Tensor, cache: Cache, positions: Tensor) -> None:
        """A pass as Transformers writes it out, over tokens `[1, n]` at positions `[1, n]`."""
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
        """Start an answer: one row `[document][query]` per document, with room for `reserve` answer tokens.

        Gives the rows and the logits at the last query token, float32 `[docs, vocabulary]`. Documents seen
        before come from the document cache, with the same numbers; the states `given` for rows are used and
        not kept. Raises as `take_rows` and `forward` do.
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
        """Feed answer tokens to every row; logits at the last one, float32 `[docs, vocabulary]`. See `forward`."""
        self._documents.release()
        return self.forward([Feed(rows, tokens)], interrupt)

    # --- rows and documents

    def take_rows(self, documents: Sequence[Sequence[int]], query: Sequence[int], reserve: int) -> Rows:
        """Empty rows for `documents`, each with room for itself, `query` and `reserve` answer tokens.

        Raises `ContextError` if the longest row exceeds `max_context`, `KvMemoryFullError` when there is no memory now,
        `ValueError` for no documents, no query or ids that don't exist.
        """
        need = self.need(documents, query, reserve)
        rows = self.memory.take(need.rows, need.tokens)
        rows.query = len(query)
        return rows

    def need(self, documents: Sequence[Sequence[int]], query: Sequence[int], reserve: int) -> Need:
        """Memory that `take_rows` takes. Raises `ContextError` and `ValueError` as it does. From any thread."""
        return Need(self.memory, len(documents), self._check_open(documents, query, reserve) + len(query) + reserve)

    @torch.inference_mode()
    def prefill(self, document: Sequence[int]) -> bool:
        """Compute a document's keys and values ahead of its first use and put them on disk; False if they were there.

        Whether they could be written is in `document_cache.counters`. Raises `ContextError` if it is longer than the
        context, `ValueError` for no tokens or ids that don't exist.
        """
        self._check_open([document], document[:1], 0)
        known = self.known_document(document) is not None
        if not known:
            self._compute_document(document, None)
        self._documents.flush()
        return not known

    @torch.inference_mode()
    def document_states(self, document: Sequence[int], interrupt: Interrupt | None) -> DocumentStates:
        """Keys and values of a document's tokens, which are not to be written to. Raises `Preempted`."""
        states = self.known_document(document)
        return self._compute_document(document, interrupt) if states is None else states

    def known_document(self, document: Sequence[int]) -> DocumentStates | None:
        """Keys and values of a document that was computed before, not to be written to."""
        return self._documents.get(DocumentCache.key(self._source, document))

    @torch.inference_mode()
    def keep_document(self, document: Sequence[int], states: DocumentStates) -> None:
        """Remember the keys and values of a document that was computed; they are not to be changed afterwards."""
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
        """A document's keys and values as if it stood `by` tokens further on. Raises `ValueError` where the model's
        positions can't be moved: it has no `rotation`.
        """
        if self.rotation is None:
            raise ValueError(f"documents of a {self.architecture} can't be moved to another place")
        return self.rotation.moved(states, by)

    def check_ids(self, tokens: Sequence[int]) -> None:
        """Raise `ValueError` for ids that the vocabulary doesn't have."""
        for token in tokens:
            if not 0 <= token < self.vocabulary:
                raise ValueError(f"token id {token} is not in the vocabulary of {self.vocabulary}")

    def _check_open(self, documents: Sequence[Sequence[int]], query: Sequence[int], reserve: int) -> int:
        """The length of the longest document."""
        if not documents or not query:
            raise ValueError("an answer needs at least one document (it may be empty) and a query")
        if reserve < 0:
            raise ValueError(f"the reserve must not be negative, got {reserve}")
        longest = max(len(document) for document in documents)
        needed = longest + len(query) + reserve
        if needed > self.max_context:
            raise ContextError(
                f"the longest document ({longest} tokens), the query ({len(query)}) and the answer"
                f" (up to {reserve}) need {needed} tokens, the model's context holds {self.max_context}",
                needed=needed,
                limit=self.max_context,
                longest_document=longest,
            )
        for tokens in (*documents, query):
            self.check_ids(tokens)
        return longest


def cache_keyword(model: PreTrainedModel) -> str:
    """The keyword by which the model's class takes a cache: Transformers changed it in 5.24."""
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"


# --- configured
# The decoder that a role's settings describe.

log = logging.getLogger(__name__)


def kv_limit(kv_bytes: int | None) -> int:
    """Bytes of keys and values of a model's running answers: `kv_bytes`, or else a share of all memory here."""
    return kv_bytes or memory().total // KV_SHARE


def threads_of(shares_machine: bool) -> int:
    """Threads of a daemon whose settings name no number: those that torch finds, or half of them where another daemon
    computes on the same machine.
    """
    return max(1, _found_threads() // 2) if shares_machine else _found_threads()


@cache
def _found_threads() -> int:
    return torch.get_num_threads()


def model_place(model: str, models: Path, startup: Startup | None = None, converted: bool = False) -> str:
    """Folder or Hub id of a model, which may be named as in `models`, where a GGUF file is imported to.

    With `converted` the folder holds plain weights. Raises `ModelError`.
    """
    if (folder := place_of(model, models)) is not None:
        source = source_of(folder) if converted else None
        return str(folder if source is None else imported(source.path, models, startup, converted))
    return str(imported(gguf_file(model), models, startup, converted)) if is_gguf(model) else model


def load_decoder(settings: Settings, startup: Startup | None = None) -> Decoder:
    """Load the decoder as the role's daemon does, so that it computes the same numbers. Raises `ModelError`."""
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
    """The prompt's format: as the settings say, else by the model's chat template, else plain text."""
    plain = TextFormat(tokenizer, settings.document_format or DOCUMENT, settings.query_format or QUESTION)
    if settings.document_format or settings.query_format or not tokenizer.has_chat_template:
        return plain
    try:
        return ChatFormat(tokenizer, settings.instruction)
    except ValueError as error:
        log.warning("prompts are plain text: %s", error)
        return plain
