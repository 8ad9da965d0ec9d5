"""Documents that `add` takes in, replaces, forgets and skips."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from common.library.chunks import Chunker
from common.library.documents import MOST_TEXT_BYTES
from common.library.embedder import SentenceTransformerEmbedder
from common.library.errors import EmbedderChanged, LibraryError
from common.library.ingest import Interrupted
from common.library.library import Library
from common.library.readers.formats import REVISIONS
from tests.common.library.conftest import Write
from tests.common.library.toy_embedder import ToyEmbedder

LONG = "\n\n".join(f"Paragraph {number} tells of {number * 7} things and then of some more." for number in range(300))


def paths(library: Library) -> list[str]:
    return [file.relative_path for file in library.files()]


@pytest.fixture
def in_memory() -> Iterator[Path]:
    """A folder of a file system that holds any date; those of disks have limits."""
    place = Path("/dev/shm")
    with TemporaryDirectory(dir=place if place.is_dir() else None) as folder:
        yield Path(folder)


class TestIncremental:
    def test_only_what_changed_is_embedded(
        self, library: Library, documents: Path, write: Write, toy: ToyEmbedder
    ) -> None:
        write("a.txt", "apple tree")
        write("b.txt", "banana bread")
        gone = write("c/d.txt", "cherry pie")
        first = library.add(documents)
        assert (first.added, first.chunks, first.skipped) == (3, 3, ())
        toy.embedded.clear()
        write("b.txt", "blueberry")
        write("e.txt", "elder flower")
        gone.unlink()
        second = library.add(documents)
        assert (second.added, second.updated, second.unchanged, second.removed) == (1, 1, 1, 1)
        assert toy.embedded == ["blueberry", "elder flower"]
        toy.embedded.clear()
        assert {hit.text for hit in library.search("x", 9)} == {"apple tree", "blueberry", "elder flower"}
        assert paths(library) == ["a.txt", "b.txt", "e.txt"]

    def test_new_times_on_old_content_embed_nothing(
        self, library: Library, documents: Path, write: Write, toy: ToyEmbedder
    ) -> None:
        path = write("a.txt", "apple tree")
        library.add(documents)
        os.utime(path, ns=(10**18, 10**18))
        assert library.add(documents).unchanged == 1
        assert len(toy.embedded) == 1

    def test_other_words_of_the_same_length_and_time_are_seen(
        self, library: Library, documents: Path, write: Write, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Written over the old ones, or in a file that takes the place of the old one."""
        monkeypatch.setattr("common.library.documents._TICK", 0)  # its times prove something at once
        path = write("a.txt", "old words")
        library.add(documents)
        (stamp,) = [record.stamp for record in library.files()]
        status = path.stat()
        path.write_text("new words")
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        assert library.add(documents).updated == 1
        other = documents / "other"
        other.write_text("odd words")
        os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
        other.replace(path)
        assert library.add(documents).updated == 1
        (record,) = library.files()
        assert 0 not in (stamp, record.stamp) and stamp != record.stamp
        assert [hit.text for hit in library.search("words", 9)] == ["odd words"]

    def test_what_has_its_stamp_still_is_not_read(
        self, library: Library, documents: Path, write: Write, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("common.library.documents._TICK", 0)
        write("a.txt", "apple tree")
        library.add(documents)
        monkeypatch.setattr("common.library.ingest.load", None)
        assert library.add(documents).unchanged == 1

    def test_a_date_that_the_database_can_not_hold(self, library: Library, in_memory: Path) -> None:
        """Windows' zero, which archives and file systems of it hand on."""
        path, zero = in_memory / "a.txt", -11_644_473_600 * 10**9
        for text in ("apple tree", "other tree"):
            path.write_text(text)
            os.utime(path, ns=(zero, zero))
            if path.stat().st_mtime_ns != zero:
                pytest.skip("the file system has no such dates")
            report = library.add(in_memory)
            assert report.added + report.updated == 1
            assert library.add(in_memory).unchanged == 1

    def test_an_edit_within_the_file_systems_clock_tick_is_seen(self, library: Library, documents: Path) -> None:
        path = documents / "a.txt"
        path.write_text("old words")
        status = path.stat()
        library.add(documents)
        path.write_text("new words")
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        assert library.add(documents).updated == 1

    def test_another_chunk_size_cuts_and_embeds_again(
        self, library: Library, documents: Path, write: Write, toy: ToyEmbedder
    ) -> None:
        write("long.txt", LONG)
        before = library.add(documents).chunks
        tokenizer = SentenceTransformerEmbedder().tokenizer_file
        with Library(library.folder, toy, chunker=Chunker(tokenizer, 64)) as coarser:
            report = coarser.add(documents)
        assert report.updated == 1
        assert report.chunks < before

    def test_another_reader_reads_its_documents_again(
        self, library: Library, documents: Path, write: Write, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write("a.txt", "apple tree")
        write("B.CSV", "name,city\nZoe,Lisbon")
        library.add(documents)
        monkeypatch.setitem(REVISIONS, ".csv", REVISIONS[".csv"] + 1)
        report = library.add(documents)
        assert (report.unchanged, report.updated) == (1, 1)
        (documents / "B.CSV").rename(documents / "c.csv")
        assert library.add(documents).moved == 1

    def test_one_file_and_a_part_of_an_added_folder_can_be_added(
        self, library: Library, documents: Path, write: Write, toy: ToyEmbedder
    ) -> None:
        write("a.txt", "apple tree")
        inner = write("sub/b.txt", "banana bread")
        library.add(documents)
        write("a.txt", "another tree")
        report = library.add(inner.parent)
        assert (report.unchanged, report.removed, library.count) == (1, 0, 2)
        assert library.add(documents / "a.txt").updated == 1
        assert paths(library) == ["a.txt", "sub/b.txt"]

    def test_a_folder_that_is_missing_removes_nothing(self, library: Library, documents: Path, write: Write) -> None:
        write("a.txt", "apple tree")
        library.add(documents)
        documents.rename(documents.with_name("elsewhere"))
        with pytest.raises(LibraryError, match="is not a folder or a file"):
            library.add(documents)
        assert library.count == 1

    def test_a_name_that_begins_like_the_folders_is_not_in_it(
        self, library: Library, tmp_path: Path, write: Write
    ) -> None:
        write("a/x.txt", "apple tree")
        write("ab/x.txt", "banana bread")
        library.add(tmp_path / "documents")
        assert library.add(tmp_path / "documents" / "a").removed == 0
        assert library.count == 2


class TestJunk:
    def test_every_unusable_file_is_one_line(self, library: Library, documents: Path, write: Write) -> None:
        write("good.txt", "apple tree")
        write("bom.txt", b"\xef\xbb\xbfbanana")
        write("binary.txt", b"GIF\0\1\2")
        write("noise.txt", b"\x89\1\2")
        write("empty.md", "")
        write("blank.md", " \n\t\n")
        write("huge.txt", b"a" * (MOST_TEXT_BYTES + 1))
        write("image.png", b"\x89PNG")
        write(".hidden.txt", "secret")
        write(".git/config.txt", "secret")
        os.mkfifo(documents / "pipe.txt")
        (documents / os.fsdecode(b"\xff.txt")).write_text("name")
        report = library.add(documents)
        assert dict(report.skipped) == {
            "binary.txt": "it is not text: it contains NUL bytes",
            "noise.txt": "it is not text: it contains control characters, and is not UTF-8",
            "empty.md": "it is empty",
            "blank.md": "it is empty",
            "huge.txt": "it is too large: 10,000,001 bytes, at most 10,000,000 are read",
            "pipe.txt": "it is not an ordinary file",
            os.fsdecode(b"\xff.txt"): "its name is not valid UTF-8",
        }
        assert report.ignored == {".png": 1}
        assert {hit.text for hit in library.search("x", 9)} == {"apple tree", "banana"}

    def test_a_document_that_becomes_junk_leaves_the_library(
        self, library: Library, documents: Path, write: Write
    ) -> None:
        write("a.txt", "apple tree")
        library.add(documents)
        write("a.txt", b"\0\0")
        report = library.add(documents)
        assert (report.removed, len(report.skipped), library.count) == (1, 1, 0)

    def test_links_out_of_the_folder_are_not_followed(
        self, library: Library, documents: Path, write: Write, tmp_path: Path
    ) -> None:
        write("sub/inside.txt", "apple tree")
        (tmp_path / "private").mkdir()
        (tmp_path / "private" / "secret.txt").write_text("the secret")
        (documents / "folder").symlink_to(tmp_path / "private")
        (documents / "file.txt").symlink_to(tmp_path / "private" / "secret.txt")
        (documents / "loop").symlink_to(documents)
        (documents / "again.txt").symlink_to(documents / "sub" / "inside.txt")
        (documents / "broken.md").symlink_to(documents / "nothing.md")
        report = library.add(documents)
        assert [hit.text for hit in library.search("x", 9)] == ["apple tree"]
        assert sorted(report.skipped) == [
            ("broken.md", "it is a link to nothing"),
            ("file.txt", "it is a link that leads out of the folder"),
            ("folder", "it is a link that leads out of the folder"),
        ]

    def test_links_to_what_is_not_found_by_itself_are_named(
        self, library: Library, documents: Path, write: Write
    ) -> None:
        write("..2026/settings.md", "as Kubernetes lays them out")
        write("node_modules/package/readme.md", "somebody else's")
        write(".hidden.md", "hidden")
        write("README", "without an ending")
        write("good.md", "found by itself")
        links = {
            "..data": "..2026",
            "settings.md": "..data/settings.md",
            "package.md": "node_modules/package/readme.md",
            "modules": "node_modules",
            "shown.md": ".hidden.md",
            "readme.md": "README",
            "again.md": "good.md",
            "picture.png": "nothing.png",
        }
        for name, target in links.items():
            (documents / name).symlink_to(target)
        report = library.add(documents)
        assert dict(report.skipped) == {
            "settings.md": "it is a link to a hidden or skipped file",
            "package.md": "it is a link to a hidden or skipped file",
            "modules": "it is a link to a hidden or skipped file",
            "shown.md": "it is a link to a hidden or skipped file",
            "readme.md": "it is a link to a file without the ending of a document: README",
        }
        assert report.added == 1

    def test_what_word_keeps_beside_an_open_document_is_hidden(
        self, library: Library, documents: Path, write: Write
    ) -> None:
        write("~$letter.docx", "somebody")
        write("good.txt", "apple tree")
        report = library.add(documents)
        assert (report.added, report.skipped) == (1, ())

    def test_a_file_exchanged_for_a_link_after_the_scan_is_not_followed(
        self, library: Library, documents: Path, write: Write, tmp_path: Path
    ) -> None:
        path = write("a.txt", "apple tree")
        secret = tmp_path / "secret.txt"
        secret.write_text("the secret")

        def exchange(done: int, total: int, name: str, place: str) -> None:
            path.unlink(missing_ok=True)
            path.symlink_to(secret)

        assert len(library.add(documents, exchange).skipped) == 1
        assert library.count == 0

    def test_what_cannot_be_looked_at_keeps_its_old_content(
        self, library: Library, documents: Path, write: Write, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write("locked/a.txt", "apple tree")
        file = write("b.txt", "banana bread")
        library.add(documents)
        write("b.txt", "blueberry")
        refused = {str(documents / "locked"), str(file)}

        def refusing(original: Callable[..., Any]) -> Callable[..., Any]:
            def call(path: Any, *rest: Any) -> Any:
                if str(path) in refused:
                    raise PermissionError(13, "Permission denied")
                return original(path, *rest)

            return call

        monkeypatch.setattr(os, "scandir", refusing(os.scandir))
        monkeypatch.setattr(os, "open", refusing(os.open))
        report = library.add(documents)
        assert sorted(report.skipped) == [
            ("b.txt", "it can't be read: permission denied"),
            ("locked", "it can't be read: permission denied"),
        ]
        assert (report.removed, paths(library)) == (0, ["b.txt", "locked/a.txt"])


class TestInterruption:
    @pytest.fixture(params=["many files", "one long file"])
    def filled(self, request: pytest.FixtureRequest, write: Write) -> str:
        if request.param == "many files":
            for number, paragraph in enumerate(LONG.split("\n\n")):
                write(f"{number:03}.txt", paragraph)
        else:
            write("long.txt", LONG)
        return str(request.param)

    def test_the_next_run_goes_on_where_it_stopped(
        self, tmp_path: Path, documents: Path, filled: str, chunker: Chunker
    ) -> None:
        whole = ToyEmbedder()
        with Library(tmp_path / "whole", whole, chunker=chunker) as library:
            library.add(documents)
            expected = [(hit.path, hit.text, hit.similarity) for hit in library.search("7 things", 500)]
        whole.embedded.pop()
        calls = iter(range(3))

        def interrupt() -> None:
            if next(calls, None) is None:
                raise KeyboardInterrupt

        first, second = ToyEmbedder(before=interrupt), ToyEmbedder()
        with Library(tmp_path / "library", first, chunker=chunker) as library:
            with pytest.raises(KeyboardInterrupt):
                library.add(documents)
            assert library.count == (0 if filled == "one long file" else len(first.embedded))
        with Library(tmp_path / "library", second, chunker=chunker) as library:
            library.add(documents)
            assert first.embedded + second.embedded == whole.embedded
            found = [(hit.path, hit.text, hit.similarity) for hit in library.search("7 things", 500)]
            assert found == expected

    def test_progress_goes_up_to_all_of_it(self, library: Library, documents: Path, filled: str) -> None:
        shown: list[tuple[int, int]] = []
        library.add(documents, lambda done, total, *_: shown.append((done, total)))
        size = sum(path.stat().st_size for path in documents.iterdir())
        assert {total for _, total in shown} == {size}
        assert [done for done, _ in shown] == sorted(done for done, _ in shown)
        assert (len(shown) > 3, shown[-1]) == (True, (size, size))


class TestAnotherModel:
    def test_is_refused_until_everything_is_embedded_again(
        self, library: Library, documents: Path, write: Write
    ) -> None:
        write("long.txt", LONG)
        library.add(documents)
        with Library(library.folder, ToyEmbedder("other"), chunker=library._cutter()) as other:
            for call in (lambda: other.search("x", 1), lambda: other.add(documents), other.warm):
                with pytest.raises(EmbedderChanged, match=r"embedded with toy, and other is configured.*--rebuild"):
                    call()
            assert other.rebuild() == library.count
            assert other.search(LONG.split("\n\n")[9], 1)[0].similarity == pytest.approx(1.0, abs=0.3)
            assert other.add(documents).unchanged == 1
        with pytest.raises(EmbedderChanged, match="embedded with other, and toy is configured"):
            library.search("x", 1)

    def test_embedding_again_goes_on_where_it_stopped_and_changes_nothing_until_it_is_done(
        self, library: Library, documents: Path, write: Write
    ) -> None:
        write("long.txt", LONG)
        library.add(documents)
        expected = library.search("x", 500)
        calls = iter(range(2))

        def interrupt() -> None:
            if next(calls, None) is None:
                raise KeyboardInterrupt

        first, second = ToyEmbedder("other", interrupt), ToyEmbedder("other")
        with Library(library.folder, first) as other, pytest.raises(KeyboardInterrupt):
            other.rebuild()
        assert library.search("x", 500) == expected
        with Library(library.folder, second) as other:
            other.rebuild()
            assert len(first.embedded + second.embedded) == len(set(first.embedded + second.embedded))
            assert len(other.search("x", 500)) == len(expected)

    def test_embedding_again_goes_on_after_documents_were_replaced(
        self, library: Library, documents: Path, write: Write
    ) -> None:
        """By a reading that was interrupted, too."""
        for number in range(50):
            write(f"{number:02}.txt", f"story {number}")
        library.add(documents)

        def interrupt(done: int, total: int, path: str, place: str) -> None:
            if done:
                raise Interrupted

        with pytest.raises(Interrupted):
            library.rebuild(interrupt)
        write("03.txt", "another story")
        write("zz.txt", "last")

        def interrupt_at_last(done: int, total: int, path: str, place: str) -> None:
            if path.endswith("zz.txt"):
                raise Interrupted

        with pytest.raises(Interrupted):
            library.add(documents, interrupt_at_last)
        assert library.rebuild() == library.count == 50
        assert library.search("another story", 1)[0].similarity == pytest.approx(1.0, abs=1e-3)

    def test_an_emptied_library_takes_any(self, library: Library, documents: Path, write: Write) -> None:
        write("a.txt", "apple tree")
        library.add(documents)
        library.search("x", 1)
        library.remove("all")
        with Library(library.folder, ToyEmbedder("other"), chunker=library._cutter()) as other:
            other.add(documents)
            assert other.search("apple", 1)[0].text == "apple tree"
