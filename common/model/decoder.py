"""The decode step: rows of documents, each `[document][query][answer so far]`, that move together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Cache

from common.model.agreement import check_agreement
from common.model.document_cache import DocumentCache
from common.model.document_store import DocumentStore, StoreOptions
from common.model.errors import ContextError, Preempted
from common.model.layout_probe import find_layout
from common.model.loading import DtypeName, LoadedModel, TorchDevice, load_model
from common.model.slab import DocumentStates, Slab, SlabPass
from common.model.source import numbers_source

Interrupt = Callable[[], bool]

DOCUMENT_CACHE_BYTES = 512 * 2**20


class Rows:
    """One session's rows in the KV cache, one per document."""

    __slots__ = ("_answer", "_slab", "prompt_lengths")

    def __init__(self, slab: Slab, prompt_lengths: tuple[int, ...]) -> None:
        self._slab = slab
        self._answer = 0
        self.prompt_lengths = prompt_lengths  # tokens of [document][query], per row

    @property
    def answer(self) -> int:
        """Answer tokens whose keys and values are in the cache."""
        return self._answer

    @property
    def context(self) -> int:
        """Tokens in the longest row."""
        return self._slab.longest

    def crop(self, answer: int) -> None:
        """Roll back to `answer` answer tokens. O(1): nothing is moved or cleared."""
        if not 0 <= answer <= self._answer:
            raise ValueError(f"can't crop to {answer} answer tokens, there are {self._answer}")
        with torch.inference_mode():
            self._slab.advance(answer - self._answer)
        self._answer = answer

    def __len__(self) -> int:
        """The number of rows."""
        return self._slab.rows


