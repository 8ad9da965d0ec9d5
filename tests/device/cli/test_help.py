"""The help of every command: whole lines at every width, and nothing of how it is programmed."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import typer

from cloud.settings import CloudSettings
from common.configuration.flags import flags_help
from device.cli.main import app
from tests.device.cli.conftest import Dragon

INTERNAL = re.compile(
    r"typing\.|Annotated|UnionType|Literal\[|Optional\[|<class|<enum|<function| object at |\bNone\b|\bNoneType\b"
)
CUT = re.compile(r"(\.\.\.|…)\s*$")


def commands() -> Iterator[list[str]]:
    """The words of every command and group, the program itself with none."""
    pending: list[tuple[list[str], object]] = [([], typer.main.get_command(app))]
    while pending:
        words, command = pending.pop()
        yield words
        pending += [([*words, name], below) for name, below in getattr(command, "commands", {}).items()]


ALL = sorted(words for words in commands() if words != ["cloud"])  # whose help another process prints


def check(text: str, width: int) -> None:
    usage, *lines = text.splitlines()
    assert usage.startswith("Usage: dragon")
    assert max(map(len, [usage, *lines])) <= width
    assert not [line for line in [usage, *lines] if INTERNAL.search(line)]
    assert not [line for line in lines if CUT.search(line)]


@pytest.mark.parametrize("width", [60, 80, 120])
class TestHelp:
    @pytest.mark.parametrize("words", ALL, ids=lambda words: "-".join(words) or "dragon")
    def test_of_a_command(self, dragon: Dragon, words: list[str], width: int) -> None:
        done = dragon(*words, "--help", COLUMNS=str(width))
        assert done.returncode == 0
        check(done.stdout, width)

    def test_of_the_cloud(self, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
        monkeypatch.setenv("COLUMNS", str(width))
        check(flags_help(CloudSettings), width)


def test_every_command_is_looked_at() -> None:
    assert len(ALL) > 30
    assert ["models", "pull"] in ALL and [] in ALL
