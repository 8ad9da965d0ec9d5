"""A small language model of real text that was trained to read retrieved documents first.

It begins as the embedded model, which can already read: learning that from nothing takes far more text. The tokenizer
is new, since the embedded one knows few of the texts' words; a token's embedding begins as the mean of its pieces'.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import torch
import torch.nn.functional as functional
from numpy.typing import NDArray
from tokenizers import Tokenizer
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen2ForCausalLM

from common.configuration.settings import EMBEDDED_MODEL, EMBEDDED_TOKENIZER
from common.engine.model.loading import cpu_has_bfloat16
from common.library.embedder import SentenceTransformerEmbedder, unit_vectors
from scripts.bench.quality.corpus import END, Corpus, spread, train_tokenizer, windows

RECIPE = "recipe.json"
REPORT_EVERY = 200
READ = (0.25, 0.5, 0.25)  # shares of updates whose rows read no, one and two documents
ITS_OWN = 0.15  # share of rows that read a document cut from the window's own place: what is worth copying, and when


@dataclass(frozen=True, slots=True)
class Recipe:
    """Sizes of the training. Lengths are tokens."""

    vocabulary: int = 4096
    document: int = 64
    window: int = 128
    library: int = 8000  # documents to read, at most
    batch: int = 16
    steps: int = 1400
    rate: float = 1e-3
    warm_up: int = 100
    seed: int = 3


def is_trained(corpus: Corpus, recipe: Recipe, folder: Path) -> bool:
    """Whether `folder` has a model of the known half by this recipe."""
    kept = folder / RECIPE
    return kept.exists() and json.loads(kept.read_text()) == _made_of(corpus, recipe)


def _made_of(corpus: Corpus, recipe: Recipe) -> dict[str, Any]:
    texts = hashlib.sha256("\0".join(corpus.known).encode()).hexdigest()
    return asdict(recipe) | {"texts": texts}


def train(corpus: Corpus, recipe: Recipe, folder: Path, say: Callable[[str], None]) -> None:
    """Train tokenizer and model on the known half, and leave both in `folder`."""
    torch.manual_seed(recipe.seed)
    random = np.random.default_rng(recipe.seed)
    tokenizer = train_tokenizer(corpus.known, recipe.vocabulary)
    pieces = np.asarray(windows(tokenizer, corpus.known, recipe.window), dtype=np.int64)
    library = spread(windows(tokenizer, corpus.known, recipe.document), recipe.library)
    documents = np.asarray(library, dtype=np.int64)
    say(f"{len(pieces)} windows, {len(documents)} documents to read")
    nearest = _neighbours(tokenizer, pieces, documents, recipe, say)
    model = _embedded_model(tokenizer)
    optimiser = torch.optim.AdamW(model.parameters(), lr=recipe.rate, betas=(0.9, 0.98), weight_decay=0.05)
    losses = list[float]()
    for step in range(recipe.steps):
        progress = step / recipe.steps
        scale = min(1.0, (step + 1) / recipe.warm_up) * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * progress)))
        for group in optimiser.param_groups:
            group["lr"] = recipe.rate * scale
        chosen = random.integers(0, len(pieces), recipe.batch)
        windowed = torch.from_numpy(pieces[chosen])
        count = random.choice(len(READ), p=READ)
        read = _read(count, pieces[chosen], documents, nearest[chosen], random)
        losses.append(_step(model, optimiser, read, windowed))
        if step % REPORT_EVERY == 0:
            recent = sum(losses[-REPORT_EVERY:]) / len(losses[-REPORT_EVERY:])
            say(f"step {step}, {100 * progress:.0f} %, perplexity of the training windows {math.exp(recent):.1f}")
    model.eval().save_pretrained(folder)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=END, eos_token=END, pad_token=END)
    fast.save_pretrained(folder)
    (folder / RECIPE).write_text(json.dumps(_made_of(corpus, recipe)) + "\n")


def _read(
    count: int,
    windows: NDArray[np.int64],
    documents: NDArray[np.int64],
    nearest: NDArray[np.int64],
    random: np.random.Generator,
) -> torch.Tensor:
    """Context of each of `windows` [rows, tokens]: the end of a text and `count` documents, [rows, tokens]."""
    end = np.zeros((len(windows), 1), dtype=np.int64)
    if count == 0:
        return torch.from_numpy(end)
    picked = random.permuted(nearest, axis=1)[:, :count]
    read = documents[picked]
    length = documents.shape[1]
    for row in np.flatnonzero(random.random(len(windows)) < ITS_OWN):
        start = random.integers(windows.shape[1] - length + 1)
        read[row, random.integers(count)] = windows[row, start : start + length]
    return torch.from_numpy(np.concatenate([end, read.reshape(len(windows), -1)], axis=1))


def _step(model: Qwen2ForCausalLM, optimiser: torch.optim.Optimizer, read: torch.Tensor, window: torch.Tensor) -> float:
    """One update on rows [end][documents][window], with the loss of the window's tokens alone."""
    with torch.autocast("cpu", torch.bfloat16, enabled=cpu_has_bfloat16()):  # elsewhere that takes many times as long
        logits = model(input_ids=torch.cat([read, window], dim=1)).logits[:, read.shape[1] - 1 : -1]
    loss = functional.cross_entropy(logits.float().flatten(0, 1), window.flatten())
    optimiser.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimiser.step()
    return float(loss.detach())


