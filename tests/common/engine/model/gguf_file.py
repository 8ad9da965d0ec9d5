"""A tiny model in a GGUF file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from scripts.gguf_blocks import quantised

WIDTH, LAYERS, HEADS, INNER, CONTEXT = 32, 2, 4, 48, 128
THETA = 500_000.0
END = 2
CHAT_TEMPLATE = "{% for message in messages %}<|im_start|>{{ message['content'] }}<|im_end|>{% endfor %}"
Weights = dict[str, NDArray[np.float32]]


def _tokens() -> list[str]:
    """The byte alphabet of byte-level BPE behind three control tokens."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return [
        "<|endoftext|>",
        "<|im_start|>",
        "<|im_end|>",
        *(chr(byte) for byte in visible),
        *(chr(256 + place) for place in range(len(hidden))),
        "ab",
        "ĊĊ",
    ]


def write_gguf(
    path: Path,
    scaling: Mapping[str, Any] | None = None,
    changed: Weights | None = None,
    split: str = "default",
    kind: str = "F32",
    width: int = WIDTH,
    inner: int = INNER,
    architecture: str = "llama",
) -> Weights:
    """Write a random Llama model to `path`; returns its weights by their names in the file.

    `scaling` is metadata, by what follows `llama.rope.scaling.`; `changed` tensors are added, or left out where empty.
    `split` is the tokenizer's rule, and `kind` the type of the matrices. The architecture `qwen2` has biases.
    """
    random = np.random.default_rng(5)
    tokens = _tokens()

    def matrix(*shape: int) -> NDArray[np.float32]:
        return (0.1 * random.standard_normal(shape)).astype(np.float32)

    weights: Weights = {"token_embd.weight": matrix(len(tokens), width), "output_norm.weight": 1 + matrix(width)}
    for layer in range(LAYERS):
        shapes = {
            "attn_norm": (width,),
            "attn_q": (width, width),
            "attn_k": (width, width),
            "attn_v": (width, width),
            "attn_output": (width, width),
            "ffn_norm": (width,),
            "ffn_gate": (inner, width),
            "ffn_up": (inner, width),
            "ffn_down": (width, inner),
        }
        weights |= {f"blk.{layer}.{name}.weight": matrix(*shape) for name, shape in shapes.items()}
        if architecture == "qwen2":
            weights |= {f"blk.{layer}.{name}.bias": matrix(width) for name in ("attn_q", "attn_k", "attn_v")}
    weights = {name: weight for name, weight in (weights | (changed or {})).items() if weight.size}
    writer = gguf.GGUFWriter(path, architecture)
    for name, value in (scaling or {}).items():
        add: Any = {str: writer.add_string, int: writer.add_uint32, float: writer.add_float32}[type(value)]
        add(f"llama.rope.scaling.{name}", value)
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(THETA)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(split)
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL] * 3 + [gguf.TokenType.NORMAL] * (len(tokens) - 3))
    writer.add_token_merges(["a b", "Ċ Ċ"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(END)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(END)
    writer.add_chat_template(CHAT_TEMPLATE)
    for name, weight in weights.items():
        if kind != "F32" and weight.ndim == 2:
            writer.add_tensor(name, quantised(weight, kind), raw_dtype=gguf.GGMLQuantizationType[kind])
        else:
            writer.add_tensor(name, weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return weights
