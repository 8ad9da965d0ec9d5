"""Loads a decoder-only model from safetensors, and refuses unsupported models."""

from __future__ import annotations

import copy
import hashlib
import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig, PreTrainedModel, initialization
from transformers.modeling_utils import str_to_torch_dtype

from common.engine.model.architecture import check_architecture, check_places, class_of, max_context, shortest_window
from common.engine.model.errors import ModelError
from common.engine.model.files import (
    DECODER_POSITIONS,
    StoredTensor,
    StoredWeights,
    check_sizes,
    read_header,
    read_settings,
    stored_weights,
    weight_files,
)
from common.engine.model.gguf import source_of
from common.engine.model.gguf_weights import bytes_of, read_source, sizes_of
from common.engine.model.hub import find_decoder_files
from common.engine.model.imports import quiet_loading, without_compiler
from common.engine.model.packed import PACKED_ATTENTION, keep_latents, register_packed_attention
from common.engine.model.quantised import WeightsName, has_kernel, matrix_types, round_weights
from common.engine.model.tokenizer import Tokenizer
from common.engine.streaming import StreamedLayers, Streaming, fill, make_empty, weight_sample
from common.process.machine import memory

# --- resident
# Reads a model into its own memory: a mapping would change with the files.

_TYPES = str_to_torch_dtype | {"F8_E8M0": torch.float8_e8m0fnu}
_HALVES = (torch.bfloat16, torch.float16)


@dataclass(frozen=True, slots=True)
class _Stored:
    """A tensor in a file. Transformers reads it on demand, in one of several threads."""

    path: Path
    file: BinaryIO
    tensor: StoredTensor

    def get_dtype(self) -> str:
        return self.tensor.dtype

    def __getitem__(self, part: Any) -> Tensor:
        numbers = torch.empty(self.tensor.shape, dtype=_TYPES[self.tensor.dtype])
        buffer: Any = numbers.reshape(-1).view(torch.uint8).numpy()
        memory = memoryview(buffer)
        done, size = 0, self.tensor.last - self.tensor.first
        if size != memory.nbytes:
            raise ModelError(f"{self.path}: a tensor has {size} bytes where its shape needs {memory.nbytes}")
        while done < size:
            # One call reads 2 GiB at most.
            read = os.preadv(self.file.fileno(), [memory[done:]], self.tensor.first + done)
            if read == 0:
                raise ModelError(f"{self.path}: has become shorter while it was read; get it again")
            done += read
        return numbers[part]


def load_all_weights(
    outline: PreTrainedModel, files: Sequence[Path], dtype: torch.dtype, attention: str, place: torch.device
) -> tuple[PreTrainedModel, Mapping[str, Any]]:
    """Loads `files` into a model like `outline`. Returns it and Transformers' report.

    Needs memory for the model, and for a few tensors on a GPU or when types change. Raises `ModelError`, and other
    errors for files of another model.
    """
    kind: Any = type(outline)
    with ExitStack() as opened, quiet_loading():
        shards = [(path, opened.enter_context(path.open("rb"))) for path in files]
        tensors = {
            name: _Stored(path, file, tensor) for path, file in shards for name, tensor in read_header(path).items()
        }
        model, report = kind.from_pretrained(
            None,
            config=outline.config,
            state_dict=tensors,
            dtype=dtype,
            attn_implementation=attention,
            device_map=None if place.type == "cpu" else {"": place},
            local_files_only=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # the report shows it, like missing weights
        )
    _settle(model, dtype)
    return model, report


def leave_files(model: torch.nn.Module) -> None:
    """Copies a CPU model's mapped parts into its own memory."""
    for part in (*model.parameters(), *model.buffers()):
        if part.device.type == "cpu":
            part.data = part.data.clone()


def _settle(model: PreTrainedModel, dtype: torch.dtype) -> None:
    """Unifies half-precision types; float32 stays. Dequantised weights have another half precision."""
    for part in (*model.parameters(), *model.buffers()):
        if part.dtype in _HALVES and part.dtype != dtype:
            part.data = part.data.to(dtype)


# --- loading

TorchDevice = Literal["cpu", "cuda", "auto"]
DtypeName = Literal["auto", "float32", "bfloat16"]

