"""The sign of processes that are at work, as others see it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from common.process.lifetime import anybody_present, show_presence

AT_WORK = """
import sys
from pathlib import Path
from common.process.lifetime import show_presence
with show_presence(Path(sys.argv[1])):
    print("at work", flush=True)
    sys.stdin.read()
"""


@contextmanager
def at_work(file: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that is present until its input ends, or it is killed."""
    command = [sys.executable, "-c", AT_WORK, str(file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "at work\n"
        try:
            yield process
        finally:
            process.kill()


def test_until_the_last_of_them_has_ended(tmp_path: Path) -> None:
    file = tmp_path / "new folder" / "sign"
    assert not anybody_present(file) and not file.exists()
    with at_work(file) as killed:
        with at_work(file) as first:
            assert anybody_present(file) and anybody_present(file)
            first.communicate()  # which ends its input
            assert anybody_present(file)
        killed.kill()
        killed.wait()
        assert not anybody_present(file)


def test_a_child_of_one_of_them_is_not_present(tmp_path: Path) -> None:
    file = tmp_path / "sign"
    with ExitStack() as stack:
        with show_presence(file):
            child = stack.enter_context(subprocess.Popen(["cat"], stdin=subprocess.PIPE, close_fds=False))
        assert not anybody_present(file)
        child.communicate()


def test_whoever_looks_is_in_nobody_s_way(tmp_path: Path) -> None:
    """Looks again and again while others come and go: none of them fails, or is missed."""
    file = tmp_path / "sign"
    command = [sys.executable, "-c", AT_WORK.replace("sys.stdin.read()", ""), str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        while process.poll() is None:
            anybody_present(file)
        assert process.returncode == 0


def test_where_nothing_can_be_locked_nothing_is_shown(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "file" / "sign", tmp_path):
        with show_presence(place):
            assert not anybody_present(place)


@pytest.mark.parametrize("others", [1, 2])
def test_the_same_process_sees_itself(tmp_path: Path, others: int) -> None:
    with ExitStack() as stack:
        for _ in range(others):
            stack.enter_context(show_presence(tmp_path / "sign"))
        assert anybody_present(tmp_path / "sign")
    assert not anybody_present(tmp_path / "sign")
