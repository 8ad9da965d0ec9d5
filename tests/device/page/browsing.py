"""A real browser for the page's tests, and what it must never do."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: see `dev` in pyproject.toml")

NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
PATIENCE: Final = 20_000  # milliseconds; a machine may be busy
# Nothing that the browser would like to do by itself: the tests watch what leaves the machine.
QUIET: Final = ("--disable-background-networking", "--disable-component-update", "--no-first-run")
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

    def serious(self) -> list[str]:
        """What axe finds that is serious, in one line each."""
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


@contextmanager
def browser() -> Iterator[Any]:
    """A Chromium without a window. Skips where there is none."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip("no Chromium was found: install Debian's package chromium")
    arguments = [*QUIET, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with playwright.sync_playwright() as started:
        running = started.chromium.launch(executable_path=path, args=arguments)
        try:
            yield running
        finally:
            running.close()


def opened(running: Any, url: str, width: int = 1280, scheme: str = "light", motion: str = "reduce") -> Visit:
    """The page at `url` in a fresh context, drawn and ready."""
    size = {"width": width, "height": 800}
    context = running.new_context(viewport=size, color_scheme=scheme, reduced_motion=motion)
    context.set_default_timeout(PATIENCE)
    visit = Visit(context.new_page())
    visit.watch()
    visit.page.goto(url)
    visit.page.get_by_role("heading", level=1).wait_for()
    return visit


def _is_local(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme in ("data", "blob") or parts.hostname == "127.0.0.1"


def _axe() -> str:
    from axe_playwright_python.base import AXE_FILE_PATH

    return str(AXE_FILE_PATH.read_text("utf-8"))
