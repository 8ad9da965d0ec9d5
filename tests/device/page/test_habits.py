"""Ways of other chat pages that people expect here, too."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from common.answer.report import Origin, Source
from common.library.hit import Hit
from common.library.readings import IngestRun
from common.library.store import FileRecord, StoredChunk
from device.documents import OwnDocuments
from device.http.server import HttpServer
from device.interface import Listing
from tests.device import table_engine
from tests.device.page.browsing import Open, Visit, answers, words
from tests.device.table_engine import TableEngine

pytestmark = pytest.mark.timeout(600)  # a browser, on a busy machine

TEXT = "# Kettle\n\nIt **boils** after six minutes\nand holds *two* litres.\n\n* no `descaling`\n"
UPLOADS = "/uploads"


class Shelf(OwnDocuments):
    """Uploads that are read when the test says so, and one passage."""

    def __init__(self, path: str = "kettle.md") -> None:
        self.chunk = StoredChunk(3, "Kettle", f"/notes/{path}", "/notes", "page 4", TEXT, np.zeros(2, np.float32))
        self.files: tuple[FileRecord, ...] = ()
        self.skipped: tuple[tuple[str, str], ...] = ()
        self.read = False
        self.began = 0.0

    def listing(self) -> Listing:
        run = IngestRun(
            UPLOADS, self.began, 1.0 if self.read else None, 1, 1, "", "", not self.read, True, "", self.skipped
        )
        return Listing(self.files if self.read else (), (UPLOADS,), (run,), {}, UPLOADS)

    def put(self, name: str, content: bytes) -> bool:
        record = FileRecord(7, f"{UPLOADS}/{name}", UPLOADS, name, "", len(content), 1, "", 2)
        if name.endswith(".pdf"):
            self.skipped += ((record.path, "it has no text: scanned pages are not read"),)
        else:
            self.files += (replace(record, id=len(self.files), remarks=("its encoding was guessed: cp1252",)),)
        return False

    def passage(self, chunk: int) -> StoredChunk:
        return self.chunk

    def search(self, query: str, count: int) -> list[Hit]:
        return [Hit(3, "Kettle", "kettle.md", "page 4", TEXT, 0.83)]


def shelve(engine: TableEngine, patch: pytest.MonkeyPatch, path: str = "kettle.md") -> Shelf:
    """A library for the engine, whose answers cite `path`."""
    shelf = Shelf(path)
    patch.setattr(engine, "documents", shelf, raising=False)
    patch.setattr(
        table_engine, "SOURCES", (Source("device", "Kettle", Origin(path, "page 4", 3, 0.9)), Source("cloud", "Atlas"))
    )
    return shelf


class TestBelowAnAnswer:
    def test_it_is_copied(self, visits: Open, server: HttpServer, engine: TableEngine) -> None:
        engine.answers["whom"] = ["**Call**", " 555", " 0123", " now"]
        visit = visits(server.url)
        visit.ask("whom")
        visit.page.get_by_role("button", name="Copy").press("Enter")
        visit.page.get_by_text("Copied", exact=True).wait_for()
        visit.page.locator("#question").focus()
        visit.page.keyboard.press("Control+v")
        assert visit.page.locator("#question").input_value() == "**Call** 555 0123 now"

    def test_without_the_clipboard_s_interface_it_is_copied_too(
        self, visits: Open, server: HttpServer, engine: TableEngine
    ) -> None:
        """Browsers have it for this machine and over https only."""
        visit = visits(server.url)
        visit.page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
        visit.ask("so be it")
        visit.page.get_by_role("button", name="Copy").press("Enter")
        visit.page.get_by_text("Copied", exact=True).wait_for()
        assert visit.page.evaluate("document.activeElement.innerText") == "Copy"
        visit.page.locator("#question").focus()
        visit.page.keyboard.press("Control+v")
        assert visit.page.locator("#question").input_value() == "so be it"

    def test_the_last_one_is_regenerated(self, visits: Open, server: HttpServer, engine: TableEngine) -> None:
        visit = visits(server.url)
        regenerate = visit.page.get_by_role("button", name="Regenerate")
        visit.ask("first")
        visit.ask("second")
        assert (regenerate.count(), visit.page.get_by_role("button", name="Copy").count()) == (1, 2)
        assert (visit.serious(), visit.fits()) == ([], True)
        visit.page.get_by_role("combobox", name="Sources").select_option("device")
        regenerate.press("Enter")
        engine.generation(2, count=3)
        visit.wait_for_answer()
        request = engine.generation().request
        assert (request.sources, request.question) == ("device", "second")
        assert words(answers(visit)) == ["first", "second"]

    def test_shares_say_of_what(self, visits: Open, server: HttpServer) -> None:
        visit = visits(server.url)
        visit.ask("six gears")
        shares = visit.page.locator(".footnotes .share").all_inner_texts()
        assert shares == ["50 % of this answer", "50 % of this answer"]


class TestKeyboard:
    def test_it_is_at_the_question_from_the_start(self, visits: Open, server: HttpServer) -> None:
        visit = visits(server.url)
        assert visit.focus() == "question"
        visit.page.keyboard.type("so be it")
        visit.page.keyboard.press("Enter")
        visit.wait_for_answer()
        assert visit.focus() == "question"
        visit.page.get_by_role("button", name="New conversation").click()
        assert visit.focus() == "question"

    def test_it_stays_where_somebody_reads(self, visits: Open, server: HttpServer, engine: TableEngine) -> None:
        visit = visits(server.url)
        engine.allowed = 1
        visit.write("go on")
        answers(visit).get_by_text("go").wait_for()
        visit.page.locator(".turns").focus()
        engine.generation().allow(9)
        visit.wait_for_answer()
        assert visit.page.evaluate("document.activeElement.className") == "turns"

    def test_escape_stops_an_answer(self, visits: Open, server: HttpServer, engine: TableEngine) -> None:
        visit = visits(server.url)
        engine.allowed = 1
        visit.write("go on forever")
        answers(visit).get_by_text("go").wait_for()
        visit.page.keyboard.press("Escape")
        visit.page.get_by_text("Stopped.", exact=True).wait_for()
        assert engine.generation().cancelled.wait(60)
        assert visit.focus() == "question"

    def test_escape_in_a_panel_closes_that_alone(self, visits: Open, server: HttpServer, engine: TableEngine) -> None:
        visit = visits(server.url)
        visit.ask("first words")
        engine.allowed = 1
        visit.write("go on")
        answers(visit).get_by_text("go").wait_for()
        visit.page.get_by_role("button", name="Cloud connected").click()
        visit.page.get_by_role("heading", name="Link").wait_for()
        visit.page.keyboard.press("Escape")
        visit.page.get_by_role("heading", name="Link").wait_for(state="detached")
        visit.page.get_by_role("button", name="Source 2: Atlas").first.click()
        visit.page.get_by_text("The text of this document is in the cloud.").wait_for()
        visit.page.keyboard.press("Escape")
        visit.page.locator(".side-panel").wait_for(state="detached")
        engine.generation().allow(9)
        visit.wait_for_answer()
        assert words(answers(visit)) == ["first words", "go on"]


class TestDroppedFiles:
    def test_the_chat_takes_them_and_tells_what_became_of_them(
        self, visits: Open, server: HttpServer, engine: TableEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        shelf = shelve(engine, monkeypatch)
        visit = visits(server.url)
        page = visit.page
        for name in ("latin.txt", "scan.pdf"):
            (tmp_path / name).write_text("some words")
        files = [tmp_path / "latin.txt", tmp_path / "scan.pdf"]
        visit.drag(files, ".turns", "dragEnter", "dragOver")
        page.get_by_text("Drop files to add them").wait_for()
        assert visit.serious() == []
        visit.drag(files, ".turns")
        page.get_by_text("scan.pdf: 10 B, read next").wait_for()
        assert page.get_by_text("Drop files to add them").count() == 0
        shelf.read = True
        page.get_by_text("latin.txt: 10 B, 2 passages in the library").wait_for()
        results = page.locator(".arrivals .results li")
        told = results.all_inner_texts()
        assert "its encoding was guessed: cp1252" in told[0]
        assert told[1] == "scan.pdf: not read: it has no text: scanned pages are not read"
        assert results.nth(1).get_attribute("class") == "problem"
        assert (visit.serious(), visit.fits()) == ([], True)
        page.get_by_role("button", name="Hide").press("Enter")
        assert (results.count(), visit.focus()) == (0, "question")

    def test_a_file_that_replaces_another_one_is_read_anew(
        self, visits: Open, server: HttpServer, engine: TableEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """Results of the earlier one are not taken for it."""
        shelf = shelve(engine, monkeypatch)
        shelf.read = True
        shelf.skipped = ((f"{UPLOADS}/scan.pdf", "it needs a password: save it without one"),)
        (tmp_path / "scan.pdf").write_text("some words")
        (tmp_path / "new.md").write_text("some words")
        visit = visits(server.url)
        visit.drag([tmp_path / "scan.pdf", tmp_path / "new.md"], ".turns")
        visit.page.get_by_text("new.md: 10 B, 2 passages in the library").wait_for()
        assert visit.page.get_by_text("scan.pdf: 10 B, read next").count() == 1
        shelf.skipped, shelf.began = shelf.skipped[1:], 5.0
        visit.page.get_by_text("scan.pdf: not read: it has no text").wait_for()

    def test_words_are_dropped_where_they_belong(self, visits: Open, server: HttpServer) -> None:
        prevented = visits(server.url).page.evaluate(
            """() => ["dragover", "drop"].map((kind) => {
                const dataTransfer = new DataTransfer();
                dataTransfer.setData("text/plain", "words");
                const event = new DragEvent(kind, { dataTransfer, bubbles: true, cancelable: true });
                document.getElementById("question").dispatchEvent(event);
                return event.defaultPrevented;
            })"""
        )
        assert prevented == [False, False]


class TestPassages:
    def open(self, visit: Visit) -> Any:
        """The passage that the answer cites."""
        visit.ask("after six minutes and holds")
        visit.page.locator("button.source").first.click()
        quote = visit.page.locator(".side-panel blockquote")
        quote.wait_for()
        return quote

    def test_markdown_is_shown_as_such_with_the_cited_words_marked(
        self, visits: Open, server: HttpServer, engine: TableEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        shelve(engine, monkeypatch)
        visit = visits(server.url)
        quote = self.open(visit)
        assert quote.locator(".heading").inner_text() == "Kettle"
        assert quote.locator("strong").inner_text() == "boils"
        assert quote.locator("li code").inner_text() == "descaling"
        assert visit.serious() == []

    def test_other_texts_are_shown_as_they_are(
        self, visits: Open, server: HttpServer, engine: TableEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        shelve(engine, monkeypatch, "kettle.py")
        quote = self.open(visits(server.url))
        assert quote.inner_text().strip() == TEXT.strip()

    def test_cited_words_are_marked(
        self, visits: Open, server: HttpServer, engine: TableEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The answer has the passage's words, whose quote goes over the end of a line."""
        shelve(engine, monkeypatch, "kettle.md")
        given = table_engine.report
        monkeypatch.setattr(
            table_engine, "report", lambda request, tokens, number=0, text="": given(request, tokens, number, TEXT)
        )
        engine.answers["how long"] = [" after", " six", " minutes", " and"]
        visit = visits(server.url)
        visit.ask("how long")
        quoted = visit.page.locator(".footnotes .quote").first.inner_text()
        visit.page.locator(".footnotes button.source").first.click()
        marks = visit.page.locator(".side-panel mark")
        marks.first.wait_for()
        assert "".join(marks.all_text_contents()) == "It boils after six minutes"
        assert "after six minutes" in quoted and marks.first.is_visible()

    @pytest.mark.parametrize(
        ("quotes", "found"),
        [
            (["six minutes and"], ["six minutes\nand"]),
            (["*two* litres.", "after"], ["after", "*two* litres."]),
            (["no such words", ""], []),
        ],
    )
    def test_places_of_quotes(self, visits: Open, server: HttpServer, quotes: list[str], found: list[str]) -> None:
        ranges = visits(server.url).page.evaluate(
            """async ([text, quotes]) => (await import("/page/modules/marked.js")).rangesOf(text, quotes)""",
            [TEXT, [{"text": quote} for quote in quotes]],
        )
        assert [TEXT[start:end] for start, end in ranges] == found

    def test_a_search_shows_markdown_and_no_bare_percentage(
        self, visits: Open, server: HttpServer, engine: TableEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        shelve(engine, monkeypatch)
        page = visits(server.url).page
        page.get_by_role("button", name="Library", exact=True).click()
        page.get_by_role("searchbox").fill("kettle")
        page.keyboard.press("Enter")
        hit = page.locator(".hits > li")
        assert hit.locator("strong").inner_text() == "boils"
        assert "%" not in hit.inner_text()


class TestNames:
    def test_the_model_is_named(self, visits: Open, server: HttpServer) -> None:
        assert visits(server.url).page.locator(".bar .model bdi").inner_text() == "table-1"

    def test_privacy_has_its_level_by_name_and_none_that_is_looser(
        self, visits: Open, server: HttpServer, engine: TableEngine
    ) -> None:
        visit = visits(server.url)
        privacy = visit.page.get_by_role("combobox", name="Privacy")
        options = privacy.locator("option").all_inner_texts()
        assert [option.partition(":")[0] for option in options] == ["strict", "secret", "offline"]
        assert options[0].endswith("(this daemon’s setting)")  # noqa: RUF001
        visit.ask("first")
        privacy.select_option("offline")
        visit.ask("second")
        assert [engine.generation(n).request.privacy for n in (0, 1)] == ["strict", "offline"]

    def test_connected_is_green(self, visits: Open, server: HttpServer) -> None:
        sign = visits(server.url).page.locator(".link-button .sign")
        red, green, blue = map(int, re.findall(r"\d+", sign.evaluate("each => getComputedStyle(each).color"))[:3])
        assert green > 1.5 * max(red, blue)


@pytest.mark.parametrize("width", [360, 768])
def test_documents_are_removed_in_narrow_windows(
    visits: Open, server: HttpServer, engine: TableEngine, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    shelf = shelve(engine, monkeypatch)
    shelf.read = True
    name = "a long name of a file in a deep folder, which needs its room.md"
    shelf.files = (FileRecord(1, f"{UPLOADS}/{name}", UPLOADS, "A title that is long as well", "", 90, 1, "", 4),)
    visit = visits(server.url, width=width)
    visit.page.get_by_role("button", name="Library", exact=True).click()
    remove = visit.page.get_by_role("button", name="Remove A title that is long as well")
    remove.wait_for()
    box = remove.bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= width
    assert visit.page.locator(".library .scrolls").evaluate("each => each.scrollWidth <= each.clientWidth")
    assert visit.page.get_by_text("4 passages").is_visible() == (width == 360)
    assert (visit.serious(), visit.fits()) == ([], True)