def _neighbours(
    tokenizer: Tokenizer,
    pieces: NDArray[np.int64],
    documents: NDArray[np.int64],
    recipe: Recipe,
    say: Callable[[str], None],
    count: int = 6,
) -> NDArray[np.int64]:
    """Documents nearest to the first eighth of each window, its own text left out, [windows, count]."""
    embedder = SentenceTransformerEmbedder()
    vectors = unit_vectors(embedder, [tokenizer.decode(ids.tolist()) for ids in documents])
    say("documents embedded")
    asked = [tokenizer.decode(ids[: recipe.window // 8].tolist()) for ids in pieces]
    query = unit_vectors(embedder, asked, queries=True)
    say("queries embedded")
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    _, found = index.search(query, min(2 * count, len(documents)))
    # A document that shares a run of tokens with the window was cut from the same place.
    own = np.stack([_overlap(documents[near], window) for near, window in zip(found, pieces, strict=True)])
    order = np.argsort(own, axis=1, kind="stable")
    return np.asarray(np.take_along_axis(found, order, axis=1)[:, :count])


def _overlap(documents: NDArray[np.int64], window: NDArray[np.int64], run: int = 8) -> NDArray[np.bool_]:
    """Documents that begin or end with `run` tokens that stand in the window, [documents]."""
    runs = set(map(bytes, np.lib.stride_tricks.sliding_window_view(window, run)))
    return np.array([bytes(one[:run]) in runs or bytes(one[-run:]) in runs for one in documents])


def _embedded_model(tokenizer: Tokenizer) -> Qwen2ForCausalLM:
    """The embedded model under another vocabulary."""
    model: Qwen2ForCausalLM = Qwen2ForCausalLM.from_pretrained(EMBEDDED_MODEL, dtype=torch.float32).train()
    former = PreTrainedTokenizerFast.from_pretrained(EMBEDDED_TOKENIZER)
    embeddings: torch.Tensor = model.model.embed_tokens.weight.detach().clone()
    unknown = embeddings.mean(0)
    vectors = []
    for token in range(tokenizer.get_vocab_size()):
        pieces = former.encode(tokenizer.decode([token], skip_special_tokens=True), add_special_tokens=False)
        vectors.append(embeddings[pieces].mean(0) if pieces else unknown)
    model.resize_token_embeddings(len(vectors), mean_resizing=False)
    model.model.embed_tokens.weight.data.copy_(torch.stack(vectors))
    model.config.bos_token_id = model.config.eos_token_id = model.config.pad_token_id = 0
    model.generation_config = GenerationConfig.from_model_config(model.config)
    return model
