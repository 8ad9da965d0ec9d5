"""Reading in the chat: where the view stands, what is copied, where the keyboard is, and how answers end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from common.answer.report import Origin, Source
from common.library.store import StoredChunk
from device.documents import OwnDocuments
from device.http.server import HttpServer
from tests.device import table_engine
from tests.device.page.browsing import Open, Visit, answers, notes, words
from tests.device.table_engine import TableEngine

pytestmark = pytest.mark.timeout(600)  # a browser, on a busy machine

LONG = [f"Paragraph {number} " + "word " * 60 + "\n\n" for number in range(20)]
PLACE = "(box => [box.scrollTop, box.scrollHeight - box.clientHeight])(document.querySelector('.turns'))"
# ... and the page has heard of it: events of scrolling come with the next frame.
TO_THE_END = """() => new Promise((heard) => {
    const box = document.querySelector(".turns");
    box.addEventListener("scroll", () => requestAnimationFrame(heard), { once: true });
    box.scrollTop = box.scrollHeight;
})"""


def place(visit: Visit) -> tuple[int, int]:
    """Place of the view, and the last place where it can, in pixels."""
    top, end = visit.page.evaluate(PLACE)
    return round(top), round(end)


def redraw(visit: Visit, engine: TableEngine, patch: pytest.MonkeyPatch) -> None:
    """Have the page see another status, as it does every few seconds."""
    status = engine.status()
    patch.setattr(engine, "status", lambda: replace(status, cloud=replace(status.cloud, state="away")))
    visit.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    visit.page.get_by_role("button", name="Cloud away").wait_for()


class TestPlace:
    def test_a_finished_answer_is_read_in_peace(
        self, visits: Open, server: HttpServer, engine: TableEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        visit = visits(server.url)
        visit.ask("first")
        engine.answers["long"] = LONG
        visit.ask("long")
        start, end = place(visit)
        assert 0 < start < end / 2  # at the question
        visit.page.evaluate(TO_THE_END)
        redraw(visit, engine, monkeypatch)
        assert place(visit) == (end, end)

    def test_an_answer_elsewhere_moves_nothing(self, visits: Open, server: HttpServer, engine: TableEngine) -> None:
        visit = visits(server.url)
        engine.answers["long"] = LONG
        visit.ask("long")
        visit.page.get_by_role("button", name="New conversation").click()
        engine.allowed = 1
        visit.write("go on")
        answers(visit).get_by_text("go").wait_for()
        visit.page.locator(".conversations .title").nth(1).click()
        visit.page.get_by_text("Paragraph 19").first.wait_for()
        start, end = place(visit)
        assert start < end
        engine.generation().allow(9)
        visit.wait_for_answer()
        assert place(visit) == (start, end)


def test_what_is_copied_is_the_answer(visits: Open, server: HttpServer, engine: TableEngine) -> None:
    engine.answers["whom"] = ["Call", " 555", " 0123", " now"]
    visit = visits(server.url)
    visit.ask("whom")
    assert notes(answers(visit)) == ["1", "2", "1", "2"]
    answers(visit).locator("p").click(click_count=3, position={"x": 12, "y": 12})
    visit.page.keyboard.press("Control+c")
    visit.page.locator("#question").focus()
    visit.page.keyboard.press("Control+v")
    assert visit.page.locator("#question").input_value().strip() == "Call 555 0123 now"


def test_a_link_keeps_the_mark_behind_it(visits: Open, server: HttpServer, engine: TableEngine) -> None:
    engine.answers["where"] = [
        "See",
        " [the manual](https://manual.example/a)",
        " beside",
        " [none](https://b.example/)",
    ]
    visit = visits(server.url)
    visit.ask("where")
    assert notes(answers(visit)) == ["1", "2", "1", "2"]


class TestKeyboard:
    def place(self, visit: Visit) -> str:
        found: str = visit.page.evaluate("document.activeElement.id")
        return found

    def test_it_stays_where_the_next_question_is_written(
        self, visits: Open, server: HttpServer, engine: TableEngine
    ) -> None:
        visit = visits(server.url)
        page = visit.page
        engine.allowed = 1
        visit.write("go on forever")
        answers(visit).get_by_text("go").wait_for()
        page.get_by_role("button", name="Stop").press("Enter")
        page.get_by_text("Stopped.", exact=True).wait_for()
        assert self.place(visit) == "question"
        engine.allowed = None
        page.get_by_role("button", name="Try again").press("Enter")
        page.get_by_text("Answer: go on forever").wait_for(state="attached")
        assert self.place(visit) == "question"
        page.get_by_role("button", name="Edit").press("Enter")
        page.keyboard.type(" more")
        page.keyboard.press("Enter")
        page.locator(".edit").wait_for(state="detached")
        visit.wait_for_answer()
        assert self.place(visit) == "question"
        page.on("dialog", lambda dialog: dialog.accept())
        page.locator(".delete").press("Enter")
        page.get_by_role("heading", name="Ask your documents").wait_for()
        assert self.place(visit) == "question"

    def test_the_end_of_a_composed_word_sends_nothing(
        self, visits: Open, server: HttpServer, engine: TableEngine
    ) -> None:
        visit = visits(server.url)
        field = visit.page.locator("#question")
        field.fill("日本")
        field.evaluate(
            """field => field.dispatchEvent(
                new KeyboardEvent("keydown", { key: "Enter", keyCode: 229, bubbles: true, cancelable: true })
            )"""
        )
        assert field.input_value() == "日本"
        visit.page.keyboard.press("Enter")
        visit.wait_for_answer()
        assert words(answers(visit)) == ["日本"]

    def test_it_stays_near_what_vanishes(self, visits: Open, server: HttpServer, engine: TableEngine) -> None:
        visit = visits(server.url)
        page = visit.page
        page.get_by_role("button", name="Documents").click()
        page.get_by_label("these lines stay on this device").fill("journal/**")
        page.get_by_label("these lines are sent to the cloud").focus()
        page.get_by_role("button", name="Use all documents").press("Enter")
        assert self.place(visit) == "question"
        engine.allowed = 1
        visit.write("go on")
        answers(visit).get_by_text("go").wait_for()
        page.get_by_role("button", name="Stop").focus()
        engine.generation().allow(9)
        visit.wait_for_answer()
        assert self.place(visit) == "question"

    def test_escape_ends_a_composed_word_before_the_editor(self, visits: Open, server: HttpServer) -> None:
        visit = visits(server.url)
        visit.ask("first words")
        visit.page.get_by_role("button", name="Edit").click()
        area = visit.page.locator(".edit textarea")
        area.fill("日本")
        area.evaluate(
            """field => field.dispatchEvent(
                new KeyboardEvent("keydown", { key: "Escape", isComposing: true, bubbles: true, cancelable: true })
            )"""
        )
        assert area.input_value() == "日本"
        area.press("Escape")
        area.wait_for(state="detached")


class TestEnds:
    def test_an_answer_that_was_cut_says_so(self, visits: Open, server: HttpServer, engine: TableEngine) -> None:
        engine.answers["count"] = [f" {number}" for number in range(300)]
        visit = visits(server.url)
        cut = visit.page.get_by_text("Cut after 128 tokens.")
        more = visit.page.get_by_role("button", name="Ask for 512 tokens")
        visit.ask("count")
        cut.wait_for()
        visit.ask("so be it")
        assert (cut.count(), more.count()) == (1, 0)
        visit.ask("count")
        more.click()
        visit.page.get_by_text("299").first.wait_for()
        visit.wait_for_answer()
        assert engine.generation().request.max_tokens == 512
        assert (cut.count(), more.count()) == (1, 0)
        assert visit.page.locator("article.turn").count() == 3

    def test_only_the_last_is_asked_again(self, visits: Open, server: HttpServer, engine: TableEngine) -> None:
        """In place of an earlier one, it would take all that was asked since along."""
        visit = visits(server.url)
        again = visit.page.get_by_role("button", name="Try again")
        visit.write("crash now")
        again.wait_for()
        visit.ask("go on")
        assert again.count() == 0
        assert visit.page.get_by_role("alert").count() == 1


class Anew(OwnDocuments):
    """A library in which all passages are of another document than they were."""

    def __init__(self) -> None:
        """Nothing but passages is asked for."""

    def passage(self, chunk: int) -> StoredChunk:
        path = "/home/me/new/tax.md"
        return StoredChunk(chunk, "Tax", path, "/home/me/new", "page 4", "My tax number.", np.zeros(2, np.float32))


def test_a_passage_of_another_document_is_not_shown(
    visits: Open, server: HttpServer, engine: TableEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    bicycle = Source("device", "Bicycle", Origin("bicycle.md", "", 3, 0.9))
    monkeypatch.setattr(table_engine, "SOURCES", (bicycle, Source("cloud", "Atlas")))
    monkeypatch.setattr(engine, "documents", Anew(), raising=False)
    visit = visits(server.url)
    visit.ask("six gears")
    visit.page.locator("button.source").first.click()
    panel: Any = visit.page.locator("aside.side-panel")
    panel.get_by_text("The library has changed since this answer, so this passage").wait_for()
    assert panel.locator("blockquote").count() == 0
    assert "bicycle.md" in panel.inner_text()
