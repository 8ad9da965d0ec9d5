"""Tokenizer files to a fast Hugging Face tokenizer that does what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from common.engine.model.model_files import check_vocabulary


def load_pretrained_tokenizer(folder: Path) -> Any:
    """The tokenizer that `tokenizer.json` describes, to the letter, without network; `check_files` comes first.

    `AutoTokenizer` picks a class by the model's type, and some of these classes put parts of their own in the place of
    the file's, so that other ids come out than the model was trained with. Only where there is no such file it makes
    one of `vocab.json` and `merges.txt` or the like. Raises `ModelError` where there is nothing to make one of, and
    what these classes raise, bare exceptions included.
    """
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    check_vocabulary(folder)
    try:
        return PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
    except ValueError:
        return AutoTokenizer.from_pretrained(folder, use_fast=True, trust_remote_code=False, local_files_only=True)
