"""Questions asked offline, which stay on the device, with later questions, too."""

from __future__ import annotations

from dataclasses import replace

import pytest

from device.http.server import HttpServer
from tests.device.page.browsing import Open, answers
from tests.device.table_engine import TableEngine

pytestmark = pytest.mark.timeout(600)  # a browser, on a busy machine


def test_what_was_asked_offline_leaves_with_no_later_question(
    visits: Open, server: HttpServer, engine: TableEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = engine.status()
    monkeypatch.setattr(engine, "status", lambda: replace(status, privacy="balanced"))
    visit = visits(server.url)
    choose = visit.page.get_by_role("combobox", name="Privacy").select_option
    visit.ask("first")
    choose("offline")
    visit.ask("secret")
    visit.page.reload()
    visit.page.locator(".conversations .title").click()
    visit.page.locator(".link-button", has_not_text="…").wait_for()
    choose("")
    visit.ask("third")
    assert engine.generation().request.privacy == "balanced"
    choose("offline")
    visit.ask("fourth")
    prompts = [engine.generation(number).request.prompt for number in (1, 2, 3)]
    assert [("first" in each, "secret" in each) for each in prompts] == [(True, True), (True, False), (True, True)]
    hints = visit.page.locator(".turn:has(> .hint) .question p").all_inner_texts()
    assert hints == ["secret", "fourth"]
    assert (visit.serious(), visit.fits()) == ([], True)


def test_what_was_asked_while_the_daemon_was_offline_leaves_with_none(
    visits: Open, server: HttpServer, engine: TableEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    strict = engine.status()
    monkeypatch.setattr(engine, "status", lambda: replace(strict, privacy="offline"))
    visit = visits(server.url)
    visit.ask("secret")
    visit.ask("second")
    asked = engine.generation().request
    # The question names it: by then the daemon may be set otherwise.
    assert ("secret" in asked.prompt, asked.privacy) == (True, "offline")
    hints = visit.page.get_by_text("Asked offline")
    assert hints.count() == 0  # as all questions are, as long as the daemon is
    monkeypatch.setattr(engine, "status", lambda: strict)
    visit.page.reload()
    visit.page.locator(".conversations .title").click()
    visit.page.get_by_role("button", name="Cloud connected").wait_for()
    hints.nth(1).wait_for()
    visit.ask("third")
    assert "secret" not in engine.generation().request.prompt


def test_nothing_leaves_before_it_is_known_how_the_daemon_is_set(
    visits: Open, server: HttpServer, engine: TableEngine
) -> None:
    visit = visits(server.url)
    visit.page.route("**/status", lambda route: None)  # no answer comes
    visit.page.reload()
    visit.ask("secret")
    assert engine.generation().request.privacy == "offline"
    visit.page.unroute("**/status")
    visit.page.reload()
    visit.page.get_by_role("button", name="Cloud connected").wait_for()
    visit.page.locator(".conversations .title").click()
    visit.ask("second")
    asked = engine.generation().request
    assert ("secret" in asked.prompt, asked.privacy) == (False, "strict")


def test_what_was_asked_offline_is_asked_again_offline(visits: Open, server: HttpServer, engine: TableEngine) -> None:
    """Edited it is another question, for which the choices hold."""
    engine.allowed = 1
    visit = visits(server.url)
    page = visit.page
    page.get_by_role("combobox", name="Privacy").select_option("offline")
    visit.write("a secret")
    answers(visit).get_by_text("a").wait_for()
    page.get_by_role("button", name="Stop").click()
    engine.allowed = None
    page.get_by_role("combobox", name="Privacy").select_option("")
    page.get_by_role("button", name="Try again").click()
    page.get_by_text("Answer: a secret").wait_for(state="attached")
    page.get_by_role("button", name="Edit").click()
    page.get_by_role("textbox", name="Question").first.fill("no secret")
    page.keyboard.press("Enter")
    page.get_by_text("Answer: no secret").wait_for(state="attached")
    asked = [engine.generation(number).request.privacy for number in range(3)]
    assert asked == ["offline", "offline", "strict"]
