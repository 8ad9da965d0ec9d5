"""Paths as a library knows them."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.library.places import below, is_within


@pytest.mark.parametrize(
    ("path", "folder"),
    [("/notes/a.md", "/notes"), ("/notes/deep/er/a b.md", "/notes"), ("/a.md", "/"), ("/ä /.ö/ü", "/ä ")],
)
def test_the_path_below_a_folder(path: str, folder: str) -> None:
    assert is_within(path, folder)
    assert below(path, folder) == Path(path).relative_to(folder).as_posix()
