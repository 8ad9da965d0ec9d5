"""Tensors in safetensors files, read when they are asked for and kept nowhere.

Reads bypass the page cache where the file system can (O_DIRECT), and leave nothing in it where not: memory beyond the
budget must not make a model look faster than the disk. Files are never mapped.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from common.engine.model.errors import ModelError
from common.engine.model.safetensors_header import StoredTensor, read_header
from common.engine.weights.plan import CHUNK_BYTES

BLOCK_BYTES = 4096  # what O_DIRECT wants places in files and memory to be multiples of

DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}

Proceed = Callable[[int], bool]  # told of every read's bytes; False ends the reading


@dataclass(frozen=True, slots=True)
class Place:
    """Storage of a tensor: the bytes from `first` to before `last` of the file with the number `file`."""

    file: int
    first: int
    last: int
    dtype: torch.dtype
    shape: tuple[int, ...]


@dataclass(slots=True)
class ReadCounters:
    """Counts of reads that were asked of the system."""

    reads: int = 0
    bytes: int = 0  # whole blocks, so up to one more at both ends of a run of tensors


Wanted = Sequence[tuple[Place, Tensor]]  # tensors in files, and where their numbers go: `[numbers]`, of any float type


class WeightFiles:
    """A model's safetensors files. One thread at a time reads; they stay open until closed."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Open the files and read their headers. Raises `ModelError` for damaged ones."""
        self.places: dict[str, Place] = {}  # of tensors of float types; there is no other way to read
        self.counters = ReadCounters()
        self.direct = True  # whether all reads bypass the page cache
        self._sums: dict[tuple[int, int, int], int] = {}  # of what was read, by file, first byte and bytes
        self._paths = paths
        self._open: list[int] = []
        # No file's: memory that begins with a page, as O_DIRECT wants it.
        self._memory = mmap.mmap(-1, CHUNK_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._bytes = torch.frombuffer(self._memory, dtype=torch.uint8)
        try:
            for number, path in enumerate(self._paths):
                for name, tensor in read_header(path).items():
                    if tensor.dtype in DTYPES:
                        self.places[name] = _place(path, number, name, tensor)
                self._open.append(self._opened(path))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the files."""
        while self._open:
            os.close(self._open.pop())

    def read(self, wanted: Wanted, proceed: Proceed = lambda size: True) -> bool:
        """Read tensors, converted to the type that is wanted; False if `proceed` ended it before.

        Raises `ModelError` for a file that has become shorter or can't be read any more.
        """
        return all(self._read_run(run, proceed) for run in runs(wanted))

    def _opened(self, path: Path) -> int:
        direct = getattr(os, "O_DIRECT", 0)
        try:
            if direct:
                try:
                    return self._probed(os.open(path, os.O_RDONLY | direct))
                except OSError:
                    pass  # the file system can't
            self.direct = False
            descriptor = os.open(path, os.O_RDONLY)
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # nothing is to be read ahead into the cache
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
            raise ModelError(f"{path}: has become shorter while the model was in use; get it again")
        if self._sums.setdefault((file, start, count), found := word_sum(self._memory, count)) != found:
            raise ModelError(
                f"{path}: holds other numbers than when it was loaded; get it again, or start again if it is meant to"
            )
        self.counters.reads += 1
        self.counters.bytes += count
        return count


def word_sum(memory: mmap.mmap, count: int) -> int:
    """The sum of the 64-bit words of the first `count` bytes, and of the bytes behind the last whole one, modulo 2^64.

    Any change within one word changes it, and of other changes all but one in 2^64.
    """
    words, rest = divmod(count, 8)
    whole = np.frombuffer(memory, np.uint64, words).sum(dtype=np.uint64)
    return (int(whole) + int.from_bytes(memory[count - rest : count], "little")) % 2**64


def runs(wanted: Wanted) -> list[list[tuple[Place, Tensor]]]:
    """Tensors that lie one behind the other in a file, but for less than a block, in that order: read at once."""
    found: list[list[tuple[Place, Tensor]]] = []
    for place, target in sorted(wanted, key=lambda each: (each[0].file, each[0].first)):
        before = found[-1][-1][0] if found else None
        if before is not None and before.file == place.file and 0 <= place.first - before.last < BLOCK_BYTES:
            found[-1].append((place, target))
        else:
            found.append([(place, target)])
    return found


def _copy(chunk: Tensor, start: int, stop: int, place: Place, target: Tensor) -> None:
    """Copy what a chunk `[bytes]`, the bytes from `start` to before `stop` of the file, has of a tensor."""
    first, last = max(start, place.first), min(stop, place.last)
    if first >= last:
        return
    size = place.dtype.itemsize
    numbers = chunk[first - start : last - start].view(place.dtype)
    target[(first - place.first) // size : (last - place.first) // size].copy_(numbers)


def _place(path: Path, number: int, name: str, tensor: StoredTensor) -> Place:
    dtype = DTYPES[tensor.dtype]
    size = torch.Size(tensor.shape).numel() * dtype.itemsize
    if tensor.last - tensor.first != size:
        raise ModelError(f"{path}: {name} has {tensor.last - tensor.first} bytes where its shape needs {size}")
    if tensor.first % dtype.itemsize:
        raise ModelError(f"{path}: {name} lies at an odd place; save the model again with a current safetensors")
    return Place(number, tensor.first, tensor.last, dtype, tensor.shape)
