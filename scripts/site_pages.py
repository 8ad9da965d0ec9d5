"""A hook of `mkdocs build`: README, CHANGELOG and SECURITY become pages, and no link leads out of the site."""

from __future__ import annotations

import re
from pathlib import Path
from posixpath import normpath
from typing import Any, Final

from mkdocs.structure.files import File

PAGES: Final = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "SECURITY.md": "security.md"}
LINK: Final = re.compile(r"(!?)\[([^\[\]]*)\]\(([^()\s#]+)(#[^()\s]*)?\)")


def on_files(files: Any, *, config: Any) -> Any:
    """Add the pages that lie beside `docs`."""
    root = Path(config.config_file_path).parent
    for source, page in PAGES.items():
        text = (root / source).read_text("utf-8")
        files.append(File.generated(config, page, content=within_site(text, folder="")))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Lead the links of a page of `docs` to other pages, or nowhere."""
    return markdown if page.file.src_uri in PAGES.values() else within_site(markdown, folder="docs/")


def within_site(text: str, folder: str) -> str:
    """Return `text`, a page that lies in `folder` of the repository, with links as the site has them.

    A link to a file that is no page keeps its words alone.
    """

    def lead(match: re.Match[str]) -> str:
        image, words, target, anchor = match.groups("")
        if "://" in target:
            return match[0]
        path = normpath(folder + target)
        if path.startswith("docs/"):
            return f"{image}[{words}]({path.removeprefix('docs/')}{anchor})"
        return f"[{words}]({PAGES[path]}{anchor})" if path in PAGES else words

    return LINK.sub(lead, text)
