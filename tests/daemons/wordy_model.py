"""A random model without an end token: its answers are exactly as long as asked for, and it loads in no time."""

from __future__ import annotations

from pathlib import Path

from transformers import Qwen2Config

from tests.common.model.tiny_models import byte_level_tokenizer, random_model

# The lexical scorer needs a table beside the tokenizer that this one does not have.
SCORER = "static"


def make_wordy_model(folder: Path, words: int = 330) -> Path:
    """Save model and tokenizer, of about `words` tokens, to `folder`."""
    tokenizer = byte_level_tokenizer(words)
    tokenizer.eos_token = None
    configuration = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=2048,
        initializer_range=0.3,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    random_model(configuration).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
