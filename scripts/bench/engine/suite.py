"""The suite `engine`: costs of the engine per token beside the models, with one core per side.

Processor time of everything but the forward pass, bytes on the wire, the decode step, and latency of two daemons on
this machine.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from multiprocessing import get_context
from statistics import median
from typing import Any, Final

import httpx
import numpy as np
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel, StaticCache

from common.configuration.settings import EMBEDDED_MODEL, EMBEDDED_TOKENIZER
from common.engine.jobs import ScoringRun
from common.engine.model.decoder import Decoder, cache_keyword
from common.engine.model.tokenizer import Tokenizer
from common.scoring.lexical import LexicalScorer
from proto.messages import Codec, Placement, Sampler, Side
from scripts.bench.asking import Mode, answered, ask, filled, in_turn, make_mode
from scripts.bench.engine.pair import FRESH, SIDES, STAGES, Even, Logits, Pair, Shape, Sources, make_request
from scripts.bench.measuring import SPREADS, Spread, Table, load
from scripts.bench.results import Results
from scripts.bench.rows import Row, groups, middle, pivot, spread, table, values, where
from scripts.bench.workload import Demonstration, Texts
from scripts.daemons import LOCALLY
from scripts.daemons import Pair as Daemons

DOCUMENTS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The sizes of a part, as far as it has them. Lengths are tokens."""

    questions: int = 0
    tokens: int = 0  # of an answer, at most
    rounds: int = 1  # everything in turn, so many times over: a disturbance hits all alike
    seed: int = 0
    lengths: tuple[tuple[int, ...], ...] = ()  # of the rows of a batch
    temperatures: tuple[float, ...] = ()
    vocabularies: tuple[int, ...] = ()
    positions: int = 0  # of each synthetic distribution


def run(results: Results) -> None:
    """Measure all parts, and say how far each is from its aim."""
    rows = results.measured([{"part": part} for part in PARTS], partial(measure, results.short))
    work, traffic, steps, answers = (where(rows, part=part) for part in PARTS)
    results.table("Work per token on one side beside the model: 4 documents, K = 32", by_stage(work))
    results.table("Bytes per token by codec, cloud to device", by_codec(traffic))
    note = f"Medians, [10 to 90 %]; load {load()}."
    results.table("Aims", aims(work, traffic, steps, answers), note)


def measure(short: bool, case: Row) -> Iterable[Row]:
    """The rows of a part."""
    ask_part, full, small = PARTS[case["part"]]
    return ask_part(small if short else full)


# --- processor time per token of everything but the model's forward pass, by stage

DOCUMENT_TOKENS: Final = 120
PLACEMENTS: Final[tuple[Placement, ...]] = ("device", "mirrored")
WORK_AIMS: Final = {4096: 300.0, 151_936: 1000.0}  # microseconds per token on one side, by vocabulary


def measure_work(plan: Plan) -> Iterator[Row]:
    """A row for each token of each setting, with microseconds by stage."""
    reader = Tokenizer.load(str(EMBEDDED_TOKENIZER))
    for vocabulary in plan.vocabularies:
        pools = {side: Logits.draw(side, vocabulary, DOCUMENTS, "flat", plan.seed) for side in SIDES}
        sources = {side: Sources(pools[side], _scoring(side, vocabulary, plan.seed)) for side in SIDES}
        for round_, temperature, placement in product(range(plan.rounds), plan.temperatures, PLACEMENTS):
            request = make_request(temperature=temperature, placement=placement, seed=plan.seed + round_)
            pair = Pair(request, vocabulary, sources, reader=reader)
            pair.run(plan.tokens + FRESH)
            for side in SIDES:
                setting = {"vocabulary": vocabulary, "temperature": temperature, "placement": placement, "side": side}
                # The first ones touch fresh memory and compile nothing twice.
                for lap in pair.halves[side].stages.laps[FRESH:]:
                    stages = {stage: round(lap.get(stage, 0.0), 1) for stage in STAGES}
                    yield setting | stages | {"total": sum(lap.values())}


