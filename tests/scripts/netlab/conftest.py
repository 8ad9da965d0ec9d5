"""An open lab, where this machine permits one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from scripts.netlab.lab import NetLab
from scripts.netlab.links import Kind
from scripts.netlab.namespaces import Unavailable

KINDS: tuple[Kind, ...] = ("netem", "user-space link")


def open_lab(resources: ExitStack, kind: Kind | None = None) -> NetLab:
    """Skips the test with the lab's own sentence where there can't be one."""
    try:
        return resources.enter_context(NetLab(kind=kind))
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session", params=KINDS)
def lab(request: pytest.FixtureRequest) -> Iterator[NetLab]:
    """One lab for many tests; each sets the link as it needs it."""
    with ExitStack() as resources:
        yield open_lab(resources, request.param)
