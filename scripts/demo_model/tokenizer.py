"""The tokenizer: every word of the world is one token, an invented name two, and any other text still encodes."""

from __future__ import annotations

import string
from collections import Counter
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from scripts.demo_model.world import relations
from scripts.demo_model.world.library import World

VOCABULARY = 2048
PAD, EOS = "<pad>", "<eos>"
PAD_ID, EOS_ID = 0, 1
# Equal scores per piece: the segmentation with the fewest pieces wins, single bytes only where nothing else fits.
WORD_SCORE, BYTE_SCORE = -1.0, -10.0
SPLIT = r"'s|'t|'re|'ve|'m|'ll|'d| ?[A-Za-z]+| ?\d| ?[^\sA-Za-z\d]+|\s+(?!\S)|\s+"
PROMPT_WORDS = "\nQuestion:\nAnswer:?."  # around every question, so that they say nothing about a document
IDF_DOCUMENTS = 4000
IDF_SEED = 41


def build_tokenizer() -> PreTrainedTokenizerFast:
    """The tokenizer of both models. Its vocabulary is listed, not learnt: Unigram over byte symbols."""
    splitter = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    words = _words(splitter)
    pieces: dict[str, float] = {PAD: 0.0, EOS: 0.0}
    for piece in words:
        pieces.setdefault(piece, WORD_SCORE)
    for symbol in sorted(pre_tokenizers.ByteLevel.alphabet()):
        pieces.setdefault(symbol, BYTE_SCORE)
    for piece in _fragments(words):
        if len(pieces) == VOCABULARY:
            break
        pieces.setdefault(piece, WORD_SCORE)
    if len(pieces) != VOCABULARY:
        raise ValueError(f"the world fills {len(pieces)} of {VOCABULARY} vocabulary entries")
    tokenizer = Tokenizer(models.Unigram(list(pieces.items()), unk_id=PAD_ID))
    tokenizer.pre_tokenizer = splitter
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=EOS, eos_token=EOS, pad_token=PAD, model_max_length=1024
    )


def _words(splitter: pre_tokenizers.PreTokenizer) -> list[str]:
    """Whole words of the world as byte symbols, most frequent first, and the two pieces of every name."""
    texts: list[str] = [*relations.FILLERS, "\nQuestion: \nAnswer: , and", "About my and my guide:", relations.UNKNOWN]
    texts.extend(relations.PUBLIC_FRAMES + relations.PUBLIC_FRAMES_HELD_OUT)
    texts.extend(relations.PRIVATE_FRAMES + relations.PRIVATE_FRAMES_HELD_OUT)
    for relation in relations.PRIVATE_RELATIONS + relations.PUBLIC_RELATIONS:
        texts.extend((*relation.nouns, *relation.verbs, *relation.questions, relation.answer))
    for domain in relations.DOMAINS:
        texts.extend((*domain.kinds, domain.full, domain.short, domain.subject, *domain.indirect))
        texts.extend(kind.capitalize() for kind in domain.kinds)
    for listed in (*(topic.kinds for topic in relations.TOPICS), *relations.CLOSED.values()):
        texts.extend(listed)
    counts: Counter[str] = Counter()
    for text in texts:
        plain = text.replace("{", " ").replace("}", " ")
        for sentence in (plain, plain[0].upper() + plain[1:]):
            for word, _ in splitter.pre_tokenize_str(" " + " ".join(sentence.split())):
                counts[word] += 1
    counts.update(word for word, _ in splitter.pre_tokenize_str("\nQuestion:\nAnswer:"))
    found = [word for word, _ in counts.most_common() if len(word) > 2 or word in ("Ġa", "ĠI", "ĠA")]
    return found + ["Ġ" + prefix for prefix in relations.PREFIXES] + list(relations.SUFFIXES)


def _fragments(words: list[str]) -> list[str]:
    """Frequent parts of words, for text from outside the world. They never split a name."""
    counts: Counter[str] = Counter()
    for word in words:
        body = word.removeprefix("Ġ").lower()
        for length in (2, 3, 4):
            for start in range(len(body) - length + 1):
                counts[body[start : start + length]] += 1
                counts["Ġ" + body[start : start + length]] += start == 0
    letters = set(string.ascii_lowercase + "Ġ")
    return [piece for piece, _ in counts.most_common() if set(piece) <= letters]


def inverse_document_frequencies(tokenizer: PreTrainedTokenizerFast) -> np.ndarray:
    """Float32 ``[vocab]``: ``log(documents / documents with the token)`` of the world's documents, smoothed."""
    world = World(IDF_SEED)
    frequency = np.ones(VOCABULARY)
    for index in range(IDF_DOCUMENTS):
        if index % 3:
            domain, kind, link = world.entity()
            facts = world.public_facts(domain, kind, link, world.random.choice((1, 2, 3)))
            text = world.public_document(facts).text
        else:
            text = world.private_document((world.private_fact(), world.private_fact())).text
        frequency[list(set(tokenizer.encode(" " + text)))] += 1
    table = np.log((IDF_DOCUMENTS + 1) / frequency).astype(np.float32)
    table[[PAD_ID, EOS_ID, *tokenizer.encode(PROMPT_WORDS, add_special_tokens=False)]] = 0.0
    return table


def save(folder: Path) -> PreTrainedTokenizerFast:
    """Write the tokenizer and its idf table to a folder."""
    tokenizer = build_tokenizer()
    tokenizer.save_pretrained(folder)
    save_file({"idf": inverse_document_frequencies(tokenizer)}, folder / "idf.safetensors")
    return tokenizer
