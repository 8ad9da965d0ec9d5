"""The API key: where the page takes it from, asks for it, and keeps it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from device.access.admission import ApiKeyGate
from device.access.api_keys import ApiKeyFiles
from scripts.browser import blank
from tests.device.access.certificates import tls_files
from tests.device.conftest import Serve
from tests.device.page.browsing import Open, Visit, answers, words

pytestmark = pytest.mark.timeout(600)  # a browser, on a busy machine

# As browsers do where data of sites is blocked.
BLOCKED = """for (const name of ["sessionStorage", "indexedDB"]) {
    Object.defineProperty(window, name, { get() { throw new DOMException("no", "SecurityError"); } });
}"""


class TestKey:
    def test_from_the_address(self, visits: Open, serve: Serve) -> None:
        visit = visits(serve(api_key="a+b/c=").url + "/#key=a+b/c=")
        visit.ask("let me in")
        assert words(answers(visit)) == ["let me in"]
        assert "key" not in visit.page.url
        assert visit.page.get_by_role("dialog").count() == 0

    def test_it_is_asked_for(self, visits: Open, serve: Serve) -> None:
        visit = visits(serve(api_key="right").url)
        visit.expected.append("401")
        field = visit.page.get_by_role("textbox", name="API key")
        field.fill("wrong")
        visit.page.keyboard.press("Enter")
        visit.page.get_by_text("The daemon does not accept this key.").wait_for()
        field.fill("right")
        visit.page.keyboard.press("Enter")
        visit.page.get_by_text("connected").first.wait_for()
        visit.ask("let me in")
        assert words(answers(visit)) == ["let me in"]

    def test_one_that_is_made_and_revoked_while_the_page_is_open(
        self, visits: Open, serve: Serve, key_files: ApiKeyFiles
    ) -> None:
        visit = visits(serve(admission=ApiKeyGate(key_files)).url)
        visit.expected.append("401")
        visit.ask("open")
        for name in ("page", "other page"):
            key = key_files.create(name.replace(" ", "-"))
            field = visit.page.get_by_role("textbox", name="API key")
            field.fill(key)
            visit.page.keyboard.press("Enter")
            visit.page.get_by_role("dialog").wait_for(state="detached")
            visit.ask(name)
            key_files.revoke(name.replace(" ", "-"))
        assert words(answers(visit)) == ["open", "page", "other page"]

    def test_it_stays_in_its_tab(self, visits: Open, serve: Serve) -> None:
        """The browser keeps none of it for longer, and the page shows none."""
        visit = visits(serve(api_key="a+b/c=").url + "/#key=a+b/c=")
        visit.ask("let me in")
        page = visit.page
        assert page.evaluate("sessionStorage.getItem('dragon.key')") == "a+b/c="
        assert page.evaluate("JSON.stringify([{...localStorage}, document.cookie, history.state])") == '[{},"",null]'
        assert "a+b/c=" not in page.content()
        assert not [url for url in visit.requests[1:] if "a+b" in url]
        other = page.context.new_page()
        other.goto(page.url)
        other.get_by_role("textbox", name="API key").wait_for()
        visit.expected.append("401")

    def test_over_https(self, browser: Any, serve: Serve, tmp_path: Path) -> None:
        """Chromium refuses the certificate unless it is told to trust it; the page is the same then."""
        server = serve(api_key="right", tls=tls_files(tmp_path, "127.0.0.1"))
        context = browser.new_context()
        page = context.new_page()
        with pytest.raises(Exception, match="ERR_CERT_AUTHORITY_INVALID"):
            page.goto(server.url)
        context.close()
        context = browser.new_context(ignore_https_errors=True)
        page = context.new_page()
        page.goto(f"{server.url}/#key=right")
        page.get_by_text("connected").first.wait_for()
        assert page.get_by_role("dialog").count() == 0
        context.close()

    def test_escape_does_not_close_the_question_for_it(self, visits: Open, serve: Serve) -> None:
        visit = visits(serve(api_key="right").url)
        visit.expected.append("401")
        field = visit.page.get_by_role("textbox", name="API key")
        field.wait_for()
        for _ in range(4):
            visit.page.keyboard.press("Escape")
        field.fill("right")
        visit.page.keyboard.press("Enter")
        visit.page.get_by_text("connected").first.wait_for()

    def test_one_that_no_header_can_carry_is_nobodys(self, visits: Open, serve: Serve) -> None:
        server = serve(api_key="right")
        visit = visits(server.url)
        visit.expected.append("401")
        page = visit.page
        field = page.get_by_role("textbox", name="API key")
        field.fill("right\u200b")
        page.keyboard.press("Enter")
        page.get_by_text("The daemon does not accept this key.").wait_for()
        assert page.evaluate("sessionStorage.length") == 0
        page.goto("about:blank")
        page.goto(f"{server.url}/#key=right%E2%80%A6")
        field.wait_for()
        assert page.evaluate("sessionStorage.length") == 0

    def test_an_address_with_it_answers_the_question_for_it(self, visits: Open, serve: Serve) -> None:
        visit = visits(serve(api_key="right").url)
        visit.expected.append("401")
        page = visit.page
        page.get_by_role("dialog").wait_for()
        page.evaluate("location.hash = 'key=wrong'")
        page.wait_for_function("!location.hash")
        page.get_by_role("dialog").wait_for()
        page.evaluate("location.hash = 'key=right'")
        page.get_by_text("connected").first.wait_for()
        assert page.get_by_role("dialog").count() == 0
        assert "key" not in page.url

    def test_where_the_browser_keeps_nothing_it_lasts_as_long_as_the_page(self, browser: Any, serve: Serve) -> None:
        visit = Visit(blank(browser))
        visit.watch()
        visit.page.add_init_script(BLOCKED)
        visit.page.goto(serve(api_key="right").url + "/#key=right")
        visit.ask("let me in")
        assert words(answers(visit)) == ["let me in"]
        visit.page.get_by_text("This browser does not save conversations").wait_for()
        visit.check()
        visit.page.context.close()
