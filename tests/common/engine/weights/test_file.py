"""Tensors come out of files as safetensors' own reader has them, whether the page cache is bypassed or not."""

from __future__ import annotations

import errno
import json
import mmap
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor

from common.engine.model.errors import ModelError
from common.engine.streaming import BLOCK_BYTES, CHUNK_BYTES, WeightFiles, runs, word_sum

TYPES = (torch.float32, torch.float16, torch.bfloat16)


def cached(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that can't bypass the page cache."""
    before = os.open

    def refusing(path: str, flags: int, *others: int) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return before(path, flags, *others)

    monkeypatch.setattr(os, "open", refusing)


@pytest.fixture(params=["direct", "cached"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "cached":
        cached(monkeypatch)
    return str(request.param)


def some(shape: tuple[int, ...], dtype: torch.dtype = torch.float32, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def files_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors"))


def read(files: WeightFiles, *names: str, dtype: torch.dtype | None = None) -> list[Tensor]:
    places = [files.places[name] for name in names]
    targets = [torch.full((torch.Size(place.shape).numel(),), 7.0).to(dtype or place.dtype) for place in places]
    assert files.read(list(zip(places, targets, strict=True)))
    return [target.view(place.shape) for place, target in zip(places, targets, strict=True)]


def test_other_numbers_than_before_are_noticed(tmp_path: Path, way: str) -> None:
    """One bit, anywhere in a tensor; what was there before is good again."""
    path = tmp_path / "model.safetensors"
    save_file({"one": some((3, CHUNK_BYTES // 8)), "two": some((5,))}, path)
    files = WeightFiles(files_in(tmp_path))
    expected = read(files, "one")
    whole = path.read_bytes()
    first, last = files.places["one"].first, files.places["one"].last
    for place in (first, first + CHUNK_BYTES, last - 1):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        with pytest.raises(ModelError, match=r"has changed since it was loaded; get it again"):
            read(files, "one")
    path.write_bytes(whole)
    assert all(torch.equal(one, other) for one, other in zip(read(files, "one"), expected, strict=True))
    files.close()


@given(st.binary(min_size=1, max_size=40), st.data())
def test_sums_tell_bytes_apart(content: bytes, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(content) - 1))
    other = content[:place] + bytes([content[place] ^ data.draw(st.integers(1, 255))]) + content[place + 1 :]
    with mmap.mmap(-1, 64) as memory:
        sums = []
        for each in (content, other, content):
            memory[: len(each)] = each
            sums.append(word_sum(memory, len(each)))
    assert sums[0] == sums[2] != sums[1]


def headed(path: Path, header: object, data: bytes) -> None:
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


class TestReading:
    @settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        shapes=st.lists(
            st.tuples(st.lists(st.integers(0, 90), max_size=3), st.sampled_from(TYPES), st.sampled_from(TYPES)),
            min_size=1,
            max_size=8,
        ),
        order=st.randoms(use_true_random=False),
    )
    def test_any_tensors_of_several_files(
        self,
        way: str,
        tmp_path: Path,
        shapes: list[tuple[list[int], torch.dtype, torch.dtype]],
        order: object,
    ) -> None:
        tensors = {f"t{index}": some(tuple(shape), dtype, index) for index, (shape, dtype, _) in enumerate(shapes)}
        for half in (0, 1):
            save_file({name: tensors[name] for name in list(tensors)[half::2]}, tmp_path / f"{half}.safetensors")
        files = WeightFiles(files_in(tmp_path))
        names = list(tensors)
        order.shuffle(names)  # type: ignore[attr-defined]
        targets = {name: torch.zeros(tensors[name].numel(), dtype=shapes[int(name[1:])][2]) for name in names}
        assert files.read([(files.places[name], targets[name]) for name in names])
        for name, target in targets.items():
            assert torch.equal(target, tensors[name].view(-1).to(target.dtype))
        files.close()

    def test_more_than_a_chunk(self, way: str, tmp_path: Path) -> None:
        large = some((3, CHUNK_BYTES // 8 + 13))
        save_file({"a": some((5,)), "b": large, "c": some((7,))}, tmp_path / "a.safetensors")
        files = WeightFiles(files_in(tmp_path))
        assert torch.equal(read(files, "b")[0], large)
        assert files.counters.reads == 2
        place = files.places["b"]
        first, last = place.first // BLOCK_BYTES * BLOCK_BYTES, -(-place.last // BLOCK_BYTES) * BLOCK_BYTES
        assert files.counters.bytes == min(last, (tmp_path / "a.safetensors").stat().st_size) - first
        (halved,) = read(files, "b", dtype=torch.bfloat16)
        assert torch.equal(halved, large.to(torch.bfloat16))
        files.close()

    def test_neighbours_are_one_run(self, tmp_path: Path) -> None:
        tensors = {name: some((1000,)) for name in "abcde"}
        save_file(tensors, tmp_path / "a.safetensors")
        files = WeightFiles(files_in(tmp_path))
        wanted = [(files.places[name], tensors[name]) for name in "ebad"]
        assert [[place.first for place, _ in run] for run in runs(wanted)] == [
            [files.places[name].first for name in "abde"]  # c is less than a block
        ]
        read(files, "a", "b", "d", "e")
        assert files.counters.reads == 1
        files.close()

    def test_it_ends_when_told(self, tmp_path: Path) -> None:
        save_file({"a": some((3 * CHUNK_BYTES // 4,))}, tmp_path / "a.safetensors")
        files = WeightFiles(files_in(tmp_path))
        told: list[int] = []

        def twice(size: int) -> bool:
            told.append(size)
            return len(told) < 2

        assert not files.read([(files.places["a"], torch.zeros(3 * CHUNK_BYTES // 4))], twice)
        assert told == [CHUNK_BYTES, CHUNK_BYTES]
        assert files.counters.bytes == 2 * CHUNK_BYTES
        files.close()

    def test_nothing_stays_in_the_page_cache(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        cached(monkeypatch)
        told: list[tuple[int, int, int]] = []
        monkeypatch.setattr(os, "posix_fadvise", lambda _, *arguments: told.append(arguments))
        save_file({"a": some((CHUNK_BYTES // 2,))}, tmp_path / "a.safetensors")
        files = WeightFiles(files_in(tmp_path))
        read(files, "a")
        size = (tmp_path / "a.safetensors").stat().st_size
        assert told[0] == (0, 0, os.POSIX_FADV_RANDOM)
        assert told[1:] == [
            (0, CHUNK_BYTES, os.POSIX_FADV_DONTNEED),
            (CHUNK_BYTES, CHUNK_BYTES, os.POSIX_FADV_DONTNEED),
            (2 * CHUNK_BYTES, size - 2 * CHUNK_BYTES, os.POSIX_FADV_DONTNEED),
        ]
        files.close()


class TestBadFiles:
    def damaged(self, path: Path, change: Callable[[Path], object], text: str) -> None:
        save_file({"a": some((3000,)), "b": some((3000,))}, path)
        change(path)
        with pytest.raises(ModelError, match=f"{path.name}: .*{text}"):
            WeightFiles([path])

    def test_cut_off(self, tmp_path: Path) -> None:
        self.damaged(tmp_path / "m.safetensors", lambda path: os.truncate(path, 20_000), "is cut off")
        self.damaged(tmp_path / "m.safetensors", lambda path: os.truncate(path, 20), "only its beginning")
        self.damaged(tmp_path / "m.safetensors", lambda path: path.write_bytes(b"nothing at all"), "header is too long")

    @pytest.mark.parametrize(
        ("tensor", "text"),
        [
            ({"dtype": "F32", "shape": [4], "data_offsets": [0, 24]}, "has 24 bytes where its shape needs 16"),
            ({"dtype": "F32", "shape": [6], "data_offsets": [-8, 24]}, "is no safetensors file"),
            ({"dtype": "F32", "shape": [6], "data_offsets": [24, 0]}, "is no safetensors file"),
            ({"dtype": "F32", "shape": [6], "data_offsets": [0, 4096]}, "is cut off"),
            ({"dtype": "F32", "shape": [-6], "data_offsets": [0, 24]}, "is no safetensors file"),
            ({"dtype": "F32", "shape": [2**40], "data_offsets": [0, 24]}, "is no safetensors file"),
            ({"dtype": "F32", "shape": [6], "data_offsets": [0, float("inf")]}, "is no safetensors file"),
            ({"dtype": "F32", "shape": [float("inf")], "data_offsets": [0, 24]}, "is no safetensors file"),
            ({"dtype": "F32", "shape": [6.5], "data_offsets": [0, 24]}, "is no safetensors file"),
            ({"dtype": "F32", "shape": ["6"], "data_offsets": [0, 24]}, "is no safetensors file"),
            ({"dtype": "F32", "shape": [1] * 100_000, "data_offsets": [0, 24]}, "is no safetensors file"),
            ({"dtype": "F32", "shape": [0, 2**70], "data_offsets": [0, 24]}, "is no safetensors file"),
        ],
    )
    def test_headers_that_lie(self, tmp_path: Path, tensor: object, text: str) -> None:
        def change(path: Path) -> None:
            headed(path, {"a": tensor}, bytes(24))

        self.damaged(tmp_path / "m.safetensors", change, text)

    def test_numbers_at_odd_places(self, tmp_path: Path) -> None:
        def change(path: Path) -> None:
            before = {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}
            tensors = {"a": {"dtype": "F32", "shape": [1], "data_offsets": [1, 5]}, "b": before}
            headed(path, tensors, bytes(5))

        self.damaged(tmp_path / "m.safetensors", change, "is not aligned")

    def test_a_file_that_shrinks_while_it_is_open(self, way: str, tmp_path: Path) -> None:
        tensors = {"a": some((3000,)), "b": some((CHUNK_BYTES,))}
        save_file(tensors, tmp_path / "m.safetensors")
        whole = (tmp_path / "m.safetensors").read_bytes()
        files = WeightFiles(files_in(tmp_path))
        os.truncate(tmp_path / "m.safetensors", 2 * CHUNK_BYTES + 5)
        assert torch.equal(read(files, "a")[0], tensors["a"])
        with pytest.raises(ModelError, match=r"m\.safetensors: became shorter"):
            read(files, "b")
        (tmp_path / "m.safetensors").write_bytes(whole)
        assert torch.equal(read(files, "b")[0], tensors["b"])
        files.close()
        with pytest.raises(ModelError, match="was closed"):
            read(files, "a")

    def test_what_is_no_float_is_not_there(self, tmp_path: Path) -> None:
        save_file({"a": some((3,)), "b": torch.zeros(3, dtype=torch.int32)}, tmp_path / "m.safetensors")
        files = WeightFiles(files_in(tmp_path))
        assert list(files.places) == ["a"]
        files.close()
