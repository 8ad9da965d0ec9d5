"""Stored documents equal what would be computed, or they are not used."""

from __future__ import annotations

import errno
import logging
import os
import resource
import shutil
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.connection import wait
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from safetensors import safe_open

from common.engine.kv.documents import DocumentStore, DocumentStoreCounters, StoreOptions
from common.engine.kv.memory import DocumentStates
from common.engine.kv.store_folder import LAST_WRITER, clear_store
from tests.common.engine.kv.storing import (
    LAYOUT,
    TOKENS,
    key,
    other_process,
    synthetic,
    write_documents,
)

LIMIT = 10**6


def same(one: DocumentStates | None, other: DocumentStates) -> bool:
    """Whether the states are equal bit for bit."""
    return one is not None and all(
        left.dtype == right.dtype and torch.equal(left.contiguous().view(torch.uint8), right.view(torch.uint8))
        for pair in zip(one, other, strict=True)
        for left, right in zip(*pair, strict=True)
    )


def document_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(folder: Path) -> Iterator[DocumentStore]:
    opened = DocumentStore(StoreOptions(folder, LIMIT), "source", LAYOUT)
    yield opened
    opened.close()


def fill(store: DocumentStore, *numbers: int) -> None:
    for number in numbers:
        assert store.get(key(number)) is None
        store.put(key(number), synthetic(number))
    store.flush()


def reopened(store: DocumentStore, limit: int = LIMIT, source: str = "source") -> DocumentStore:
    return DocumentStore(StoreOptions(store.folder, limit), source, LAYOUT)


class TestFiles:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
    def test_every_type_comes_back_bit_for_bit(self, folder: Path, dtype: torch.dtype) -> None:
        layout = replace(LAYOUT, dtype=dtype)
        store = DocumentStore(StoreOptions(folder, LIMIT), "source", layout)
        states = synthetic(1, layout)
        states[0][0].view(-1)[:4] = torch.tensor([float("nan"), float("-inf"), -0.0, 1e-7])
        assert store.get(key(1)) is None
        store.put(key(1), states)
        store.close()
        assert same(DocumentStore(StoreOptions(folder, LIMIT), "source", layout).get(key(1)), states)
        (path,) = document_files(folder)
        with safe_open(path, framework="pt") as file:  # by any reader of the format
            assert torch.equal(file.get_tensor("1.values"), states[1][1])

    def test_only_the_owner_may_read(self, store: DocumentStore) -> None:
        store.folder.mkdir(mode=0o755)
        fill(store, 1)
        assert store.folder.stat().st_mode & 0o777 == 0o700
        modes = {path.name: path.stat().st_mode & 0o777 for path in store.folder.iterdir()}
        assert len(modes) > 1
        assert set(modes.values()) == {0o600}, modes

    def test_nothing_is_written_before_it_is_released(self, store: DocumentStore) -> None:
        assert store.get(key(1)) is None
        store.put(key(1), synthetic(1))
        assert store._thread is None
        assert not store.folder.exists()
        store.release()
        store.flush()
        assert len(document_files(store.folder)) == 1


