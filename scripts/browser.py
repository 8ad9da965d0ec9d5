"""A real browser without a window, for the page's tests and its figures. Needs playwright and a Chromium."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
PATIENCE: Final = 240_000  # milliseconds; a machine may be busy
HEIGHT: Final = 800  # pixels of a window
# What Chromium would like to fetch by itself, it does not.
QUIET: Final = ("--disable-background-networking", "--disable-component-update", "--no-first-run")


class NoBrowser(RuntimeError):
    """A program is missing; the text says which, and how to install it."""

    def __init__(self, program: str, how: str) -> None:
        super().__init__(f"{program} is missing: {how}")
        self.program, self.how = program, how


@contextmanager
def chromium() -> Iterator[Browser]:
    """A running Chromium. Raises `NoBrowser`."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise NoBrowser("playwright", "make setup") from None
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        raise NoBrowser("Chromium", "apt-get install chromium")
    unconfined = ["--no-sandbox"] if os.geteuid() == 0 else []  # its sandbox refuses root
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=[*QUIET, *unconfined])
        try:
            yield browser
        finally:
            browser.close()


def blank(browser: Browser, width: int = 1280, dark: bool = False, motion: bool = False) -> Page:
    """An empty page in a context of its own: a window so many pixels wide, of somebody who likes it dark or moving."""
    context = browser.new_context(
        viewport={"width": width, "height": HEIGHT},
        color_scheme="dark" if dark else "light",
        reduced_motion="no-preference" if motion else "reduce",
    )
    context.set_default_timeout(PATIENCE)
    return context.new_page()
