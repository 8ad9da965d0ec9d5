"""`make docs`: all pages, a search, and nothing from elsewhere; a link that leads nowhere is an error.

Skips where the environment that builds the site is missing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from bs4 import BeautifulSoup

from scripts.browser import NoBrowser, blank, chromium
from scripts.daemons import ROOT
from tests.support.missing import skip_without

MKDOCS = ROOT / ".venv-docs/bin/mkdocs"
SOURCES = ("mkdocs.yml", "README.md", "CHANGELOG.md", "SECURITY.md", "scripts/site_pages.py", "docs")

pytestmark = pytest.mark.skipif(not MKDOCS.exists(), reason="mkdocs is missing: make docs")


def copy_sources(root: Path) -> Path:
    for name in SOURCES:
        (root / name).parent.mkdir(exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, root / name)
        else:
            shutil.copy(ROOT / name, root / name)
    return root


def build(root: Path) -> subprocess.CompletedProcess[str]:
    """Run what `make docs` runs."""
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    command = [str(MKDOCS), "build", "--strict"]
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = copy_sources(tmp_path_factory.mktemp("checkout"))
    built = build(root)
    assert built.returncode == 0, built.stderr
    return root / "build/site"


def test_every_document_is_a_page(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix("").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    wanted = pages | {"index", "changelog", "security", "404"}
    assert {path.relative_to(site).with_suffix("").as_posix() for path in site.rglob("*.html")} == wanted


def test_all_that_pages_load_is_in_the_site(site: Path) -> None:
    loaded = set()
    for page in site.glob("*.html"):
        markup = BeautifulSoup(page.read_text("utf-8"), "lxml")
        named = [(each, "src") for each in markup.select("script[src], img[src], iframe[src]")]
        named += [(each, "href") for each in markup.select("link[href]:not([rel=next], [rel=prev])")]
        loaded |= {str(tag[name]).partition("?")[0] for tag, name in named}
    assert "site/iframe-worker.js" in loaded
    assert not {address for address in loaded if not (site / address.lstrip("/")).is_file()}
    styles = "".join(path.read_text("utf-8") for path in site.rglob("*.css"))
    assert "url(http" not in styles and "url(//" not in styles


def test_a_link_that_leads_nowhere_is_an_error(tmp_path: Path) -> None:
    root = copy_sources(tmp_path)
    for page, link in {
        "README.md": "docs/figures/no-figure.png",
        "docs/operations.md": "privacy.md#no-heading",
        "docs/figures/unlisted.md": "../privacy.md",
    }.items():
        with (root / page).open("a") as file:
            file.write(f"\n\n[nowhere]({link})\n")
    built = build(root)
    assert built.returncode != 0
    for complaint in ("no-figure.png", "#no-heading", "unlisted.md"):
        assert complaint in built.stderr


def test_the_search_works_from_the_disk(site: Path) -> None:
    try:
        with chromium() as browser:
            page = blank(browser)
            asked: list[str] = []
            page.on("request", lambda request: asked.append(request.url))
            page.on("pageerror", lambda error: asked.append(f"error: {error}"))
            page.goto((site / "index.html").as_uri())
            page.locator("input.md-search__input").press_sequentially("patience")
            page.wait_for_selector(".md-search-result__item a >> text=When the cloud is away", state="attached")
            assert asked
            assert not [each for each in asked if not each.startswith((site.as_uri(), "about:", "data:"))]
    except NoBrowser as missing:
        skip_without(missing.program, missing.how)