def _scoring(side: Side, vocabulary: int, seed: int) -> ScoringRun:
    random = np.random.default_rng((seed, 1 if side == "device" else 2))
    scorer = LexicalScorer.from_table(random.uniform(1, 6, vocabulary).astype(np.float32))
    documents = [random.integers(vocabulary, size=DOCUMENT_TOKENS).tolist() for _ in range(DOCUMENTS)]
    return scorer.begin(documents[0][:12], documents)


def by_stage(rows: Iterable[Row]) -> Table:
    """A line for each setting: the stages' medians, and the total with its spread."""
    named = [
        row | {"name": f"V={row['vocabulary']} T={row['temperature']:g} {row['placement']}/{row['side']}"}
        for row in rows
    ]
    columns = {stage: middle(stage) for stage in STAGES} | {f"total: {SPREADS}": spread("total", tails=True)}
    return table(named, {"µs per token": "name"}, columns)


# --- bytes per token on the wire, by message and direction

DRAFT_AIM: Final = 200.0  # bytes per token, cloud to device, codec race
TARGET_AIM: Final = 24.0  # bytes per token, device to cloud
EMBEDDED, LARGEST = 2048, 151_936  # vocabularies
SHAPES: Final[tuple[Shape, ...]] = ("peaked", "flat")
# Ways to send distributions. The paper's sampler has no use at temperature 0, where one token is all that a truncation
# keeps.
CODECS: Final[tuple[tuple[Sampler, Codec, float], ...]] = (
    ("race", "race", 0.0),
    ("race", "race", 1.0),
    ("paper", "top-p", 1.0),
    ("paper", "raw", 1.0),
)
WAYS: Final[tuple[tuple[str, Side], ...]] = (("down", "cloud"), ("up", "device"))  # and who sends


def measure_wire(plan: Plan, demonstration: Demonstration | None = None) -> list[Row]:
    """Bytes per token of every combination, placement `device`: of the embedded model, and synthetic distributions."""
    found: list[Row] = []
    demonstration = demonstration or Demonstration(plan.questions)
    for sampler, codec, temperature in CODECS:
        law: Row = {"sampler": sampler, "codec": codec, "temperature": temperature}
        found.append(law | _embedded(plan, law, demonstration))
        for vocabulary, shape in product(plan.vocabularies, SHAPES):
            pools = {side: Logits.draw(side, vocabulary, DOCUMENTS, shape, plan.seed) for side in SIDES}
            sources = {side: Sources(pools[side], Even(DOCUMENTS)) for side in SIDES}
            pair = Pair(make_request(**law, seed=plan.seed, max_tokens=plan.positions), vocabulary, sources)
            tokens = len(pair.run(plan.positions))
            found.append(law | {"vocabulary": vocabulary, "distribution": shape} | _traffic(tokens, [pair]))
    return sorted(found, key=lambda row: row["vocabulary"])


def _embedded(plan: Plan, law: Row, demonstration: Demonstration) -> Row:
    pairs, tokens, vocabulary = [], 0, demonstration.decoder.vocabulary
    for number, question in enumerate(demonstration.questions[: plan.questions]):
        request = make_request(**law, seed=plan.seed + number, max_tokens=plan.tokens)
        pair = Pair(request, vocabulary, demonstration.sources(question, plan.tokens), demonstration.decoder.eos)
        tokens += len(pair.run(plan.tokens))
        pairs.append(pair)
    return {"vocabulary": vocabulary, "distribution": "embedded model"} | _traffic(tokens, pairs)


def _traffic(tokens: int, pairs: Sequence[Pair]) -> Row:
    """Bytes per token each way: of all messages, and by message."""
    row: Row = {"tokens": tokens}
    for way, side in WAYS:
        total = sum((pair.halves[side].bytes for pair in pairs), Counter[str]())
        row[way] = total.total() / tokens
        row |= {f"{way} {name}": size / tokens for name, size in total.items()}
    return row


