"""One GGUF file in llama.cpp: `python -m scripts.bench.llama FILE THREADS SEQUENCES CONTEXT VOCABULARY`.

It answers every line of its input with a line of JSON: `answer PROMPT STEPS` times an answer of all sequences, each
with a prompt of its own, `turn KEPT NEW` a prompt whose beginning is kept, and `perplexity TOKENS WINDOW` reads a file
of token ids in 32 bits.

It runs in an environment of its own, which has the packages `xllamacpp` and `numpy`: the wheel's library is called by
its C functions.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np


class ModelSettings(ctypes.Structure):
    """`llama_model_params`, of which only the library knows more than that it is passed by value."""

    _fields_ = (("bytes", ctypes.c_ubyte * 1024),)


class ContextSettings(ctypes.Structure):
    """`llama_context_params`: its first fields."""

    _fields_ = (
        ("context", ctypes.c_uint32),
        ("batch", ctypes.c_uint32),
        ("at_once", ctypes.c_uint32),
        ("sequences", ctypes.c_uint32),
        ("rest", ctypes.c_ubyte * 1024),
    )


class Batch(ctypes.Structure):
    """`llama_batch`."""

    _fields_ = (
        ("count", ctypes.c_int32),
        ("token", ctypes.POINTER(ctypes.c_int32)),
        ("embedding", ctypes.c_void_p),
        ("position", ctypes.POINTER(ctypes.c_int32)),
        ("sequences", ctypes.POINTER(ctypes.c_int32)),
        ("sequence", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))),
        ("wanted", ctypes.POINTER(ctypes.c_int8)),
    )


def library() -> Any:
    """The library of the installed wheel, with the types of what is called."""
    found = importlib.util.find_spec("xllamacpp.xllamacpp")
    if found is None or found.origin is None:
        raise SystemExit("the package xllamacpp is not installed here")
    made: Any = ctypes.CDLL(found.origin)
    made.llama_model_default_params.restype, made.llama_context_default_params.restype = ModelSettings, ContextSettings
    made.llama_model_load_from_file.argtypes = [ctypes.c_char_p, ModelSettings]
    made.llama_init_from_model.argtypes = [ctypes.c_void_p, ContextSettings]
    made.llama_batch_init.restype = Batch
    made.llama_decode.argtypes = [ctypes.c_void_p, Batch]
    made.llama_get_logits_ith.argtypes = [ctypes.c_void_p, ctypes.c_int32]
    made.llama_get_logits_ith.restype = ctypes.POINTER(ctypes.c_float)
    made.llama_set_n_threads.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32]
    made.llama_memory_clear.argtypes = [ctypes.c_void_p, ctypes.c_bool]
    made.llama_get_memory.argtypes = [ctypes.c_void_p]
    for name in ("llama_model_load_from_file", "llama_init_from_model", "llama_get_memory"):
        getattr(made, name).restype = ctypes.c_void_p
    return made


class Peer:
    """A model and its context."""

    def __init__(self, file: str, threads: int, sequences: int, context: int, vocabulary: int) -> None:
        self._llama = llama = library()
        llama.llama_backend_init()
        settings = llama.llama_context_default_params()
        settings.context, settings.sequences = sequences * context, sequences
        settings.batch = settings.at_once = max(512, sequences)
        model = llama.llama_model_load_from_file(file.encode(), llama.llama_model_default_params())
        self._context = llama.llama_init_from_model(model, settings)
        if not model or not self._context:
            raise SystemExit(f"llama.cpp does not read {file}")
        llama.llama_set_n_threads(self._context, threads, threads)
        self._batch = llama.llama_batch_init(settings.batch, 0, 1)
        self._most, self._sequences, self._vocabulary = settings.batch, sequences, vocabulary

    def answer(self, prompt: int, steps: int) -> dict[str, float]:
        """Seconds of the clock and of the processor for all prompts, and for all steps of `SEQUENCES` tokens each."""
        self._clear()
        began = _now()
        for sequence in range(self._sequences):
            self._read(0, prompt, sequence)
        read = _now()
        chosen = [self._best(self._batch.count - 1)] * self._sequences
        for step in range(steps):
            part = [(token, prompt + step, sequence) for sequence, token in enumerate(chosen)]
            self._decode(part, range(len(part)))
            chosen = [self._best(place) for place in range(len(part))]
        done = _now()
        return {
            "prompt": read[0] - began[0],
            "prompt work": read[1] - began[1],
            "steps": done[0] - read[0],
            "steps work": done[1] - read[1],
        }

    def turn(self, kept: int, new: int) -> dict[str, float]:
        """Seconds to a first token after `new` tokens, where the first `kept` are in memory already."""
        self._clear()
        began = _now()
        for start, stop in ((0, kept), (kept, kept + new)):
            began = _now()
            self._read(start, stop, 0)
        self._best(self._batch.count - 1)
        return {"seconds": _now()[0] - began[0]}

    def perplexity(self, tokens: Sequence[int], window: int) -> float:
        """Of the second halves of windows, as `scripts.bench.weights` computes it."""
        lost, count = 0.0, 0
        for first in range(0, len(tokens) - window + 1, window):
            part = tokens[first : first + window]
            self._clear()
            self._decode([(int(token), place, 0) for place, token in enumerate(part)], range(window // 2, window))
            for place in range(window // 2, window - 1):
                exact = self._logits(place).astype(np.float64)
                lost -= exact[part[place + 1]] - exact.max() - np.log(np.exp(exact - exact.max()).sum())
                count += 1
        return float(np.exp(lost / count))

    def _read(self, start: int, stop: int, sequence: int) -> None:
        """Reads a prompt's tokens from place `start` on, in as few passes as a batch allows."""
        for first in range(start, stop, self._most):
            places = range(first, min(first + self._most, stop))
            tokens = [((13 * place + 5) % self._vocabulary, place, sequence) for place in places]
            self._decode(tokens, [len(tokens) - 1])

    def _clear(self) -> None:
        self._llama.llama_memory_clear(self._llama.llama_get_memory(self._context), True)

    def _decode(self, tokens: Sequence[tuple[int, int, int]], wanted: Sequence[int]) -> None:
        """A pass over ids with their places and sequences."""
        batch = self._batch
        batch.count = len(tokens)
        for index, (token, place, sequence) in enumerate(tokens):
            batch.token[index], batch.position[index] = token, place
            batch.sequences[index], batch.sequence[index][0] = 1, sequence
            batch.wanted[index] = index in wanted
        if self._llama.llama_decode(self._context, batch):
            raise SystemExit("llama.cpp could not read the tokens")

    def _logits(self, place: int) -> Any:
        found = self._llama.llama_get_logits_ith(self._context, place)
        return np.ctypeslib.as_array(found, (self._vocabulary,))

    def _best(self, place: int) -> int:
        return int(np.argmax(self._logits(place)))


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def main() -> None:
    file, *numbers = sys.argv[1:]
    threads, sequences, context, vocabulary = map(int, numbers)
    peer = Peer(file, threads, sequences, context, vocabulary)
    for line in sys.stdin:
        what, *given = line.split()
        if what in ("answer", "turn"):
            print(json.dumps(getattr(peer, what)(*map(int, given))), flush=True)
        else:
            tokens = np.fromfile(given[0], np.int32)
            print(json.dumps({"perplexity": peer.perplexity(tokens.tolist(), int(given[1]))}), flush=True)


if __name__ == "__main__":
    main()
