"""One library, several processes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from common.library.chunks import Chunker
from common.library.database import Database
from common.library.errors import LibraryBusy
from common.library.library import Library
from common.library.store import Store
from tests.common.library.conftest import Write
from tests.common.library.test_faults import ROOT, check, content, fill
from tests.common.library.toy_embedder import ToyEmbedder


@contextmanager
def adding(library: Path, documents: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    command = [
        sys.executable,
        "-m",
        "tests.common.library.ingesting",
        str(library),
        str(documents),
        *options,
    ]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        try:
            yield child
        finally:
            child.kill()


def test_a_reader_sees_whole_documents_while_another_process_writes(
    tmp_path: Path, library: Library, write: Write, documents: Path
) -> None:
    fill(write, "first")
    library.add(documents)
    old = content(library)
    fill(write, "second")
    states = set()
    with adding(library.folder, documents, "wait") as child:
        assert child.stdin is not None and child.stdout is not None
        for line in child.stdout:
            seen = content(library)
            assert seen.keys() == old.keys()
            for path, texts in seen.items():
                versions = {"old" if text in old[path] else "new" for text in texts}
                assert len(versions) == 1, path
                assert versions == {"new"} or texts == old[path]
            states.add(sum(texts == old[path] for path, texts in seen.items()))
            if line != "done\n":
                child.stdin.write("\n")
                child.stdin.flush()
        assert child.wait() == 0
    assert all("second" in " ".join(texts) for texts in content(library).values())
    assert len(states) > 2, "nothing was seen of the time in between"
    check(library)


def test_a_second_writer_is_told_to_wait_while_search_goes_on(
    tmp_path: Path, library: Library, write: Write, documents: Path
) -> None:
    fill(write, "first")
    library.add(documents)
    fill(write, "second")
    with adding(library.folder, documents, "wait") as child:
        assert child.stdout is not None
        child.stdout.readline()
        for change in (lambda: library.add(documents), lambda: library.remove("all"), library.rebuild):
            with pytest.raises(LibraryBusy, match="is being changed by another process"):
                change()
        assert len(library.search("words", 4)) == 4
    assert library.add(documents).unchanged == 0, "the lock is free once its holder is dead"


def test_a_running_reader_sees_changes_at_its_next_search(
    library: Library, write: Write, documents: Path, toy: ToyEmbedder, chunker: Chunker
) -> None:
    assert library.search("apple", 1) == []
    with Library(library.folder, toy, chunker=chunker) as writer:
        path = write("a.txt", "apple tree")
        writer.add(documents)
        assert [hit.text for hit in library.search("apple", 1)] == ["apple tree"]
        path.unlink()
        writer.add(documents)
        assert library.search("apple", 1) == []


def test_searches_go_on_while_a_change_waits_for_somebody_who_reads(
    library: Library, write: Write, documents: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sample for the index, or a snapshot, takes seconds and more."""
    begun, ended, gather = threading.Event(), threading.Event(), Database.gather

    def noted(database: Database) -> None:
        begun.set()
        gather(database)
        ended.set()

    fill(write, "first")
    library.add(documents)
    monkeypatch.setattr(Database, "gather", noted)
    with closing(Store(library.folder)) as reader, ThreadPoolExecutor(1) as pool:
        with reader.reading():
            reader.count()
            waiting = pool.submit(lambda: library.remove("all"))
            assert begun.wait(60.0)
            assert library.search("note", 1) == []
            assert not ended.is_set()
        assert waiting.result(60.0) > 0


def test_opened_beside_changes(library: Library, write: Write, documents: Path, chunker: Chunker) -> None:
    """Damage is told of none of its states."""
    opened = 0
    for version in ("first", "second"):
        fill(write, version)
        with adding(library.folder, documents) as child:
            while child.poll() is None:
                with Library(library.folder, ToyEmbedder(), chunker=chunker) as other:
                    other.search("note", 3)
                opened += 1
            assert child.wait() == 0
    assert opened > 2
    check(library)


class Searched(ToyEmbedder):
    """Embeds documents when two rounds of searches have ended since it was asked to: one of them began after that."""

    def __init__(self) -> None:
        super().__init__()
        self.rounds = threading.Semaphore(0)

    def encode(self, texts: list[str]) -> NDArray[np.float32]:
        while self.rounds.acquire(blocking=False):
            pass
        assert all(self.rounds.acquire(timeout=60.0) for _ in range(2))
        return super().encode(texts)

    def encode_queries(self, texts: list[str]) -> NDArray[np.float32]:
        return super().encode(texts)


def test_threads_share_a_library(library: Library, write: Write, documents: Path, chunker: Chunker) -> None:
    fill(write, "first")
    seen = list[dict[str, set[str]]]()
    embedder = Searched()
    with Library(library.folder, embedder, chunker=chunker) as shared, ThreadPoolExecutor(4) as pool:
        adding_now = pool.submit(shared.add, documents)
        while not adding_now.done():
            seen += pool.map(lambda _: content(shared), range(3))
            embedder.rounds.release()
        assert adding_now.result().added == 41
    whole = content(library)
    assert all(texts == whole[path] for found in seen for path, texts in found.items())
    assert len({len(found) for found in seen}) > 2, "nothing was seen of the time in between"
    check(library)


@pytest.mark.parametrize("way", ["command", "watched"])
def test_threads_that_embed_do_not_spin_while_they_wait(way: str, tmp_path: Path, documents: Path) -> None:
    """Every OpenMP of the process says so itself; there are several, as torch and faiss bring their own."""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    environment |= {"OMP_DISPLAY_ENV": "VERBOSE", "DRAGON_DEVICE_DATA": str(tmp_path / "data")}
    if way == "command":
        code = "import sys; from device.cli.main import main; sys.argv[0] = 'dragon'; main()"
        command, task = [sys.executable, "-c", code, "library", "add", str(documents)], None
    else:
        command = [sys.executable, "-m", "common.library.add_process"]
        task = f"{json.dumps({'data': str(tmp_path / 'data')})}\n{json.dumps({'read': {str(documents): []}})}\n"
    done = subprocess.run(command, cwd=ROOT, env=environment, input=task, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    spins = re.findall(r"GOMP_SPINCOUNT = '(\w+)'", done.stderr)
    if not spins:
        pytest.skip("this OpenMP does not tell how it waits")
    assert set(spins) == {"0"}
