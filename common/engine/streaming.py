"""A model larger than memory: leading layers stay, every pass reads the others."""

from __future__ import annotations

import copy
import mmap
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import init_empty_weights
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel, initialization

from common.engine.model.architecture import check_places
from common.engine.model.errors import ModelError, Preempted
from common.engine.model.files import StoredTensor, read_header

# --- plan
# Resident and streamed layers. Pure.
#
# Every pass reads all layers in the same order, so a cache of recent layers never hits. As many leading layers as fit
# stay instead. The others go through two buffers: one fills while the other computes (EdgeLLM §III-D).

BUFFERS = 2
CHUNK_BYTES = 2**20  # bytes per read from a file
ALIGNMENT = 64  # bytes: a cache line, enough for vector instructions


@dataclass(frozen=True, slots=True)
class Streaming:
    """Memory budget of a streamed model, in bytes.

    `reserved_bytes` are for other uses, such as a draft model. For experiments, `bytes_per_second` limits the reading
    speed, and without `read_ahead` a layer is read only when needed.
    """

    budget_bytes: int
    reserved_bytes: int = 0
    bytes_per_second: float | None = None
    read_ahead: bool = True

    def __post_init__(self) -> None:
        if self.bytes_per_second is not None and not self.bytes_per_second > 0:
            raise ValueError(f"bytes_per_second must be positive, not {self.bytes_per_second}")

    def beside(self, others: int) -> Streaming:
        """Returns a copy with `others` more reserved bytes."""
        return replace(self, reserved_bytes=self.reserved_bytes + others)


@dataclass(frozen=True, slots=True)
class Residence:
    """Number of resident leading layers, and bytes of each buffer."""

    layers: int
    buffer_bytes: int


def aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def residence(ends: int, layers: Sequence[int], budget: int, reserved: int) -> Residence:
    """Finds the largest number of resident layers. All sizes are in bytes.

    `ends`: embeddings, output layer, norms. `reserved`: other memory. Raises `ModelError` with the smallest budget that
    works.
    """
    needs = [ends + reserved + _layer_bytes(layers, resident) for resident in range(len(layers) + 1)]
    for resident in range(len(layers), -1, -1):
        if needs[resident] <= budget:
            return Residence(resident, max(layers[resident:], default=0))
    raise ModelError(
        f"a memory budget of {budget} bytes is too small, the smallest is {min(needs)}: {ends} for embeddings, output"
        f" layer and norms, {reserved} for what is not the model, and the rest for {BUFFERS} buffers of a layer each"
    )


def _layer_bytes(layers: Sequence[int], resident: int) -> int:
    streamed = layers[resident:]
    return sum(layers[:resident]) + (BUFFERS * max(streamed) + CHUNK_BYTES if streamed else 0)


# --- file
# Tensors in safetensors files, read on request and never cached or mapped.
#
# Reads bypass the page cache (O_DIRECT), or leave nothing in it. Memory beyond the budget would make a model look
# faster than the disk.

BLOCK_BYTES = 4096  # O_DIRECT needs offsets and addresses that are multiples of this

DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}

Proceed = Callable[[int], bool]  # called with the bytes of every read; False stops the reading


@dataclass(frozen=True, slots=True)
class TensorLocation:
    """A tensor: bytes `first` to before `last` of file number `file`."""

    file: int
    first: int
    last: int
    dtype: torch.dtype
    shape: tuple[int, ...]


@dataclass(slots=True)
class ReadCounters:
    reads: int = 0
    bytes: int = 0  # whole blocks: up to one more at each end of a run


Wanted = Sequence[tuple[TensorLocation, Tensor]]  # tensors in files, and their targets `[numbers]`, of any float type


