"""Work of other processes with a document store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

import torch

from common.engine.kv.documents import DocumentStore, StoreOptions
from common.engine.kv.memory import DocumentStates, LayerShape, Layout
from common.engine.model.decoder import Decoder
from tests.common.engine.model.tiny_models import some_tokens
from tests.preloaded import preloaded

LAYOUT = Layout((LayerShape(2, 4, 8), LayerShape(2, 4, 8)), torch.float32, torch.device("cpu"))
TOKENS = 16
QUERY = [5, 6, 7]


def synthetic(number: int, layout: Layout = LAYOUT, tokens: int = TOKENS) -> DocumentStates:
    """Keys and values that depend on `number` alone."""
    generator = torch.Generator().manual_seed(number)
    return tuple(
        (
            torch.randn(layer.kv_heads, tokens, layer.key_dim, generator=generator).to(layout.dtype),
            torch.randn(layer.kv_heads, tokens, layer.value_dim, generator=generator).to(layout.dtype),
        )
        for layer in layout.layers
    )


def key(number: int) -> bytes:
    return number.to_bytes(32, "big")


def open_rows(model: str, store: StoreOptions, seed: int, count: int) -> tuple[Decoder, torch.Tensor]:
    """The logits of `count` documents' rows, with the decoder that computed them."""
    decoder = Decoder.load(model, threads=1, document_store=store)
    documents = [some_tokens(decoder, 9 + 3 * number, seed + number) for number in range(count)]
    logits = decoder.open(documents, QUERY, 4)[1]
    decoder.document_cache.flush()
    return decoder, logits


def write_documents(options: StoreOptions, numbers: range, told: Connection) -> None:
    """Write documents of synthetic numbers; each is told when it is there."""
    store = DocumentStore(options, "source", LAYOUT)
    for number in numbers:
        if store.get(key(number)) is None:
            store.put(key(number), synthetic(number))
            store.flush()
        told.send(number)
    store.close()


def open_and_tell(model: str, options: StoreOptions, seed: int, count: int, told: Connection) -> None:
    """Send the logits that `open_rows` gives."""
    told.send(open_rows(model, options, seed, count)[1].tolist())


@contextmanager
def other_process(work: Callable[..., None], *arguments: object) -> Iterator[tuple[BaseProcess, Connection]]:
    """Run `work` in a process of its own, and receive what it tells; it is killed at the end of the block."""
    context = preloaded()
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=work, args=(*arguments, sender))
    process.start()
    sender.close()
    try:
        yield process, receiver
    finally:
        process.kill()
        process.join()
        process.close()
        receiver.close()
