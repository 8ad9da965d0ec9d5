"""The page of a real device daemon, beside a real cloud: what it shows, how it looks, and whom it can serve."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts import daemons
from scripts.daemons import ROOT, Pair, fill_library
from tests.daemons.conftest import ENTRIES, NOTES
from tests.device.page.browsing import Open
from tests.preloaded import Preloaded, start_preloading

pytestmark = pytest.mark.timeout(600)  # a browser, and a library that lets everybody else go first, on a busy machine

# The embedded model reads such sentences, and the names in them.
NEWSPAPER = (ROOT / "device/sample_library/001-newspaper.md").read_text("utf-8").strip()
QUESTION = "What is the name of my newspaper?"
LOOKS = ((360, True), (800, False), (1280, True), (1280, False))  # every width; colours don't depend on it


@pytest.fixture(scope="module")
def started(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A pair with small libraries; `browser` first, so that nothing starts where there is no browser."""
    data = tmp_path_factory.mktemp("data")
    for role, texts in (("device", NOTES | {"newspaper": NEWSPAPER}), ("cloud", ENTRIES)):
        fill_library(data, role, texts)
    with pytest.MonkeyPatch.context() as patch:
        start_preloading()
        patch.setattr(daemons, "launch", Preloaded)
        # Pages are compared with answers, which no busy machine may change.
        with Pair(data, {"patience": 60, "unmatched": "warn"}) as pair:
            pair.complete(QUESTION)  # what is compiled once
            yield pair


@pytest.fixture
def pair(started: Pair) -> Pair:
    """A pair whose cloud runs, whatever the test before did to it."""
    started.ensure_cloud()
    return started


@pytest.mark.parametrize(("width", "dark"), LOOKS)
def test_everybody_can_use_it(visits: Open, pair: Pair, width: int, dark: bool) -> None:
    visit = visits(pair.url, width=width, dark=dark)
    page = visit.page
    assert (visit.serious(), visit.fits()) == ([], True)
    page.get_by_role("button", name="Pipeline").click()
    visit.ask(QUESTION)
    page.get_by_role("button", name="Source 1").first.click()
    page.get_by_role("heading", level=2).wait_for()
    assert (visit.serious(), visit.fits()) == ([], True)
    page.get_by_role("button", name="Close").click()
    page.get_by_text("The same as a table").click()
    page.get_by_role("button", name="connected").click()
    page.locator(".link-panel").get_by_text("dragon-demo").wait_for()
    page.get_by_text("checks passed").wait_for()
    assert (visit.serious(), visit.fits()) == ([], True)
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Library", exact=True).click()
    page.get_by_role("heading", name="7 documents").wait_for()
    assert (visit.serious(), visit.fits()) == ([], True)


class TestPipeline:
    def test_only_who_looks_pays_for_the_trace(self, visits: Open, pair: Pair) -> None:
        visit = visits(pair.url)
        asked: list[dict[str, Any]] = []

        def note(request: Any) -> None:
            if request.url.endswith("/v1/chat/completions"):
                asked.append(request.post_data_json)

        visit.page.on("request", note)
        visit.ask(QUESTION)
        assert visit.page.locator(".pipeline").count() == 0
        visit.page.get_by_role("button", name="Pipeline").click()
        visit.ask(QUESTION)
        visit.page.locator(".pipeline").wait_for()
        assert ["trace" in body for body in asked] == [False, True]

    def test_slider_and_table_say_what_the_report_says(self, visits: Open, pair: Pair) -> None:
        report = pair.complete(QUESTION)["dragon"]
        visit = visits(pair.url)
        page = visit.page
        page.get_by_role("button", name="Pipeline").click()
        visit.ask(QUESTION)
        slider = page.get_by_role("slider", name="Time")
        tokens = f"{report['tokens']} of {report['tokens']} tokens decided"
        assert tokens in slider.get_attribute("aria-valuetext")  # no motion: it stands at the end
        assert page.locator(".pipeline output").first.get_attribute("aria-live") == "off"  # it changes at each frame
        assert page.locator(".cell.target").count() == report["tokens"]
        rejected = sum(verdicts.count(False) for verdicts in report["accepted"])
        assert page.locator(".draft.rejected").count() == rejected
        slider.focus()
        page.keyboard.press("Home")
        assert slider.get_attribute("aria-valuetext").startswith("0.0 ms, 0 of")
        assert page.locator(".cell.target").count() == 0
        page.get_by_text("The same as a table").click()
        rows = page.locator(".pipeline details tbody tr")
        assert [row.split("\t")[1].strip() for row in rows.all_inner_texts()] == [
            piece.strip() or "–" for piece in report["pieces"]
        ]

    def test_it_plays_once_where_motion_is_welcome(self, visits: Open, pair: Pair) -> None:
        visit = visits(pair.url, motion=True)
        visit.page.get_by_role("button", name="Pipeline").click()
        visit.ask(QUESTION)
        visit.page.get_by_role("button", name="Pause").wait_for()
        visit.page.get_by_role("button", name="Play again").wait_for()