def by_vocabulary(rows: Sequence[Row]) -> tuple[str, str]:
    """The most bytes per token that the race sends (cloud to device, device to cloud), of each vocabulary."""
    race = groups(where(rows, codec="race"), "vocabulary")
    down, up = (" / ".join(f"{max(row[way] for row in race[size]):.0f}" for size in sorted(race)) for way, _ in WAYS)
    return down, up


def by_codec(rows: Sequence[Row]) -> Table:
    """Bytes per token from cloud to device at temperature 1."""
    codecs = [codec for _, codec, _ in CODECS]
    warm = sorted(where(rows, temperature=1.0), key=lambda row: codecs.index(row["codec"]))
    named = [row | {"source": f"V = {row['vocabulary']:,}, {row['distribution']}"} for row in warm]
    sources = [f"V = {EMBEDDED:,}, embedded model", *(f"V = {LARGEST:,}, {shape}" for shape in SHAPES)]
    return pivot(named, ["codec"], "source", middle("down", ",.0f"), sources)


# --- the decode step over slab caches against a plain Transformers forward pass over a preallocated `StaticCache`

STEP_AIM: Final = 1.3


class Plain:
    """The fastest way to step that Transformers has without compiling: nothing grows, neither cache nor mask.

    Rows are padded on the left; `room` is for how many steps the cache has places.
    """

    def __init__(self, model: PreTrainedModel, rows: Sequence[Sequence[int]], room: int) -> None:
        self._model: Any = model
        longest = max(map(len, rows))
        tokens = torch.tensor([[0] * (longest - len(row)) + list(row) for row in rows])
        self._mask = torch.ones(len(rows), longest + room, dtype=torch.int64)
        for row, padded in zip(rows, self._mask, strict=True):
            padded[: longest - len(row)] = 0
        self._cache = {cache_keyword(model): StaticCache(config=model.config, max_cache_len=longest + room)}
        self._positions = self._mask.cumsum(-1) - 1
        self._length = 0
        self._feed(tokens)

    def step(self, token: int) -> torch.Tensor:
        """Logits `[rows, vocab]`."""
        return self._feed(torch.full((len(self._mask), 1), token))

    @torch.inference_mode()
    def _feed(self, tokens: torch.Tensor) -> torch.Tensor:
        end = self._length + tokens.shape[1]
        output = self._model(
            input_ids=tokens,
            attention_mask=self._mask[:, :end],
            position_ids=self._positions[:, self._length : end].clamp(min=0),
            use_cache=True,
            logits_to_keep=1,
            **self._cache,
        )
        self._length = end
        logits: torch.Tensor = output.logits
        return logits[:, -1].float()


def measure_steps(plan: Plan) -> Iterator[Row]:
    """Milliseconds of processor time of each step, taken both ways, one after the other, and how far logits differ."""
    decoder = Decoder.load(str(EMBEDDED_MODEL), tokenizer=str(EMBEDDED_TOKENIZER), threads=1)
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(EMBEDDED_MODEL, dtype=decoder.dtype).eval()
    for lengths in plan.lengths:
        generator = torch.Generator().manual_seed(plan.seed)
        draw = partial(torch.randint, decoder.vocabulary, generator=generator)
        query = draw((12,)).tolist()
        documents = [draw((length - len(query),)).tolist() for length in lengths]
        fed = draw((plan.tokens,)).tolist()
        for _ in range(plan.rounds):
            rows, _first = decoder.open(documents, query, plan.tokens + 1)
            other = Plain(model, [document + query for document in documents], plan.tokens)
            for number, token in enumerate(fed):
                started = time.thread_time()
                ours = decoder.step(rows, [token])
                between = time.thread_time()
                theirs = other.step(token)
                slab, plain = 1e3 * (between - started), 1e3 * (time.thread_time() - between)
                difference = float((ours - theirs[:, : decoder.vocabulary]).abs().max())
                if number:  # the first step of either touches fresh memory
                    setting = {"lengths": "/".join(map(str, lengths)), "slab": slab, "plain": plain}
                    yield setting | {"ratio": slab / plain, "difference": difference}


