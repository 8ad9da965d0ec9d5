"""The fuzzing command: it finds planted faults, and none in what is there."""

from __future__ import annotations

import pytest

from proto.errors import ProtocolError, malformed
from scripts.fuzz.__main__ import FOUND, NAMES, main
from scripts.fuzz.mutation import Finding, search
from scripts.fuzz.targets import TARGETS, probe, seeds


def test_names_are_those_of_the_targets() -> None:
    assert tuple(TARGETS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_seeds_reach_behind_the_first_check(name: str) -> None:
    """Some golden bytes are taken by each target: a fuzzer that is refused everywhere finds nothing."""

    def taken(data: bytes) -> bool:
        try:
            TARGETS[name](data)
        except ProtocolError:
            return False
        return True

    assert any(taken(seed) for seed in seeds())


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


def test_a_refusal_is_no_finding() -> None:
    def refusing(data: bytes) -> None:
        raise malformed("no")

    probe(refusing, b"")


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
