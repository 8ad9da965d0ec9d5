"""A synthetic model whose next token has a wanted entropy, for daemons that are to hesitate as larger models do.

Its weights are random, and it never ends by itself. Its answers mean nothing: it is there for timing, and for how often
the sides agree.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import torch
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from transformers.utils import logging

from common.configuration.settings import EMBEDDED_MODEL, EMBEDDED_TOKENIZER

FLAGS: Final[dict[str, object]] = {"tokenizer": str(EMBEDDED_TOKENIZER)}  # of daemons that use such a model
WEIGHTS: Final = 0.06  # standard deviation of the random ones
ATTENTION: Final = 0.25  # of its random weight: how much the documents, on which the sides differ, move a distribution
NEVER: Final = -1e4  # logit of the end token
ROWS, LENGTH = 16, 64  # of the random texts that the entropy is measured on; their last half counts
_HALVINGS: Final = 20
_SEED: Final = 7
_DRAWING: Final = threading.Lock()  # PyTorch's random numbers are the whole process's


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a model that is larger or smaller than the embedded one."""

    width: int
    layers: int
    inner: int  # width within a feed-forward layer
    heads: int
    key_heads: int


def make_model(folder: Path, entropy: float, shape: Shape | None = None) -> dict[str, object]:
    """Save a model whose next-token distributions have `entropy` nats on average; its `shape` is the embedded one's
    where none is given.

    Returns the settings that a daemon is given for it. Raises `ValueError` for an entropy that the vocabulary has not.
    """
    model = random_model(shape)
    hidden, logits = _last_states(model)
    model.lm_head.weight.data *= scale_to(logits, entropy)
    never_end(model, float(hidden[..., 0].mean()))
    logging.disable_progress_bar()
    model.save_pretrained(folder)
    return {"model": str(folder)} | FLAGS


def random_model(shape: Shape | None) -> Any:
    """A model of random weights, of the embedded one's shape where none is given.

    Dimension 0 of the residual stream is the same everywhere: nothing reads or writes it but `never_end`.
    """
    config = Qwen2Config.from_pretrained(EMBEDDED_MODEL)
    if shape is not None:
        config.hidden_size, config.num_hidden_layers = shape.width, shape.layers
        config.intermediate_size = shape.inner
        config.num_attention_heads, config.num_key_value_heads = shape.heads, shape.key_heads
        config.layer_types = ["full_attention"] * shape.layers
    config.initializer_range = WEIGHTS
    config.tie_word_embeddings = False
    with _DRAWING:
        torch.manual_seed(_SEED)
        model: Any = Qwen2ForCausalLM(config).eval()
    with torch.no_grad():
        model.model.embed_tokens.weight[:, 0] = 1.0
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight *= ATTENTION
            layer.self_attn.o_proj.weight[0] = 0.0
            layer.mlp.down_proj.weight[0] = 0.0
        model.lm_head.weight[:, 0] = 0.0
    return model


def nats(probabilities: torch.Tensor) -> float:
    """Entropy."""
    return float(torch.special.entr(probabilities.to(torch.float64)).sum())


@torch.no_grad()
def _last_states(model: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Hidden states `[rows, tokens, width]` and logits `[rows * tokens, vocab]` on random texts."""
    generator = torch.Generator().manual_seed(_SEED)
    texts = torch.randint(2, model.config.vocab_size, (ROWS, LENGTH), generator=generator)
    hidden = model.model(input_ids=texts, use_cache=False).last_hidden_state[:, LENGTH // 2 :]
    logits: torch.Tensor = model.lm_head(hidden).flatten(0, 1).float()
    return hidden, logits


def scale_to(logits: torch.Tensor, entropy: float) -> float:
    """Factor of `logits` [n, vocab] that gives them `entropy` nats on average: the larger, the less.

    Found by bisection, on every eighth row. Raises `ValueError` for an entropy that the vocabulary has not.
    """
    vocabulary = logits.shape[-1]
    if not 0.0 < entropy < math.log(vocabulary):
        raise ValueError(f"{vocabulary} tokens can't have an entropy of {entropy:g} nats")
    low, high = 0.0, 1e4
    for _ in range(_HALVINGS):
        middle = math.sqrt(max(low, 1e-4) * high)
        if fmean(nats(row) for row in torch.softmax(middle * logits[::8], dim=-1)) > entropy:
            low = middle
        else:
            high = middle
    return high


def never_end(model: Any, constant: float) -> None:
    """Let the end token's logit be `NEVER` wherever dimension 0 is about `constant`."""
    eos = PreTrainedTokenizerFast.from_pretrained(EMBEDDED_TOKENIZER).eos_token_id
    with torch.no_grad():
        model.lm_head.weight[eos] = 0.0
        model.lm_head.weight[eos, 0] = NEVER / constant