# Numbers beyond twice the stored ones: tied ones count double before they are tied, and files lack position tables and
# causal masks. 256 MiB in float32.
_NOT_STORED = 2**26

_SHORT = 2**16  # numbers in a range
GIB: Final = 2**30

log = logging.getLogger(__name__)

_Made = TypeVar("_Made", bound=nn.Module)


@dataclass(frozen=True, slots=True)
class LoadedModel:
    model: PreTrainedModel
    tokenizer: Tokenizer
    layers: tuple[nn.Module, ...]
    torch_device: torch.device
    eos: frozenset[int]
    max_context: int
    window: int  # shortest declared window of any layer, or 0
    streamed: StreamedLayers | None = None  # layers that are not always in memory
    coded: Mapping[str, bytes] = field(default_factory=dict)  # samples of the coded weights, by name

    def identity(self) -> str:
        """Names its numbers. For a streamed model, free after the first pass."""
        samples = {} if self.streamed is None else self.streamed.samples()
        return model_identity(self.model, self.tokenizer, {**samples, **self.coded})

    @property
    def weights(self) -> str:
        """For people."""
        return matrix_types(self.model, self.model.dtype)


@without_compiler()
def load_model(
    folder_or_hub_id: str,
    tokenizer: str | None,
    torch_device: TorchDevice,
    dtype: DtypeName,
    streaming: Streaming | None = None,
    weights: WeightsName = "stored",
) -> LoadedModel:
    """Loads weights and tokenizer; see `Decoder.load`. Raises `ModelError`."""
    folder = find_decoder_files(folder_or_hub_id)
    source = source_of(folder)
    files = [] if source is not None else weight_files(folder)
    if source is None and not files:
        raise ModelError(
            f"{folder_or_hub_id}: no safetensors weights (model.safetensors, or the files of "
            "model.safetensors.index.json); pickled weights are not read"
        )
    place = resolve_device(torch_device)
    if streaming is not None and place.type != "cpu":
        raise ModelError(f"{folder_or_hub_id}: weights are streamed to a CPU only; set torch_device to cpu")
    if streaming is not None and (source is not None or weights != "stored"):
        raise ModelError(f"{folder_or_hub_id}: only plain weights are streamed; set weights to stored")
    options: dict[str, Any] = {"trust_remote_code": False, "local_files_only": True}
    stored = stored_weights(folder) if source is None else sizes_of(source)
    config = _configuration(folder_or_hub_id, folder, stored, options)
    check_architecture(folder_or_hub_id, config)
    attention = register_packed_attention()
    number_type = resolve_dtype(dtype, config.dtype, place)
    few_bits = (source is not None or weights != "stored") and takes_codes(dtype, place)
    number_type = torch.bfloat16 if few_bits else number_type
    if weights != "stored" and not few_bits:
        log.warning("weights = %s needs a processor with AVX2, and bfloat16: the weights stay as stored", weights)
    as_stored = few_bits and weights == "stored"
    if streaming is None and place.type == "cpu":
        plain = stored.numbers * number_type.itemsize
        check_free_memory(folder_or_hub_id, plain if source is None else bytes_of(source, number_type, as_stored))
    model: Any
    samples: Mapping[str, bytes] = {}
    streamed = None
    try:
        make: Any = AutoModelForCausalLM
        outline: PreTrainedModel = check_numbers(
            folder,
            stored,
            lambda: make.from_config(copy.deepcopy(config), attn_implementation=attention, trust_remote_code=False),
        )
        generation = _generation(folder)
        if streaming is not None:
            model = make_empty(config, number_type, attention)
            streamed = fill(model, decoder_layers(folder_or_hub_id, model), files, streaming)
        elif source is not None:
            model, samples = read_source(config, source, number_type, attention, as_stored)
        else:
            model, report = load_all_weights(outline, files, number_type, attention, place)
            check_weights(folder_or_hub_id, model, report)
        if few_bits and weights != "stored":
            samples = round_weights(folder_or_hub_id, model, 8 if weights == "int8" else 4)
    except ModelError:
        raise
    except Exception as error:  # wrong values in a configuration raise errors of any type
        if PACKED_ATTENTION in str(error):
            raise ModelError(
                f"{folder_or_hub_id}: {class_of(config)} has an attention of its own that can't be replaced;"
                " only models that use Transformers' attention interface are supported"
            ) from error
        raise ModelError(f"{folder_or_hub_id}: the model can't be loaded: {_one_line(error)}") from error
    model = model.eval().requires_grad_(False)
    model.generation_config = generation or model.generation_config
    if streamed is None and place.type != "cpu":
        model = model.to(place)
    keep_latents(model)
    try:
        chosen = _tokenizer_for(folder_or_hub_id, folder, tokenizer, model)
        return LoadedModel(
            model=model,
            tokenizer=chosen,
            layers=decoder_layers(folder_or_hub_id, model),
            torch_device=place,
            eos=_eos(model, chosen),
            max_context=max_context(folder_or_hub_id, config),
            window=shortest_window(config),
            streamed=streamed,
            coded=samples,
        )
    except BaseException:
        if streamed is not None:
            streamed.close()
        raise


