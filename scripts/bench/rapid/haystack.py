"""Long documents with a sentence that is asked for, and the passages that a library finds for the question."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from common.engine.model.tokenizer import Tokenizer
from common.library.embedder import SentenceTransformerEmbedder
from common.library.library import Library
from common.methods.drafted.rapid.reading import chosen
from common.methods.drafted.reading import Passage
from common.methods.passages.long_context.reading import BETWEEN

THRESHOLD = 0.3  # rapid's default
WHO = ("the baker", "a retired pilot", "the schoolteacher", "an old gardener", "the ferryman", "a young carpenter")
DID = ("walked to", "wrote about", "repaired a fence near", "painted", "took a photograph of", "came back from")
WHERE = ("the mill", "the north harbour", "the chapel", "an orchard", "the railway bridge", "the market square")
WHEN = ("before sunrise", "on a rainy Tuesday", "in early autumn", "after the fair", "at noon", "late in the evening")
THEN = ("and told nobody", "and bought bread", "because the bus was late", "and met a cousin", "with two dogs")


@dataclass(frozen=True, slots=True)
class Haystack:
    """A document, a question about one of its sentences, and what has to be in the answer."""

    text: str
    question: str
    answer: str


def haystack(tokenizer: Tokenizer, tokens: int, depth: float, seed: int) -> Haystack:
    """A document of about `tokens` tokens; its needle is behind a share `depth` of it."""
    random = Random(seed)
    code = str(random.randrange(1000, 10_000))
    needle = f"The code of the lighthouse door is {code}."
    sentences: list[str] = []
    length = len(tokenizer.encode(needle))
    while length < tokens:
        who, did, where, when, then = (random.choice(each) for each in (WHO, DID, WHERE, WHEN, THEN))
        sentence = f"{when.capitalize()}, {who} {did} {where} {then}."
        sentences.append(sentence)
        length += len(tokenizer.encode(f" {sentence}"))
    sentences.insert(int(depth * len(sentences)), needle)
    paragraphs = [" ".join(sentences[start : start + 6]) for start in range(0, len(sentences), 6)]
    return Haystack("\n\n".join(paragraphs), "What is the code of the lighthouse door?", code)


@dataclass(frozen=True, slots=True)
class Parts:
    """Texts that a drafter may read."""

    related: str
    unrelated: str  # as much of what is least like the question


def retrieved(hay: Haystack, tokenizer: Tokenizer, embedder: SentenceTransformerEmbedder, tokens: int) -> Parts:
    """The passages that rapid's drafter reads, of at most `tokens` tokens, and as much of the rest."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "story.txt").write_text(hay.text)
        with Library(Path(folder) / "library", embedder) as library:
            library.add(Path(folder) / "story.txt")
            hits = library.passages("story", hay.question)
    passages = [Passage(hit.source, hit.similarity, hit.text) for hit in hits]
    near = chosen(tokenizer, [each for each in passages if each.similarity >= THRESHOLD], tokens)
    far = chosen(tokenizer, [Passage(each.title, -each.similarity, each.text) for each in passages], tokens)
    return Parts(_joined(near), _joined(far))


def _joined(passages: Sequence[Passage]) -> str:
    return BETWEEN.join(each.text for each in passages)
