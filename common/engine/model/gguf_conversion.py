"""Imports a GGUF file: `python -m common.engine.model.gguf_conversion FILE FOLDER [converted]`.

The weights stay in the file if each belongs to the model, at most with reordered rows. Otherwise, or on request, they
become bfloat16, with an error far below that of 4 to 8 bits. This module reads what Transformers omits: scaled
positions and scores, and some tokenizer rules and tokens. It refuses files with tensors that Transformers would ignore,
or weights that it would fill with random numbers.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from common.engine.model.errors import ModelError
from common.engine.model.files import LFS_POINTED, LFS_POINTER

_FREQUENCIES: Final = "rope_freqs.weight"  # divisors of all rotary frequencies
_END_KEYS: Final = tuple(f"tokenizer.ggml.{kind}_token_id" for kind in ("eos", "eot", "eom"))
# Llama 3.1 and later: the whole factor below LOW turns within ORIGINAL tokens, none above HIGH turns.
_LOW, _HIGH, _ORIGINAL = 1.0, 4.0, 8192
_SAME: Final = 1e-3  # relative; the divisors are float32, and so were the frequencies
_GEMMAS_OF_27B: Final = {"gemma2": 46, "gemma3_text": 62}  # layers; llama.cpp recognises the models by them

Rotation = dict[str, Any]  # one layer type's entry of `rope_parameters` in Transformers


def convert(file: Path, folder: Path, converted: bool = False) -> None:
    """Writes configuration, tokenizer, chat template and the weights' locations to `folder`.

    With `converted`, writes the weights themselves. Raises `ValueError` for a file with unused tensors, and the
    libraries' errors for a damaged or unknown file.
    """
    with _read_once(file) as reader:
        _convert(reader, file, folder, converted)


def _convert(reader: Any, file: Path, folder: Path, converted: bool) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    from common.engine.model.architecture import check_architecture
    from common.engine.model.gguf import BYTE_LEVEL, WEIGHTS, follow_rules, with_own_tokens
    from common.engine.model.loading import check_weights

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    options: dict[str, Any] = {"gguf_file": file.name, "local_files_only": True, "trust_remote_code": False}
    config: Any = AutoConfig.from_pretrained(file.parent, **options)
    check_architecture(file.name, config)  # before anything slow
    architecture = reader.fields["general.architecture"].contents()
    begin = f"{architecture}."
    stated = {key: field for key, field in reader.fields.items() if key.startswith(begin)}
    metadata = {key.removeprefix(begin): field.contents() for key, field in stated.items()}
    divisors = next((tensor.data.tolist() for tensor in reader.tensors if tensor.name == _FREQUENCIES), None)
    complete(config, metadata, divisors)
    _check_types(file, reader.tensors)
    outline: Any = None if converted else _outline(file, config, architecture, reader.tensors)
    if outline is not None:
        model, tensors = outline
    else:
        with _told(sum(int(tensor.n_bytes) for tensor in reader.tensors)):
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                file.parent,
                config=config,
                dtype=torch.float32,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # the report shows it, like missing weights
                **options,
            )
        model, report = loaded
        check_weights(file.name, model, report)
        _check_all_used(model, architecture, [tensor.name for tensor in reader.tensors])
    tokenizer: Any = AutoTokenizer.from_pretrained(file.parent, **options)
    names = "model", "pre", "tokens", "token_type"
    own = {name: reader.fields[key].contents() for name in names if (key := f"tokenizer.ggml.{name}") in reader.fields}
    if own["model"] == BYTE_LEVEL:
        tokenizer._tokenizer = with_own_tokens(tokenizer.backend_tokenizer, own["tokens"], own.get("token_type", ()))
        tokenizer.update_post_processor()  # it refers to tokens by their ids
    follow_rules(tokenizer.backend_tokenizer, own["model"], own.get("pre", "default"))
    ends = {reader.fields[key].contents() for key in _END_KEYS if key in reader.fields}
    model.generation_config.eos_token_id = sorted(ends)
    print("writing", file=sys.stderr, flush=True)
    if outline is not None:
        model.config.architectures, model.config.dtype = [type(model).__name__], torch.bfloat16
        model.config.save_pretrained(folder)
        model.generation_config.save_pretrained(folder)
        size = file.stat().st_size
        stated = {"file": str(file.absolute()), "size": size, "architecture": architecture, "tensors": tensors}
        (folder / WEIGHTS).write_text(json.dumps(stated) + "\n")
    else:
        model.hf_quantizer = None  # these are plain numbers now
        del model.config.quantization_config
        model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@contextmanager
def _read_once(file: Path) -> Iterator[Any]:
    """Transformers gets this reader, too: a large vocabulary takes seconds to read."""
    import gguf
    import numpy as np

    class Reader(gguf.GGUFReader):
        def __setattr__(self, name: str, value: Any) -> None:
            # Slicing a mapping takes three times the time of an array.
            super().__setattr__(name, value.view(np.ndarray) if name == "data" else value)

    known: Any = gguf
    reader, before = _opened(file, Reader), gguf.GGUFReader
    known.GGUFReader = lambda *_: reader
    try:
        yield reader
    finally:
        known.GGUFReader = before


def _check_types(file: Path, tensors: Sequence[Any]) -> None:
    import numpy as np
    from gguf import GGML_QUANT_SIZES, dequantize

    from common.engine.model.gguf import unread_type

    for kind, name in {tensor.tensor_type: tensor.name for tensor in tensors}.items():
        try:
            dequantize(np.zeros((1, GGML_QUANT_SIZES[kind][1]), np.uint8), kind)
        except NotImplementedError:
            raise ValueError(unread_type(file, name, kind.name)) from None


def _outline(file: Path, config: Any, architecture: str, tensors: Sequence[Any]) -> tuple[Any, dict[str, Any]] | None:
    """A model without storage, and its weights' locations in the file.

    None unless the file has exactly the model's weights, except for row order and norms' numbers.
    """
    from transformers import AutoModelForCausalLM
    from transformers.modeling_gguf_pytorch_utils import (
        TENSOR_PROCESSORS,
        Gemma2TensorProcessor,
        LlamaTensorProcessor,
        NemotronTensorProcessor,
        TensorProcessor,
    )

    from common.engine.model.files import StoredWeights
    from common.engine.model.loading import check_numbers
    from common.engine.model.quantised import CODED

    kind: Any = TENSOR_PROCESSORS.get(architecture, TensorProcessor)
    if kind not in (TensorProcessor, LlamaTensorProcessor, Gemma2TensorProcessor, NemotronTensorProcessor):
        return None
    if not {tensor.tensor_type.name for tensor in tensors} <= CODED | {"F32", "F16", "BF16"}:
        return None  # converting at each start would take too long
    shapes = {tensor.name: tuple(map(int, reversed(tensor.shape))) for tensor in tensors}
    stored = StoredWeights(sum(map(math.prod, shapes.values())), 0, shapes)
    make: Any = AutoModelForCausalLM
    model: Any = check_numbers(file, stored, lambda: make.from_config(config, trust_remote_code=False))
    model.tie_weights()
    places = _places(model, architecture)
    found = {
        places[tensor.name]: (
            tensor.name,
            tensor.tensor_type.name,
            shapes[tensor.name],
            int(tensor.data_offset),
            int(tensor.data_offset + tensor.n_bytes),
        )
        for tensor in tensors
        if tensor.name in places
    }
    needed = {name: tuple(weight.shape) for name, weight in model.named_parameters()}
    unused = set(shapes) - set(places) - {_FREQUENCIES}
    if unused or {name: shape for name, (_, _, shape, *_) in found.items()} != needed:
        return None
    return model, found


@contextmanager
def _told(whole: int) -> Iterator[None]:
    """Prints the converted share of `whole` bytes to stderr."""
    import gguf

    convert: Any = gguf.dequantize
    done = 0

    def telling(data: Any, kind: Any) -> Any:
        nonlocal done
        numbers = convert(data, kind)
        done += data.nbytes
        print(f"converted {min(done / whole, 1.0):.3f}", file=sys.stderr, flush=True)
        return numbers

    gguf.dequantize = telling  # type: ignore[assignment] # imported at each call
    try:
        yield
    finally:
        gguf.dequantize = convert


def complete(config: Any, metadata: Mapping[str, Any], divisors: Sequence[float] | None) -> None:
    """Adds metadata missing in Transformers' result: window, rotation, Gemma's scale.

    `metadata` has no architecture prefix. No file states Gemma's score scale. Raises as `scaled_rotation` does.
    """
    window = int(metadata.get("attention.sliding_window", 0))
    if window and getattr(config, "sliding_window", window) is None:
        config.sliding_window = window
    begin = "rope.scaling."
    stated = {key.removeprefix(begin): value for key, value in metadata.items() if key.startswith(begin)}
    parameters = getattr(config, "rope_parameters", None)
    if parameters is not None:
        # Gemma 3 scales only the positions of layers without a window, and has an entry per kind.
        rotation = parameters.get("full_attention", parameters)
        if (base := metadata.get("rope.freq_base")) is not None:  # omitted for StarCoder 2
            rotation["rope_theta"] = float(base)
        rotation |= scaled_rotation(rotation, stated, divisors)
    if (layers := _GEMMAS_OF_27B.get(config.model_type)) is not None:
        largest = config.num_hidden_layers == layers
        config.query_pre_attn_scalar = config.hidden_size // config.num_attention_heads if largest else config.head_dim


def scaled_rotation(rotation: Rotation, stated: Mapping[str, Any], divisors: Sequence[float] | None) -> Rotation:
    """The changed entries of `rotation`, from scaling metadata and frequency divisors.

    Raises `ValueError` for an unknown rule.
    """
    kind = stated.get("type", "none")
    if divisors is not None and max(divisors) > 1:
        found: Rotation = {
            "rope_type": "llama3",
            "factor": max(divisors),
            "low_freq_factor": _LOW,
            "high_freq_factor": _HIGH,
            "original_max_position_embeddings": _ORIGINAL,
        }
        expected = _divisors(rotation["rope_theta"], 2 * len(divisors), found["factor"])
        if not all(math.isclose(*pair, rel_tol=_SAME) for pair in zip(divisors, expected, strict=True)):
            raise ValueError(f"its rotary frequencies are scaled ({_FREQUENCIES}) otherwise than Llama 3.1's")
        return found
    if kind == "linear" and set(stated) <= {"type", "factor"}:
        return {"rope_type": "linear", "factor": stated["factor"]}
    if kind == "yarn" and set(stated) <= {"type", "factor", "original_context_length", "finetuned"}:
        original = int(stated["original_context_length"])
        return {"rope_type": "yarn", "factor": stated["factor"], "original_max_position_embeddings": original}
    if kind != "none":
        raise ValueError(f"its positions are scaled as {kind} ({', '.join(sorted(stated))}), which is not read")
    return {}


def _divisors(theta: float, size: int, factor: float) -> list[float]:
    """Llama 3.1's divisors for keys of `size` numbers."""
    made = []
    for place in range(0, size, 2):
        turns = _ORIGINAL / (2 * math.pi * theta ** (place / size))
        share = min(1.0, max(0.0, (turns - _LOW) / (_HIGH - _LOW)))
        made.append(1 / ((1 - share) / factor + share))
    return made


