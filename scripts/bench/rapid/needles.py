"""Answers about a sentence of a long story, and the laws of their tokens, with SmolLM2."""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from statistics import fmean

from common.engine.model.configured import load_decoder, load_format
from common.engine.model.conversation import Conversation
from common.engine.model.decoder import Decoder
from common.engine.model.prompt import PromptFormat, query_tokens
from common.library.embedder import SentenceTransformerEmbedder
from device.settings import DeviceSettings
from scripts.bench.measuring import NOTHING, Table, share_interval
from scripts.bench.parallel import in_processes
from scripts.bench.rapid.decoding import Reader, Run, alone, scheme_of, together
from scripts.bench.rapid.haystack import haystack, retrieved
from scripts.bench.rapid.laws import Laws, laws, mean
from scripts.bench.rapid.sizes import Sizes
from scripts.bench.results import Results

ANSWERED = (0.0, 10.0, 40.0)  # strengths that answers are made with


@dataclass(frozen=True, slots=True)
class Rows:
    """A needle's rows: the document whole, what was retrieved of it, and as much of what is least like the question."""

    whole: Reader
    related: Reader
    unrelated: Reader

    def close(self) -> None:
        for reader in (self.whole, self.related, self.unrelated):
            reader.close()


@dataclass(frozen=True, slots=True)
class Found:
    """Answers to one needle's question, and the laws of their tokens."""

    length: int  # of the document
    runs: dict[str, tuple[bool, Run]]  # by what was read: whether the answer was right, and how it came about
    laws: dict[tuple[str, float], list[Laws]]  # by passages and strength, along the answer of the long context


@dataclass(slots=True)
class Answers:
    """Outcomes of the questions about documents of one length, answered in one way."""

    right: list[bool] = field(default_factory=list)
    accepted: list[float] = field(default_factory=list)  # share of what was proposed

    def add(self, right: bool, run: Run) -> None:
        self.right.append(right)
        if run.proposed:
            self.accepted.append(run.accepted / run.proposed)

    def cells(self) -> list[str]:
        accepted = f"{fmean(self.accepted):.2f}" if self.accepted else NOTHING
        right = sum(self.right)
        return [f"{right} of {len(self.right)}", share_interval(right, len(self.right)), accepted]


def needles(results: Results, sizes: Sizes, folder: Path) -> None:
    """Two tables: answers, and laws by strength for related and unrelated passages. As many questions at a time as the
    machine has cores: nothing of it is a time.
    """
    answers: dict[tuple[int, str], Answers] = defaultdict(Answers)
    told: dict[tuple[str, float], list[Laws]] = defaultdict(list)
    for number, found in enumerate(in_processes(partial(_asked, sizes, folder), range(len(sizes.needles))), 1):
        results.say(f"{number} of {len(sizes.needles)} needles: one in {found.length:,} tokens")
        for name, (right, run) in found.runs.items():
            answers[found.length, name].add(right, run)
        for at, each in found.laws.items():
            told[at] += each
    model = f"{_settings(folder).model.rpartition('/')[2]} for both sides; the drafter reads {sizes.related} tokens"
    results.table(
        "A needle in a made-up story",
        Table(
            ["document", "read", "right", "share", "accepted"],
            [[f"{length:,}", read, *each.cells()] for (length, read), each in answers.items()],
        ),
        f"{model}, temperature 0, γ {max(sizes.drafted)}.",
    )
    heads = ["passages", "η", "accepted", "TV(p̂, p)", "TV(published, p̂)", "TV(published, p)"]
    rows_of_laws = [[kind, f"{eta:g}", *_shown(mean(each))] for (kind, eta), each in told.items()]
    note = f"{model}, temperature 1, means along the answers of the long context. Published: the law with its residual."
    results.table("What the shift does to a token's law", Table(heads, rows_of_laws), note)
    results.samples("answers", {f"{length}, {name}": each for (length, name), each in answers.items()})
    results.samples("laws", {f"{kind}, {eta:g}": found for (kind, eta), found in told.items()})


def _settings(folder: Path) -> DeviceSettings:
    data = folder / f"device-{os.getpid()}"
    return DeviceSettings(data=data, dtype="float32", threads=1, document_store_bytes=0)


@cache
def _models(folder: Path) -> tuple[Decoder, PromptFormat, SentenceTransformerEmbedder]:
    """Those of this process."""
    settings = _settings(folder)
    decoder = load_decoder(settings)
    return decoder, load_format(settings, decoder.tokenizer), SentenceTransformerEmbedder()


def _asked(sizes: Sizes, folder: Path, number: int) -> Found:
    decoder, form, embedder = _models(folder)
    length, depth = sizes.needles[number]
    hay = haystack(decoder.tokenizer, length, depth, sizes.seed + number)
    parts = retrieved(hay, decoder.tokenizer, embedder, sizes.related)
    query = form.query(Conversation.of(hay.question))
    asked = query_tokens(decoder.tokenizer, query.text, query.controls)
    texts = (hay.text, parts.related, parts.unrelated)
    rows = Rows(*(Reader(decoder, form.document_tokens(text), asked, sizes.answer + 1) for text in texts))
    runs = _answered(rows, decoder, sizes)
    path = runs["long context"].tokens[:-1]
    own = rows.whole.distributions(path, len(path) + 1)
    told = {}
    for kind, reader in (("related", rows.related), ("unrelated", rows.unrelated)):
        theirs = reader.distributions(path, len(path) + 1)
        for eta in sizes.etas:
            told[kind, eta] = [laws(p, q, eta) for p, q in zip(own, theirs, strict=True)]
    rows.close()
    judged = {name: (hay.answer in decoder.tokenizer.decode(run.tokens), run) for name, run in runs.items()}
    return Found(length, judged, told)


def _answered(rows: Rows, decoder: Decoder, sizes: Sizes) -> dict[str, Run]:
    vocabulary, eos = decoder.vocabulary, tuple(sorted(decoder.eos))
    plain = scheme_of(vocabulary, eos, sizes.answer)
    runs = {"long context": alone(rows.whole, plain, sizes.seed), "passages": alone(rows.related, plain, sizes.seed)}
    for name, drafter in (("both", rows.related), ("both, unrelated passages", rows.unrelated)):
        for eta in ANSWERED:
            scheme = scheme_of(vocabulary, eos, sizes.answer, eta=eta)
            runs[f"{name}, η {eta:g}"] = together(drafter, rows.whole, scheme, max(sizes.drafted))
    return runs


def _shown(found: Laws) -> list[str]:
    return [f"{each:.3f}" for each in (found.accepted, found.moved, found.from_target, found.from_verifier)]