class TestDamage:
    def expect_refused(self, store: DocumentStore, path: Path) -> None:
        before = store.counters
        assert store.get(key(1)) is None
        assert store.counters.damaged == before.damaged + 1
        assert not path.exists()

    def test_a_flipped_bit_anywhere(self, store: DocumentStore) -> None:
        fill(store, 1)
        (path,) = document_files(store.folder)
        whole = path.read_bytes()
        start = 8 + int.from_bytes(whole[:8], "little")
        accepted = []
        for position in [*range(start), *range(start, len(whole), 41), len(whole) - 1]:
            broken = bytearray(whole)
            broken[position] ^= 1 << (position % 8)
            path.write_bytes(broken)
            found = store.get(key(1))
            if found is not None:
                accepted.append(position)
                assert same(found, synthetic(1))
            else:
                assert not path.exists()
        # Blanks that pad the header may turn into other blanks, and that is all.
        assert len(accepted) < 8
        assert all(position < start and whole[position : position + 1] == b" " for position in accepted)

    @pytest.mark.parametrize("length", [0, 5, 8, 100, -4, -1])
    def test_truncated(self, store: DocumentStore, length: int) -> None:
        fill(store, 1)
        (path,) = document_files(store.folder)
        path.write_bytes(path.read_bytes()[:length])
        self.expect_refused(store, path)

    def test_longer(self, store: DocumentStore) -> None:
        fill(store, 1)
        (path,) = document_files(store.folder)
        path.write_bytes(path.read_bytes() + b"\0")
        self.expect_refused(store, path)

    def test_of_another_document_or_model(self, store: DocumentStore) -> None:
        fill(store, 1, 2)
        path, second = document_files(store.folder)
        shutil.copy(second, path)
        self.expect_refused(store, path)
        fill(store, 1)
        self.expect_refused(reopened(store, source="another"), path)
        fill(store, 1)
        shapes = replace(LAYOUT, layers=LAYOUT.layers[:1])
        self.expect_refused(DocumentStore(StoreOptions(store.folder, LIMIT), "source", shapes), path)

    def test_cut_off_in_the_middle_of_being_read(self, store: DocumentStore, monkeypatch: pytest.MonkeyPatch) -> None:
        """A process that had it mapped would be killed by the system, so it must be read."""
        fill(store, 1)
        (path,) = document_files(store.folder)
        size, read = path.stat().st_size, os.preadv

        def cutting(descriptor: int, buffers: list[memoryview], start: int) -> int:
            if start > size // 2:
                os.truncate(path, size // 2)
            return read(descriptor, buffers, start)

        monkeypatch.setattr(os, "preadv", cutting)
        self.expect_refused(store, path)

    @pytest.mark.parametrize("kind", ["pipe", "link", "far too large"])
    def test_what_is_no_file_of_a_store(self, store: DocumentStore, kind: str, tmp_path: Path) -> None:
        fill(store, 1)
        (path,) = document_files(store.folder)
        if kind == "far too large":
            os.truncate(path, 2**40)
        else:
            path.rename(tmp_path / "elsewhere")
            path.symlink_to(tmp_path / "elsewhere") if kind == "link" else os.mkfifo(path)
        assert store.get(key(1)) is None
        assert path.is_symlink() or not path.exists()

    def test_what_was_read_no_longer_needs_the_file(self, store: DocumentStore) -> None:
        fill(store, 1)
        found = store.get(key(1))
        (path,) = document_files(store.folder)
        with path.open("r+b") as file:  # in place: a mapping would show it
            file.write(bytes(path.stat().st_size))
        assert same(found, synthetic(1))

    def test_a_folder_in_the_way(self, store: DocumentStore) -> None:
        (store.folder / f"{key(1).hex()}.safetensors").mkdir(parents=True)
        fill(store, 1, 2)
        assert store.get(key(1)) is None
        assert same(store.get(key(2)), synthetic(2))


class TestLimit:
    def test_the_least_recently_used_go_first(self, store: DocumentStore) -> None:
        fill(store, *range(8))
        for age, number in enumerate((3, 0, 1, 2, 4, 5, 6, 7)):
            os.utime(store.folder / f"{key(number).hex()}.safetensors", (10**9 + age, 10**9 + age))
        size = document_files(store.folder)[0].stat().st_size
        small = reopened(store, limit=8 * size)
        assert small.get(key(3)) is not None  # used just now
        small.touch(key(0))  # so was this one, out of memory
        fill(small, 8)
        left = {int(path.stem, 16) for path in document_files(store.folder)}
        assert {0, 3, 8} <= left
        assert not {1} & left
        assert small.counters.evictions == 9 - len(left)
        small.close()

    def test_a_lower_limit_holds_from_the_start(self, store: DocumentStore) -> None:
        fill(store, *range(4))
        size = document_files(store.folder)[0].stat().st_size
        reopened(store, limit=3 * size)
        assert len(document_files(store.folder)) == 2

    def test_too_large_for_the_store(self, store: DocumentStore) -> None:
        small = reopened(store, limit=store.file_bytes(TOKENS) - 1)
        fill(small, 1)
        assert not document_files(store.folder)
        assert small.counters == DocumentStoreCounters(misses=1)
        small.close()

    def test_counts_what_others_wrote(self, store: DocumentStore) -> None:
        limit = 4 * store.file_bytes(TOKENS)
        one, other = reopened(store, limit), reopened(store, limit)
        fill(one, 1)
        fill(other, 2, 3, 4)
        fill(one, 5, 6)
        assert sum(path.stat().st_size for path in document_files(store.folder)) <= limit
        one.close()
        other.close()

    @staticmethod
    def used(folder: Path) -> int:
        """Bytes of all files, unfinished ones included; nobody writes while they are counted."""
        if not folder.is_dir():
            return 0
        with FileLock(folder / "writer.lock", mode=0o600):
            return sum(path.stat().st_size for path in folder.rglob("*.*"))

    def test_with_two_processes_writing(self, store: DocumentStore) -> None:
        limit = 20 * store.file_bytes(TOKENS)
        options = StoreOptions(store.folder, limit)
        largest = 0
        with (
            other_process(write_documents, options, range(40)) as (one, _),
            other_process(write_documents, options, range(30, 70)) as (other, _),
        ):
            while one.is_alive() or other.is_alive():
                largest = max(largest, self.used(store.folder))
                wait([one.sentinel, other.sentinel], timeout=0.02)
            largest = max(largest, self.used(store.folder))  # a busy machine may have had no time to look before
            assert (one.exitcode, other.exitcode) == (0, 0)
        assert 10 * store.file_bytes(TOKENS) < largest <= limit
        left = document_files(store.folder)
        assert sum(path.stat().st_size for path in left) <= limit
        # What both wrote and what only one wrote is whole, and the very last is there.
        assert {39, 69} & {int(path.stem, 16) for path in left}
        assert all(same(store.get(bytes.fromhex(path.stem)), synthetic(int(path.stem, 16))) for path in left)

    def test_what_waits_is_limited_but_for_one_document(
        self, store: DocumentStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("common.engine.kv.documents._WAITING", 1)
        for number in (1, 2):
            assert store.get(key(number)) is None
            store.put(key(number), synthetic(number))
        store.flush()
        assert store.counters == DocumentStoreCounters(misses=2, written=1, failed=1)
        assert same(store.get(key(1)), synthetic(1))


class TestFailures:
    def test_kill_in_the_middle_leaves_nothing_that_is_trusted(self, store: DocumentStore) -> None:
        options = StoreOptions(store.folder, LIMIT)
        with (
            other_process(write_documents, options, range(10**6)) as (first, told),
            other_process(write_documents, options, range(500, 10**6)) as (second, also_told),
        ):
            for _ in range(8):
                told.recv()
                also_told.recv()
            first.kill()  # the other one goes on: the lock does not die with its holder
            first.join()
            while also_told.recv() < 520:
                pass
            second.kill()
        torn = store.folder / "unfinished" / "torn.safetensors"
        torn.parent.mkdir(exist_ok=True)
        torn.write_bytes(b"what a writer killed half-way leaves")
        paths = [path for path in document_files(store.folder) if path != torn]
        assert len(paths) > 15
        assert all(same(store.get(bytes.fromhex(path.stem)), synthetic(int(path.stem, 16))) for path in paths)
        fill(store, 9999)
        assert not torn.exists()
        assert store.counters.damaged == store.counters.failed == 0

    def test_a_full_disk(self, store: DocumentStore, caplog: pytest.LogCaptureFixture) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
        try:
            fill(store, 1, 2)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert store.counters == DocumentStoreCounters(misses=2, failed=2)
        assert not document_files(store.folder)
        (warning,) = caplog.records
        assert warning.levelno == logging.WARNING
        fill(store, 1)
        assert same(store.get(key(1)), synthetic(1))

    def test_a_folder_that_cannot_be(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        (tmp_path / "file").write_text("")
        store = DocumentStore(StoreOptions(tmp_path / "file" / "store", LIMIT), "source", LAYOUT)
        fill(store, 1, 2)
        assert store.counters == DocumentStoreCounters(misses=2, failed=2)
        assert [os.strerror(errno.ENOTDIR) in record.message for record in caplog.records] == [True]
        store.close()

    def test_an_evicted_file_stays_readable(self, store: DocumentStore) -> None:
        fill(store, 1)
        (path,) = document_files(store.folder)
        with safe_open(path, framework="pt") as file:
            assert clear_store(store.folder) == 1
            assert torch.equal(file.get_tensor("1.values"), synthetic(1)[1][1])


class TestForgetting:
    def test_leaves_no_file(self, store: DocumentStore) -> None:
        fill(store, 1, 2)
        assert clear_store(store.folder) == 2
        assert not document_files(store.folder)
        fill(store, 1)
        assert len(document_files(store.folder)) == 1

    def test_what_was_being_computed_is_not_written_afterwards(self, store: DocumentStore) -> None:
        fill(store, 1)
        assert store.get(key(2)) is None
        clear_store(store.folder)
        store.put(key(2), synthetic(2))
        store.flush()
        assert not document_files(store.folder)

    def test_nor_is_it_where_another_is_missed_meanwhile(self, store: DocumentStore) -> None:
        fill(store, 1)
        assert store.get(key(2)) is None
        clear_store(store.folder)
        assert store.get(key(3)) is None
        store.put(key(2), synthetic(2))
        store.flush()
        assert not document_files(store.folder)
        store.put(key(3), synthetic(3))
        store.flush()
        assert same(store.get(key(3)), synthetic(3))

    def test_nor_is_it_where_it_is_missed_again_meanwhile(self, store: DocumentStore) -> None:
        """Two answers compute it, and one of them began before it was removed."""
        fill(store, 1)
        assert store.get(key(2)) is None
        clear_store(store.folder)
        assert store.get(key(2)) is None
        store.put(key(2), synthetic(2))
        store.flush()
        assert not document_files(store.folder)
        fill(store, 2)
        assert len(document_files(store.folder)) == 1

    def test_nor_is_what_was_missed_too_long_ago(self, store: DocumentStore, monkeypatch: pytest.MonkeyPatch) -> None:
        """Most misses without end are those of answers that were cancelled: they must not take more and more memory."""
        monkeypatch.setattr("common.engine.kv.documents._MISSED", 3)
        for number in range(1, 5):
            assert store.get(key(number)) is None
        for number in range(1, 5):
            store.put(key(number), synthetic(number))
        store.flush()
        assert [store.get(key(number)) is None for number in range(1, 5)] == [True, False, False, False]

    def test_the_size_is_counted_anew(self, store: DocumentStore) -> None:
        limit = 3 * store.file_bytes(TOKENS)
        small = reopened(store, limit)
        fill(small, 1, 2)
        clear_store(store.folder)
        assert not (store.folder / LAST_WRITER).exists()
        fill(small, 1, 2)
        assert small.counters.evictions == 0
        small.close()

    def test_of_a_folder_that_is_not_there(self, folder: Path) -> None:
        assert clear_store(folder) == 0
        assert not folder.exists()