class TestCitations:
    def test_one_of_the_device_opens_its_passage(self, visits: Open, pair: Pair) -> None:
        visit = visits(pair.url)
        visit.ask(QUESTION)
        visit.page.get_by_role("button", name="Source 1: newspaper, from this device").first.click()
        visit.page.get_by_text(NEWSPAPER).wait_for()
        assert "newspaper.md" in visit.page.locator(".side-panel .place").inner_text()

    def test_one_of_the_cloud_says_where_its_text_is(self, visits: Open, pair: Pair) -> None:
        visit = visits(pair.url)
        visit.ask("What is the best-selling horror game?")
        visit.page.get_by_role("button", name="from the cloud").first.click()
        visit.page.get_by_text("The text of this document is in the cloud.").wait_for()
        assert not [url for url in visit.requests if "passages" in url]


def test_a_doubt_stays_behind_the_answer(visits: Open, pair: Pair) -> None:
    visit = visits(pair.url)
    visit.ask("How many planets orbit the star Proxima Centauri?")
    assert visit.page.locator(".turn > .hint").inner_text().startswith("No document is close to the question")


class TestChosenDocuments:
    def test_others_are_not_read_and_none_is_an_error(self, visits: Open, pair: Pair) -> None:
        visit = visits(pair.url, width=360)
        visit.expected.append("400")
        page = visit.page
        page.get_by_role("button", name="Documents").click()
        page.get_by_label("these lines stay on this device").fill("kettle.md\ndanse.md")
        visit.write(QUESTION)
        page.get_by_text("Pattern 2 of device_documents matches no document").wait_for()
        page.get_by_label("these lines stay on this device").fill("kettle.md")
        page.get_by_label("these lines are sent to the cloud").fill("nothing.md")
        visit.ask(QUESTION)
        notes = page.get_by_role("list", name="Notes")
        notes.get_by_text("Pattern 1 of cloud_documents matches no document").wait_for()
        assert page.locator(".source bdi").all_text_contents() == ["kettle"]
        assert visit.fits()


class TestLibrary:
    TITLE = "<img src=x onerror=alert(1)>\u202e.txt"
    TEXT = "<script>document.title = 'taken'</script><img src=x onerror=alert(1)> My \u202etortoise\u0007 is Yarszis."

    def test_a_malicious_document_stays_text(self, visits: Open, pair: Pair, tmp_path: Path) -> None:
        visit = visits(pair.url)
        visit.expected.append("409")  # the library is busy for a moment; the page asks again
        page = visit.page
        page.get_by_role("button", name="Library", exact=True).click()
        page.locator("input[type=file]").set_input_files(
            [{"name": self.TITLE, "mimeType": "text/plain", "buffer": self.TEXT.encode()}]
        )
        page.get_by_role("heading", name="8 documents").wait_for()
        row = page.get_by_role("row").filter(has_text="onerror")
        row.wait_for()
        page.get_by_role("searchbox", name="Text to look for").fill("tortoise")
        page.keyboard.press("Enter")
        page.locator(".hits blockquote").filter(has_text="\ufffdtortoise").first.wait_for()
        assert page.locator(".library :is(b, script, img)").count() == 0
        assert "\u202e" not in page.locator(".library").inner_text()
        assert page.title() == "dragon"
        page.on("dialog", lambda dialog: dialog.accept())
        row.get_by_role("button", name="Remove").click()
        page.get_by_role("heading", name="7 documents").wait_for()

    def test_a_folder_with_what_is_left_out(self, visits: Open, pair: Pair, tmp_path: Path) -> None:
        (tmp_path / "tortoise.md").write_text("My tortoise is called Yarszis.")
        (tmp_path / "broken.pdf").write_bytes(b"%PDF-1.4 nothing")
        visit = visits(pair.url)
        visit.expected.append("409")
        page = visit.page
        page.get_by_role("button", name="Library", exact=True).click()
        page.get_by_role("textbox", name="Folder on this device").fill(str(tmp_path))
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="8 documents").wait_for()
        page.get_by_text("1 file left out").click()
        page.get_by_text("broken.pdf").wait_for()
        page.on("dialog", lambda dialog: dialog.accept())
        page.get_by_role("button", name=f"Remove folder {tmp_path}").first.click()
        page.get_by_role("heading", name="7 documents").wait_for()

    def test_a_refusal_is_told_in_the_daemons_words(self, visits: Open, pair: Pair) -> None:
        visit = visits(pair.url)
        visit.expected.append("400")
        page = visit.page
        page.get_by_role("button", name="Library", exact=True).click()
        page.get_by_role("textbox", name="Folder on this device").fill("/nowhere/at/all")
        page.keyboard.press("Enter")
        page.get_by_role("alert").wait_for()
        assert page.get_by_role("alert").inner_text().endswith(".")


def test_the_device_alone_says_so(visits: Open, pair: Pair) -> None:
    pair.cloud.stop()
    pair.wait_for_cloud("away")
    visit = visits(pair.url)
    visit.page.get_by_role("button", name="away").click()
    visit.page.locator(".link-panel .problem").wait_for()
    found = visit.page.locator(".findings .warn").filter(has_text="accepts no connections")
    assert "dragon cloud" in found.locator(".remedy code").first.inner_text()
    assert visit.serious() == []
    visit.page.keyboard.press("Escape")
    visit.ask(QUESTION)
    visit.page.get_by_role("list", name="Notes").wait_for()
