"""Encoders of random weights, saved as sentence-transformers saves them: small, and loaded in no time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertForSequenceClassification, BertModel, PreTrainedModel, PreTrainedTokenizerFast
from transformers.utils import logging

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LONGEST = 48  # tokens
CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,?!"
WORDS = "what is the best game of kind i like horror enjoy most my rabbit kettle called dance class cold feet against"


def word_pieces() -> PreTrainedTokenizerFast:
    """A WordPiece tokenizer as BERT has it."""
    # Not trained: a trainer breaks ties as it likes, and the same weights would say something else each time.
    pieces = [*SPECIAL, *CHARACTERS, *(f"##{each}" for each in CHARACTERS), *dict.fromkeys(WORDS.split())]
    vocabulary = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    made = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        model_max_length=LONGEST,
    )


def configuration(**changes: Any) -> BertConfig:
    return BertConfig(
        vocab_size=160,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=LONGEST,
        initializer_range=0.4,  # far from flat: any word changes the logit
        **changes,
    )


def save(folder: Path, model: PreTrainedModel) -> Path:
    """Save `model` with the tokenizer above."""
    logging.disable_progress_bar()
    model.save_pretrained(folder)
    word_pieces().save_pretrained(folder)
    return folder


def make_cross_encoder(folder: Path, labels: int = 1, seed: int = 0) -> Path:
    """A folder as a cross-encoder's training script leaves it."""
    torch.manual_seed(seed)
    return save(folder, BertForSequenceClassification(configuration(num_labels=labels)))


def make_bi_encoder(folder: Path) -> Path:
    """A folder as `SentenceTransformer.save` leaves it."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    torch.manual_seed(1)
    bert = save(folder.with_name(f"{folder.name}-bert"), BertModel(configuration()))
    transformer = Transformer(str(bert))
    SentenceTransformer(modules=[transformer, Pooling(32)], device="cpu").save(str(folder))
    return folder
