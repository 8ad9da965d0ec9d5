"""Answers about a sentence of a long story, and the laws of their tokens, with SmolLM2."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from common.engine.model.configured import load_decoder, load_format
from common.engine.model.conversation import Conversation
from common.engine.model.decoder import Decoder
from common.engine.model.prompt import PromptFormat, query_tokens
from common.library.embedder import SentenceTransformerEmbedder
from device.settings import DeviceSettings
from scripts.bench.measuring import NOTHING, Table, share_interval
from scripts.bench.rapid.decoding import Reader, Run, alone, scheme_of, together
from scripts.bench.rapid.haystack import Haystack, haystack, retrieved
from scripts.bench.rapid.laws import Laws, laws, mean
from scripts.bench.rapid.sizes import Sizes
from scripts.bench.results import Results

ANSWERED = (0.0, 10.0, 40.0)  # strengths that answers are made with


@dataclass(frozen=True, slots=True)
class Rows:
    """A needle's rows: the document whole, what was retrieved of it, and as much of what is least like the question."""

    hay: Haystack
    length: int
    whole: Reader
    related: Reader
    unrelated: Reader

    def close(self) -> None:
        for reader in (self.whole, self.related, self.unrelated):
            reader.close()


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
    """Two tables: answers, and laws by strength for related and unrelated passages."""
    settings = DeviceSettings(data=folder / "device", dtype="float32", threads=1, document_store_bytes=0)
    decoder = load_decoder(settings)
    answers: dict[tuple[int, str], Answers] = defaultdict(Answers)
    told: dict[tuple[str, float], list[Laws]] = defaultdict(list)
    for rows in _rows(results, sizes, decoder, load_format(settings, decoder.tokenizer)):
        runs = _answered(rows, decoder, sizes)
        for name, run in runs.items():
            text = decoder.tokenizer.decode(run.tokens)
            answers[rows.length, name].add(rows.hay.answer in text, run)
        path = runs["long context"].tokens[:-1]
        own = rows.whole.distributions(path, len(path) + 1)
        for kind, reader in (("related", rows.related), ("unrelated", rows.unrelated)):
            theirs = reader.distributions(path, len(path) + 1)
            for eta in sizes.etas:
                told[kind, eta] += [laws(p, q, eta) for p, q in zip(own, theirs, strict=True)]
        rows.close()
    decoder.close()
    model = f"{settings.model.rpartition('/')[2]} for both sides; the drafter reads {sizes.related} tokens"
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


def _answered(rows: Rows, decoder: Decoder, sizes: Sizes) -> dict[str, Run]:
    vocabulary, eos = decoder.vocabulary, tuple(sorted(decoder.eos))
    plain = scheme_of(vocabulary, eos, sizes.answer)
    runs = {"long context": alone(rows.whole, plain, sizes.seed), "passages": alone(rows.related, plain, sizes.seed)}
    for name, drafter in (("both", rows.related), ("both, unrelated passages", rows.unrelated)):
        for eta in ANSWERED:
            scheme = scheme_of(vocabulary, eos, sizes.answer, eta=eta)
            runs[f"{name}, η {eta:g}"] = together(drafter, rows.whole, scheme, max(sizes.drafted))
    return runs


def _rows(results: Results, sizes: Sizes, decoder: Decoder, form: PromptFormat) -> Iterator[Rows]:
    embedder = SentenceTransformerEmbedder()
    for number, (length, depth) in enumerate(sizes.needles):
        results.say(f"a needle at {depth:.0%} of {length} tokens")
        hay = haystack(decoder.tokenizer, length, depth, sizes.seed + number)
        parts = retrieved(hay, decoder.tokenizer, embedder, sizes.related)
        query = form.query(Conversation.of(hay.question))
        asked = query_tokens(decoder.tokenizer, query.text, query.controls)
        readers = [
            Reader(decoder, form.document_tokens(text), asked, sizes.answer + 1)
            for text in (hay.text, parts.related, parts.unrelated)
        ]
        yield Rows(hay, length, *readers)


def _shown(found: Laws) -> list[str]:
    return [f"{each:.3f}" for each in (found.accepted, found.moved, found.from_target, found.from_verifier)]
