"""Real text for the perplexity: one half to train a small model on and to retrieve from, the other half to predict."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from scripts.bench.results import NoText

TEXT_FOLDER = "DRAGON_BENCH_TEXT"
SUFFIXES = frozenset({".rst", ".md", ".txt"})
VOCABULARY = 4096
END = "<end>"


@dataclass(frozen=True, slots=True)
class Corpus:
    """Texts by half: which one a file belongs to is decided by a hash of its name."""

    known: tuple[str, ...]
    unseen: tuple[str, ...]

    @classmethod
    def load(cls, folder: Path | None = None) -> Corpus:
        """Read every text file below `folder` (default: what the environment names). Raises `NoText`."""
        named = folder or os.environ.get(TEXT_FOLDER)
        if not named:
            raise NoText(f"set {TEXT_FOLDER} to a folder of .rst, .md or .txt files")
        files = sorted(path for path in Path(named).rglob("*") if path.suffix in SUFFIXES)
        if len(files) < 2:
            raise NoText(f"{named} holds no two .rst, .md or .txt files")
        return cls.of((path.name, path.read_text("utf-8", errors="replace")) for path in files)

    @classmethod
    def of(cls, texts: Iterable[tuple[str, str]]) -> Corpus:
        """Texts by name."""
        halves: tuple[list[str], list[str]] = ([], [])
        for name, text in texts:
            halves[hashlib.sha256(name.encode()).digest()[0] % 2].append(text)
        return cls(tuple(halves[0]), tuple(halves[1]))


def train_tokenizer(texts: tuple[str, ...], vocabulary: int = VOCABULARY) -> Tokenizer:
    """A byte-level BPE of `texts`; id 0 is the end of a text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=[END], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def spread(pieces: list[list[int]], most: int) -> list[list[int]]:
    """At most `most` of `pieces`, evenly over all texts."""
    stride = -(-len(pieces) // most)
    return pieces[::stride]


def windows(tokenizer: Tokenizer, texts: tuple[str, ...], size: int) -> list[list[int]]:
    """Every text cut into pieces of exactly `size` tokens; what is left over at its end is dropped."""
    pieces = []
    for encoding in tokenizer.encode_batch(list(texts)):
        ids = encoding.ids
        pieces += [ids[start : start + size] for start in range(0, len(ids) - size + 1, size)]
    return pieces