def _places(model: Any, architecture: str) -> dict[str, str]:
    from transformers.modeling_gguf_pytorch_utils import TENSOR_PROCESSORS, TensorProcessor, get_gguf_hf_weights_map

    kind: Any = TENSOR_PROCESSORS.get(architecture, TensorProcessor)
    rule = kind(config=model.config.to_dict())
    # With all of the model's parts, a table for each takes seconds. Most classes need only the whole's.
    whole: Any = SimpleNamespace(config=model.config, state_dict=model.state_dict, named_children=list)
    places: dict[str, str] = get_gguf_hf_weights_map(whole, rule)
    if not {name for name, _ in model.named_parameters()} <= set(places.values()):
        places = get_gguf_hf_weights_map(model, rule)
    return places


def _check_all_used(model: Any, architecture: str, tensors: Sequence[str]) -> None:
    places = _places(model, architecture)
    # Experts in one tensor have a name without an ending.
    known = {_FREQUENCIES, *places, *(f"{place}.weight" for place in places)}
    if left := sorted(set(tensors) - known):
        raise ValueError(f"{', '.join(left[:3])} ({len(left)} in all) would not be used")


def _opened(file: Path, reader: Callable[[Path], Any]) -> Any:
    """Raises `ModelError` unless the file is complete."""
    with file.open("rb") as begun:
        first = begun.read(len(LFS_POINTER))
    if first == LFS_POINTER:
        raise ModelError(LFS_POINTED)
    if first[:4] != b"GGUF":
        raise ModelError("it is no GGUF file")
    try:
        return reader(file)
    except Exception as error:  # the library's errors for missing data
        raise ModelError("it is cut off or damaged; get it again") from error


def main() -> int:
    """Returns the exit code. A failure is one line on stdout, progress goes to stderr."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    try:
        convert(Path(sys.argv[1]), Path(sys.argv[2]), converted="converted" in sys.argv[3:])
    except ModelError as error:
        print(" ".join(str(error).split()))
        return 1
    except Exception as error:  # the libraries' errors for a damaged or unknown file
        print(f"{type(error).__name__}: {' '.join(str(error).split())[:500]}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
