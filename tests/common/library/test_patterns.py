"""Patterns of documents: what they fit, compared with a second reading of the rules, and what hostile ones cost."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from common.library import patterns
from common.library.patterns import PathPatterns
from proto.messages import LONGEST_PATTERN, MOST_PATTERNS
from proto.patterns import check_patterns, checked_tag

PARTS = st.sampled_from(["a", "b", "ab", "a*", "*b", "?", "*", "**", "a?b", "*a*b", "a**b", "é", "[a]"])
PATTERNS = st.builds(
    lambda parts, end: "/".join(parts) + end, st.lists(PARTS, min_size=1, max_size=4), st.just("/") | st.just("")
)
PATHS = st.lists(st.text("abé[]", min_size=1, max_size=4), min_size=1, max_size=5).map("/".join)


def fits(pattern: str, path: str) -> bool:
    automaton = PathPatterns([pattern])
    return bool(automaton.after(automaton.start, path).fits)


def fits_by_parts(pattern: str, path: str) -> bool:
    """The rules once more: a pattern fits the path itself, or a folder that the path is below."""
    parts, names = pattern.removesuffix("/").split("/"), path.split("/")
    folders = pattern.endswith("/")
    floating = len(parts) == 1
    while parts and parts[-1] == "**":
        parts.pop()
        folders = True
    if not parts:
        return True
    if floating:
        parts = ["**", *parts]
    return any(below(parts, names[:end]) for end in range(1, len(names) + (not folders)))


def below(parts: Sequence[str], names: Sequence[str]) -> bool:
    if not parts:
        return not names
    if parts[0] == "**":
        return any(below(parts[1:], names[start:]) for start in range(len(names) + 1))
    one = re.escape(parts[0]).replace(r"\*", ".*").replace(r"\?", ".")
    return bool(names) and re.fullmatch(one, names[0]) is not None and below(parts[1:], names[1:])


@example("journal/**", "journal/2026/monday.md")
@example("**", "a")
@example("**/**/", "a")
@given(pattern=PATTERNS, path=PATHS)
def test_patterns_fit_what_the_rules_say(pattern: str, path: str) -> None:
    assert fits(pattern, path) == fits_by_parts(pattern, path)


@given(chosen=st.lists(PATTERNS, min_size=1, max_size=5), path=PATHS)
def test_several_patterns_do_not_disturb_each_other(chosen: list[str], path: str) -> None:
    automaton = PathPatterns(chosen)
    told = automaton.after(automaton.start, path).fits
    assert [bool(told >> number & 1) for number in range(len(chosen))] == [fits(each, path) for each in chosen]


@given(chosen=st.lists(PATTERNS, min_size=1, max_size=3), paths=st.lists(PATHS, max_size=20))
def test_what_is_forgotten_on_the_way_is_found_again(chosen: list[str], paths: list[str]) -> None:
    """With room for one state, all others are made again and again."""
    with pytest.MonkeyPatch.context() as patch:
        automaton = PathPatterns(chosen)
        remembered = [automaton.after(automaton.start, path).fits for path in paths]
        patch.setattr(patterns, "_MOST_STATES", 1)
        automaton = PathPatterns(chosen)
        assert [automaton.after(automaton.start, path).fits for path in paths] == remembered


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("journal", "journal/monday.md", True),
        ("journal", "old/journal/monday.md", True),
        ("journal/", "journal", False),
        ("journal/**", "old/journal/monday.md", False),
        ("journal/*.md", "journal/2026/monday.md", False),
        ("journal/**/*.md", "journal/monday.md", True),
        ("journal/**/*.md", "journal/2026/11/monday.md", True),
        ("*.md", "journal/2026/monday.md", True),
        ("*.MD", "monday.md", False),
        ("a+(b|c)", "a+(b|c)", True),
        ("[ab]", "a", False),
    ],
    ids=lambda value: str(value).replace("*", "s"),
)
def test_examples(pattern: str, path: str, expected: bool) -> None:
    assert fits(pattern, path) == expected


def test_the_work_grows_with_the_path_and_not_with_what_patterns_could_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    """A regular expression or a search with a way back takes exponentially many steps for these."""
    steps = 0
    step = PathPatterns._step

    def counted(self: PathPatterns, state: patterns.PatternState, character: str) -> patterns.PatternState:
        nonlocal steps
        steps += 1
        return step(self, state, character)

    monkeypatch.setattr(PathPatterns, "_step", counted)
    hostile = [("*a" * 127) + "x", "**/" * 60 + "x", "?*" * 100 + "x", "**/*a*a*a*a*/" * 15 + "x"]
    paths = ["/".join(["a" * 40] * 20), "a" * 255]
    check_patterns(hostile)
    automaton = PathPatterns(hostile)
    for path in paths:
        assert not automaton.after(automaton.start, path).fits
    assert steps <= sum(map(len, paths))


@pytest.mark.parametrize(
    "refused",
    [
        [""],
        ["  "],
        ["/etc"],
        ["a//b"],
        ["../a"],
        ["a/./b"],
        ["a\0"],
        ["a\nb"],
        ["\ud800"],
        ["tag:"],
        ["tag:" + "x" * 65],
        ["x" * (LONGEST_PATTERN + 1)],
        ["é" * (LONGEST_PATTERN // 2 + 1)],
        ["a"] * (MOST_PATTERNS + 1),
    ],
    ids=range(14),
)
def test_what_can_not_be_followed_is_refused(refused: list[str]) -> None:
    with pytest.raises(ValueError, match=r"^(pattern 1|there may be) ") as refusal:
        check_patterns(refused)
    assert all(len(each) < 6 or each not in str(refusal.value) for each in refused)  # it may be private


def test_equal_characters_are_equal_whatever_their_codes() -> None:
    assert fits("cafe\u0301", "caf\u00e9")
    assert checked_tag(" cafe\u0301 ") == "caf\u00e9"