class Decoder:
    """A decoder-only Transformers model over slab caches.

    One thread owns a decoder: it alone opens, steps and crops. Passes are pre-empted by `interrupt`, which is
    polled before every decoder layer, so it may read what another thread sets. (On a GPU the layers are only
    enqueued at that moment; what is saved is what was not enqueued yet.)
    """

    def __init__(
        self,
        loaded: LoadedModel,
        document_cache_bytes: int = DOCUMENT_CACHE_BYTES,
        document_store: StoreOptions | None = None,
    ) -> None:
        """Take over a loaded model. Raises `ModelError` if slabs change what it computes."""
        self._model = loaded.model
        # The check's documents are not the user's: they are neither kept nor counted.
        self._documents, self._source = DocumentCache(0), loaded.identity
        self.tokenizer = loaded.tokenizer
        self.torch_device = loaded.torch_device
        self.vocabulary = loaded.tokenizer.size
        self.eos = loaded.eos
        self.max_context = loaded.max_context
        self.identity = loaded.identity
        self._interrupt: Interrupt | None = None
        for layer in loaded.layers:
            layer.register_forward_pre_hook(self._poll)
        self.layout = find_layout(loaded, lambda tokens, cache: self._run(tokens, cache, tokens, None, 1, None))
        check_agreement(self)
        store, self._source = None, self.identity
        if document_store is not None and document_store.limit_bytes:
            self._source = numbers_source(loaded.model, loaded.identity)
            store = DocumentStore(document_store, self._source, self.layout)
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
    ) -> Decoder:
        """Load a local folder or Hub id; `tokenizer` is another folder or id, where it isn't the model's own.

        `document_cache_bytes` of documents' keys and values stay in memory, and those of `document_store` on disk.

        Only safetensors are read and no code is run that a checkpoint brings. `threads` sets PyTorch's
        threads for the whole process. Raises `ModelError` when the model is missing, not decoder-only, has
        layers without full attention, has no safetensors or incomplete ones, or doesn't fit the tokenizer.
        """
        if threads is not None:
            torch.set_num_threads(threads)
        loaded = load_model(folder_or_hub_id, tokenizer, torch_device, dtype)
        return cls(loaded, document_cache_bytes, document_store)

    @property
    def document_cache(self) -> DocumentCache:
        """The documents' keys and values kept between requests, with its counters."""
        return self._documents

    def close(self) -> None:
        """Write the documents that wait for the disk, and end the thread that does so."""
        self._documents.close()

    @property
    def dtype(self) -> torch.dtype:
        """The type the model computes in."""
        return self.layout.dtype

    @property
    def token_bytes(self) -> int:
        """Bytes of keys and values per token and row."""
        return self.layout.token_bytes

    @torch.inference_mode()
    def open(
        self,
        documents: Sequence[Sequence[int]],
        query: Sequence[int],
        reserve: int,
        interrupt: Interrupt | None = None,
        given: Mapping[int, DocumentStates] | None = None,
    ) -> tuple[Rows, Tensor]:
        """Start a session: one row `[document][query]` per document, with room for `reserve` answer tokens.

        Gives the rows and the logits at the last query token, float32 `[docs, vocabulary]`. Documents seen
        before come from the document cache, with the same numbers; the states `given` for rows are used and
        not kept. Raises `ContextError` if the longest row and the reserve exceed `max_context`, `ValueError`
        for no documents, no query or ids that don't exist, `Preempted` if `interrupt()` was true.
        """
        self._check_open(documents, query, reserve)
        lengths = [len(document) for document in documents]
        slab = Slab(self.layout, lengths, max(lengths) + len(query) + reserve, self.max_context)
        for row, document in enumerate(documents):
            if len(document):
                states = given[row] if given and row in given else self.document_states(document, interrupt)
                slab.fill(row, states)
        rows = Rows(slab, tuple(length + len(query) for length in lengths))
        logits = self._forward([rows], self._tokens(query, slab.rows), 1, interrupt)
        return rows, logits[:, -1]

    @torch.inference_mode()
    def prefill(self, document: Sequence[int]) -> bool:
        """Compute a document's keys and values ahead of its first use and put them on disk; False if they were there.

        Whether they could be written is in `document_cache.counters`. Raises `ContextError` if it is longer than the
        context, `ValueError` for no tokens or ids that don't exist.
        """
        self._check_open([document], document[:1], 0)
        key = DocumentCache.key(self._source, document)
        known = self._documents.get(key) is not None
        if not known:
            self._compute_document(key, document, None)
        self._documents.flush()
        return not known

    @torch.inference_mode()
    def step(self, rows: Rows, tokens: Sequence[int], interrupt: Interrupt | None = None) -> Tensor:
        """Feed answer tokens to every row; logits at the last one, float32 `[docs, vocabulary]`.

        Raises `Preempted` (the rows are then as before) and `ContextError` when the context is full.
        """
        if not tokens:
            raise ValueError("a step needs at least one token")
        self._check_ids(tokens)
        self._documents.release()
        logits = self._forward([rows], self._tokens(tokens, len(rows)), 1, interrupt)
        rows._answer += len(tokens)
        return logits[:, -1]

    @torch.inference_mode()
    def step_many(self, batch: Sequence[tuple[Rows, int]], interrupt: Interrupt | None = None) -> list[Tensor]:
        """One forward pass, one token for the rows of every session; logits `[docs, vocabulary]` each.

        Raises as `step` does; then no session has moved.
        """
        if not batch:
            return []
        sessions = [rows for rows, _ in batch]
        if len({id(rows) for rows in sessions}) < len(sessions):
            raise ValueError("a session may take part in a pass only once")
        self._check_ids([token for _, token in batch])
        self._documents.release()
        column = [token for rows, token in batch for _ in range(len(rows))]
        tokens = torch.tensor(column, device=self.torch_device)[:, None]
        logits = self._forward(sessions, tokens, 1, interrupt)
        for rows in sessions:
            rows._answer += 1
        return list(torch.split(logits[:, -1], [len(rows) for rows in sessions]))

    @torch.inference_mode()
    def fresh_logits(self, tokens: Sequence[int]) -> Tensor:
        """Logits after `tokens` from a pass without a cache, float32 `[vocabulary]`: what to compare with."""
        output = self._model(input_ids=self._tokens(tokens, 1), use_cache=False)
        logits: Tensor = output.logits
        return logits[0, -1, : self.vocabulary].float()

    def _forward(self, batch: Sequence[Rows], tokens: Tensor, keep: int, interrupt: Interrupt | None) -> Tensor:
        """Feed `tokens` `[rows, q]`; logits at the last `keep` of them, `[rows, keep, vocabulary]`."""
        slabs = [rows._slab for rows in batch]
        count = tokens.shape[1]
        for slab in slabs:
            slab.reserve(slab.longest + count)
        forward = SlabPass(slabs, count)
        logits = self._run(tokens, forward, forward.positions, forward.mask, keep, interrupt)
        for slab in slabs:
            slab.advance(count)
        return logits[..., : self.vocabulary].float()

    def _run(
        self,
        tokens: Tensor,
        cache: Cache,
        positions: Tensor,
        mask: Tensor | None,
        keep: int,
        interrupt: Interrupt | None,
    ) -> Tensor:
        self._interrupt = interrupt
        try:
            output = self._model(
                input_ids=tokens,
                position_ids=positions,
                attention_mask=mask,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=keep,
            )
        finally:
            self._interrupt = None
        logits: Tensor = output.logits
        return logits[:, -keep:]

    def _poll(self, module: nn.Module, arguments: Any) -> None:
        if self._interrupt is not None and self._interrupt():
            raise Preempted

    @torch.inference_mode()
    def document_states(self, document: Sequence[int], interrupt: Interrupt | None) -> DocumentStates:
        """Keys and values of a document's tokens, which are not to be written to. Raises `Preempted`."""
        key = DocumentCache.key(self._source, document)
        states = self._documents.get(key)
        return self._compute_document(key, document, interrupt) if states is None else states

    def _compute_document(self, key: bytes, document: Sequence[int], interrupt: Interrupt | None) -> DocumentStates:
        # Always alone in its pass: a document's numbers depend neither on its neighbours nor on the cache.
        slab = Slab(self.layout, [0], len(document), self.max_context)
        self._forward([Rows(slab, (0,))], self._tokens(document, 1), 1, interrupt)
        states = tuple((keys[0], values[0]) for keys, values in zip(slab.keys, slab.values, strict=True))
        self._documents.put(key, states)
        return states

    def _tokens(self, tokens: Sequence[int], rows: int) -> Tensor:
        return torch.tensor([tokens], device=self.torch_device).expand(rows, -1)

    def _check_ids(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            if not 0 <= token < self.vocabulary:
                raise ValueError(f"token id {token} is not in the vocabulary of {self.vocabulary}")

    def _check_open(self, documents: Sequence[Sequence[int]], query: Sequence[int], reserve: int) -> None:
        if not documents or not query:
            raise ValueError("a session needs at least one document (it may be empty) and a query")
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
            self._check_ids(tokens)
