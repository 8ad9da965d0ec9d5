"""A library against a model of it: a dict of what was read where, whatever is done to the files and in which order."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from common.library.chunks import Chunker
from common.library.hit import Hit
from common.library.library import Library
from common.library.store import FileRecord, Store
from tests.common.library.toy_embedder import ToyEmbedder

FOLDERS = ("one", "two", "two/below")
# Contents by the endings of the names that have them: what another reader makes of the same bytes is another question.
LONG = " ".join(f"Sentence {number} of the long one is here." for number in range(60))
CONTENTS = {
    ".txt": ("apple tree", "banana bread", LONG, "caf\xe9 noirs"),
    ".md": ("# Cherries\n\npie", "plain date", "# Figs\n\njam", "petal date"),
}
AS_LONG = {"apple tree": "caf\xe9 noirs", "plain date": "petal date"}  # other contents of as many bytes
AS_LONG |= {other: content for content, other in AS_LONG.items()}
NAMES = tuple(f"{folder}/{name}{suffix}" for folder in FOLDERS for name in "ab" for suffix in CONTENTS)
RENAMED = {"one/a.txt": "one/A.txt"}  # by case only
RENAMED |= {other: name for name, other in RENAMED.items()}
NAMES += ("one/A.txt",)
# What the bytes of a text stand for where it is read in this encoding; otherwise it is as it was written.
ENCODINGS = {"": "\xe9", "latin-1": "\xe9", "cp1251": "\u0439"}
TICK = 20_000_000  # nanoseconds: of the systems on which the tests run
ROOTS = (".", *FOLDERS)

paths = st.sampled_from(NAMES)


class Killed(BaseException):
    """The process ends here."""


def within(path: str, root: str) -> bool:
    return root in (".", path) or path.startswith(f"{root}/")


def title(path: str, content: str) -> str:
    first = content.split("\n")[0]
    return first.removeprefix("# ") if first.startswith("# ") else Path(path).stem


class LibraryMachine(RuleBasedStateMachine):
    """`known` has the content of every path as it was read last; what it has of files that are as they were read, the
    library has, once each.
    """

    opened: type[Library] = Library
    chunker: Chunker

    def __init__(self) -> None:
        super().__init__()
        memory = Path("/dev/shm")  # a disk would be waited for after every step
        self.base = TemporaryDirectory(dir=memory if memory.is_dir() else None)
        self.documents = Path(self.base.name, "documents")
        self.known: dict[str, str] = {}
        self.shown: dict[str, FileRecord] = {}  # documents as they were last seen, by content
        self.ids: dict[int, tuple[str, str]] = {}  # of documents that there ever were
        self.chunks: dict[int, str] = {}  # texts of all that there ever were
        self.time = 10**18
        self.encoding = ""  # that was named for all documents

    @initialize()
    def begin(self) -> None:
        for folder in FOLDERS:
            (self.documents / folder).mkdir(parents=True)
        self.open()
        for path in NAMES[:4]:
            self.write(path, len(path) % 2, False)
        self.read(".")

    def teardown(self) -> None:
        if hasattr(self, "library"):
            self.library.close()
        self.base.cleanup()

    def open(self) -> None:
        self.library = self.opened(Path(self.base.name, "library"), ToyEmbedder(), chunker=self.chunker)

    def on_disk(self, path: str) -> str | None:
        file = self.documents / path
        return file.read_text("latin-1") if file.is_file() else None

    def is_fresh(self, path: str) -> bool:
        """Whether a file is as it was read."""
        return path in self.known and self.on_disk(path) == self.known[path]

    def files(self) -> dict[str, str]:
        return {path: content for path in NAMES if (content := self.on_disk(path)) is not None}

    @rule(path=paths, number=st.integers(0, 3), read=st.booleans())
    def write(self, path: str, number: int, read: bool) -> None:
        self.time += 10**9
        (self.documents / path).write_text(CONTENTS[Path(path).suffix][number], "latin-1")
        os.utime(self.documents / path, ns=(self.time, self.time))
        self.may_be_read(read)

    @rule(data=st.data(), to=paths, read=st.booleans(), kept=st.booleans())
    @precondition(lambda self: self.files())
    def move_or_copy(self, data: st.DataObject, to: str, read: bool, kept: bool) -> None:
        files = sorted(path for path in self.files() if Path(path).suffix == Path(to).suffix)
        if not files or (path := data.draw(st.sampled_from(files))) == to:
            return
        if kept:
            shutil.copy2(self.documents / path, self.documents / to)
        else:
            (self.documents / path).rename(self.documents / to)
        self.may_be_read(read)

    @rule(data=st.data(), replaced=st.booleans(), read=st.booleans())
    @precondition(lambda self: bool(set(AS_LONG) & set(self.files().values())))
    def write_unnoticed(self, data: st.DataObject, replaced: bool, read: bool) -> None:
        """Other words of the same length, with the former time, in the same file or in one that replaces it."""
        files = self.files()
        path = data.draw(st.sampled_from(sorted(path for path, content in files.items() if content in AS_LONG)))
        file, other = self.documents / path, self.documents / "other"
        status = file.stat()
        written = other if replaced else file
        written.write_text(AS_LONG[files[path]], "latin-1")
        os.utime(written, ns=(status.st_atime_ns, status.st_mtime_ns))
        if replaced:
            other.replace(file)
        self.may_be_read(read)

    @rule(data=st.data(), read=st.booleans())
    @precondition(lambda self: bool(set(RENAMED) & set(self.files())))
    def change_case(self, data: st.DataObject, read: bool) -> None:
        path = data.draw(st.sampled_from(sorted(set(RENAMED) & set(self.files()))))
        (self.documents / path).rename(self.documents / RENAMED[path])
        self.may_be_read(read)

    @rule(encoding=st.sampled_from(sorted(ENCODINGS)))
    def name_encoding(self, encoding: str) -> None:
        self.library.add(self.documents, encoding=encoding)
        self.encoding = encoding
        self.was_read(".")

    @rule(data=st.data(), read=st.booleans())
    @precondition(lambda self: self.files())
    def delete(self, data: st.DataObject, read: bool) -> None:
        (self.documents / data.draw(st.sampled_from(sorted(self.files())))).unlink()
        self.may_be_read(read)

    def may_be_read(self, read: bool) -> None:
        if read:
            self.read(".")

    @rule(root=st.sampled_from(ROOTS))
    def read(self, root: str) -> None:
        self.library.add(self.documents / root)
        self.was_read(root)

    @rule(path=paths)
    def read_one(self, path: str) -> None:
        if self.on_disk(path) is not None:
            self.read(path)

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        named = data.draw(st.sampled_from((*(self.name(record) for record in self.shown.values()), *ROOTS, *NAMES[:2])))
        before = [record for record in self.library.files() if within(self.name(record), named)]
        assert self.library.remove([self.documents / named]) == len(before)
        self.known = {path: content for path, content in self.known.items() if not within(path, named)}
        if named == ".":
            self.encoding = ""
        self.settle()

    @rule(root=st.sampled_from(ROOTS), step=st.integers(0, 9), committed=st.booleans())
    @precondition(lambda self: self.files() != {path: text for path, text in self.known.items() if self.is_fresh(path)})
    def killed_while_reading(self, root: str, step: int, committed: bool) -> None:
        """Before a transaction is made, or after it is committed; then the reading is done again."""
        left, original = step, Store.writing

        @contextmanager
        def writing(store: Store) -> Iterator[None]:
            nonlocal left
            left -= 1
            if left < 0 and not committed:
                raise Killed
            with original(store):
                yield
            if left < 0:
                raise Killed

        with patch.object(Store, "writing", writing), suppress(Killed):
            self.library.add(self.documents / root)
        self.library.close()
        self.open()
        seen = [self.seen(record) for record in self.library.files()]
        files = self.files()
        assert all(content in (self.known.get(path), files.get(path)) for path, content in seen)
        assert len({content for _, content in seen}) == len(seen)
        self.note_ids()
        self.read(root)

    @rule()
    def open_again(self) -> None:
        self.library.close()
        self.open()

    def was_read(self, root: str) -> None:
        files = self.files()
        self.known = {path: content for path, content in self.known.items() if not within(path, root)}
        self.known |= {path: content for path, content in files.items() if within(path, root)}
        # A file that went from where another reading had seen it is no document there any more, if it is here.
        here = {content for path, content in files.items() if within(path, root)}
        for path in [path for path, content in self.known.items() if content in here and path not in files]:
            del self.known[path]
        self.settle()

    def settle(self) -> None:
        """Forget copies that are not as they were read, where their document has left its path."""
        for content, record in self.shown.items():
            if self.known.get(self.name(record)) != content:
                remaining = [path for path, known in self.known.items() if known == content]
                if not any(map(self.is_fresh, remaining)):
                    for path in remaining:
                        del self.known[path]

    def name(self, record: FileRecord) -> str:
        return os.path.relpath(record.path, os.path.realpath(self.documents))

    def seen(self, record: FileRecord) -> tuple[str, str]:
        """A document's path and content."""
        texts = [self.as_written(hit.text) for hit in self.library.passages(record.path, "x")]
        (content,) = [each for each in CONTENTS[Path(record.path).suffix] if texts[0] in each[: len(texts[0]) + 20]]
        assert "".join("".join(texts).split()) == "".join(content.split())
        assert record.chunks == len(texts)
        return self.name(record), content

    def as_written(self, text: str) -> str:
        """The text of a passage in the encoding in which all are written; it was read in the one that was named."""
        read = ENCODINGS[self.encoding]
        assert not any(sign in text for sign in ENCODINGS.values() if sign != read)
        return text.replace(read, "\xe9")

    def note_ids(self) -> None:
        for record in self.library.files():
            seen = self.seen(record)
            assert self.ids.setdefault(record.id, seen) == seen, "an id was given twice"

    @invariant()
    def the_library_has_what_was_read(self) -> None:
        if not hasattr(self, "library"):
            return
        records = self.library.files()
        assert [record.path for record in records] == sorted(record.path for record in records)
        shown = {}
        for record in records:
            path, content = self.seen(record)
            assert content not in shown, "a content is there twice"
            assert self.known.get(path) == content
            assert record.title == title(path, content)
            shown[content] = record
        assert set(shown) == set(self.known.values())
        for content, former in self.shown.items():
            if content in shown and self.is_fresh(self.name(former)) and self.known[self.name(former)] == content:
                assert shown[content].id == former.id
        self.shown = shown
        self.note_ids()
        self.searches_find_it(records)

    def searches_find_it(self, records: Collection[FileRecord]) -> None:
        hits = self.library.search("tree of bread and cherries", 999)
        assert len(hits) == sum(record.chunks for record in records) == self.library.count
        of = {(record.title, record.relative_path) for record in records}
        assert {(hit.title, hit.path) for hit in hits} == of
        for hit in hits:
            assert self.chunks.setdefault(hit.chunk, hit.text) == hit.text, "a chunk's id was given twice"
        for record in records:
            (content,) = [content for content, shown in self.shown.items() if shown.id == record.id]
            best = self.library.search(content[:200], 1)[0]
            assert self.as_written(best.text) in content


