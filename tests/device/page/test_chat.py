"""The chat in a browser, over an engine that says what the test wants."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from common.process.lifetime import Startup
from device.http.options import HttpOptions
from device.http.server import HttpServer
from tests.device.page.browsing import Open, answers, notes, told, words
from tests.device.table_engine import TableEngine

pytestmark = pytest.mark.timeout(600)  # a browser, and a library that lets everybody else go first, on a busy machine

MARKUP = '<img src="x" onerror="document.title = \'taken\'"><script>document.title = "taken"</script>'
RICH = """First *thin* and **fat**, `code *as is*` and [a place](https://elsewhere.example/x).

* one
* two **parts**
  go on

7. seven
8. eight

```py
print("<b>")

```
# End"""


class TestAsking:
    def test_by_keyboard_alone(self, visits: Open, server: HttpServer, engine: TableEngine) -> None:
        visit = visits(server.url)
        page = visit.page
        for _ in range(12):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.id") == "question":
                break
        page.keyboard.type("so be it")
        page.keyboard.press("Enter")
        visit.wait_for_answer()
        assert words(answers(visit)) == ["so be it"]
        page.get_by_text("Answer: so be it").wait_for(state="attached")  # the live region
        assert page.locator("article.turn").get_attribute("aria-busy") == "false"
        page.keyboard.press("Shift+Enter")
        assert len(engine.generations) == 1

    def test_a_citation_is_reached_and_left_by_keyboard(self, visits: Open, server: HttpServer) -> None:
        visit = visits(server.url)
        visit.ask("ann bob cid")
        cite = visit.page.get_by_role("button", name="Source 2: Atlas, from the cloud")
        cite.focus()
        visit.page.keyboard.press("Enter")
        visit.page.get_by_text("The text of this document is in the cloud.").wait_for()
        assert visit.page.evaluate("document.activeElement.id") == "passage-title"
        visit.page.keyboard.press("Escape")
        assert visit.page.evaluate("document.activeElement.dataset.number") == "2"

    def test_sides_are_told_apart_without_colour(self, visits: Open, server: HttpServer) -> None:
        visit = visits(server.url)
        visit.ask("mine yours")
        style = "element => getComputedStyle(element).textDecorationStyle"
        device, cloud = (visit.page.locator(f".answer .from.{side}").first for side in ("device", "cloud"))
        assert (device.inner_text(), device.evaluate(style)) == ("mine", "solid")
        assert (cloud.inner_text(), cloud.evaluate(style)) == ("yours", "dotted")

    def test_footnotes_survive_the_markup(self, visits: Open, server: HttpServer, engine: TableEngine) -> None:
        engine.answers["mark"] = ["**Ann**", "\n\n* a *dog*", " ends.", "\n\n`them`", "\n"]
        visit = visits(server.url)
        visit.ask("mark")
        assert notes(answers(visit)) == ["1", "2", "1", "2"]

    def test_what_is_not_shown_takes_no_footnote(self, visits: Open, server: HttpServer, engine: TableEngine) -> None:
        """The empty piece leaves the number of an item, and the name of a language, to the first document."""
        engine.answers["list"] = ["Ann", "", "\n1.", " Bob"]
        engine.answers["code"] = ["Ann", "", "\n```sh\n", "ls", "", "\n```"]
        visit = visits(server.url)
        for question in ("list", "code"):
            visit.ask(question)
            assert notes(answers(visit).last) == ["1", "2"], question

    def test_choices_go_along_with_the_next_question(
        self, visits: Open, server: HttpServer, engine: TableEngine
    ) -> None:
        visit = visits(server.url)
        visit.ask("first")
        visit.page.get_by_role("combobox", name="Sources").select_option("device")
        visit.page.get_by_role("combobox", name="Privacy").select_option("offline")
        visit.page.get_by_role("button", name="Pipeline").click()
        visit.ask("second")
        before, after = (engine.generation(number).request for number in (0, 1))
        assert (before.sources, before.privacy, before.trace) == ("both", "strict", False)
        assert (after.sources, after.privacy, after.trace) == ("device", "offline", True)

    def test_chosen_documents_are_the_conversations(
        self, visits: Open, server: HttpServer, engine: TableEngine
    ) -> None:
        visit = visits(server.url)
        page = visit.page
        page.get_by_role("button", name="Documents").click()
        page.get_by_label("these lines stay on this device").fill("journal/**\n\n  tag:work ")
        page.get_by_label("these lines are sent to the cloud").fill("*.pdf")
        visit.ask("first")
        assert (visit.serious(), visit.fits()) == ([], True)
        page.get_by_role("button", name="New conversation").click()
        visit.ask("elsewhere")
        page.reload()
        page.locator(".conversations .title").nth(1).click()
        page.locator(".narrowed").wait_for()
        visit.ask("second")
        page.get_by_role("button", name="Use all documents").click()
        visit.ask("third")
        found = [engine.generation(number).request for number in range(4)]
        chosen = (("journal/**", "tag:work"), ("*.pdf",))
        assert [(each.device_documents, each.cloud_documents) for each in found] == [chosen, ((), ()), chosen, ((), ())]
        hints = page.locator(".turn > .hint").all_inner_texts()
        assert len(hints) == 2
        assert all("only: journal/**, tag:work. The cloud" in hint for hint in hints)

    def test_chosen_documents_go_with_their_conversation(
        self, visits: Open, server: HttpServer, engine: TableEngine
    ) -> None:
        visit = visits(server.url)
        page = visit.page
        page.get_by_role("button", name="Documents").click()
        page.get_by_label("these lines stay on this device").fill("journal/**")
        visit.ask("first")
        page.on("dialog", lambda dialog: dialog.accept())
        page.get_by_role("button", name="Delete first").click()
        page.get_by_role("heading", name="Ask your documents").wait_for()
        visit.ask("next")
        found = [engine.generation(number).request.device_documents for number in (0, 1)]
        assert found == [("journal/**",), ()]


class TestStreaming:
    def test_finished_blocks_are_rendered_once(self, visits: Open, server: HttpServer, engine: TableEngine) -> None:
        engine.answers["long"] = ["One.\n\n", "Two", " goes", " on"]
        engine.allowed = 2
        visit = visits(server.url)
        visit.write("long")
        visit.page.get_by_text("Two").wait_for()
        assert visit.page.locator("article.turn").get_attribute("aria-busy") == "true"
        visit.page.evaluate(
            """() => {
                const [first, last] = document.querySelectorAll(".answer > p");
                window.changes = [0, 0];
                [first, last].forEach((element, number) => new MutationObserver(() => window.changes[number] += 1)
                    .observe(element, {childList: true, characterData: true, subtree: true}));
            }"""
        )
        engine.generation().allow(1)
        visit.page.get_by_text("Two goes").wait_for()
        first, last = visit.page.evaluate("window.changes")
        assert first == 0
        assert last > 0
        engine.generation().allow(9)
        visit.wait_for_answer()

    def test_stop_and_try_again(self, visits: Open, server: HttpServer, engine: TableEngine) -> None:
        engine.allowed = 1
        visit = visits(server.url)
        visit.write("go on forever")
        answers(visit).get_by_text("go").wait_for()
        visit.page.get_by_role("button", name="Stop").click()
        visit.page.get_by_text("Stopped.", exact=True).wait_for()
        assert engine.generation().cancelled.wait(60)
        engine.allowed = None
        visit.page.get_by_role("button", name="Try again").click()
        visit.page.get_by_text("from this device").first.wait_for()
        assert words(answers(visit)) == ["go on forever"]
        assert visit.page.locator("article.turn").count() == 1

    def test_failures_are_told_in_the_daemons_words(
        self, visits: Open, server: HttpServer, engine: TableEngine
    ) -> None:
        visit = visits(server.url)
        visit.expected.append("400")
        visit.write("refuse this")
        visit.page.get_by_text("The placement 'cloud' needs privacy 'balanced'.").wait_for()
        visit.write("crash now")
        visit.page.get_by_text("The engine failed while answering; the daemon's log says where.").wait_for()
        assert visit.page.get_by_role("button", name="Try again").count() == 1


class TestConversations:
    def test_the_oldest_turns_are_left_out_of_a_long_conversation(
        self, visits: Open, server: HttpServer, engine: TableEngine
    ) -> None:
        visit = visits(server.url)
        visit.expected.append("400")
        for question in ("first", "second"):
            visit.ask(question)
        engine.most_prompt = len(engine.generation().request.prompt) + 1
        visit.ask("third")
        assert "The conversation has" in visit.page.get_by_role("alert").inner_text()
        visit.page.get_by_role("button", name="Leave out the oldest turns").click()
        visit.wait_for_answer()
        assert words(answers(visit)) == ["first", "second", "third"]
        prompt = "\nQuestion: second\nAnswer: second\nQuestion: third\nAnswer:"
        assert engine.generation().request.prompt == prompt
        left = visit.page.get_by_text("Left out of later questions: the conversation was too long.")
        assert left.count() == 1
        visit.page.reload()
        visit.page.get_by_role("button", name="first", exact=True).click()
        left.wait_for()

    def test_edit_and_ask_again(self, visits: Open, server: HttpServer, engine: TableEngine) -> None:
        visit = visits(server.url)
        visit.ask("first words")
        visit.ask("second words")
        visit.page.get_by_role("button", name="Edit").first.click()
        area = visit.page.get_by_role("textbox", name="Question").first
        assert area.input_value() == "first words"
        area.fill("other words")
        visit.page.keyboard.press("Enter")
        visit.page.get_by_text("Answer: other words").wait_for(state="attached")
        assert visit.page.locator(".question p").all_inner_texts() == ["other words"]
        assert "first" not in engine.generation().request.prompt
        assert "first words" in engine.generation(1).request.prompt  # the history of the second question

    def test_they_outlive_the_page_and_are_deleted(self, visits: Open, server: HttpServer) -> None:
        visit = visits(server.url)
        page = visit.page
        visit.ask("keep me")
        page.get_by_role("button", name="New conversation").click()
        visit.ask("me too")
        page.reload()
        titles = page.locator(".conversations .title")
        titles.first.wait_for()
        assert titles.all_inner_texts() == ["me too", "keep me"]
        titles.nth(1).click()
        assert words(answers(visit)) == ["keep me"]
        page.on("dialog", lambda dialog: dialog.accept())
        page.get_by_role("button", name="Delete keep me").click()
        page.get_by_role("heading", name="Ask your documents").wait_for()
        page.reload()
        titles.first.wait_for()
        assert titles.all_inner_texts() == ["me too"]

    def test_export(self, visits: Open, server: HttpServer, tmp_path: Path) -> None:
        visit = visits(server.url)
        visit.ask("take me along")
        with visit.page.expect_download() as download:
            visit.page.get_by_role("button", name="Export all").click()
        download.value.save_as(tmp_path / "all.json")
        (kept,) = json.loads((tmp_path / "all.json").read_text())["conversations"]
        found = [(turn["question"], turn["state"], turn["offline"]) for turn in kept["turns"]]
        assert found == [("take me along", "done", False)]

    def test_an_export_can_be_read_for_a_while(self, visits: Open, server: HttpServer) -> None:
        """Some browsers read it in a later task."""
        visit = visits(server.url)
        visit.ask("take me along")
        with visit.page.expect_download():
            revoked = visit.page.get_by_role("button", name="Export all").evaluate(
                """button => {
                    let revoked = false;
                    URL.revokeObjectURL = () => revoked = true;
                    button.click();
                    return revoked;
                }"""
            )
        assert not revoked


class TestText:
    def test_the_subset_of_markdown(self, visits: Open, server: HttpServer, engine: TableEngine) -> None:
        visit = visits(server.url)
        visit.ask(told(engine, "rich", RICH))
        answer = answers(visit)
        texts = {tag: words(answer.locator(tag)) for tag in ("em", "strong", "code", "ul > li", "ol > li", ".heading")}
        assert texts == {
            "em": ["thin"],
            "strong": ["fat", "parts"],
            "code": ["code *as is*", 'print("<b>")\n'],
            "ul > li": ["one", "two parts\n  go on"],
            "ol > li": ["seven", "eight"],
            ".heading": ["End"],
        }
        assert answer.locator("ol").get_attribute("start") == "7"
        assert answer.locator(".heading").get_attribute("dir") == "auto"
        link = answer.locator("a")
        assert link.inner_text() == "https://elsewhere.example/x"
        assert link.get_attribute("rel") == "noopener noreferrer nofollow"

    def test_no_emphasis_begins_or_ends_within_a_word(
        self, visits: Open, server: HttpServer, engine: TableEngine
    ) -> None:
        visit = visits(server.url)
        visit.ask(told(engine, "names", "snake_case_name हिन्दी_नाम_ cafe\u0301_bar_ _यह_"))
        assert words(answers(visit).locator("em")) == ["यह"]

    def test_signs_of_which_a_line_is_made_are_no_fence(
        self, visits: Open, server: HttpServer, engine: TableEngine
    ) -> None:
        visit = visits(server.url)
        visit.ask(told(engine, "inline", "Say this:\n```SELECT name FROM gears```\nIt lists ***all*** **gears**."))
        answer = answers(visit)
        assert words(answer.locator("code")) == ["SELECT name FROM gears"]
        assert words(answer.locator("strong")) == ["all", "gears"]
        assert words(answer.locator("strong em")) == ["all"]
        assert words(answer) == ["Say this:\nSELECT name FROM gears\nIt lists all gears."]
        visit.ask(told(engine, "open", "````\n```py\nprint()\n```"))  # cut before its end
        assert words(answer.last.locator("pre")) == ["```py\nprint()\n```"]

    def test_a_malicious_answer_stays_text(self, visits: Open, server: HttpServer, engine: TableEngine) -> None:
        link = "[run](javascript:document.title='taken')"
        malicious = {
            MARKUP: MARKUP,
            f"```\n{MARKUP}\n```": MARKUP,
            f"* **{MARKUP}**": MARKUP,
            f"{link} [too](data:text/html,<script>1</script>)": link,
        }
        visit = visits(server.url)
        for number, answer in enumerate(malicious):
            visit.ask(told(engine, f"malice {number}", answer))
        shown = answers(visit)
        assert shown.locator("img, script, a").count() == 0
        for text, part in zip(words(shown), malicious.values(), strict=True):
            assert part in text
        assert visit.page.title() == "dragon"

    def test_what_can_not_be_seen_is_shown(self, visits: Open, server: HttpServer, engine: TableEngine) -> None:
        hidden = "a\u202eb\u2066c\u0007d\u200be\U000e0041f"
        visit = visits(server.url)
        visit.ask(told(engine, f"say {hidden}", f"pay {hidden}"))
        for place in (".answer", ".question p", ".conversations .title"):
            (text,) = words(visit.page.locator(place))
            assert text.endswith("a\ufffdb\ufffdc\ufffdd\ufffde\ufffd\ufffdf"), place


def test_a_daemon_that_is_starting(visits: Open, engine: TableEngine) -> None:
    startup = Startup()
    startup.at("loading the language model")
    with HttpServer(HttpOptions(port=0), startup) as server:
        visit = visits(server.url)
        visit.expected.append("503")
        visit.page.get_by_role("button", name="Cloud starting").click()
        visit.page.get_by_text("The device daemon is starting: loading the language model.").wait_for()
        server.serve(engine)
        visit.page.get_by_role("button", name="Cloud connected").wait_for()
