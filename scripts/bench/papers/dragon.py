"""DRAGON (S. Liu et al.), Fig. 4 to 9: theory, perplexity, latency, scheduling and one answer's timeline."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from pydoc_data.topics import topics
from statistics import fmean
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM, AutoTokenizer

from common.configuration.settings import EMBEDDED_MODEL, EMBEDDED_TOKENIZER, default_model, default_models
from common.engine.model.gguf import imported
from common.estimates.policy import speed_up
from common.figures import line_style
from common.library.embedder import SentenceTransformerEmbedder, unit_vectors
from common.scoring.choice import STATIC_SCALE
from common.tracing.analysis import CAUSES, milliseconds_per_token, steps
from common.tracing.figure import save_timeline
from common.tracing.trace import from_json
from proto.messages import Placement
from scripts.bench import latency
from scripts.bench.asking import ANY, PATIENT, ask, filled, linked, settle
from scripts.bench.latency import Floors, Leg, emulated, measured
from scripts.bench.measuring import Table
from scripts.bench.papers.figure import Claim, Figure, curves, labelled, mean, times
from scripts.bench.results import Results
from scripts.bench.rows import Row, grid, groups, lines, pivot, spread, where
from scripts.bench.workload import Texts
from scripts.netlab.faulty_proxy import Line
from scripts.simulation.scenario import Rates, Scenario, Sinusoid, StepCosts, Way, simulate

# --- Fig. 4: the speed-up of Theorem 6.2 over token-wise exchange

CLOUD: Final = 0.05  # seconds of the cloud's decode step
DEVICE_ALPHA: Final = 0.85  # by Corollary 6.5 it does not matter
ALPHAS: Final = (0.3, 0.6, 0.9)
IDEAL: Final = StepCosts(0.0, 0.0)  # the theorem knows of no other work


def _theory_cases(short: bool) -> Sequence[Row]:
    if short:
        return grid(rtt=(0.3,), alpha=ALPHAS, device=(0.02, 0.15), answers=(1,), tokens=(40,))
    devices = (0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.4, 0.7)
    return grid(rtt=(0.1, 0.3), alpha=ALPHAS, device=devices, answers=(4,), tokens=(150,))


def _theory(_: Results, case: Row) -> Iterator[Row]:
    """The theorem's ratio and the one of the real sessions under the simulator's clock."""
    rates, way = Rates.independent(DEVICE_ALPHA, case["alpha"]), Way(case["rtt"])

    def latency(synchronous: bool, answers: int) -> float:
        scenario = Scenario(case["device"], CLOUD, way, rates, "device", case["tokens"], synchronous, work=IDEAL)
        return fmean(simulate(scenario, seed).per_token for seed in range(answers))

    theorem = speed_up(case["device"], CLOUD, case["rtt"], case["alpha"])
    yield {"theorem": theorem, "simulated": latency(True, 1) / latency(False, case["answers"])}


def _show_theory(results: Results, rows: list[Row]) -> list[Claim]:
    def both(those: list[Row]) -> str:
        return f"{those[0]['theorem']:.2f} / {those[0]['simulated']:.2f}"

    index = {"round trip, s": "rtt", "device's step, s": "device"}
    results.table("DRAGON Fig. 4: speed-up, Theorem 6.2 / simulated", pivot(rows, index, "alpha", both))
    panels = groups(rows, "rtt")
    title = f"DRAGON Fig. 4: speed-up over token-wise exchange, cloud's step {1e3 * CLOUD:g} ms; lines: Theorem 6.2"
    with results.figure("dragon-4", len(panels), title=title) as axes:
        for axis, ((rtt,), those) in zip(axes, panels.items(), strict=True):
            for number, alpha in enumerate(ALPHAS):
                at = where(those, alpha=alpha)
                x = [1e3 * row["device"] for row in at]
                line, dots = line_style(number) | {"marker": ""}, line_style(number) | {"linestyle": ""}
                axis.plot(x, [row["theorem"] for row in at], label=f"Theorem 6.2, {alpha:.0%} accepted", **line)
                axis.plot(x, [row["simulated"] for row in at], label=f"simulated, {alpha:.0%}", **dots)
            labelled(axis, "device's decode step, ms", "speed-up, times", f"round trip {1e3 * rtt:g} ms")
    most = max(rows, key=lambda row: row["theorem"])
    off = [row["simulated"] / row["theorem"] - 1 for row in rows]
    return [
        Claim("greatest speed-up in the range drawn", f"{most['theorem']:.2f} (Eq. 9)", f"{most['simulated']:.2f}"),
        Claim("distance from Eq. 9, all points", "0", f"{min(off):+.0%} to {max(off):+.0%}"),
    ]


# --- Fig. 5: perplexity by documents per side

NONE, DEVICE, SERVER, CONCATENATED, DRAGON = "no documents", "CRCG/device", "CRCG/cloud", "DRCG", "DRAGON"
DOCUMENT, WINDOW, CONTEXT = 64, 128, 256  # tokens, §7.3; the first eighth of a window is the query
COUNTS: Final = (1, 2, 4, 8)  # documents per side


def _perplexity_cases(short: bool) -> Sequence[Row]:
    real = not short and default_model() != str(EMBEDDED_MODEL)
    return grid(
        model=["default" if real else "embedded"], texts=(8 if short else None,), window=range(2 if short else 6)
    )


class Reading:
    """A model, half of Python's reference as the library that both sides share, and windows of the other half."""

    def __init__(self, name: str, count: int | None) -> None:
        found = str(EMBEDDED_MODEL)
        if name == "default":
            found = str(imported(Path(default_model()), default_models()))
        self._model: Any = AutoModelForCausalLM.from_pretrained(found, dtype=torch.float32).eval()
        tokenizer: Any = AutoTokenizer.from_pretrained(EMBEDDED_TOKENIZER if name == "embedded" else found)
        self._decode, self._begin = tokenizer.decode, tokenizer.eos_token_id
        texts = [tokenizer(topics[name], verbose=False)["input_ids"] for name in sorted(topics)[:count]]
        self._library = [piece for text in texts[::2] for piece in _pieces(text, DOCUMENT)]
        windows = [piece for text in texts[1::2] for piece in _pieces(text, WINDOW)]
        self.windows = [windows[place] for place in np.random.default_rng(11).permutation(len(windows))]
        self._embedder = SentenceTransformerEmbedder()
        self._vectors = unit_vectors(self._embedder, [self._decode(piece) for piece in self._library])

    @torch.inference_mode()
    def likelihood(self, documents: Sequence[Sequence[int]], window: Sequence[int]) -> NDArray[np.float64]:
        """log p [documents, tokens] of what is predicted of the window, behind each document; all are of one length."""
        predicted = len(window) - len(window) // 8
        rows = torch.tensor([[self._begin, *document, *window] for document in documents])
        logits = self._model(input_ids=rows, use_cache=False, logits_to_keep=predicted + 1).logits[:, :-1]
        wanted = torch.tensor(window[-predicted:])[None, :, None].expand(len(rows), -1, 1)
        found: NDArray[np.float64] = logits.log_softmax(-1).gather(-1, wanted)[..., 0].double().numpy()
        return found

    def nearest(self, window: Sequence[int], count: int) -> tuple[list[list[int]], NDArray[np.float64]]:
        """The documents that are most like the query, with their similarity."""
        query = unit_vectors(self._embedder, [self._decode(window[: len(window) // 8])], queries=True)[0]
        similarity = self._vectors @ query
        best = np.argsort(-similarity)[:count]
        return [self._library[place] for place in best], similarity[best].astype(np.float64)


_reading = cache(Reading)


def _pieces(tokens: list[int], size: int) -> list[list[int]]:
    return [tokens[start : start + size] for start in range(0, len(tokens) - size + 1, size)]


def _perplexity(_: Results, case: Row) -> Iterator[Row]:
    """Nats per predicted token by method. The top 2k documents: half for the cloud, half for the device (§7.2)."""
    reading = _reading(case["model"], case["texts"])
    window = reading.windows[case["window"]]
    near, similarity = reading.nearest(window, 2 * COUNTS[-1])
    alone, apart = reading.likelihood([[]], window), reading.likelihood(near, window)
    scores = STATIC_SCALE * similarity[:, None]

    def context(documents: list[list[int]]) -> NDArray[np.float64]:
        fitting = documents[: (CONTEXT - WINDOW) // DOCUMENT]
        return reading.likelihood([[token for each in reversed(fitting) for token in each]], window)

    for count in COUNTS:
        both = slice(0, 2 * count)
        weights = scores[both] - np.logaddexp.reduce(scores[both], axis=0)
        read = {
            NONE: alone,
            DEVICE: context(near[count : 2 * count]),
            SERVER: context(near[:count]),
            CONCATENATED: context(near[both]),
            DRAGON: np.logaddexp.reduce(apart[both] + weights, axis=0),  # Eq. 1
        }
        for method, found in read.items():
            yield {"method": method, "documents": count, "nats": -float(found.mean())}


def _show_perplexity(results: Results, rows: list[Row]) -> list[Claim]:
    def perplexity(those: list[Row]) -> str:
        return f"{np.exp(mean(those, 'nats')):.1f}"

    where_from = f"model: {rows[0]['model']}; text: Python's reference, one half as the library"
    results.table("DRAGON Fig. 5: perplexity", pivot(rows, ["method"], "documents", perplexity), where_from)
    title = "DRAGON Fig. 5: perplexity by documents per side (paper: 1.9 and 1.4 times better than without documents)"
    with results.figure("dragon-5", title=title) as (axis,):
        curves(axis, rows, "documents", "nats", "method")
        axis.set_xscale("log", base=2)
        axis.set_xlabel("documents per side")
        axis.set_ylabel("nats per token: log of the perplexity")
    most = where(rows, documents=COUNTS[-1])
    nats = {method: mean(where(most, method=method), "nats") for method in (NONE, CONCATENATED, DRAGON)}
    gains = [f"{np.exp(nats[NONE] - nats[method]):.2f}×" for method in (DRAGON, CONCATENATED)]
    return [
        Claim("perplexity without documents over DRAGON's", "1.9× (Qwen), 1.4× (OPT), 16 per side", gains[0]),
        Claim("the same of one context (DRCG)", "less than DRAGON's", gains[1]),
    ]


# --- Fig. 6 and 7: latency by network

FLOORS: Final = Floors(150, 50)
PAPERS: Final = latency.PAPER_GREEDY.name
LATENCY: Final = latency.Plan(
    floors=(FLOORS,),
    legs=(Leg(300, 3, (0.3,)), Leg(150, 3, (0.3,)), Leg(0, 3, (0.3,))),
    modes=tuple(mode for mode in latency.MODES if mode.name not in ("paper/cloud", "paper/random", "race/greedy")),
    own=0.05,
    max_tokens=20,
)
FIRST_LINES: Final = {"device only": 0, "cloud only": 1, "DRCG/text": 2, "DRCG/KV": 3, PAPERS: 4}
LATER_LINES: Final = {"device only": 0, "DRDG/TW": 1, "DRDG/SW": 2, PAPERS: 3, "race/mirrored": 4}


def _latency(results: Results, case: Row) -> Iterator[Row]:
    plan = LATENCY
    if case["short"]:
        legs = (Leg(60, 1, (0.3,)), Leg(0, 1, (0.3,)))
        plan = replace(plan, floors=(Floors(15, 5),), legs=legs, own=ANY, max_tokens=6)
    yield from measured(plan, results.say, quickest=True)


def _show_latency(results: Results, rows: list[Row]) -> list[Claim]:
    rows = sorted(rows, key=lambda row: row["rtt"])
    for title, value in (("Fig. 6: ms per token", "whole_per_token"), ("Fig. 7: TTFT, ms", "ttft")):
        shown = pivot(rows, {"added round trip, ms": "rtt"}, "mode", spread(value))
        results.table(f"DRAGON {title}", shown, f"Emulated steps of {rows[0]['floors']} ms, as slow as a laptop's CPU.")
    title = "DRAGON Fig. 6 and 7: time per token (paper: 42 % below token-wise), and to the first (8.6×, 15.3×)"
    with results.figure("dragon-6-7", 1, 2, title=title) as axes:
        lines(axes[0], rows, "rtt", "whole_per_token", "mode", LATER_LINES)
        lines(axes[1], rows, "rtt", "ttft", "mode", FIRST_LINES)
        for axis, unit in zip(axes, ("ms per token", "first token, ms"), strict=True):
            labelled(axis, "added round trip, ms", unit)

    def at(mode: str, value: str, **setting: object) -> float:
        return mean(where(rows, mode=mode, **setting), value)

    far, per_token = rows[-1]["rtt"], "whole_per_token"
    less = [
        f"{1 - at(PAPERS, per_token) / at(mode, per_token):.1%} "
        f"({1 - at(PAPERS, per_token, rtt=far) / at(mode, per_token, rtt=far):.1%} at {far:g} ms)"
        for mode in ("DRDG/SW", "DRDG/TW")
    ]
    more = at(PAPERS, per_token) / at("device only", per_token) - 1
    slower = at("race/mirrored", per_token, rtt=far) / at("device only", per_token, rtt=far) - 1
    first = [times(at(mode, "ttft"), at(PAPERS, "ttft")) for mode in ("DRCG/text", "DRCG/KV")]
    return [
        Claim("Fig. 6: per-token latency below sequence-wise", "49.5 % (OPT)", less[0]),
        Claim("Fig. 6: per-token latency below token-wise", "42.4 % (OPT)", less[1]),
        Claim("Fig. 6: overhead over the device alone", "15.6 % to 20.3 %", f"{more:.1%}"),
        Claim(f"the same, `balanced` of this project, {far:g} ms", "–", f"{slower:.1%}"),
        Claim("Fig. 7: TTFT of fetched texts over DRAGON's", "8.6×", first[0]),
        Claim("Fig. 7: TTFT of fetched keys and values over DRAGON's", "15.3×", first[1]),
    ]


# --- Fig. 8: placements, simulated as in §7.4

STRATEGIES: Final[dict[str, tuple[Placement, bool]]] = {  # placement, and whether `greedy` is the paper's (Eq. 6)
    "device": ("device", False),
    "cloud": ("cloud", False),
    "random": ("random", False),
    "greedy, Eq. 6": ("greedy", True),
    "greedy": ("greedy", False),
}
REGIMES: Final = {
    "cloud right more often (.66/.97)": Rates.independent(0.66, 0.97),  # shares of the traces in the authors' program
    "both alike (.85/.86, both .73)": Rates(0.85, 0.86, 0.73),
}


def _schedule_cases(short: bool) -> Sequence[Row]:
    size: dict[str, Sequence[object]] = {"extra": (0, 300), "answers": (2,), "tokens": (20,)}
    if not short:
        size = {"extra": (0, 100, 300, 500), "answers": (20,), "tokens": (100,)}
    return grid(regime=REGIMES, device=(150,), cloud=(50,), **size, strategy=STRATEGIES)


def _schedule(_: Results, case: Row) -> Iterator[Row]:
    """Seconds of each answer; all strategies replay the same sequences of accepted drafts."""
    model, (placement, eq_6) = REGIMES[case["regime"]], STRATEGIES[case["strategy"]]
    device, cloud = (case[side] / 1e3 for side in ("device", "cloud"))
    way = Way(0.002, case["extra"] / 1e3, Sinusoid())
    scenario = Scenario(device, cloud, way, model, placement, case["tokens"], paper_rule=eq_6)
    for number in range(case["answers"]):
        earlier = model.draw(case["tokens"], case["answers"] + number)
        yield {"number": number, "seconds": simulate(replace(scenario, earlier=earlier), number).seconds}


def _show_schedule(results: Results, rows: list[Row]) -> list[Claim]:
    def seconds(those: list[Row]) -> str:
        return f"{mean(those, 'seconds'):.2f}"

    index = {"acceptance, device / cloud": "regime", "extra latency, ms": "extra"}
    results.table(f"DRAGON Fig. 8: seconds for {rows[0]['tokens']} tokens", pivot(rows, index, "strategy", seconds))
    title = "DRAGON Fig. 8: time by placement (paper: its rule is nowhere behind)"
    with results.figure("dragon-8", len(REGIMES), title=title) as axes:
        for axis, regime in zip(axes, REGIMES, strict=True):
            numbers = {name: number for number, name in enumerate(STRATEGIES)}
            lines(axis, where(rows, regime=regime), "extra", "seconds", "strategy", numbers)
            labelled(axis, "extra latency, ms", "seconds", regime)

    def nowhere_behind(strategy: str) -> str:
        best = worst = 0.0
        settings = groups(rows, "regime", "extra").values()
        for those in settings:
            own = mean(where(those, strategy=strategy), "seconds")
            others = [mean(where(those, strategy=name), "seconds") for name in ("device", "cloud", "random")]
            worst, best = max(worst, own / min(others) - 1), max(best, max(others) / own)
        return f"at most {worst:.0%} behind the best of the three, up to {best:.2f}× the worst"

    return [
        Claim(f"`{name}` against device, cloud, random", "matches or beats all", nowhere_behind(name))
        for name in ("greedy, Eq. 6", "greedy")
    ]


# --- Fig. 9: the pipeline of one answer

TRACED: Final = (latency.PAPER_GREEDY, latency.RACE_MIRRORED, latency.TOKEN_WISE)


def _trace(_: Results, case: Row) -> Iterator[Row]:
    """Answers of two daemons with their traces; the question needs a note and an entry."""
    texts, line = Texts.draw_joint(1), Line(delay=case["extra"] / 2e3)
    device, cloud = emulated(case["device"]), emulated(case["cloud"])
    law = {"temperature": 1.0, "seed": 11, "max_tokens": case["tokens"], "trace": True}
    with filled(texts) as data, linked(data, {**device, **PATIENT}, cloud, line, line) as (pair, _line):
        settle(pair)
        pair.complete(texts.questions[0], max_tokens=1)  # reads the documents
        for mode in TRACED:
            trace = ask(pair, texts.questions[0], mode, **law)["trace"]
            yield {"mode": mode.name, "trace": json.dumps(trace)}


def _show_trace(results: Results, rows: list[Row]) -> list[Claim]:
    told, waits = [], {}
    for row in rows:
        trace = from_json(json.loads(row["trace"]))
        spent = milliseconds_per_token(steps(trace))
        waits[row["mode"]] = spent["draft under way"] + spent["target under way"]
        told.append([row["mode"], f"{sum(spent.values()):.0f}", *(f"{spent[cause]:.0f}" for cause in CAUSES)])
        title = (
            f"DRAGON Fig. 9, {row['mode']}: extra latency {row['extra']} ms, {row['tokens']} tokens (paper: 500 ms, 15)"
        )
        save_timeline(results.path_of(f"dragon-9-{row['mode'].replace('/', '-')}"), trace, title)
    results.table("DRAGON Fig. 9: ms per token by what it waited for", Table(["mode", "total", *CAUSES], told))
    here = ", ".join(f"{mode} {wait:.0f} ms" for mode, wait in waits.items())
    return [Claim("drafting ahead hides the way: a token waits for messages", "pipeline drawn, no number", here)]


FIGURES: Final = (
    Figure("DRAGON 4", "real sessions, simulated clock", _theory_cases, _theory, _show_theory),
    Figure("DRAGON 5", "SmolLM2-135M, float32", _perplexity_cases, _perplexity, _show_perplexity),
    Figure(
        "DRAGON 6, 7",
        "two daemons, network lab, emulated steps",
        lambda short: grid(short=(short,)),
        _latency,
        _show_latency,
    ),
    Figure("DRAGON 8", "real sessions, simulated clock", _schedule_cases, _schedule, _show_schedule),
    Figure(
        "DRAGON 9",
        "two daemons, delayed link, emulated steps",
        lambda short: [
            {"extra": 40, "device": 10, "cloud": 5, "tokens": 6}
            if short
            else {"extra": 500, "device": 150, "cloud": 50, "tokens": 15}
        ],
        _trace,
        _show_trace,
    ),
)
