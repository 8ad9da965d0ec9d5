"""Checks a model on a GPU: `python -m scripts.gpu_check [MODEL] [--place cpu]`, in at most six minutes.

It prints one table: loading, memory, agreement with Transformers, the same bits, steps of several rows, memory of keys
and values, and answers of two daemons that two placements must not change.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import torch

from common.engine.model.decoder import Decoder, model_place
from common.engine.model.errors import ModelError
from device.settings import DeviceSettings
from scripts.bench.measuring import Table
from scripts.bench.repeats import first_difference
from scripts.bench.workload import Texts
from scripts.daemons import Pair, fill_library

ROWS: Final = (1, 4, 16)
CONTEXT, STEPS = 256, 20
ANSWERS, TOKENS = 20, 16
KINDS: Final = (("bfloat16", "stored"), ("int4", "int4"))
Line = tuple[str, str, str]  # subject, figure, verdict


def check(model: str, place: Any) -> Iterator[Line]:
    """All lines of the table, each as soon as it is known."""
    for name, weights in KINDS:
        yield from _loaded(model, place, name, weights)
    yield from _placements(model, place)


def _loaded(model: str, place: Any, name: str, weights: Any) -> Iterator[Line]:
    """A model with weights of one kind: proofs at loading, steps, and memory."""
    chosen = DeviceSettings(model=model)
    before, began = _allocated(place), time.perf_counter()
    try:
        decoder = Decoder.load(
            model_place(chosen.model, chosen.models),
            tokenizer=chosen.tokenizer,
            torch_device=place,
            dtype="bfloat16",
            weights=weights,
        )
    except ModelError as error:
        yield name, "loading", f"FAILED: {error}"
        return
    try:
        seconds, taken = time.perf_counter() - began, _allocated(place) - before
        told = "" if weights == "stored" or "int4" in decoder.weights else "; this place has no product for it"
        yield f"{name}: loading", f"{seconds:.1f} s, {taken / 2**20:,.0f} MiB", f"weights are {decoder.weights}{told}"
        yield f"{name}: agreement with Transformers", "proven at loading", "ok"
        yield f"{name}: the same bits in any company", decoder.exactness, _verdict(decoder.exactness != "near")
        for rows in ROWS:
            yield f"{name}: step of {rows} rows", f"{1e3 * _step(decoder, rows):.1f} ms", ""
        yield _keys_and_values(decoder, place, name)
    finally:
        decoder.close()


def _step(decoder: Decoder, rows: int) -> float:
    """Median seconds of a step."""
    tokens = [(13 * number + 5) % decoder.vocabulary for number in range(CONTEXT)]
    held, _ = decoder.open([[]] * rows, tokens, STEPS)
    taken = []
    for _ in range(STEPS):
        _synchronise(decoder)
        began = time.perf_counter()
        decoder.step(held, [7])
        _synchronise(decoder)
        taken.append(time.perf_counter() - began)
    decoder.memory.give_back(held)
    return sorted(taken)[STEPS // 2]


def _keys_and_values(decoder: Decoder, place: Any, name: str) -> Line:
    """Bytes that the engine counts beside those that the GPU has allocated."""
    before = _allocated(place)
    held, _ = decoder.open([[]] * 4, [7] * CONTEXT, 1)
    counted, allocated = decoder.memory.committed_bytes, _allocated(place) - before
    decoder.memory.give_back(held)
    figure = f"{counted / 2**20:.1f} MiB counted, {allocated / 2**20:.1f} MiB allocated"
    return f"{name}: keys and values of 4 rows", figure, _verdict(place == "cpu" or allocated <= 1.1 * counted + 2**20)


def _placements(model: str, place: Any) -> Iterator[Line]:
    """Answers of two daemons, decided by the device and by the cloud."""
    texts = Texts.draw(ANSWERS // 2)
    flags = {"model": model, "torch_device": place, "dtype": "bfloat16"}
    with tempfile.TemporaryDirectory(prefix="dragon-gpu-") as folder:
        for side, documents in texts.documents.items():
            fill_library(Path(folder), side, {f"{number:03}": text for number, text in enumerate(documents)})
        with Pair(Path(folder), flags | {"privacy": "balanced"}, flags, patience=180) as pair:
            exactness = pair.status()["exactness"]
            differing = 0
            for number in range(ANSWERS):
                law = {"temperature": 0.7 * (number % 2), "seed": number, "max_tokens": TOKENS, "wait": True}
                question = texts.questions[number // 2]
                pieces = [
                    pair.complete(question, placement=decider, **law)["dragon"]["pieces"]
                    for decider in ("device", "cloud")
                ]
                differing += first_difference(*pieces) is not None
    expected = exactness == "near" or not differing
    yield f"{ANSWERS} answers, two placements ({exactness})", f"{differing} differ", _verdict(expected)


def _verdict(right: bool) -> str:
    return "ok" if right else "WRONG"


def _allocated(place: Any) -> int:
    return int(torch.cuda.memory_allocated()) if place == "cuda" else 0


def _synchronise(decoder: Decoder) -> None:
    if decoder.torch_device.type == "cuda":
        torch.cuda.synchronize()


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; returns 1 if a line is wrong."""
    parser = argparse.ArgumentParser(prog="python -m scripts.gpu_check", description=__doc__)
    parser.add_argument("model", nargs="?", default="auto", help="as the setting `model`")
    parser.add_argument("--place", choices=("cuda", "cpu"), default="cuda", help="where the model computes")
    chosen = parser.parse_args(arguments)
    if chosen.place == "cuda" and not torch.cuda.is_available():
        print("PyTorch finds no usable GPU here; --place cpu shows how the check works", file=sys.stderr)
        return 2
    lines = []
    for line in check(chosen.model, chosen.place):
        print(f"{line[0]}: {line[1]} {line[2]}", file=sys.stderr, flush=True)
        lines.append(line)
    where = torch.cuda.get_device_name() if chosen.place == "cuda" else "CPU"
    table = Table(["", "measured", ""], [list(line) for line in lines])
    print(f"{chosen.model} on {where}, torch {torch.__version__}\n\n{table}")
    return 1 if any(line[2].startswith(("WRONG", "FAILED")) for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