# --- latency per token of two real daemons on this machine, against the slower side's own decode step

LATENCY_AIM: Final = 1.15
SHORTEST: Final = 4  # tokens; the mean over fewer gaps says little
BARE_STEPS: Final = 16  # of each question
MODES: Final = tuple(
    make_mode(f"{placement}, T = {temperature:g}", placement=placement, temperature=temperature)
    for placement in ("device", "mirrored")
    for temperature in (0.0, 0.3)
)
STREAMED: Final = make_mode("device, T = 0, streamed", placement="device", temperature=0.0, stream=True)
ASKED: Final = (*MODES, STREAMED)


def measure_latency(plan: Plan) -> Iterator[Row]:
    """Start both daemons on libraries of their own, ask, and stop them."""
    texts = Texts.draw(plan.questions)
    law = {"seed": plan.seed, "max_tokens": plan.tokens}
    with (
        filled(texts) as data,
        bare_steps(plan.questions) as bare,
        Daemons(data, {"privacy": "balanced"}) as pair,
    ):
        for mode in ASKED:  # what the first answer of a daemon waits for is not its latency
            _report(pair, texts.questions[0], mode, law)
        for round_ in range(plan.rounds):
            for number, question in enumerate(texts.questions):
                # What the model alone takes, next to the other side's.
                slower = max(median(times) for times in bare(number))
                for mode in in_turn(ASKED, round_):
                    report = _report(pair, question, mode, law)
                    if report["tokens"] >= SHORTEST:
                        asked = {"mode": mode.name, "placement": mode.fields["placement"]}
                        yield asked | {"question": number, "round": round_} | sample(report, slower)


def sample(report: Mapping[str, Any], bare: float) -> Row:
    """An answer's row, with the slower side's whole step (model, mixture and race) and its bare forward pass."""
    row, step = answered(report), max(float(report[side]["decode_ms"]) for side in SIDES)
    over = {f"per_token / {name}": row["per_token"] / time for name, time in (("step", step), ("bare", bare))}
    return row | {"step": step, "bare": bare} | over


def _report(pair: Daemons, question: str, mode: Mode, law: Mapping[str, Any]) -> dict[str, Any]:
    if mode != STREAMED:
        return ask(pair, question, mode, **law)
    report: dict[str, Any] = {}
    body = {"model": "dragon", "messages": [{"role": "user", "content": question}], **law, **mode.fields}
    with httpx.stream("POST", f"{pair.url}/v1/chat/completions", json=body, timeout=120, **LOCALLY) as response:
        response.raise_for_status()
        for line in response.iter_lines():
            if line.startswith("data: {"):
                report = json.loads(line.removeprefix("data: ")).get("dragon", report)
    return report


@contextmanager
def bare_steps(questions: int) -> Iterator[Callable[[int], list[list[float]]]]:
    """Step times in milliseconds of both sides on a question, by the embedded model and nothing else.

    Each side has a process, so that the two share the machine's cores and memory as the daemons do.
    """
    with ExitStack() as resources:
        pools = [
            resources.enter_context(ProcessPoolExecutor(1, get_context("spawn"), _load_model, (questions,)))
            for _ in SIDES
        ]

        def on(question: int) -> list[list[float]]:
            running = [pool.submit(_step_times, side, question) for pool, side in zip(pools, SIDES, strict=True)]
            return [future.result() for future in running]

        on(0)
        yield on


_loaded: list[Demonstration] = []  # of such a process


def _load_model(questions: int) -> None:
    _loaded.append(Demonstration(questions))


