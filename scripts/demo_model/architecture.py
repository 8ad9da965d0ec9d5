"""The two models' sizes, and an initialisation with heads that attend to the previous tokens."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from scripts.demo_model.tokenizer import EOS_ID, PAD_ID, VOCABULARY

ROPE_THETA = 10000.0
PREVIOUS_TOKEN_HEADS = ((0, 0, 1), (0, 1, 1), (0, 2, 2), (0, 3, 3), (1, 0, 1), (1, 1, 2))
"""(layer, head, offset): copying needs heads that look one and two tokens back; given, they need not be
found."""
BIAS_AMPLITUDE = 6.0
BIAS_PAIRS = 8
"""So many of a head's fastest rotary pairs carry the bias."""


@dataclass(frozen=True, slots=True)
class Size:
    """The shape of a model."""

    layers: int
    hidden: int
    intermediate: int
    heads: int


SIZES = {"target": Size(4, 256, 704, 8), "draft": Size(3, 128, 352, 4)}


def build(size: Size) -> Qwen2ForCausalLM:
    """A freshly initialised model."""
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=size.hidden,
        num_hidden_layers=size.layers,
        intermediate_size=size.intermediate,
        num_attention_heads=size.heads,
        num_key_value_heads=size.heads,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        bos_token_id=EOS_ID,
        eos_token_id=EOS_ID,
        pad_token_id=PAD_ID,
        rope_parameters={"rope_type": "default", "rope_theta": ROPE_THETA},
    )
    model = Qwen2ForCausalLM(config)
    for layer, head, offset in PREVIOUS_TOKEN_HEADS:
        attend_to_offset(model, layer, head, offset)
    return model


@torch.no_grad()
def attend_to_offset(model: Qwen2ForCausalLM, layer: int, head: int, offset: int) -> None:
    """Set a head's query and key biases so that, under rotary embedding, its score peaks ``offset`` tokens
    back."""
    attention = model.model.layers[layer].self_attn
    width = attention.head_dim
    rows = slice(head * width, (head + 1) * width)
    pairs = min(BIAS_PAIRS, width // 2)
    frequencies = ROPE_THETA ** (-torch.arange(width // 2).float() / (width // 2))[:pairs]
    query, key = torch.zeros(width), torch.zeros(width)
    key[:pairs] = BIAS_AMPLITUDE
    query[:pairs] = BIAS_AMPLITUDE * torch.cos(offset * frequencies)
    query[width // 2 : width // 2 + pairs] = -BIAS_AMPLITUDE * torch.sin(offset * frequencies)
    attention.q_proj.weight[rows] *= 0.1
    attention.k_proj.weight[rows] *= 0.1
    attention.q_proj.bias[rows] = query
    attention.k_proj.bias[rows] = key