def takes_codes(dtype: DtypeName, place: torch.device) -> bool:
    """Whether coded weights are multiplied as codes, not as plain numbers."""
    return place.type == "cpu" and dtype != "float32" and has_kernel()


def check_free_memory(name: str, needed: int) -> None:
    free = memory().available
    if needed > free:
        raise ModelError(
            f"{name}: its weights take about {needed / GIB:.1f} GiB of memory, and {free / GIB:.1f} GiB are free; stop"
            " other programs, choose a smaller model, or set weights to int4"
        )


def _generation(folder: Path) -> GenerationConfig | None:
    path = folder / "generation_config.json"
    if not path.exists():
        return None
    read_settings(path)  # its error names the fault
    return GenerationConfig.from_pretrained(folder, local_files_only=True)


def resolve_device(torch_device: TorchDevice) -> torch.device:
    """Resolves `auto` to CUDA if available. Raises `ModelError` for CUDA without a usable GPU."""
    if torch_device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if torch_device == "cuda" and not torch.cuda.is_available():
        raise ModelError("torch_device is cuda, but PyTorch finds no usable GPU; use cpu or auto")
    return torch.device(torch_device)


def resolve_dtype(dtype: DtypeName, stored: torch.dtype | None, place: torch.device) -> torch.dtype:
    """Resolves `auto` to the checkpoint's type, on a CPU to bfloat16 or float32.

    CPUs compute float16 slowly, and bfloat16, too, without instructions for it.
    """
    if dtype != "auto":
        return torch.float32 if dtype == "float32" else torch.bfloat16
    if stored is None or place.type != "cpu":
        return stored or torch.float32
    if stored in (torch.bfloat16, torch.float16):
        return torch.bfloat16 if cpu_has_bfloat16() else torch.float32
    return torch.float32


def cpu_has_bfloat16() -> bool:
    """Whether this CPU is known to multiply bfloat16 in hardware."""
    flags = Path("/proc/cpuinfo")
    if not flags.exists():
        return False
    text = flags.read_text(errors="replace")
    return any(flag in text for flag in ("avx512_bf16", "amx_bf16", " bf16"))


def model_identity(model: PreTrainedModel, tokenizer: Tokenizer, samples: Mapping[str, bytes]) -> str:
    """Names a model's numbers: architecture, type, tokenizer, and samples of every weight.

    Independent of shards and folder. Not a signature: it covers 256 evenly spaced numbers per tensor. `samples` are of
    weights that are not in memory.
    """
    digest = hashlib.sha256()
    config = {
        name: value
        for name, value in model.config.to_diff_dict().items()
        if name not in ("transformers_version", "_name_or_path", "architectures")
    }
    described = json.dumps([type(model).__name__, str(model.dtype), config], sort_keys=True, default=str)
    digest.update(described.encode())
    digest.update(tokenizer.content_hash.encode())
    for name, weight in sorted(model.named_parameters()):
        digest.update(f"{name} {tuple(weight.shape)}".encode())
        digest.update(samples[name] if name in samples else weight_sample(weight))
    return digest.hexdigest()


