"""Files on their way into the library."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from device.documents import OwnDocuments
from device.http.server import HttpServer
from device.interface import Listing
from tests.device.page.browsing import Open, Visit
from tests.device.table_engine import WAIT, TableEngine

pytestmark = pytest.mark.timeout(600)  # a browser, on a busy machine


class Slow(OwnDocuments):
    """Takes what it is given, one for each `may`."""

    def __init__(self) -> None:
        self.may = threading.Semaphore(0)
        self.taken: list[str] = []

    def listing(self) -> Listing:
        return Listing((), (), (), {}, "/uploads")

    def put(self, name: str, content: bytes) -> bool:
        assert self.may.acquire(timeout=WAIT)
        self.taken.append(name)
        return name in self.taken[:-1]


@pytest.fixture
def documents(engine: TableEngine, monkeypatch: pytest.MonkeyPatch) -> Slow:
    documents = Slow()
    monkeypatch.setattr(engine, "documents", documents, raising=False)
    return documents


@pytest.fixture
def visit(visits: Open, server: HttpServer, documents: Slow) -> Visit:
    visit = visits(server.url)
    visit.page.get_by_role("button", name="Library", exact=True).click()
    return visit


def choose(visit: Visit, files: Sequence[Path]) -> None:
    visit.page.get_by_label("Files to add").set_input_files(files)


def written(folder: Path, *names: str) -> list[Path]:
    for name in names:
        (folder / name).write_text("some words")
    return [folder / name for name in names]


def results(visit: Visit) -> list[str]:
    found: list[str] = visit.page.locator(".results li").all_inner_texts()
    return found


def test_a_folder_is_told_apart(visit: Visit, documents: Slow, tmp_path: Path) -> None:
    (tmp_path / "notes.md").mkdir()
    documents.may.release()
    visit.drag([tmp_path / "notes.md", *written(tmp_path, "a.md")], ".adding")
    visit.page.get_by_text("read next").wait_for()
    assert results(visit)[0].startswith("notes.md: This is a folder.")
    assert documents.taken == ["a.md"]


def test_a_file_that_was_changed_while_it_waited(visit: Visit, documents: Slow, tmp_path: Path) -> None:
    first, second = files = written(tmp_path, "a.md", "b.md")
    choose(visit, files)
    visit.page.get_by_text("2 files to go").wait_for()
    second.write_text("other words, and more of them")
    documents.may.release()
    visit.page.get_by_text("b.md: The file can't be read: it has been changed or removed").wait_for()
    assert documents.taken == [first.name]


def test_they_go_on_and_are_told_of_behind_the_chat(visit: Visit, documents: Slow, tmp_path: Path) -> None:
    page = visit.page
    visit.expected.append("400")
    choose(visit, written(tmp_path, "picture.heic", "a.md", "b.md"))
    page.get_by_text("2 files to go").wait_for()
    page.get_by_role("button", name="Chat", exact=True).click()
    documents.may.release()
    page.get_by_role("button", name="Library", exact=True).click()
    page.get_by_text("1 file to go").wait_for()
    documents.may.release()
    page.get_by_text("b.md: ").wait_for()
    assert [text.partition(":")[0] for text in results(visit)] == ["picture.heic", "a.md", "b.md"]


def test_more_files_wait_behind_the_first(visit: Visit, documents: Slow, tmp_path: Path) -> None:
    page = visit.page
    visit.expected.append("400")
    choose(visit, written(tmp_path, "picture.heic", "a.md", "b.md"))
    page.get_by_text("2 files to go").wait_for()
    choose(visit, written(tmp_path, "c.md"))
    page.get_by_text("3 files to go").wait_for()
    for left in (2, 1, 0):
        documents.may.release()
        if left:
            page.get_by_text(f"{left} file{'s' if left > 1 else ''} to go").wait_for()
    page.get_by_text("c.md: ").wait_for()
    assert page.locator(".adding").get_attribute("aria-busy") == "false"
    assert [text.partition(":")[0] for text in results(visit)] == ["picture.heic", "a.md", "b.md", "c.md"]
    assert documents.taken == ["a.md", "b.md", "c.md"]


def test_a_file_of_the_same_name_takes_the_place_of_the_earlier(visit: Visit, documents: Slow, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        documents.may.release()
        choose(visit, written(tmp_path / folder, "notes.md"))
        visit.page.get_by_text("10 B, ").wait_for()
        told = results(visit)
        visit.page.get_by_text("read next").wait_for()
        assert told == [f"notes.md: 10 B, {'replaces the earlier file of this name, ' * (folder == 'b')}read next"]


def test_what_is_dropped_elsewhere_is_not_opened(visits: Open, server: HttpServer) -> None:
    """Browsers open a file in place of the page, unless it tells them not to; words go where they are dropped."""
    taken = visits(server.url).page.evaluate(
        """() => ["dragover", "drop"].map((kind) => ["file", "words"].map((what) => {
            const dataTransfer = new DataTransfer();
            if (what === "file") dataTransfer.items.add(new File(["words"], "a.html"));
            else dataTransfer.setData("text/plain", "words");
            const event = new DragEvent(kind, { dataTransfer, bubbles: true, cancelable: true });
            document.querySelector(what === "file" ? ".bar" : "#question").dispatchEvent(event);
            return event.defaultPrevented;
        }))"""
    )
    assert taken == [[True, False], [True, False]]
