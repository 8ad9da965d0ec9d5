"""RAPID (Chen et al. 2025): speed-up by context (Fig. 3), drafters (Table 1), unrelated passages (Table 3)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from math import isnan
from pathlib import Path
from random import Random
from typing import Any, Final

from common.configuration.settings import EMBEDDED_DRAFT, EMBEDDED_MODEL, default_model, default_models
from common.engine.model.gguf import imported
from common.figures import REFERENCE
from scripts.bench.asking import PATIENT, Mode, answered, ask, make_mode, own_folder
from scripts.bench.papers.figure import Claim, Figure, curves, labelled, mean
from scripts.bench.results import Results
from scripts.bench.rows import Row, grid, pivot, share, where
from scripts.bench.synthetic_model import FLAGS
from scripts.bench.workload import SIZE, WORLD_SEED
from scripts.daemons import Pair, fill_library
from scripts.demo_model.world.library import PUBLIC, World, draw_questions, make_library

PATIENCE: Final = 300.0  # seconds: two daemons load the real model at a time
LENGTH: Final = 10  # of a proposal, γ of the paper
QUESTION: Final = "What is the code of the lighthouse door?"
# What a step of LLaMA-3.1-8B takes at 4,000 and at 122,000 tokens, from the rates of the paper's Table 2 (40.49 and
# 10.64 tokens a second), three times as long so that SmolLM2 keeps up; a token here stands for 120 of the paper's.
SHORT_STEP: Final = 3 * 24.7  # ms
LONG_STEP: Final = 3 * 94.0  # ms at 1,000 tokens here
LENGTHS: Final = (250, 500, 1000)
WHO = ("the baker", "a retired pilot", "the schoolteacher", "an old gardener", "the ferryman", "a young carpenter")
DID = ("walked to", "wrote about", "repaired a fence near", "painted", "took a photograph of", "came back from")
WHERE = ("the mill", "the north harbour", "the chapel", "an orchard", "the railway bridge", "the market square")
THEN = ("and told nobody", "and bought bread", "because the bus was late", "and met a cousin", "with two dogs")


def story(tokens: int, seed: int) -> tuple[str, str]:
    """A text of about `tokens` tokens with the sentence that is asked for, and the code in it."""
    random = Random(seed)
    code = str(random.randrange(1000, 10_000))
    made = [f"The code of the lighthouse door is {code}."]
    while sum(map(len, made)) < 4.3 * tokens:
        made.append(" ".join(random.choice(each) for each in (WHO, DID, WHERE, THEN)).capitalize() + ".")
    made.insert(random.randrange(len(made)), made.pop(0))
    return "\n\n".join(" ".join(made[start : start + 6]) for start in range(0, len(made), 6)), code


def unrelated(seed: int) -> list[str]:
    """A passage of another story, without what is asked for."""
    return [" ".join(line for line in story(200, seed)[0].splitlines() if "lighthouse" not in line)[:600]]


ALONE: Final = make_mode("long context", method="long-context", sources="cloud")


def both(eta: float, name: str = "", **fields: Any) -> Mode:
    """Rapid with this strength; without any it is plain speculative decoding."""
    name = name or ("SD" if eta == 0 else f"RAPID, η {eta:g}")
    given: dict[str, Any] = {"method": "rapid", "eta": eta, "draft_length": LENGTH, "retrieval_threshold": -1.0}
    return make_mode(name, **given | fields)


ETAS: Final = (0.0, 5.0, 10.0, 20.0, 40.0)


def _story_cases(short: bool) -> Sequence[Row]:
    real = not short and default_model() != str(EMBEDDED_MODEL)
    lengths, stories, tokens = ((120,), 1, 6) if short else (LENGTHS, 3, 16)
    return [{"model": "default" if real else "embedded", "lengths": lengths, "stories": stories, "most": tokens}]


def _stories(results: Results, case: Row) -> Iterator[Row]:
    """Answers about stories by two daemons; the cloud reads the whole, the device a passage that fits or does not."""
    model: dict[str, object] = {"model": str(EMBEDDED_MODEL), **FLAGS}
    slow: dict[str, object] = {}
    if case["model"] == "default":
        model = {"model": str(imported(Path(default_model()), default_models()))}
        slow = {"emulate_decode_ms": SHORT_STEP, "emulate_context_us": LONG_STEP - SHORT_STEP}
    device = {**model, **PATIENT, "draft_model": model["model"]} | ({"emulate_draft_ms": SHORT_STEP} if slow else {})
    stories = {f"{length}-{number}": story(length, 21 + number) for length, number in _which(case)}
    law = {"temperature": 0.0, "seed": 1}
    with _reading({name: text for name, (text, _) in stories.items()}, device, model | slow) as pair:
        for length, number in _which(case):
            at, code = law | {"long_document": f"{length}-{number}"}, stories[f"{length}-{number}"][1]
            modes = [ALONE, *(both(eta, retrieval_tokens=128) for eta in (0.0, 10.0, 40.0))]
            if length == case["lengths"][-1]:
                modes += [both(eta, f"unrelated, η {eta:g}", passages=unrelated(99)) for eta in ETAS]
            for mode in modes[:2]:
                ask(pair, QUESTION, mode, **at, max_tokens=1)  # reads the story
            for mode in modes:
                report = ask(pair, QUESTION, mode, **at, max_tokens=case["most"])
                yield {"length": length, "story": number, "mode": mode.name} | _answer(report, code)
            results.say(f"story {number} of {length} tokens")


def _which(case: Row) -> Iterator[tuple[int, int]]:
    return product(case["lengths"], range(case["stories"]))


@contextmanager
def _reading(texts: Mapping[str, str], device: Mapping[str, object], cloud: Mapping[str, object]) -> Iterator[Pair]:
    """A pair of daemons whose cloud has these documents; the device has a note that tells nothing."""
    with own_folder() as folder:
        fill_library(folder, "cloud", texts)
        fill_library(folder, "device", {"note": "The kettle is blue."})
        with Pair(folder, device, cloud, patience=PATIENCE) as pair:
            yield pair


def _answer(report: Mapping[str, Any], wanted: str) -> Row:
    row, text = answered(report), "".join(report["pieces"])
    return {
        "tokens": row["tokens"],
        "ms": row["whole"] / row["tokens"],
        "right": wanted.lower() in text.lower(),
        "accepted": row["accepted_device"],
        "text": text,
    }


def _show_stories(results: Results, rows: list[Row]) -> list[Claim]:
    def shown(those: list[Row]) -> str:
        lengths = {row["length"] for row in those}
        base = [row for row in where(rows, mode=ALONE.name) if row["length"] in lengths]
        ratio = mean(base, "ms") / mean(those, "ms")
        accepted = mean(those, "accepted")
        share = "–" if isnan(accepted) else f"{accepted:.2f}"  # nobody drafts
        return f"{ratio:.2f}×, {share}, {sum(row['right'] for row in those)} of {len(those)}"

    note = (
        f"Speed-up over the long context, share of accepted drafts, right answers. Model: {rows[0]['model']}; emulated "
        "steps with the ratios of the paper's A800; a token stands for 120 of the paper's, γ 10, T = 0."
    )
    longest = max(row["length"] for row in rows)
    plain = [row for row in rows if not row["mode"].startswith("unrelated")]
    results.table("RAPID Fig. 3, Table 1: by context", pivot(plain, ["length"], "mode", shown), note)
    far = [row for row in rows if row["mode"].startswith("unrelated")]
    results.table("RAPID Table 3: unrelated passages", pivot(far, ["length"], "mode", shown), note)

    def ratio(mode: str, length: int = longest) -> float:
        own, base = (mean(where(rows, mode=each, length=length), "ms") for each in (mode, ALONE.name))
        return base / own

    title = "RAPID Fig. 3: speed-up over the long context (paper: 2.10 at 120,000 tokens, above 1 from 32,000 on)"
    with results.figure("rapid-3", title=title) as (axis,):
        drawn = [
            {"context": 120 * length, "mode": mode, "speed_up": ratio(mode, length)}
            for length in sorted({row["length"] for row in rows})
            for mode in ("SD", "RAPID, η 10", "RAPID, η 40")
        ]
        curves(axis, drawn, "context", "speed_up", "mode")
        axis.axhline(1.0, **REFERENCE)
        axis.plot([120_000], [2.10], "k*", markersize=9, label="paper, 8B, self-speculation")
        labelled(axis, "context, the paper's tokens", "speed-up, times")

    def right(mode: str) -> str:
        those = where(rows, mode=mode, length=longest)
        return f"{sum(row['right'] for row in those)} of {len(those)}"

    accepted = mean(where(rows, mode="RAPID, η 10", length=longest), "accepted")
    far_right = ", ".join(f"η {eta:g}: {right(f'unrelated, η {eta:g}')}" for eta in ETAS)
    return [
        Claim("speed-up, self-speculation, longest context", "2.10× (8B)", f"{ratio('RAPID, η 10'):.2f}×"),
        Claim("speed-up of plain speculation", "1.63×", f"{ratio('SD'):.2f}×"),
        Claim("accepted drafts", "75 % to 85 %", f"{accepted:.0%}"),
        Claim("Table 3: speed-up, unrelated passages, η 0", "1.62×", f"{ratio('unrelated, η 0'):.2f}×"),
        Claim("Table 3: speed-up, unrelated passages, η 40", "2.08×", f"{ratio('unrelated, η 40'):.2f}×"),
        Claim(
            "Table 3: right answers, unrelated passages",
            "more than alone to η 20, fewer beyond",
            f"{far_right}; alone {right(ALONE.name)}",
        ),
    ]


# --- Table 1: drafters as large as the target and larger

MODELS: Final = {"self-speculation": EMBEDDED_DRAFT, "upward-speculation": EMBEDDED_MODEL}


def _drafter_cases(short: bool) -> Sequence[Row]:
    return grid(drafter=list(MODELS)[int(short) :], questions=(1 if short else 16,), entries=(6 if short else 8,))


def _drafters(results: Results, case: Row) -> Iterator[Row]:
    """Questions about one document of many entries; the target is the smaller embedded model."""
    world = World(WORLD_SEED, test=True)
    library = make_library(world, SIZE)
    entries = [document.text.strip() for document in library.public]
    asked = [each for each in draw_questions(world, library, case["questions"]) if each.type == PUBLIC]
    needed = [next(text for text in entries if question.values[-1] in text) for question in asked]
    text = "\n\n".join(sorted({*needed, *entries[: case["entries"]]}))
    target = {"model": str(EMBEDDED_DRAFT), "dtype": "float32", **FLAGS}
    device = {**target, **PATIENT, "draft_model": str(MODELS[case["drafter"]])}
    law = {"temperature": 0.0, "seed": 1, "max_tokens": 24, "long_document": "entries"}
    with _reading({"entries": text}, device, target) as pair:
        for number, question in enumerate(asked):
            for mode in (ALONE, *(both(eta, retrieval_tokens=64) for eta in (0.0, 10.0, 40.0))):
                report = ask(pair, question.question, mode, **law)
                yield {"question": number, "mode": mode.name} | _answer(report, question.values[-1])


def _show_drafters(results: Results, rows: list[Row]) -> list[Claim]:
    note = "Target: the smaller embedded model. Share of answers with the right value [95 %]."
    results.table("RAPID Table 1: drafters", pivot(rows, ["drafter"], "mode", share("right")), note)

    def right(mode: str, drafter: str) -> float:
        return mean(where(rows, mode=mode, drafter=drafter), "right")

    alone = mean(where(rows, mode=ALONE.name), "right")
    best = {name: max(right(f"RAPID, η {eta}", name) for eta in (10, 40)) for name in MODELS}
    printed = {"self-speculation": "42.83 over 39.33", "upward-speculation": "49.98 over 39.33"}
    return [
        Claim(f"Table 1: quality over the long context's, {name}", printed[name], f"{best[name]:.2f} over {alone:.2f}")
        for name in MODELS
    ]


FIGURES: Final = (
    Figure("RAPID 1, 3", "two daemons, SmolLM2-135M, emulated steps", _story_cases, _stories, _show_stories),
    Figure("RAPID drafters", "two daemons, embedded pair", _drafter_cases, _drafters, _show_drafters),
)
