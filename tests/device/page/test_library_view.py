"""The view of the library: how much of it is drawn, and where the keyboard is."""

from __future__ import annotations

import pytest

from common.library.readings import IngestRun
from common.library.store import FileRecord
from device.documents import OwnDocuments
from device.http.server import HttpServer
from device.interface import Listing
from tests.device.page.browsing import Open, Visit
from tests.device.table_engine import TableEngine

pytestmark = pytest.mark.timeout(600)  # a browser, on a busy machine

ROOT = "/home/me/notes"


class Many(OwnDocuments):
    """A watched folder of 450 documents, of which as many were left out."""

    def __init__(self) -> None:
        self.watches = True

    def listing(self) -> Listing:
        names = [f"note {number:03}.md" for number in range(450)]
        files = tuple(
            FileRecord(number, f"{ROOT}/{name}", ROOT, f"Title {number}", "", 1, 1, "", 3)
            for number, name in enumerate(names)
        )
        skipped = tuple((f"{ROOT}/{number}.doc", "it is old") for number in range(450))
        reading = IngestRun(ROOT, 0.0, 1.0, 1, 1, "", "", False, self.watches, "", skipped)
        return Listing(files, (ROOT,) if self.watches else (), (reading,), {}, "/home/me/uploads")

    def unwatch(self, folder: str) -> None:
        self.watches = False


class LeftOut(OwnDocuments):
    """Uploads of which none is a document."""

    def __init__(self) -> None:
        self.left = {"/uploads/a scan.pdf": "it has no text", "/uploads/by hand/b.pdf": "it has no text"}

    def listing(self) -> Listing:
        reading = IngestRun("/uploads", 0.0, 1.0, 1, 1, "", "", False, True, "", tuple(self.left.items()))
        return Listing((), ("/uploads",), (reading,), {}, "/uploads")

    def discard(self, name: str) -> bool:
        del self.left[f"/uploads/{name}"]
        return True


class Leaving(OwnDocuments):
    """An upload whose document stays until the library is read again."""

    def __init__(self) -> None:
        self.files: tuple[FileRecord, ...] = (
            FileRecord(7, "/uploads/kettle.md", "/uploads", "My kettle", "", 1, 1, "", 3),
        )
        self.asked: list[int] = []

    def listing(self) -> Listing:
        return Listing(self.files, ("/uploads",), (), {}, "/uploads")

    def forget(self, document: int) -> bool:
        self.asked.append(document)
        return False


@pytest.fixture
def visit(visits: Open, server: HttpServer, engine: TableEngine, monkeypatch: pytest.MonkeyPatch) -> Visit:
    monkeypatch.setattr(engine, "documents", Many(), raising=False)
    visit = visits(server.url)
    visit.page.get_by_role("button", name="Library", exact=True).click()
    visit.page.get_by_role("heading", name="450 documents").wait_for()
    return visit


@pytest.mark.parametrize(("rows", "list_"), [(".library tbody tr", ".scrolls"), (".folders details li", "details ul")])
def test_long_lists_are_drawn_in_parts(visit: Visit, rows: str, list_: str) -> None:
    page = visit.page
    page.get_by_text("450 files left out").click()
    more = page.locator(f"{list_} + button.more")
    assert (page.locator(rows).count(), more.inner_text()) == (200, "Show 200 more of 450")
    more.press("Enter")
    assert (page.locator(rows).count(), more.inner_text()) == (400, "Show 50 more of 450")
    assert page.evaluate("document.activeElement.className") == "more"
    more.press("Enter")
    assert (page.locator(rows).count(), more.count()) == (450, 0)
    assert page.locator(list_).evaluate("element => element === document.activeElement")
    assert visit.serious() == []


def test_the_keyboard_stays_in_the_view(visit: Visit) -> None:
    page = visit.page
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name=f"Remove folder {ROOT}").press("Enter")
    page.get_by_text("watched", exact=True).wait_for(state="detached")
    assert page.evaluate("document.activeElement.id") == "folders-title"


def test_an_upload_that_was_left_out_is_deleted(
    visits: Open, server: HttpServer, engine: TableEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = LeftOut()
    monkeypatch.setattr(engine, "documents", documents, raising=False)
    visit = visits(server.url)
    page = visit.page
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Library", exact=True).click()
    page.get_by_text("2 files left out").click()
    delete = page.locator(".folders details").get_by_role("button")
    assert delete.evaluate_all("all => all.map(each => each.ariaLabel)") == ["Delete upload a scan.pdf"]
    assert page.get_by_role("button", name="Remove folder").count() == 0
    assert (visit.serious(), visit.fits()) == ([], True)
    delete.press("Enter")
    page.get_by_text("1 file left out").wait_for()
    assert list(documents.left) == ["/uploads/by hand/b.pdf"]
    assert page.evaluate("document.activeElement.id") == "folders-title"


def test_a_document_that_outlives_its_file_for_a_while_is_told_of(
    visits: Open, server: HttpServer, engine: TableEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked for once: by the next time its number may be no document's, and its name another one's."""
    documents = Leaving()
    monkeypatch.setattr(engine, "documents", documents, raising=False)
    visit = visits(server.url)
    page = visit.page
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Library", exact=True).click()
    page.get_by_role("button", name="Remove My kettle").press("Enter")
    told = page.get_by_text("The file is deleted.")
    told.wait_for()
    assert page.get_by_role("button", name="Remove folder").count() == 0  # of the uploads
    assert (visit.serious(), visit.fits()) == ([], True)
    documents.files = ()
    page.get_by_role("heading", name="0 documents").wait_for()
    assert (told.count(), documents.asked) == (0, [7])
