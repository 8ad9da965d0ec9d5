"""A random model that never ends by itself: its answers are as long as asked for, and it loads in no time."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import Qwen2Config
from transformers.utils import logging

from tests.common.engine.model.tiny_models import byte_level_tokenizer, random_model

# The lexical scorer needs a table beside the tokenizer that this one does not have.
SCORER = "static"


def make_wordy_model(folder: Path, words: int = 330) -> str:
    """Save model and tokenizer, of about `words` tokens, to `folder`."""
    tokenizer = byte_level_tokenizer(words)
    configuration = Qwen2Config(
        vocab_size=len(tokenizer) + 6,  # padded, as real ones are
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=2048,
        initializer_range=0.3,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=0,
    )
    model = random_model(configuration)
    with torch.no_grad():
        # Dimension 0 of the residual stream is 1 everywhere, and it speaks against the end token alone.
        model.model.embed_tokens.weight[:, 0] = 1.0
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight[0] = 0.0
            layer.mlp.down_proj.weight[0] = 0.0
        model.lm_head.weight[:, 0] = 0.0
        model.lm_head.weight[tokenizer.eos_token_id] = 0.0
        model.lm_head.weight[tokenizer.eos_token_id, 0] = -1000.0
    logging.disable_progress_bar()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)
