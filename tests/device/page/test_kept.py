"""Conversations in the browser's storage: two tabs, pages that are closed in the midst, no room."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from device.http.server import HttpServer
from tests.device.page.browsing import Open, Visit, answers, words
from tests.device.table_engine import TableEngine

pytestmark = pytest.mark.timeout(600)  # a browser, on a busy machine

Beside = Callable[[Visit], Visit]

NO_ROOM = """() => {
    IDBObjectStore.prototype.put = () => { throw new DOMException("no room", "QuotaExceededError"); };
}"""
DEAF = "BroadcastChannel.prototype.postMessage = () => {};"


def beside(visit: Visit) -> Visit:
    """Another tab, at the latest conversation."""
    other = Visit(visit.page.context.new_page())
    other.watch()
    other.page.goto(visit.page.url)
    titles(other).first.click()
    return other


def titles(visit: Visit) -> Any:
    return visit.page.locator(".conversations .title")


def questions(visit: Visit) -> list[str]:
    found: list[str] = visit.page.locator(".question p").all_inner_texts()
    return found


def kept(visit: Visit) -> list[str]:
    """The questions of the latest conversation after a reload."""
    visit.page.reload()
    titles(visit).first.click()
    visit.page.locator(".question p").first.wait_for()
    return questions(visit)


def shown(visit: Visit, question: str) -> None:
    """Wait until a question is there."""
    visit.page.locator(".question p").get_by_text(question).wait_for()


def delete(visit: Visit, title: str) -> None:
    visit.page.on("dialog", lambda dialog: dialog.accept())
    visit.page.get_by_role("button", name=f"Delete {title}").click()


class TestTwoTabs:
    def test_each_shows_what_is_asked_in_the_other(self, visits: Open, server: HttpServer, engine: TableEngine) -> None:
        visit = visits(server.url)
        visit.ask("one")
        other = beside(visit)
        visit.ask("two of the first")
        shown(other, "two of the first")
        other.ask("three of the other")
        assert "two of the first" in engine.generation().request.prompt
        shown(visit, "three of the other")
        visit.page.get_by_role("button", name="New conversation").click()
        visit.ask("elsewhere")
        titles(other).get_by_text("elsewhere").wait_for()
        other.check()

    def test_nothing_is_lost_between_tabs_that_do_not_hear_of_each_other(
        self, visits: Open, server: HttpServer, engine: TableEngine
    ) -> None:
        visit = visits(server.url)
        visit.page.context.add_init_script(DEAF)
        visit.page.reload()
        visit.ask("one")
        other = beside(visit)
        visit.ask("two of the first")
        other.ask("three of the other")
        assert "two of the first" in engine.generation().request.prompt
        assert questions(other) == kept(visit) == ["one", "two of the first", "three of the other"]

    def test_both_may_answer_in_one_conversation(self, visits: Open, server: HttpServer, engine: TableEngine) -> None:
        visit = visits(server.url)
        visit.ask("begin")
        other = beside(visit)
        engine.allowed = 1
        visit.write("slow to come")
        answers(visit).get_by_text("slow").wait_for()
        engine.allowed = None
        other.ask("quick")
        engine.generation(1).allow(9)
        visit.wait_for_answer()
        other.page.get_by_text("from this device").nth(2).wait_for()
        for each in (visit, other):
            assert words(answers(each)) == ["begin", "slow to come", "quick"]
        assert kept(visit) == ["begin", "slow to come", "quick"]
        assert words(answers(visit)) == ["begin", "slow to come", "quick"]

    def test_what_one_deletes_goes_in_the_other(self, visits: Open, server: HttpServer, engine: TableEngine) -> None:
        visit = visits(server.url)
        visit.ask("a secret")
        other = beside(visit)
        engine.allowed = 1
        other.write("go on forever")
        answers(other).get_by_text("go").wait_for()
        delete(visit, "a secret")
        other.page.get_by_role("heading", name="Ask your documents").wait_for()
        assert engine.generation().cancelled.wait(60)
        visit.page.reload()
        visit.page.get_by_role("heading", name="Ask your documents").wait_for()
        assert titles(visit).count() == 0
        other.check()

    def test_what_one_deletes_does_not_come_back(self, visits: Open, server: HttpServer, engine: TableEngine) -> None:
        """The other has not heard of it, and begins anew with what it is asked."""
        visit = visits(server.url)
        visit.page.context.add_init_script(DEAF)
        visit.page.reload()
        visit.ask("a secret")
        other = beside(visit)
        delete(visit, "a secret")
        other.ask("another thing")
        assert questions(other) == ["another thing"]
        assert "secret" not in engine.generation().request.prompt
        visit.page.reload()
        titles(visit).first.wait_for()
        assert titles(visit).all_inner_texts() == titles(other).all_inner_texts() == ["another thing"]


class TestInTheMidst:
    def test_what_was_shown_outlives_a_reload(self, visits: Open, server: HttpServer, engine: TableEngine) -> None:
        engine.allowed = 3
        visit = visits(server.url)
        visit.write("one two three four five")
        answers(visit).get_by_text("three").wait_for()
        assert kept(visit) == ["one two three four five"]
        assert words(answers(visit)) == ["one two three"]
        visit.page.get_by_text("Stopped.", exact=True).wait_for()
        engine.allowed = None
        visit.page.get_by_role("button", name="Try again").click()
        visit.page.get_by_text("from this device").first.wait_for()
        assert words(answers(visit)) == ["one two three four five"]

    def test_it_is_kept_as_it_grows(self, visits: Open, server: HttpServer, engine: TableEngine) -> None:
        visit = visits(server.url)
        visit.ask("begin")
        other = beside(visit)
        engine.allowed = 2
        visit.write("some words to come")
        answers(other).get_by_text("some words").wait_for()
        engine.generation().allow(9)
        other.page.get_by_text("from this device").nth(1).wait_for()
        assert words(answers(other)) == ["begin", "some words to come"]


def test_choices_outlive_a_reload(visits: Open, server: HttpServer, engine: TableEngine) -> None:
    """Browsers load a page again by themselves, and what was to stay here would leave."""
    visit = visits(server.url)
    visit.page.get_by_role("combobox", name="Privacy").select_option("offline")
    visit.ask("first")
    visit.page.reload()
    titles(visit).first.click()
    assert visit.page.get_by_role("combobox", name="Privacy").input_value() == "offline"
    visit.ask("second")
    assert [engine.generation(number).request.privacy for number in (0, 1)] == ["offline", "offline"]


def test_no_room_is_told_once(visits: Open, server: HttpServer) -> None:
    visit = visits(server.url)
    visit.ask("kept")
    visit.page.evaluate(NO_ROOM)
    visit.ask("second")
    visit.ask("third")
    assert visit.page.get_by_text("This browser does not save conversations").count() == 1
    assert words(answers(visit)) == ["kept", "second", "third"]
    assert kept(visit) == ["kept"]


def test_a_title_is_not_cut_within_an_emoji(visits: Open, server: HttpServer) -> None:
    visit = visits(server.url)
    family = "\U0001f469\u200d\U0001f467"
    visit.ask("a" * 58 + family + " and so on")
    assert titles(visit).inner_text() == "a" * 58 + family + "…"