def run(machine: type[LibraryMachine], chunker: Chunker, **options: Any) -> None:
    machine.chunker = chunker
    with patch("common.library.documents._TICK", TICK):
        run_state_machine_as_test(machine, settings=settings(stateful_step_count=10, **options))


def test_it_is_as_its_model(chunker: Chunker) -> None:
    run(LibraryMachine, chunker)


class Renumbered(Library):
    """Gives the ids of documents that are no more again."""

    def files(self) -> list[FileRecord]:
        return [replace(file, id=number) for number, file in enumerate(super().files())]


class Titled(Library):
    """Keeps a title that was the file's name."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.titles: dict[str, str] = {}

    def files(self) -> list[FileRecord]:
        return [replace(file, title=self.titles.setdefault(file.sha256, file.title)) for file in super().files()]


class Forgetful(Library):
    """Removes what is named with its copies elsewhere."""

    def remove(self, paths: Any, but: Collection[str] = ()) -> int:
        contents = {file.sha256 for file in self.files() if within(file.path, str(paths[0]))}
        removed = super().remove(paths, but)
        if again := [file.path for file in self.files() if file.sha256 in contents]:
            super().remove(again, but)
        return removed


class Waiting(Library):
    """Reads nothing while a document is gone."""

    def add(self, *args: Any, **options: Any) -> Any:
        if all(os.path.lexists(file.path) for file in self.files()):
            return super().add(*args, **options)
        return None


class Missing(Library):
    """Finds all but the last."""

    def search(self, *args: Any, **options: Any) -> list[Hit]:
        found = super().search(*args, **options)
        return found[:-1] if len(found) > 2 else found


class Dated(Library):
    """Takes a file with the former size and time for the former one."""

    def add(self, *args: Any, **options: Any) -> Any:
        with patch("common.library.documents.stamp_of", lambda status: status.st_mtime_ns):
            return super().add(*args, **options)


class Deaf(Library):
    """Does not hear which encoding is named."""

    def add(self, *args: Any, encoding: str | None = None, **options: Any) -> Any:
        return super().add(*args, **options)


MUTANTS = [Renumbered, Titled, Forgetful, Waiting, Missing, Dated, Deaf]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda each: each.__name__)
def test_a_mutant_is_seen(mutant: type[Library], chunker: Chunker) -> None:
    class Machine(LibraryMachine):
        opened = mutant

    options = {"phases": [Phase.generate], "derandomize": True, "database": None, "report_multiple_bugs": False}
    with pytest.raises(AssertionError):
        run(Machine, chunker, max_examples=200, **options)
