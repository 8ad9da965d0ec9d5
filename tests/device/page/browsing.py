"""A visit to the page, and what it must never do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from scripts.browser import blank
from tests.device.table_engine import TableEngine

SERIOUS: Final = ("serious", "critical")

Open = Callable[..., "Visit"]


@dataclass
class Visit:
    """A page in a context of its own, with all that it asked for and complained of."""

    page: Any
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)  # parts of complaints that the test provokes

    def watch(self) -> None:
        """Note requests, errors and violations of the Content-Security-Policy from now on."""
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self._complain(message.type, message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def check(self) -> None:
        """Fail where the page complained, or where a request left this machine."""
        unexpected = [each for each in self.complaints if not any(part in each for part in self.expected)]
        assert not unexpected, unexpected
        outside = [url for url in self.requests if not _is_local(url)]
        assert not outside, outside

    def ask(self, question: str) -> None:
        """Ask by keyboard alone, and wait for the end of the answer."""
        self.write(question)
        self.wait_for_answer()

    def write(self, question: str) -> None:
        """Ask by keyboard alone."""
        self.page.get_by_label("Question", exact=True).fill(question)
        self.page.keyboard.press("Enter")

    def wait_for_answer(self) -> None:
        self.page.get_by_role("button", name="Ask", exact=True).wait_for()

    def focus(self) -> str:
        """The id of the element that has the keyboard."""
        return str(self.page.evaluate("document.activeElement.id"))

    def drag(self, files: Sequence[Path], onto: str, *kinds: str) -> None:
        """Drag files onto an element as a person does, from the machine's own windows."""
        devtools: Any = self.page.context.new_cdp_session(self.page)
        box = self.page.locator(onto).bounding_box()
        data = {"items": [], "files": [str(file) for file in files], "dragOperationsMask": 1}
        for kind in kinds or ("dragEnter", "dragOver", "drop"):
            place = {"type": kind, "x": box["x"] + 20, "y": box["y"] + 10}
            devtools.send("Input.dispatchDragEvent", place | {"data": data})

    def serious(self) -> list[str]:
        """Serious findings of axe, in one line each."""
        found = self.page.evaluate(_axe() + "; axe.run({resultTypes: ['violations']})")["violations"]
        return [
            f"{each['id']}: {each['help']}: {each['nodes'][0]['html']}" for each in found if each["impact"] in SERIOUS
        ]

    def fits(self) -> bool:
        """Whether nothing is wider than the window."""
        wide = self.page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
        return not wide

    def _complain(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.complaints.append(text)


def opened(browser: Any, url: str, **window: Any) -> Visit:
    """The page at `url` in a fresh context, drawn and ready; `window` as `blank` takes it."""
    visit = Visit(blank(browser, **window))
    visit.watch()
    visit.page.goto(url)
    visit.page.get_by_role("heading", level=1).wait_for()
    visit.page.locator(".link-button", has_not_text="…").wait_for()  # the daemon's status has come
    return visit


def told(engine: TableEngine, question: str, answer: str) -> str:
    """Have the engine answer `question` so, in pieces of a few characters."""
    engine.answers[question] = [answer[at : at + 3] for at in range(0, len(answer), 3)]
    return question


def answers(visit: Visit) -> Any:
    return visit.page.locator(".answer")


def words(found: Any) -> list[str]:
    """The texts of elements; the numbers of citations are none."""
    return list(found.all_text_contents())


def notes(found: Any) -> list[str]:
    """The numbers of the citations in elements."""
    return list(found.locator(".cite").evaluate_all("marks => marks.map(mark => mark.dataset.number)"))


def _is_local(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme in ("data", "blob") or parts.hostname == "127.0.0.1"


@cache
def _axe() -> str:
    from axe_playwright_python.base import AXE_FILE_PATH

    return str(AXE_FILE_PATH.read_text("utf-8"))
