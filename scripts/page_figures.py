"""`python -m scripts.page_figures`: the pictures of the page in docs/figures, from a pair that reads the demo's texts.

Needs playwright, a Chromium, and the default language model.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from common.configuration.settings import EMBEDDED_MODEL, default_model, default_models
from common.engine.model.gguf import imported
from scripts.browser import NoBrowser, blank, chromium
from scripts.daemons import ROOT, Pair
from scripts.demo.__main__ import TEXTS, fill_libraries

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

FIGURES: Final = ROOT / "docs/figures"
FIRST: Final = "Where does my ciabatta dough rest, and who created ciabatta?"
QUESTION: Final = "How many gears does my Brompton have, and who designed the Brompton?"
SEARCH: Final = "Where do my plants stand?"
MOMENTS: Final = range(300, 800, 10)  # thousandths of the pipeline's time


def main() -> int:
    """0 when all pictures were made."""
    model = default_model()
    if model == str(EMBEDDED_MODEL):
        print("The default language model is not installed: `make setup` does that.", file=sys.stderr)
        return 1
    imported(Path(model), default_models())
    settings = {"model": model, "models": default_models(), "search": "hybrid", "documents": 2}
    try:
        with tempfile.TemporaryDirectory(prefix="dragon-page-") as folder, chromium() as browser:
            data = Path(folder) / "data"
            fill_libraries(data, {"cloud": TEXTS / "entries"})
            notes = shutil.copytree(TEXTS / "notes", Path(folder) / "notes")
            with Pair(data, settings, settings) as pair:
                draw(browser, pair.url, notes)
    except NoBrowser as error:
        print(f"{str(error)[:1].upper()}{str(error)[1:]}.", file=sys.stderr)
        return 1
    return 0


def draw(browser: Browser, url: str, notes: Path) -> None:
    """Make the pictures of the page at `url`, which is given the folder `notes` first."""
    light, dark = blank(browser), blank(browser, dark=True)
    light.goto(url)
    light.get_by_role("button", name="Library", exact=True).click()
    light.get_by_label("Folder on this device").fill(str(notes))
    light.keyboard.press("Enter")
    light.get_by_role("heading", name="12 documents").wait_for()
    light.get_by_role("button", name="Chat").click()
    ask(light, FIRST)
    light.get_by_role("button", name="New conversation").click()
    ask(light, QUESTION)
    light.get_by_role("button", name="from this device").first.click()
    light.locator("blockquote").wait_for()
    save(light, "page-chat")
    light.get_by_role("button", name="Library", exact=True).click()
    light.get_by_role("searchbox").fill(SEARCH)
    light.keyboard.press("Enter")
    light.locator(".hits li").first.wait_for()
    save(light, "page-library")
    dark.goto(url)
    dark.get_by_role("button", name="Cloud connected").wait_for()
    dark.get_by_role("button", name="Pipeline").click()
    ask(dark, QUESTION)
    slider, messages = dark.get_by_role("slider"), dark.locator(".message")
    under_way: dict[int, int] = {}
    for moment in MOMENTS:
        slider.fill(str(moment))
        under_way[moment] = messages.count()
    slider.fill(str(max(under_way, key=under_way.__getitem__)))
    slider.blur()
    save(dark, "page-pipeline")


def ask(page: Page, question: str) -> None:
    """Ask, and wait for the end of the answer."""
    page.get_by_role("textbox", name="Question").fill(question)
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Ask", exact=True).wait_for()


def save(page: Page, name: str) -> None:
    """Write what the window shows."""
    page.screenshot(path=FIGURES / f"{name}.png")
    print(f"docs/figures/{name}.png")


if __name__ == "__main__":
    sys.exit(main())
