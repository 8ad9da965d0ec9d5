"""Times of a round by context and retrieval length, with random weights, against the formula of the speed-up."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median

import torch

from common.configuration.settings import EMBEDDED_TOKENIZER
from common.engine.model.decoder import Decoder
from scripts.bench.measuring import Table, load
from scripts.bench.rapid.decoding import Reader, Run, alone, scheme_of, together
from scripts.bench.rapid.sizes import Sizes
from scripts.bench.results import Results
from scripts.bench.synthetic_model import Shape, make_model

SHAPE = Shape(width=384, layers=6, inner=1024, heads=6, key_heads=6)  # a key for every head: keys and values are large
ENTROPY = 1.0  # nats
LONGEST = 2**15  # tokens that the random model is said to read
QUERY = 16  # random tokens of a question


def by_context(results: Results, sizes: Sizes, folder: Path) -> None:
    """One table of all contexts."""
    decoder = _random_decoder(folder / "random")
    generator = torch.Generator().manual_seed(sizes.seed)
    query = torch.randint(2, decoder.vocabulary, (QUERY,), generator=generator).tolist()
    rows, samples = [], []
    for context in sizes.contexts:
        document = torch.randint(2, decoder.vocabulary, (context,), generator=generator).tolist()
        results.say(f"a context of {context} tokens")
        verifier = Reader(decoder, document, query, sizes.tokens + 1)
        scheme = scheme_of(decoder.vocabulary, (), sizes.tokens, temperature=1.0, seed=sizes.seed)
        whole = alone(verifier, scheme, sizes.seed)
        for part in sizes.retrieved:
            if part >= context:
                continue
            drafter = Reader(decoder, document[:part], query, sizes.tokens + 1)
            for length in sizes.drafted:
                both = together(drafter, verifier, scheme, length)
                rows.append([f"{context:,}", f"{part:,}", length, *_timed(both, whole), *_seconds(verifier, drafter)])
                samples.append({"context": context, "retrieved": part, "length": length, "run": both})
            drafter.close()
        verifier.close()
    decoder.close()
    heads = ["context", "drafter reads", "γ", "accepted", "E", "t_L", "t_D", "t_V"]
    heads += ["speed-up", "formula", "with γ + 1", "prefill LC, s", "drafter's, s"]
    note = (
        "t in ms; the speed-up is over the long context (LC) alone, without the prefill. The formula is "
        "E t_L / (γ t_D + t_V); with γ + 1 "
        f"drafts it counts the look ahead, too. Random weights ({SHAPE}, {ENTROPY:g} nats), η 10, one thread; load "
        f"{load()}."
    )
    results.table("A long context drafted from a part of it", Table(heads, rows), note)
    results.samples("by context", {"sizes": sizes, "runs": samples})


def _timed(both: Run, whole: Run) -> list[str]:
    by_token = median(whole.verifications)
    times = [by_token, median(both.drafts), median(both.verifications)]
    cells = [f"{both.accepted / both.proposed:.2f}", f"{both.per_round:.2f}", *(f"{1e3 * each:.1f}" for each in times)]
    return [
        *cells,
        f"{both.rate / whole.rate:.2f}",
        *(f"{both.predicted(by_token, more):.2f}" for more in (False, True)),
    ]


def _seconds(verifier: Reader, drafter: Reader) -> list[str]:
    return [f"{verifier.prefill:.1f}", f"{drafter.prefill:.1f}"]


def _random_decoder(folder: Path) -> Decoder:
    make_model(folder, ENTROPY, SHAPE)
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"max_position_embeddings": LONGEST}))
    tokenizer = str(EMBEDDED_TOKENIZER)
    return Decoder.load(str(folder), tokenizer=tokenizer, dtype="float32", threads=1, document_cache_bytes=0)