def _step_times(side: Side, question: int) -> list[float]:
    reading = _loaded[0].sources(_loaded[0].questions[question], BARE_STEPS)[side].logits
    path: list[int] = []
    times = []
    for _ in range(BARE_STEPS):
        started = time.perf_counter()
        path.append(int(reading.logits(path)[0].argmax()))
        times.append(1e3 * (time.perf_counter() - started))
    return times[1:]  # the first logits come from the prefill


def ratios(rows: Sequence[Row]) -> list[tuple[str, str, Spread]]:
    """Per-token latency over the slower side's whole step, and over its bare forward pass, by placement."""
    return [
        (placement, against, Spread.of(values(those, f"per_token / {field}")))
        for (placement,), those in groups(rows, "placement").items()
        for against, field in (("step", "step"), ("bare forward pass", "bare"))
    ]


# --- all parts: what measures them, in full and in short

_WORK: Final = Plan(vocabularies=(4096, 151_936), temperatures=(0.0, 0.7, 1.0), tokens=40, rounds=3, seed=11)
_WIRE: Final = Plan(vocabularies=(50_257, 151_936), positions=24, questions=20, tokens=32, seed=5)
_STEPS: Final = Plan(lengths=((300, 300, 300, 300), (300, 280, 250, 220)), tokens=24, rounds=4, seed=3)
_LATENCY: Final = Plan(questions=24, rounds=2, tokens=32, seed=9)
PARTS: Final[Mapping[str, tuple[Callable[[Plan], Iterable[Row]], Plan, Plan]]] = {
    "work": (measure_work, _WORK, replace(_WORK, vocabularies=(512,), tokens=8, rounds=1)),
    "wire": (measure_wire, _WIRE, replace(_WIRE, vocabularies=(300, 5000), positions=4, questions=2, tokens=6)),
    "step": (measure_steps, _STEPS, replace(_STEPS, lengths=((24, 20),), tokens=4, rounds=1)),
    "daemons": (measure_latency, _LATENCY, replace(_LATENCY, questions=2, rounds=1)),
}


def aims(work: list[Row], traffic: list[Row], steps: list[Row], answers: list[Row]) -> Table:
    """The named aims, each with its figure."""
    lines: list[list[str]] = []
    for (vocabulary, temperature), those in groups(work, "vocabulary", "temperature").items():
        aim = f"{WORK_AIMS[vocabulary]:,.0f} µs" if vocabulary in WORK_AIMS else ""
        what = f"work beside the model, V = {vocabulary:,}, T = {temperature:g}"
        # Medians of both sides in every placement: the least and the most.
        medians = [Spread.of(values(each, "total")).median for each in groups(those, "placement", "side").values()]
        lines.append([what, aim, f"{min(medians):,.0f}-{max(medians):,.0f} µs"])
    vocabularies = " / ".join(f"{each:,}" for each in sorted({row["vocabulary"] for row in traffic}))
    down, up = by_vocabulary(traffic)
    lines.append([f"cloud to device, K = 32, V = {vocabularies}", f"{DRAFT_AIM:g} bytes per token", down])
    lines.append([f"device to cloud, placement `device`, V = {vocabularies}", f"{TARGET_AIM:g}", up])
    for (lengths,), those in groups(steps, "lengths").items():
        what = f"decode step / plain forward pass, rows of {lengths}"
        lines.append([what, f"{STEP_AIM:g}", usual(Spread.of(values(those, "ratio")))])
    for placement, against, ratio in ratios(answers):
        aim = f"{LATENCY_AIM:g}" if against == "step" else ""
        lines.append([f"latency per token / slower side's {against}, `{placement}`", aim, usual(ratio)])
    return Table(["what", "at most", "measured"], lines)


def usual(spread: Spread) -> str:
    """Median [10th to 90th percentile]."""
    return f"{spread.median:.2f} [{spread.low:.2f}-{spread.high:.2f}]"
