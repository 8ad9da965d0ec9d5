"""One browser for all tests of a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.device.page.browsing import Open, Visit, browser, opened


@pytest.fixture(scope="module")
def running() -> Iterator[Any]:
    with browser() as running:
        yield running


@pytest.fixture
def visits(running: Any) -> Iterator[Open]:
    """Opens pages in contexts of their own; at the end none of them may have complained or left this machine."""
    made: list[Visit] = []

    def visit(url: str, **options: Any) -> Visit:
        made.append(opened(running, url, **options))
        return made[-1]

    yield visit
    for each in made:
        each.check()
        each.page.context.close()
