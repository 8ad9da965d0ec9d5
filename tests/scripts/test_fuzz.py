"""The fuzzing command: it finds planted faults, and none in what is there."""

from __future__ import annotations

import pytest

from proto.errors import malformed
from scripts.fuzz.__main__ import FOUND, NAMES, main
from scripts.fuzz.mutation import Finding, search
from scripts.fuzz.targets import TARGETS, probe, seeds


def test_names_are_those_of_the_targets() -> None:
    assert tuple(TARGETS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_seeds_reach_behind_the_first_check(name: str) -> None:
    """Some golden bytes are taken by each target: a fuzzer that is refused everywhere finds nothing."""
    assert any(probe(TARGETS[name], seed) for seed in seeds())


@pytest.mark.parametrize("name", NAMES)
def test_a_short_search_finds_nothing(name: str) -> None:
    assert search(TARGETS[name], seeds(), seconds=0.2, seed=3) > 0


def test_a_planted_fault_is_found_and_told_with_its_input() -> None:
    def fragile(data: bytes) -> None:
        if not data.startswith(b"\x97"):
            raise malformed("not a target")
        _ = data[3]  # a target that is cut short

    with pytest.raises(Finding, match=r"IndexError .* with 97"):
        search(fragile, seeds(), seconds=20)


def test_what_is_refused_displaces_nothing_that_is_taken() -> None:
    """Inputs of the second ten thousand get behind the first check, too."""
    asked = taken = 0

    def narrow(data: bytes) -> None:
        nonlocal asked, taken
        asked += 1
        if asked > 20_000:
            raise OverflowError("enough")
        if not data.startswith(b"golden"):
            raise malformed("not a target")
        taken += asked > 10_000

    with pytest.raises(Finding, match="enough"):
        search(narrow, [b"golden" + bytes(40)] * 4, seconds=60)
    assert taken > 1_000


def test_what_is_taken_is_mutated_further() -> None:
    """One mutation makes 96 bytes of 4 at most: it doubles them, or puts 8 in, four times."""
    asked = longest = 0

    def measuring(data: bytes) -> None:
        nonlocal asked, longest
        asked += 1
        if asked > 2_000:
            raise OverflowError("enough")
        longest = max(longest, len(data))

    with pytest.raises(Finding, match="enough"):
        search(measuring, [b"seed"], seconds=60)
    assert longest > 96


def test_a_refusal_is_no_finding() -> None:
    def refusing(data: bytes) -> None:
        raise malformed("no")

    assert not probe(refusing, b"")


def test_the_command_says_how_to_get_a_fuzzer_and_works_without(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["number", "--seconds", "0.2"]) == 0
    told = capsys.readouterr()
    assert "pip install atheris" in told.err and len(told.err.splitlines()) == 1
    assert "number: " in told.out and "nothing found" in told.out

    def fail(data: bytes) -> None:
        raise OverflowError

    monkeypatch.setitem(TARGETS, "number", fail)
    assert main(["number", "--seconds", "5"]) == FOUND
    assert "OverflowError" in capsys.readouterr().out
