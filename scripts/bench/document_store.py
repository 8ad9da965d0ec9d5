"""The suite `document-store`: how soon an answer starts when its documents were read before."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, OPTConfig, PreTrainedTokenizerFast

from common.drawing import bar_style
from common.kv.document_store import StoreOptions
from common.kv.memory import Rows
from common.kv.store_folder import clear_store
from common.model.decoder import DOCUMENT_CACHE_BYTES, Decoder
from common.settings import EMBEDDED_MODEL, EMBEDDED_TOKENIZER
from scripts.bench.measuring import SPREADS, Spread, Table, load
from scripts.bench.plan import Plan
from scripts.bench.results import Results
from scripts.bench.workload import Texts
from scripts.daemons import Pair

ROWS = 4
STORE_BYTES = 2**30
QUERY_TOKENS = 16
STATES = ("off", "cold", "on disk", "in memory")
MEANINGS = (
    "`off`: no store, documents not seen before. `cold`: a store without them (they are written after the first token)."
    " `on disk`: another process had read them (files in the system's page cache). `in memory`: this process had."
    " The weights of `random` are random: its figures are for timing only."
)


# Documents of these lengths, `rounds` times over; `questions` of two daemons.
FULL, SHAPE = Plan(lengths=((64,) * 4, (256,) * 4), rounds=9, questions=8), (12, 768)  # layers, width: OPT-125M's
SHORT, SHORT_SHAPE = Plan(lengths=((24,) * 4,), rounds=2), (2, 64)  # starting daemons takes half a minute


def run(results: Results) -> None:
    """Time to the first token of the engine, and of a whole answer of two daemons."""
    plan, shape = (SHORT, SHORT_SHAPE) if results.short else (FULL, SHAPE)
    samples: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        models = {"embedded": str(EMBEDDED_MODEL), "random": str(random_model(*shape, folder / "model"))}
        for name, model in models.items():
            for tokens, *_ in plan.lengths:
                results.say(f"{name} model, documents of {tokens} tokens")
                samples[f"{name}, {ROWS} x {tokens}"] = measure_open(model, tokens, plan.rounds, folder / "store")
        answers = {}
        if plan.questions:
            results.say("answers of two daemons")
            answers["embedded, answer"] = measure_answers(plan.questions, folder)
    note = f"Milliseconds, {SPREADS}; load {load()}. {MEANINGS}"
    results.table("Time to the logits of the first token (`Decoder.open`), one thread", show(samples), note)
    if answers:
        results.table("Time to the first token of an answer, two daemons on loopback", show(answers), note)
    results.samples("seconds", {"plan": plan.sizes(), **samples, **answers})
    draw(results, samples | answers)


def measure_open(model: str, tokens: int, repeats: int, folder: Path) -> dict[str, list[float]]:
    """Seconds of `Decoder.open` by state; other documents in every repeat, all states in turn."""
    tokenizer = str(EMBEDDED_TOKENIZER)
    options = StoreOptions(folder, STORE_BYTES)

    def loaded(store: StoreOptions | None, memory: int) -> Decoder:
        return Decoder.load(
            model, tokenizer=tokenizer, threads=1, document_cache_bytes=memory, document_store=store, dtype="float32"
        )

    off, first = loaded(None, 0), loaded(options, 0)
    second = loaded(options, DOCUMENT_CACHE_BYTES)
    generator = torch.Generator().manual_seed(tokens)

    def draw_tokens(count: int) -> list[int]:
        drawn: list[int] = torch.randint(2, off.vocabulary, (count,), generator=generator).tolist()
        return drawn

    taken: dict[str, list[float]] = {state: [] for state in STATES}
    for repeat in range(repeats + 1):
        documents, query = [draw_tokens(tokens) for _ in range(ROWS)], draw_tokens(QUERY_TOKENS)
        expected = None
        for state, decoder in (("off", off), ("cold", first), ("on disk", second), ("in memory", second)):
            seconds, logits = _timed(partial(decoder.open, documents, query, 8))
            if expected is not None and not torch.equal(logits, expected):
                raise RuntimeError(f"{state}: the store changed what the model computes")
            expected = logits
            decoder.document_cache.flush()
            if repeat:  # the first one warms up
                taken[state].append(seconds)
    hits = second.document_cache.counters
    if (hits.disk.hits, hits.hits) != (ROWS * (repeats + 1), ROWS * (repeats + 1)):
        raise RuntimeError(f"the documents did not come from where they should: {hits}")
    for decoder in (off, first, second):
        decoder.close()
    clear_store(folder)
    return taken


def measure_answers(count: int, folder: Path) -> dict[str, list[float]]:
    """`ttft` of answers' reports: daemons without a store, and with one before and after a restart of them.

    The restarted ones answer the same questions, so that every document is on disk and none in memory; asking once
    more has them in memory.
    """
    texts = Texts.draw(count)
    texts.fill_libraries(folder)
    taken: dict[str, list[float]] = {}
    for states, store in ((("off",), 0), (("cold",), STORE_BYTES), (("on disk", "in memory"), STORE_BYTES)):
        flags = {"document_store_bytes": store}
        for log in folder.glob("*.log"):
            log.unlink()  # it says that the former daemons were ready
        with Pair(folder, flags, flags) as pair:
            pair.complete("warm up", max_tokens=2, sources="device", documents=1)
            for state in states:
                taken[state] = [_first_token(pair, question) for question in texts.questions]
    return taken


def show(samples: dict[str, dict[str, list[float]]]) -> Table:
    """Milliseconds by state, and what the store saves against none."""
    rows = []
    for name, taken in samples.items():
        spreads = {state: Spread.of([1e3 * value for value in taken[state]]) for state in STATES}
        saved = spreads["off"].median / spreads["on disk"].median
        rows.append([name, *(spread.text(1) for spread in spreads.values()), f"{saved:.1f}"])
    return Table(["model, documents", *STATES, "off / on disk"], rows)


def draw(results: Results, samples: dict[str, dict[str, list[float]]]) -> None:
    """Bars of medians with the 10th to 90th percentile, one picture per case."""
    title = f"Time to the first token by where {ROWS} documents' keys and values are: medians, 10th to 90th percentile"
    with results.figure("ttft", columns=len(samples), title=title) as axes:
        for axis, (name, taken) in zip(axes, samples.items(), strict=True):
            spreads = [Spread.of([1e3 * value for value in taken[state]]) for state in STATES]
            medians = [spread.median for spread in spreads]
            below = [spread.median - spread.low for spread in spreads]
            above = [spread.high - spread.median for spread in spreads]
            axis.bar(STATES, medians, yerr=[below, above], capsize=3, **bar_style(0))
            axis.set_title(name.replace(f", {ROWS} x", f"\n{ROWS} documents of") + " tokens" * (" x " in name))
            axis.tick_params(axis="x", labelrotation=30)
        axes[0].set_ylabel("time to the first token, ms")


def random_model(layers: int, hidden: int, folder: Path) -> Path:
    """OPT of this shape with random weights and the embedded model's tokenizer."""
    tokenizer: Any = PreTrainedTokenizerFast.from_pretrained(EMBEDDED_TOKENIZER)
    config = OPTConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        word_embed_proj_dim=hidden,
        ffn_dim=4 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 64 or 1,
        max_position_embeddings=2048,
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=0,
    )
    maker: Any = AutoModelForCausalLM
    torch.manual_seed(11)
    maker.from_config(config).save_pretrained(folder)
    return folder


def _timed(open_rows: Callable[[], tuple[Rows, torch.Tensor]]) -> tuple[float, torch.Tensor]:
    start = time.perf_counter()
    _, logits = open_rows()
    return time.perf_counter() - start, logits


def _first_token(pair: Pair, question: str) -> float:
    report: dict[str, Any] = pair.complete(question, max_tokens=8, documents=ROWS)["dragon"]
    return float(report["ttft"])