def check_numbers(folder: Path, stored: StoredWeights, make: Callable[[], _Made]) -> _Made:
    """Builds a model without storage and checks its size against the files.

    Transformers fills any amount of missing weights with random numbers. Raises `ModelError`, and the errors of `make`.
    """
    with torch.device("meta"), initialization.no_init_weights():
        model = _made(make)
    needed = sum(part.numel() for part in {id(part): part for part in (*model.parameters(), *model.buffers())}.values())
    if needed > 2 * stored.numbers * _packed(model) + _NOT_STORED:
        raise ModelError(
            f"{folder}: config.json describes a model of {needed} numbers, and its files have {stored.numbers}; "
            "they don't belong together"
        )
    return model


def _made(make: Callable[[], _Made]) -> _Made:
    """Torch imports its compiler for ranges on `meta`, which takes two seconds. So short ranges, and position tables
    from them, are on the CPU meanwhile.
    """
    try:
        with _ShortRanges():
            model = make()
    except RuntimeError:  # it combines these with tensors on `meta`
        return make()
    for module in model.modules():
        for name, buffer in module.named_buffers(recurse=False):
            module._buffers[name] = buffer.to("meta")
    return model


class _ShortRanges(TorchFunctionMode):
    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        options = kwargs or {}
        plain = function is torch.arange and "device" not in options and "out" not in options
        if plain and args and all(isinstance(each, int | float) and abs(each) <= _SHORT for each in args):
            return function(*args, device="cpu", **options)
        return function(*args, **options)


def _packed(model: nn.Module) -> int:
    """Quantised weights are up to eight in an int32."""
    return 8 if getattr(getattr(model, "config", None), "quantization_config", None) is not None else 1


def _configuration(name: str, folder: Path, stored: StoredWeights, options: dict[str, Any]) -> Any:
    path = folder / "config.json"
    if path.exists():
        check_sizes(path, stored, DECODER_POSITIONS)
    try:
        return AutoConfig.from_pretrained(folder, **options)
    except Exception as error:  # wrong types and values raise any error
        raise ModelError(f"{name}: the configuration can't be read: {_one_line(error)}") from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def check_weights(name: str, model: nn.Module, report: Mapping[str, Any], unused: tuple[str, ...] = ()) -> None:
    """Checks Transformers' loading report: no weight is missing, misshapen or unused.

    Weights with a prefix in `unused` may be missing. Raises `ModelError`.
    """
    for kind, what in (("missing_keys", "missing weights"), ("mismatched_keys", "weights of another shape")):
        if found := sorted(key for key in map(str, report.get(kind, ())) if not key.startswith(unused)):
            shown = ", ".join(found[:3])
            raise ModelError(
                f"{name}: {what}: {shown} ({len(found)} in all);"
                " the checkpoint is not complete or belongs to another configuration"
            )
    check_places(name, model, map(str, report.get("unexpected_keys", ())))


def _tokenizer_for(name: str, folder: Path, tokenizer: str | None, model: PreTrainedModel) -> Tokenizer:
    chosen = Tokenizer.load(tokenizer or str(folder))
    if tokenizer is not None and (folder / "tokenizer.json").exists():
        own = Tokenizer.load(str(folder))
        if own.content_hash != chosen.content_hash:
            raise ModelError(f"the tokenizer {tokenizer} is not the one that {name} was trained with")
    ends: list[Any] = [model.get_input_embeddings(), model.get_output_embeddings()]
    rows = min(int(end.weight.shape[0]) for end in ends if end is not None)
    if chosen.size > rows:
        raise ModelError(
            f"the tokenizer {tokenizer or name} has {chosen.size} ids, the model {name} only"
            f" {rows}; they don't belong together"
        )
    return chosen


def decoder_layers(name: str, model: PreTrainedModel) -> tuple[nn.Module, ...]:
    """In order. Raises `ModelError` without a list of layers."""
    count = model.config.get_text_config().num_hidden_layers
    for module in model.modules():
        if isinstance(module, nn.ModuleList) and len(module) == count:
            return tuple(module)
    raise ModelError(f"{name}: found no list of {count} decoder layers in {type(model).__name__}")


def _eos(model: PreTrainedModel, tokenizer: Tokenizer) -> frozenset[int]:
    configured = model.generation_config.eos_token_id if model.generation_config is not None else None
    ids = {configured} if isinstance(configured, int) else set(configured or ())
    return tokenizer.ends | ids
