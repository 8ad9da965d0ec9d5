"""A GGUF file's tokenizer: rules and tokens that Transformers leaves out, or releases of it have differently.

Text is split into words before pairs are merged, and a file names the rule (`tokenizer.ggml.pre`) as llama.cpp does. By
another rule a model gets other tokens for some texts than those that it was trained with.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from tokenizers import AddedToken, Regex, Tokenizer, normalizers, pre_tokenizers

BYTE_LEVEL, _SENTENCEPIECE = "gpt2", "llama"  # `tokenizer.ggml.model`
_CONTROL, _USER_DEFINED = 3, 4  # `tokenizer.ggml.token_type`
_SPACE: Final = "\u2581"  # how sentencepiece's vocabularies write a space

# Rules by name. GPT-2's, alone or behind one by which every digit is a word:
_GPT_2 = frozenset({"gpt-2", "phi-2", "olmo", "jais", "trillion", "gigachat", "default"})
_SINGLE_DIGITS = frozenset({"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"})
# Llama 3's, in which numbers have up to three digits, and Qwen 2's, in which they have one:
_LLAMA_3 = frozenset(
    {"llama3", "llama-v3", "llama-bpe", "falcon3", "pixtral", "dbrx", "smaug-bpe", "glm4", "chatglm-bpe"}
)
_QWEN_2 = frozenset({"qwen2", "deepseek-r1-qwen", "megrez", "stablelm2"})
_TEKKEN, _GPT_4O = frozenset({"tekken"}), frozenset({"gpt-4o", "llama4"})
# A word that the vocabulary has is one token here, also where merging its pairs ends elsewhere.
_WHOLE_WORDS = frozenset({"llama3", "llama-v3", "llama-bpe", "falcon3", "pixtral", "tekken"})

_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED = rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+%s|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*%s"
_SPLITS: Final = (
    (_LLAMA_3, rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"),
    (_QWEN_2, rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"),
    (_TEKKEN, rf"{_CASED % ('', '')}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"),
    (_GPT_4O, rf"{_CASED % ((f'{_ENDINGS}?',) * 2)}|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"),
)


def with_own_tokens(tokenizer: Tokenizer, tokens: Sequence[str], types: Sequence[int]) -> Tokenizer:
    """A byte-level `tokenizer`, as Transformers makes it, with a file's own `tokens`, in the order of their ids.

    Transformers spells those in bytes that have other characters than the byte alphabet's (DeepSeek's control tokens,
    several spaces), so that no text becomes one of them, and adds others that the model has no ids for: those that
    begin and end texts once more, and GPT-2's where the file has none.
    """
    description = json.loads(tokenizer.to_str())
    description["model"]["vocab"] = {token: number for number, token in enumerate(tokens)}
    description["added_tokens"] = [added for added in description["added_tokens"] if added["id"] < len(tokens)]
    restored = Tokenizer.from_str(json.dumps(description))
    typed = list(zip(tokens, types, strict=False))  # some files have no types
    restored.add_special_tokens([AddedToken(token, normalized=False) for token, kind in typed if kind == _CONTROL])
    restored.add_tokens([AddedToken(token, normalized=False) for token, kind in typed if kind == _USER_DEFINED])
    return restored


def follow_rules(tokenizer: Tokenizer, model: str, split: str) -> None:
    """Have `tokenizer`, as Transformers makes it, follow the rules of a file that states the kind `model` of vocabulary
    and the rule `split`. Raises `ValueError` for a rule that is not known.
    """
    if model == BYTE_LEVEL:
        tokenizer.pre_tokenizer = _splitting(split)
        tokenizer.model.ignore_merges = split in _WHOLE_WORDS
        return
    spaces = tokenizer.pre_tokenizer
    if model == _SENTENCEPIECE and isinstance(spaces, pre_tokenizers.Metaspace) and spaces.prepend_scheme != "never":
        # A space is put before every text, also before one that begins with a space.
        rules = [normalizers.Prepend(_SPACE), normalizers.Replace(" ", _SPACE)]
        tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.Sequence(rules), None


def _splitting(rule: str) -> pre_tokenizers.PreTokenizer:
    words = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if rule in _GPT_2:
        return words
    if rule in _SINGLE_DIGITS:
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), words])
    for names, expression in _SPLITS:
        if rule in names:
            split = pre_tokenizers.Split(Regex(expression), behavior="isolated")
            return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    raise ValueError(f"its tokenizer splits text by a rule that is not known here ({rule})")
