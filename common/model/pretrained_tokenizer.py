"""Tokenizer files to a fast Hugging Face tokenizer that does what they say."""

from __future__ import annotations

from typing import Any


def load_pretrained_tokenizer(folder_or_hub_id: str, local: bool) -> Any:
    """The tokenizer that `tokenizer.json` describes, to the letter.

    `AutoTokenizer` picks a class by the model's type, and some of these classes put parts of their own in the place of
    the file's, so that other ids come out than the model was trained with. Only where there is no such file it makes
    one of `vocab.json` and `merges.txt` or the like. `local`: no network. Raises what these classes raise.
    """
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    try:
        return PreTrainedTokenizerFast.from_pretrained(folder_or_hub_id, local_files_only=local)
    except ValueError:
        return AutoTokenizer.from_pretrained(
            folder_or_hub_id, use_fast=True, trust_remote_code=False, local_files_only=local
        )
