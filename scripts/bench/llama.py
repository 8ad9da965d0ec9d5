"""Perplexity of a GGUF file by llama.cpp: `python -m scripts.bench.llama FILE TOKENS WINDOW VOCABULARY`.

It runs in an environment of its own, which has the packages `xllamacpp` and `numpy`: the wheel's library is called by
its C functions. `TOKENS` is a file of token ids in 32 bits.
"""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from typing import Any

import numpy as np

THREADS = 1


class Settings(ctypes.Structure):
    """A struct of which only the library knows more than that it is passed by value."""

    _fields_ = (("bytes", ctypes.c_ubyte * 1024),)


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
    made.llama_model_default_params.restype = made.llama_context_default_params.restype = Settings
    made.llama_model_load_from_file.argtypes = [ctypes.c_char_p, Settings]
    made.llama_init_from_model.argtypes = [ctypes.c_void_p, Settings]
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


def main() -> None:
    """Print the perplexity of the second halves of windows, as `scripts.bench.weights` computes it."""
    file, tokens, window, vocabulary = sys.argv[1], np.fromfile(sys.argv[2], np.int32), int(sys.argv[3]), sys.argv[4]
    llama = library()
    llama.llama_backend_init()
    model = llama.llama_model_load_from_file(file.encode(), llama.llama_model_default_params())
    context = llama.llama_init_from_model(model, llama.llama_context_default_params())  # of 512 tokens
    if not model or not context:
        raise SystemExit(f"llama.cpp does not read {file}")
    llama.llama_set_n_threads(context, THREADS, THREADS)
    batch = llama.llama_batch_init(window, 0, 1)
    lost, count = 0.0, 0
    for first in range(0, len(tokens) - window + 1, window):
        part = tokens[first : first + window]
        llama.llama_memory_clear(llama.llama_get_memory(context), True)
        batch.count = window
        for place, token in enumerate(part):
            batch.token[place], batch.position[place] = int(token), place
            batch.sequences[place], batch.sequence[place][0] = 1, 0
            batch.wanted[place] = place >= window // 2
        if llama.llama_decode(context, batch):
            raise SystemExit("llama.cpp could not read the tokens")
        for place in range(window // 2, window - 1):
            logits = np.ctypeslib.as_array(llama.llama_get_logits_ith(context, place), (int(vocabulary),))
            exact = logits.astype(np.float64)
            lost -= exact[part[place + 1]] - exact.max() - np.log(np.exp(exact - exact.max()).sum())
            count += 1
    print(f"perplexity {np.exp(lost / count):.6f}")


if __name__ == "__main__":
    main()
