"""One browser for all tests of a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from scripts.browser import NoBrowser, chromium
from tests.device.page.browsing import Open, Visit, opened
from tests.support.missing import skip_without


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Skips, with the reason, where there is none."""
    try:
        with chromium() as browser:
            yield browser
    except NoBrowser as missing:
        skip_without(missing.program, missing.how)


@pytest.fixture
def visits(browser: Any) -> Iterator[Open]:
    """Opens pages in contexts of their own; at the end none of them may have complained or left this machine."""
    made: list[Visit] = []

    def visit(url: str, **window: Any) -> Visit:
        made.append(opened(browser, url, **window))
        return made[-1]

    yield visit
    for each in made:
        each.check()
        each.page.context.close()
