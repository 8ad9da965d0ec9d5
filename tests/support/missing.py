"""Tests skip where a program is missing. The last line of a run says so; in CI the browser must be there."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Generator, Iterable
from typing import Final, NoReturn

import pytest

REQUIRED: Final = ("Chromium", "playwright")  # in CI: without them nothing tests the page
_REASON: Final = re.compile(r"(?:Skipped: )?((\S+) is missing: .+)")


def skip_without(program: str, how: str) -> NoReturn:
    """Skip a test that needs `program`; `how` is what installs it."""
    pytest.skip(f"{program} is missing: {how}")


@pytest.hookimpl(wrapper=True, tryfirst=True)  # its second half comes after the line that counts the tests
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, None, None]:
    yield
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:
        return  # in a worker
    lacking = list(_lacking(reporter.stats.get("skipped", ())))
    required = sorted({program for _, program in lacking if program in REQUIRED})
    if os.environ.get("CI") and required:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        reporter.write_line(f"CI must test the page, and {' and '.join(required)} is missing: the run fails.", red=True)
    counts = Counter(reason for reason, _ in lacking)
    if counts:
        parts = (f"{count} test{'s' * (count > 1)} skipped: {reason}" for reason, count in counts.most_common())
        reporter.write_line("; ".join(parts), yellow=True)


def _lacking(reports: Iterable[pytest.TestReport]) -> Iterable[tuple[str, str]]:
    """The reason and the program of each skip for lack of one."""
    for report in reports:
        if isinstance(report.longrepr, tuple) and (found := _REASON.fullmatch(report.longrepr[2])):
            yield found[1], found[2]
