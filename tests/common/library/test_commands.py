from __future__ import annotations

import io
import re
from contextlib import closing
from pathlib import Path

import pytest

from cloud.settings import CloudSettings
from common.configuration.settings import Settings
from common.engine.kv.documents import DocumentStoreCounters
from common.engine.model.decoder import load_decoder
from common.engine.model.prompt import TextFormat
from common.library import commands
from common.library.database import connect, writer_lock
from common.library.embedder import SentenceTransformerEmbedder
from common.library.library import Library
from common.library.snapshots import find_newest_snapshot, publish
from common.process.lifetime import sole_process
from tests.common.library.conftest import Write
from tests.common.library.toy_embedder import ToyEmbedder


class ConfiguredToy(ToyEmbedder):
    def __init__(self, model: str = "", torch_device: str = "", dtype: str = "") -> None:
        super().__init__()
        self.tokenizer_file = SentenceTransformerEmbedder().tokenizer_file


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr(commands, "SentenceTransformerEmbedder", ConfiguredToy)
    return CloudSettings(data=tmp_path / "data", model="embedded", threads=1)


class TestAdd:
    def test_tells_what_it_did(
        self, settings: Settings, documents: Path, write: Write, capsys: pytest.CaptureFixture[str]
    ) -> None:
        write("a.md", "# Apples\n\napple tree")
        write("photo.jpg", b"\xff\xd8")
        assert commands.add_documents(settings, [documents]) == commands.DONE
        out, err = capsys.readouterr()
        assert out == ""
        assert "1 added, 0 updated, 0 unchanged, 0 removed, 0 skipped; 1 chunk embedded" in err
        assert "1 file of other types ignored: 1 " in err
        write("b.txt", b"\0")
        assert commands.add_documents(settings, [documents]) == commands.INCOMPLETE
        assert "skipped b.txt: it is not text: it contains NUL bytes" in capsys.readouterr().err
        assert commands.add_documents(settings, [documents / "a.md"], rebuild=True) == commands.DONE
        assert "1 chunk embedded again" in capsys.readouterr().err

    def test_a_bad_folder_is_one_line(
        self, settings: Settings, documents: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert commands.add_documents(settings, [documents / "[red]nowhere"]) == commands.IMPOSSIBLE
        out, err = capsys.readouterr()
        assert (out, err) == ("", f"dragon: {documents}/[red]nowhere is not a folder or a file\n")


def test_the_setting_says_from_where_on_search_is_approximate(
    settings: Settings, documents: Path, write: Write
) -> None:
    for number in range(6):
        write(f"{number}.txt", f"note {number}")
    for least, expected in ((6, True), (7, False), (0, False)):
        changed = settings.model_copy(update={"approximate_from": least})
        with commands.open_library(changed) as library:
            library.add(documents)
            library.search("note", 4)
            library._index.finish_training()
            assert len(library.search("note", 4)) == 4
            assert library._index.approximate == expected


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class TestShow:
    def test_lists_and_searches_line_by_line(
        self, settings: Settings, documents: Path, write: Write, capsys: pytest.CaptureFixture[str]
    ) -> None:
        write("sub/a.md", "# Apples\n\nthe apple tree\nin the garden")
        commands.add_documents(settings, [documents])
        capsys.readouterr()
        assert commands.print_documents(settings) == commands.DONE
        assert capsys.readouterr().out == f"Apples\tsub/a.md\t{documents}\t1\t38\t\n"
        assert commands.search_documents(settings, "apple tree") == commands.DONE
        fields = capsys.readouterr().out.rstrip("\n").split("\t")
        assert fields[1:] == ["Apples", "sub/a.md", "", "# Apples the apple tree in the garden"]
        assert 0 < float(fields[0]) <= 1

    def test_a_document_cannot_steer_the_terminal(
        self, settings: Settings, documents: Path, write: Write, capsys: pytest.CaptureFixture[str]
    ) -> None:
        write("a.txt", "apple \x1b[2J\x9b31m\u202etree\u2028 [bold]x[/bold]\x07 \u200d")
        commands.add_documents(settings, [documents])
        commands.search_documents(settings, "apple")
        shown = capsys.readouterr().out
        assert not set(shown) & set("\x1b\x9b\u202e\u2028\x07")
        assert "[bold]x[/bold]" in shown
        assert "\u200d" in shown

    def test_a_terminal_gets_tables(
        self, settings: Settings, documents: Path, write: Write, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        terminal = Terminal()
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setattr("sys.stdout", terminal)
        monkeypatch.setattr("sys.stderr", Terminal())
        write("a.txt", "apple [tree]")
        assert commands.add_documents(settings, [documents]) == commands.DONE
        assert commands.search_documents(settings, "apple") == commands.DONE
        assert "apple [tree]" in terminal.getvalue()
        assert "similarity" in terminal.getvalue()

    @pytest.mark.parametrize("width", [40, 80, 120, 200])
    def test_a_list_is_readable_at_every_width(
        self, settings: Settings, documents: Path, write: Write, monkeypatch: pytest.MonkeyPatch, width: int
    ) -> None:
        name = "a-name-that-goes-on-and-on-without-a-single-space-in-it"
        write("a.md", "# Apples\n\napple tree")
        write(f"sub/{name}.md", "# A long title about harbours, boats and the sea at night\n\na harbour")
        commands.add_documents(settings, [documents])
        terminal = Terminal()
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setattr("sys.stdout", terminal)
        commands.print_documents(settings)
        lines = re.sub("\x1b[^m]*m", "", terminal.getvalue()).splitlines()
        assert max(map(len, lines)) <= width
        assert "…" not in terminal.getvalue()
        for row in (["Apples", "a.md"], ["A long title about harbours, boats and the sea at night", f"sub/{name}.md"]):
            for cell in row:  # broken into lines perhaps, but whole
                assert re.sub(r"\s", "", cell) in re.sub(r"[\s│┃]", "", "".join(lines))
        if width == 40:
            assert lines[0] == "Apples" and lines[1].split() == ["path", "a.md"]

    def test_says_when_there_is_nothing(
        self, settings: Settings, documents: Path, write: Write, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert commands.search_documents(settings, "x") == commands.INCOMPLETE
        assert commands.print_documents(settings) == commands.DONE
        told = capsys.readouterr()
        assert told.out == ""
        assert told.err.endswith("the library is empty: `dragon library add --role cloud FOLDER` fills it\n")
        assert commands.search_documents(settings, " ") == commands.IMPOSSIBLE
        write("a.txt", "apple")
        commands.add_documents(settings, [documents])
        capsys.readouterr()
        by_words = settings.model_copy(update={"search": "keyword"})
        assert commands.search_documents(by_words, "zebra") == commands.INCOMPLETE
        assert capsys.readouterr().err == "nothing found\n"
        assert commands.search_documents(settings, "x", 0) == commands.IMPOSSIBLE


class TestRemove:
    def test_counts_what_it_forgot(
        self, settings: Settings, documents: Path, write: Write, capsys: pytest.CaptureFixture[str]
    ) -> None:
        write("a.txt", "apple")
        write("b.txt", "banana")
        commands.add_documents(settings, [documents])
        assert commands.remove_documents(settings, ["nothing.txt"]) == commands.INCOMPLETE
        assert commands.remove_documents(settings, ["a.txt"]) == commands.DONE
        assert "1 document removed" in capsys.readouterr().err
        assert commands.remove_documents(settings, []) == commands.IMPOSSIBLE
        assert commands.remove_documents(settings, [""]) == commands.IMPOSSIBLE
        with commands.open_library(settings) as library:
            library.watch(documents)
        assert commands.remove_documents(settings, ["b.txt"]) == commands.IMPOSSIBLE
        assert "is watched: remove the file there" in capsys.readouterr().err
        assert commands.remove_documents(settings, ["b.txt"], everything=True) == commands.IMPOSSIBLE
        assert commands.remove_documents(settings, [], everything=True) == commands.DONE
        commands.print_documents(settings)
        assert capsys.readouterr().out == ""


class TestRemoveUploads:
    """A file of the folder of uploads is the only copy: the watcher would read it again if it stayed."""

    @pytest.fixture
    def uploads(self, settings: Settings, documents: Path, write: Write, tmp_path: Path) -> Path:
        folder = tmp_path / "uploads"
        folder.mkdir()
        (folder / "plan.txt").write_text("an apple tree")
        write("plan.txt", "a harbour full of boats")
        commands.add_documents(settings, [documents])
        commands.add_documents(settings, [folder], watch=True)
        return folder

    @staticmethod
    def listed(settings: Settings) -> list[str]:
        with commands.open_library(settings) as library:
            return sorted(file.path for file in library.files())

    @pytest.mark.parametrize("by_place", [False, True])
    def test_one_goes_with_its_file_and_nothing_else(
        self, settings: Settings, uploads: Path, documents: Path, by_place: bool, capsys: pytest.CaptureFixture[str]
    ) -> None:
        upload = uploads / "plan.txt"
        given = str(upload) if by_place else "plan.txt"
        assert commands.remove_documents(settings, [given], uploads=uploads) == commands.DONE
        assert capsys.readouterr().err.endswith("1 document removed\n")
        assert self.listed(settings) == [str(documents / "plan.txt")] and not upload.exists()
        assert commands.remove_documents(settings, [given], uploads=uploads) == (
            commands.INCOMPLETE if by_place else commands.DONE
        ), "the name is the other document's now"
        assert (documents / "plan.txt").exists()

    def test_a_document_where_one_is_comes_first(
        self, settings: Settings, uploads: Path, documents: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(documents)
        assert commands.remove_documents(settings, ["plan.txt"], uploads=uploads) == commands.DONE
        assert self.listed(settings) == [str(uploads / "plan.txt")]
        assert (uploads / "plan.txt").exists() and (documents / "plan.txt").exists()

    def test_one_that_is_no_document_goes(self, settings: Settings, uploads: Path) -> None:
        (uploads / "empty.txt").touch()
        assert commands.remove_documents(settings, ["empty.txt"], uploads=uploads) == commands.DONE
        assert not (uploads / "empty.txt").exists()
        assert commands.remove_documents(settings, ["empty.txt"], uploads=uploads) == commands.INCOMPLETE

    def test_one_goes_while_another_process_changes_the_library(
        self, settings: Settings, uploads: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with writer_lock(settings.library):
            assert commands.remove_documents(settings, ["plan.txt"], uploads=uploads) == commands.DONE
        assert "deleted; the daemon is reading and removes them from the library next" in capsys.readouterr().err
        assert not (uploads / "plan.txt").exists()

    @pytest.mark.parametrize("named", ["", ".."])
    def test_the_folder_and_those_around_it_delete_nothing(self, settings: Settings, uploads: Path, named: str) -> None:
        assert commands.remove_documents(settings, [str(uploads / named)], uploads=uploads) == commands.DONE
        assert (uploads / "plan.txt").exists() and str(uploads / "plan.txt") not in self.listed(settings)


class TestStoredDocuments:
    @pytest.fixture
    def filled(self, settings: Settings, documents: Path, write: Write) -> Settings:
        write("a.md", "# Apples\n\napple tree")
        write("b.md", "# Boats\n\na harbour full of boats")
        commands.add_documents(settings, [documents])
        return settings

    @staticmethod
    def stored(settings: Settings) -> int:
        return len(list(settings.document_store.rglob("*.safetensors")))

    def test_prefill_leaves_nothing_to_compute(self, filled: Settings, capsys: pytest.CaptureFixture[str]) -> None:
        assert commands.prefill_library(filled) == commands.DONE
        assert "2 chunks computed, 0 there already" in capsys.readouterr().err
        assert self.stored(filled) == 2
        assert commands.prefill_library(filled) == commands.DONE
        assert "0 chunks computed, 2 there already" in capsys.readouterr().err
        decoder = load_decoder(filled)
        form = TextFormat(decoder.tokenizer)
        with commands.open_library(filled) as library:
            texts = [hit.text for hit in library.search("apple boats", 2)]
        decoder.open([form.document_tokens(text, 400) for text in texts], [5], 4)
        assert decoder.document_cache.counters.disk == DocumentStoreCounters(hits=2)

    def test_a_store_that_is_too_small_is_told(self, filled: Settings, capsys: pytest.CaptureFixture[str]) -> None:
        small = filled.model_copy(update={"document_store_bytes": 1000})
        assert commands.prefill_library(small) == commands.INCOMPLETE
        assert "2 chunks left out: document_store_bytes is too small" in capsys.readouterr().err
        assert commands.prefill_library(filled.model_copy(update={"document_store_bytes": 0})) == commands.IMPOSSIBLE

    @pytest.mark.parametrize("how", ["removed", "changed", "gone"])
    def test_of_a_document_that_is_removed_nothing_is_left(
        self, filled: Settings, documents: Path, write: Write, how: str
    ) -> None:
        filled.document_store.mkdir()
        (filled.document_store / f"{'ab' * 32}.safetensors").write_bytes(b"keys and values of a.md")
        assert commands.add_documents(filled, [documents]) == commands.DONE
        assert self.stored(filled) == 1, "nothing was removed yet"
        if how == "removed":
            assert commands.remove_documents(filled, [""]) == commands.IMPOSSIBLE
            assert self.stored(filled) == 1, "it was refused"
            assert commands.remove_documents(filled, ["a.md"]) == commands.DONE
        else:
            write("a.md", "# Pears\n") if how == "changed" else (documents / "a.md").unlink()
            assert commands.add_documents(filled, [documents]) == commands.DONE
        assert self.stored(filled) == 0

    @pytest.mark.parametrize("how", ["removed", "changed"])
    def test_nor_in_snapshots_that_a_cluster_has_left(
        self, filled: Settings, documents: Path, write: Write, how: str
    ) -> None:
        """They are the running daemon's own to remove, where there is one."""

        def change(name: str) -> None:
            write(name, "# Pears\n") if how == "changed" else None
            done = (
                commands.remove_documents(filled, [name])
                if how == "removed"
                else commands.add_documents(filled, [documents])
            )
            assert done == commands.DONE

        publish(filled.library)
        change("a.md")
        assert find_newest_snapshot(filled.library) is None
        made = publish(filled.library)
        with sole_process(filled.lock):
            change("b.md")
        assert find_newest_snapshot(filled.library) == made

    def test_where_a_change_is_refused_they_stay(
        self, filled: Settings, documents: Path, write: Write, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        filled.document_store.mkdir()
        (filled.document_store / f"{'ab' * 32}.safetensors").write_bytes(b"keys and values of a.md")
        with writer_lock(filled.library):
            assert commands.add_documents(filled, [documents]) == commands.IMPOSSIBLE
            assert commands.remove_documents(filled, ["a.md"]) == commands.IMPOSSIBLE
        monkeypatch.setattr(ConfiguredToy, "__init__", lambda self, *model: ToyEmbedder.__init__(self, "another"))
        monkeypatch.setattr(commands, "chunker_for", lambda embedder, tokens: None)
        write("a.md", "# Pears\n")
        assert commands.add_documents(filled, [documents]) == commands.IMPOSSIBLE, "it was embedded by another model"
        assert self.stored(filled) == 1

    def test_an_interrupted_add_may_have_replaced_something(
        self, filled: Settings, documents: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        filled.document_store.mkdir()
        (filled.document_store / f"{'ab' * 32}.safetensors").write_bytes(b"keys and values of a.md")

        def interrupted(library: Library, path: Path, *more: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(Library, "add", interrupted)
        with pytest.raises(KeyboardInterrupt):
            commands.add_documents(filled, [documents])
        assert self.stored(filled) == 0


class TestStatus:
    def test_says_what_was_read_and_what_was_not(
        self, settings: Settings, documents: Path, write: Write, capsys: pytest.CaptureFixture[str]
    ) -> None:
        write("a.txt", "apple tree")
        write("bad.pdf", b"no pdf")
        assert commands.print_status(settings) == commands.DONE
        assert capsys.readouterr().out == "0 documents, 0 chunks, 0 bytes\n"
        commands.add_documents(settings, [documents])
        capsys.readouterr()
        assert commands.print_status(settings) == commands.INCOMPLETE
        total, folder, skipped = capsys.readouterr().out.splitlines()
        assert total == "1 document, 1 chunk, 10 bytes"
        assert folder.startswith(f"{documents}: 1 document, 10 bytes, read on 20")
        assert skipped.startswith(f"  skipped {documents / 'bad.pdf'}: it is damaged, or no pdf file")

        (documents / "bad.pdf").unlink()
        commands.add_documents(settings, [documents])
        assert commands.print_status(settings) == commands.DONE
        assert "skipped" not in capsys.readouterr().out
        commands.remove_documents(settings, [str(documents)])
        capsys.readouterr()
        commands.print_status(settings)
        assert capsys.readouterr().out == "0 documents, 0 chunks, 0 bytes\n"

    def test_says_how_far_a_reading_is(
        self, settings: Settings, documents: Path, write: Write, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """While it goes on in this process, and after one was interrupted."""
        for number in range(40):
            write(f"{number:02}.txt", f"note {number}")
        shown = []

        def stop(done: int, total: int, path: str, place: str) -> None:
            if Path(path).name == "38.txt":
                commands.print_status(settings)
                shown.append(capsys.readouterr().out.splitlines()[1])
                raise KeyboardInterrupt

        with commands.open_library(settings) as library, pytest.raises(KeyboardInterrupt):
            library.add(documents, stop, watch=True, tags=["work"])
        assert "32 documents, 214 bytes, being read: 77% done, at " in shown[0]
        with closing(connect(settings.library / "library.sqlite")) as connection:
            connection.execute("UPDATE readings SET began = began - 1e9")  # whoever has the process's number now
            connection.commit()
        commands.print_status(settings)
        told = capsys.readouterr().out
        assert f"interrupted at 77%: `dragon library add --role cloud {documents}` continues" in told
        # What was asked for need not be said again.
        with commands.open_library(settings) as library:
            assert (library.watched(), library.tags()) == ([str(documents)], {str(documents): ("work",)})
