"""The file of an approximate index: whatever is wrong with it costs a training, and nothing else."""

from __future__ import annotations

import hashlib
import logging
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import faiss
import numpy as np
import pytest

from common.library import index as index_module
from common.library.chunks import Chunker
from common.library.index import TEMPORARY
from common.library.library import Library
from common.library.store import INDEX, IndexLabel, Store
from tests.common.library.conftest import Write
from tests.common.library.test_approximate import EVERYTHING, FROM, opened, put_many, trained
from tests.common.library.test_faults import ROOT, check, content, fill
from tests.common.library.test_index import brute_force, nearest, put, remove
from tests.common.library.test_processes import adding
from tests.common.library.toy_embedder import ToyEmbedder


def damage(path: Path, kind: str) -> None:
    data = bytearray(path.read_bytes())
    match kind:
        case "flipped bit":
            data[len(data) // 2] ^= 1
        case "cut short":
            del data[len(data) // 2 :]
        case "empty":
            data.clear()
        case "noise":
            data[:] = random.Random(1).randbytes(len(data))
    path.write_bytes(data)


class TestFile:
    @pytest.fixture
    def kept(self, store: Store, tmp_path: Path) -> Path:
        """The file of a trained index."""
        put_many(store, 300)
        with opened(tmp_path) as index:
            trained(index, store)
            assert not index.saved
            index.save(store)
        return tmp_path / INDEX

    def test_another_process_needs_no_training(self, store: Store, kept: Path) -> None:
        put(store, "later", 2)
        with opened(kept.parent) as index:
            assert nearest(index, store, EVERYTHING) == brute_force(store, EVERYTHING)
            assert index.approximate
            assert index.saved

    @pytest.mark.parametrize("kind", ["flipped bit", "cut short", "empty", "noise"])
    def test_damage_costs_a_training(
        self, store: Store, kept: Path, kind: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        damage(kept, kind)
        with opened(kept.parent) as index:
            assert nearest(index, store, EVERYTHING) == brute_force(store, EVERYTHING)
            assert not index.approximate
            trained(index, store)
            index.save(store)
        with opened(kept.parent) as index, store.reading():
            index.refresh(store)
            assert index.approximate
        assert "is missing, damaged or another library's, and is rebuilt" in caplog.text

    @pytest.mark.parametrize("kind", ["codes", "centroids", "lists", "no lists", "metric", "ids", "absurd size"])
    def test_one_that_claims_to_be_of_this_library_is_rebuilt(
        self, store: Store, kept: Path, kind: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Its checksum is right: whoever hands a library on can write it."""
        with store.reading():
            commit = store.state().commit
            index = index_module._read(kept.parent, store)
        match kind:
            case "codes":
                index.sq.trained.resize(3)
            case "centroids":
                index.quantizer.reset()
            case "lists":
                index.invlists.resize(0, 5)
            case "no lists":
                index.replace_invlists(None)
            case "metric":
                index.metric_type = 1
            case "ids":
                index.remove_ids(np.array([5]))
        faiss.write_index(index, str(kept))
        if kind == "absurd size":
            data = kept.read_bytes()
            size = (300).to_bytes(8, "little")
            assert size in data
            kept.write_bytes(data.replace(size, (2**40).to_bytes(8, "little")))
        with store.writing():
            store.put_index_label(IndexLabel(commit, hashlib.sha256(kept.read_bytes()).hexdigest()))
        with opened(kept.parent) as reopened, caplog.at_level(logging.WARNING):
            assert nearest(reopened, store, EVERYTHING) == brute_force(store, EVERYTHING)
            assert not reopened.approximate

    def test_a_large_one_is_written_again_when_changes_are_many(
        self, store: Store, kept: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with opened(kept.parent) as index:
            nearest(index, store, 1)
            assert not index.outdated(store)
            put(store, "i", 0)
            assert index.outdated(store)
            monkeypatch.setattr(index_module, "_LARGE", 0)
            for number in range(index_module._BEHIND - 1):
                put(store, "i", number)
            assert not index.outdated(store)
            with opened(kept.parent) as another:
                assert nearest(another, store, EVERYTHING) == brute_force(store, EVERYTHING)
            put(store, "i", 0)
            assert index.outdated(store)

    def test_one_of_a_library_that_shrank_is_removed(self, store: Store, kept: Path) -> None:
        with opened(kept.parent) as index:
            nearest(index, store, 1)
            remove(store, "many")
            nearest(index, store, 1)
            assert not index.saved
            index.save(store)
        assert not kept.exists()
        assert store.index_label() is None

    def test_a_kill_while_it_is_written_costs_a_training(self, store: Store, tmp_path: Path) -> None:
        put_many(store, 300)
        command = [sys.executable, "-m", "tests.common.library.training_killed", str(tmp_path), str(FROM)]
        assert subprocess.run(command, cwd=ROOT, timeout=110).returncode == -signal.SIGKILL
        assert (tmp_path / TEMPORARY).exists()
        assert not (tmp_path / INDEX).exists()
        with opened(tmp_path) as index:
            assert nearest(index, store, EVERYTHING) == brute_force(store, EVERYTHING)
            trained(index, store)
            index.save(store)
        assert not (tmp_path / TEMPORARY).exists()
        with opened(tmp_path) as index, store.reading():
            index.refresh(store)
            assert index.approximate


class TestProcesses:
    """Libraries that search approximately, beside another process that changes them."""

    @pytest.fixture
    def library(
        self, tmp_path: Path, write: Write, documents: Path, toy: ToyEmbedder, chunker: Chunker
    ) -> Iterator[Library]:
        """A trained one."""
        fill(write, "first")
        with Library(tmp_path / "library", toy, chunker=chunker, approximate_from=FROM) as library:
            library.add(documents)
            library.search("words", 4)
            library._index.finish_training()
            yield library

    def test_one_that_adds_and_one_that_searches(self, library: Library, write: Write, documents: Path) -> None:
        old = content(library)
        assert library._index.approximate
        fill(write, "second")
        (documents / "07.txt").unlink()
        with adding(library.folder, documents) as child:  # one that searches exhaustively
            assert child.stdout is not None
            for _ in child.stdout:
                for path, texts in content(library).items():
                    assert texts == old[path] or not texts & old[path]
            assert child.wait() == 0
        assert content(library).keys() == old.keys() - {"07.txt"}
        check(library)
        assert library._index.approximate

    def test_the_file_follows_once_nobody_else_writes(
        self, library: Library, write: Write, documents: Path, toy: ToyEmbedder
    ) -> None:
        folder = library.folder
        fill(write, "second")
        with adding(folder, documents, "wait") as child:
            assert child.stdout is not None
            child.stdout.readline()  # it holds the writer lock
            assert len(library.search("words", 4)) == 4
            assert not (folder / INDEX).exists()
        assert len(library.search("words", 4)) == 4
        with Library(folder, toy, approximate_from=FROM) as another:
            another.search("words", 1)
            assert another._index.approximate
            check(another)

    def test_a_disk_too_full_for_it_does_not_hurt(self, library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(*paths: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr("os.replace", full)
            assert len(library.search("words", 4)) == 4
        assert {path.name for path in library.folder.iterdir()} & {INDEX, TEMPORARY} == set()
        assert len(library.search("words", 4)) == 4