class WeightFiles:
    """A model's safetensors files, open until `close`. One thread at a time reads."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Opens the files. Raises `ModelError` for damaged files."""
        self.places: dict[str, TensorLocation] = {}  # tensors of float types; others can't be read
        self.counters = ReadCounters()
        self.direct = True
        self._sums: dict[tuple[int, int, int], int] = {}  # checksums by file, first byte and byte count
        self._paths = paths
        self._open: list[int] = []
        # An anonymous mapping begins at a page, as O_DIRECT needs.
        self._memory = mmap.mmap(-1, CHUNK_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._bytes = torch.frombuffer(self._memory, dtype=torch.uint8)
        try:
            for number, path in enumerate(self._paths):
                for name, tensor in read_header(path).items():
                    if tensor.dtype in DTYPES:
                        self.places[name] = _file_place(path, number, name, tensor)
                self._open.append(self._opened(path))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        while self._open:
            os.close(self._open.pop())

    def read(self, wanted: Wanted, proceed: Proceed = lambda size: True) -> bool:
        """Reads tensors, converted to the wanted type. Returns False if `proceed` stopped it.

        Raises `ModelError` for a file that changed or can't be read any more.
        """
        return all(self._read_run(run, proceed) for run in runs(wanted))

    def _opened(self, path: Path) -> int:
        direct = getattr(os, "O_DIRECT", 0)
        try:
            if direct:
                try:
                    return self._probed(os.open(path, os.O_RDONLY | direct))
                except OSError:
                    pass  # not on this file system
            self.direct = False
            descriptor = os.open(path, os.O_RDONLY)
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # no read-ahead into the cache
            return descriptor
        except OSError as error:
            raise ModelError(f"{path}: can't be read: {(error.strerror or str(error)).lower()}") from error

    def _probed(self, descriptor: int) -> int:
        try:
            os.preadv(descriptor, [memoryview(self._memory)[:BLOCK_BYTES]], 0)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def _read_run(self, run: Wanted, proceed: Proceed) -> bool:
        file, end = run[0][0].file, run[-1][0].last
        start = run[0][0].first // BLOCK_BYTES * BLOCK_BYTES
        remaining = list(run)
        while start < end:
            size = min(CHUNK_BYTES, -(-(end - start) // BLOCK_BYTES) * BLOCK_BYTES)
            stop = start + self._read_chunk(file, start, size, min(size, end - start))
            for place, target in remaining:
                _copy(self._bytes, start, stop, place, target)
            remaining = [(place, target) for place, target in remaining if place.last > stop]
            if not proceed(stop - start):
                return False
            start = stop
        return True

    def _read_chunk(self, file: int, start: int, size: int, needed: int) -> int:
        path = self._paths[file]
        try:
            count = os.preadv(self._open[file], [memoryview(self._memory)[:size]], start)
            if not self.direct and hasattr(os, "posix_fadvise"):
                os.posix_fadvise(self._open[file], start, count, os.POSIX_FADV_DONTNEED)
        except (OSError, IndexError) as error:
            told = "it was closed" if isinstance(error, IndexError) else (error.strerror or str(error)).lower()
            raise ModelError(f"{path}: can't be read any more: {told}") from error
        if count < needed:
            raise ModelError(f"{path}: became shorter while the model was in use; get it again")
        if self._sums.setdefault((file, start, count), found := word_sum(self._memory, count)) != found:
            raise ModelError(
                f"{path}: has changed since it was loaded; get it again, or restart if the change is intended"
            )
        self.counters.reads += 1
        self.counters.bytes += count
        return count


def word_sum(memory: mmap.mmap, count: int) -> int:
    """The sum modulo 2^64 of the 64-bit words and the remaining bytes.

    Detects every change within one word, and any other change except one in 2^64.
    """
    words, rest = divmod(count, 8)
    whole = np.frombuffer(memory, np.uint64, words).sum(dtype=np.uint64)
    return (int(whole) + int.from_bytes(memory[count - rest : count], "little")) % 2**64


def runs(wanted: Wanted) -> list[list[tuple[TensorLocation, Tensor]]]:
    """Groups tensors less than a block apart in a file, in file order."""
    found: list[list[tuple[TensorLocation, Tensor]]] = []
    for place, target in sorted(wanted, key=lambda each: (each[0].file, each[0].first)):
        before = found[-1][-1][0] if found else None
        if before is not None and before.file == place.file and 0 <= place.first - before.last < BLOCK_BYTES:
            found[-1].append((place, target))
        else:
            found.append([(place, target)])
    return found


def _copy(chunk: Tensor, start: int, stop: int, place: TensorLocation, target: Tensor) -> None:
    """Copies a tensor's part of a chunk `[bytes]`, from file byte `start` on."""
    first, last = max(start, place.first), min(stop, place.last)
    if first >= last:
        return
    size = place.dtype.itemsize
    numbers = chunk[first - start : last - start].view(place.dtype)
    target[(first - place.first) // size : (last - place.first) // size].copy_(numbers)


def _file_place(path: Path, number: int, name: str, tensor: StoredTensor) -> TensorLocation:
    dtype = DTYPES[tensor.dtype]
    size = torch.Size(tensor.shape).numel() * dtype.itemsize
    if tensor.last - tensor.first != size:
        raise ModelError(f"{path}: {name} has {tensor.last - tensor.first} bytes where its shape needs {size}")
    if tensor.first % dtype.itemsize:
        raise ModelError(f"{path}: {name} is not aligned; save the model again with a current safetensors")
    return TensorLocation(number, tensor.first, tensor.last, dtype, tensor.shape)


# --- store
# Streamed layers, in two buffers that a thread keeps full.

Interrupt = Callable[[], bool]
Waiting = Callable[[], bool]  # does useful work for a moment; False if there is none

_PATIENCE = 0.005  # seconds between two checks of an interrupt while idle


@dataclass(slots=True)
class StreamingCounters:
    layers: int = 0
    dropped: int = 0  # of them, layers left unused by an abandoned pass
    waited: float = 0.0  # seconds in which a pass only waited


class WeightStore:
    """Reads layers in cyclic order: ahead of the current layer, and between passes.

    One thread takes layers and gives them back. Any thread may read `counters`.
    """

    def __init__(
        self,
        files: WeightFiles,
        layers: Sequence[Sequence[Wanted]],
        bytes_per_second: float | None = None,
        read_ahead: bool = True,
    ) -> None:
        """`layers`: for each layer and each buffer, the tensors to read and their targets."""
        self.counters = StreamingCounters()
        self._files, self._layers = files, layers
        self._read_ahead = read_ahead
        self._seconds_per_byte = 0.0 if bytes_per_second is None else 1 / bytes_per_second
        self._free_at = 0.0  # when a disk of that speed would have finished the reads
        # The condition's lock guards everything below.
        self._changed = threading.Condition()
        self._free = list(range(BUFFERS))
        self._full: deque[tuple[int, int]] = deque()  # layer, buffer
        self._held: int | None = None
        self._next = 0  # the layer to read
        self._course = 0  # counts changes of the order; a read that began before one is discarded
        self._asked = False
        self._failure: Exception | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="weights", daemon=True)
        self._thread.start()

    def take(self, layer: int, interrupt: Interrupt | None = None, waiting: Waiting | None = None) -> int:
        """Returns the number of the buffer with `layer`, held until `give_back`.

        Until the layer is read, calls `waiting` while it returns True. Raises `Preempted` if `interrupt()` is true, and
        `ModelError` if the layer can't be read.
        """
        started, useful = time.perf_counter(), 0.0
        with self._changed:
            self._seek(layer)
            self._asked, self._failure = True, None  # retries an earlier failure that nobody waited for
            self._changed.notify_all()
        try:
            while (buffer := self._taken(None if waiting is not None else _PATIENCE)) is None:
                if interrupt is not None and interrupt():
                    raise Preempted
                if waiting is not None:
                    begun = time.perf_counter()
                    waiting = waiting if waiting() else None
                    useful += time.perf_counter() - begun
        finally:
            with self._changed:
                self._asked = False
            self.counters.waited += time.perf_counter() - started - useful
        return buffer

    def give_back(self) -> None:
        with self._changed:
            if self._held is not None:
                self._free.append(self._held)
                self._held = None
                self._changed.notify_all()

    def rewind(self) -> None:
        self.give_back()
        with self._changed:
            self._seek(0)

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()
        self._files.close()

    def _taken(self, patience: float | None) -> int | None:
        """Returns None if the next layer is not read within `patience` seconds."""
        with self._changed:
            if patience is not None:
                self._changed.wait_for(lambda: self._full or self._failure, patience)
            if self._closing:
                raise RuntimeError("layers can't be taken from a store that was closed")
            if self._full:
                _, self._held = self._full.popleft()
                return self._held
            if self._failure is not None:
                failure, self._failure = self._failure, None
                self._changed.notify_all()
                raise failure
            return None

    def _seek(self, layer: int) -> None:
        coming = self._full[0][0] if self._full else self._next
        if coming == layer:
            return
        self.counters.dropped += len(self._full)
        self._free += [buffer for _, buffer in self._full]
        self._full.clear()
        self._next, self._course, self._failure = layer, self._course + 1, None
        self._changed.notify_all()

    # --- the thread

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closing or self._may_read())
                if self._closing:
                    return
                buffer, layer, course = self._free.pop(), self._next, self._course
            whole, failure = self._read(layer, buffer, course)
            with self._changed:
                self.counters.layers += whole
                if course != self._course or not whole:
                    self._free.append(buffer)
                    self.counters.dropped += whole
                    if course == self._course:
                        self._failure = failure
                else:
                    self._full.append((layer, buffer))
                    self._next = (layer + 1) % len(self._layers)
                self._changed.notify_all()

    def _may_read(self) -> bool:
        asked = self._read_ahead or (self._asked and not self._full)
        return bool(self._free) and self._failure is None and asked

    def _read(self, layer: int, buffer: int, course: int) -> tuple[bool, Exception | None]:
        # A late chunk shortens the wait of the next ones, so that a layer takes its intended time.
        self._free_at = max(self._free_at, time.perf_counter())
        try:
            return self._files.read(self._layers[layer][buffer], lambda size: self._go_on(size, course)), None
        except Exception as error:  # raised in the thread that takes the layer
            return False, error

    def _go_on(self, size: int, course: int) -> bool:
        """Waits like a slower disk. Returns False if the layer is not wanted any more."""
        self._free_at += size * self._seconds_per_byte
        if (left := self._free_at - time.perf_counter()) > 0:
            with self._changed:
                self._changed.wait_for(lambda: self._closing or course != self._course, left)
        return not self._closing and course == self._course


# --- streaming

# Numbers per tensor in a model's identity: enough to tell checkpoints apart, and fast to read.
_IDENTITY_SAMPLE = 256


@dataclass(frozen=True, slots=True)
class _Weight:
    """A parameter to fill, with its modules and attribute names."""

    empty: nn.Parameter
    users: tuple[tuple[nn.Module, str], ...]
    name: str
    place: TensorLocation

    @property
    def bytes(self) -> int:
        return aligned(self.empty.numel() * self.empty.itemsize)

    def put(self, parameter: nn.Parameter) -> None:
        for module, attribute in self.users:
            module._parameters[attribute] = parameter


_Views = Sequence[nn.Parameter]


class StreamedLayers:
    """The layers from `first` on, with weights in a buffer while they run.

    For the model's thread.
    """

    def __init__(
        self,
        store: WeightStore,
        files: WeightFiles,
        first: int,
        layers: Sequence[Sequence[_Weight]],
        views: Sequence[Sequence[_Views]],
    ) -> None:
        """`views`: for each of the `layers` and each buffer, its parameters in that buffer."""
        self.first = first
        self._store, self._files = store, files
        self._layers, self._views = layers, views
        self._inside: Sequence[_Weight] = ()
        self._sampled: dict[int, dict[str, bytes]] = {}  # by layer

    @property
    def counters(self) -> StreamingCounters:
        """Costs of streaming, including the passes while loading."""
        return self._store.counters

    @property
    def read(self) -> ReadCounters:
        """Counts of all reads, including the resident weights."""
        return self._files.counters

    @property
    def direct(self) -> bool:
        return self._files.direct

    def enter(self, layer: int, interrupt: Interrupt | None, waiting: Waiting | None) -> None:
        """Gives `layer` its weights. Raises as `WeightStore.take` does."""
        streamed = layer - self.first
        views = self._views[streamed][self._store.take(streamed, interrupt, waiting)]
        self._inside = self._layers[streamed]
        for weight, view in zip(self._inside, views, strict=True):
            weight.put(view)
        if streamed not in self._sampled:
            self._sample(streamed, views)

    def leave(self) -> None:
        for weight in self._inside:
            weight.put(weight.empty)
        self._inside = ()
        self._store.give_back()

    def rewind(self) -> None:
        self.leave()
        self._store.rewind()

    def samples(self) -> Mapping[str, bytes]:
        """Samples of every streamed weight, for the model's identity.

        Reads the layers that no pass has used.
        """
        for layer in range(len(self._layers)):
            if layer not in self._sampled:
                self._sample(layer, self._views[layer][self._store.take(layer)])
                self._store.give_back()
        return {name: sample for each in self._sampled.values() for name, sample in each.items()}

    def _sample(self, layer: int, views: _Views) -> None:
        weights = self._layers[layer]
        self._sampled[layer] = {weight.name: weight_sample(view) for weight, view in zip(weights, views, strict=True)}

    def close(self) -> None:
        self._store.close()


def weight_sample(weight: Tensor) -> bytes:
    flat = weight.detach().reshape(-1)
    return flat[:: max(1, flat.numel() // _IDENTITY_SAMPLE)].float().cpu().numpy().tobytes()


def make_empty(config: PreTrainedConfig, dtype: torch.dtype, attention: str) -> PreTrainedModel:
    """Builds a model with all of its buffers and no weights. Not thread-safe."""
    make: Any = AutoModelForCausalLM
    with init_empty_weights(include_buffers=False), initialization.no_init_weights():
        model: PreTrainedModel = make.from_config(
            copy.deepcopy(config), dtype=dtype, attn_implementation=attention, trust_remote_code=False
        )
    model.tie_weights()
    return model


def fill(
    model: PreTrainedModel, layers: Sequence[nn.Module], paths: Sequence[Path], streaming: Streaming
) -> StreamedLayers | None:
    """Loads an empty model's resident weights and prepares streaming of the others.

    Returns None if all `layers` stay. Raises `ModelError` for a budget that is too small, and for unreadable files or a
    missing weight.
    """
    files, folder = WeightFiles(paths), paths[0].parent
    try:
        named = (name for stored in files.places for name in (stored, f"{model.base_model_prefix}.{stored}"))
        check_places(str(folder), model, named)
        return _fill(model, layers, files, folder, streaming)
    except BaseException:
        files.close()
        raise


def _fill(
    model: PreTrainedModel, layers: Sequence[nn.Module], files: WeightFiles, folder: Path, streaming: Streaming
) -> StreamedLayers | None:
    ends, by_layer = _weights(model, layers, files.places, folder)
    plan = residence(
        sum(weight.bytes for weight in ends),
        [sum(weight.bytes for weight in weights) for weights in by_layer],
        streaming.budget_bytes,
        streaming.reserved_bytes,
    )
    for weights in (ends, *by_layer[: plan.layers]):
        _materialise(weights, files)
    persistent = set(model.state_dict())
    files.read(
        [
            (files.places[name], buffer.view(-1))
            for name, buffer in model.named_buffers()
            if name in persistent and name in files.places
        ]
    )
    if plan.layers == len(layers):
        files.close()
        return None
    streamed = by_layer[plan.layers :]
    views, wanted = _in_buffers(streamed, plan.buffer_bytes)
    store = WeightStore(files, wanted, streaming.bytes_per_second, streaming.read_ahead)
    return StreamedLayers(store, files, plan.layers, streamed, views)


def _weights(
    model: PreTrainedModel, layers: Sequence[nn.Module], places: Mapping[str, TensorLocation], folder: Path
) -> tuple[list[_Weight], list[list[_Weight]]]:
    """Returns outer and shared weights, then each layer's."""
    layer_of = {id(part): index for index, layer in enumerate(layers) for part in layer.modules()}
    users: dict[int, list[tuple[nn.Module, str, str]]] = {}
    for prefix, module in model.named_modules():
        for attribute, parameter in module._parameters.items():
            if parameter is not None:
                users.setdefault(id(parameter), []).append((module, attribute, f"{prefix}.{attribute}"))
    ends: list[_Weight] = []
    by_layer: list[list[_Weight]] = [[] for _ in layers]
    for name, parameter in model.named_parameters():
        using = users[id(parameter)]
        place = _place([known for _, _, known in using], parameter, model.base_model_prefix, places, folder)
        weight = _Weight(parameter, tuple((module, attribute) for module, attribute, _ in using), name, place)
        owners = {layer_of.get(id(module)) for module, _, _ in using}
        owner = owners.pop() if len(owners) == 1 else None
        (ends if owner is None else by_layer[owner]).append(weight)
    return ends, by_layer


def _place(
    names: Sequence[str], parameter: nn.Parameter, prefix: str, places: Mapping[str, TensorLocation], folder: Path
) -> TensorLocation:
    """The names may lack the base model's prefix."""
    known = [*names, *(name.removeprefix(f"{prefix}.") for name in names)]
    place = next((places[name] for name in known if name in places), None)
    if place is None:
        raise ModelError(
            f"{folder}: has no {names[0]} in float32, float16 or bfloat16; dragon streams only weights of these types"
        )
    if place.shape != tuple(parameter.shape):
        raise ModelError(
            f"{folder}: {names[0]} has the shape {place.shape}, and config.json describes {tuple(parameter.shape)};"
            " they don't belong together"
        )
    return place


def _materialise(weights: Sequence[_Weight], files: WeightFiles) -> None:
    wanted = []
    for weight in weights:
        (full,) = _views([weight], torch.empty(weight.bytes, dtype=torch.uint8))
        weight.put(full)
        wanted.append((weight.place, full.data.view(-1)))
    files.read(wanted)


def _in_buffers(layers: Sequence[Sequence[_Weight]], size: int) -> tuple[list[list[_Views]], list[list[Wanted]]]:
    """Returns, by layer and buffer, the parameters as views and the tensors to read."""
    buffers = [torch.empty(size, dtype=torch.uint8) for _ in range(BUFFERS)]
    views: list[list[_Views]] = [[_views(weights, buffer) for buffer in buffers] for weights in layers]
    wanted: list[list[Wanted]] = [
        [[(weight.place, view.data.view(-1)) for weight, view in zip(weights, each, strict=True)] for each in by_buffer]
        for weights, by_buffer in zip(layers, views, strict=True)
    ]
    return views, wanted


def _views(weights: Sequence[_Weight], buffer: Tensor) -> _Views:
    views, start = [], 0
    for weight in weights:
        size = weight.empty.numel() * weight.empty.itemsize
        numbers = buffer[start : start + size].view(weight.empty.dtype).view(weight.empty.shape)
        views.append(nn.Parameter(numbers, requires_grad=False))
        start += weight.bytes
    return views
