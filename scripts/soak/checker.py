"""Judges what came of a run, from what was promised. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from scripts.soak.client import Outcome
from scripts.soak.plan import Ask

Library = Literal["first", "other", "alone"]  # whose documents: the cloud's, the other cloud's, the device's only
References = Mapping[tuple[int, Library], "Reference"]  # by number of the law

FAILING: Final = ("answer_failed",)  # codes of errors that a fault explains; see docs/api.md
REFUSED: Final = re.compile(r"doesn't accept this device's key|can't answer together")  # also to those that wait
CHANGED: Final = re.compile(r"^From token (\d+) on, another cloud took part")
UNREAD: Final = re.compile(r"^From token (\d+) on, the device drafted without the cloud's passages")  # drawn otherwise
ERROR_LINE: Final = re.compile(r"Traceback|\b(ERROR|CRITICAL)\b")
# Lines of this kind that faults of the run explain.
ALLOWED: Final[tuple[tuple[re.Pattern[str], str], ...]] = ()


@dataclass(frozen=True, slots=True)
class Reference:
    """The undisturbed answer of a law."""

    pieces: tuple[str, ...]
    text: str
    reason: str

    def cut(self, tokens: int) -> Reference:
        """The same with at most so many tokens; its text is right but for white space around it."""
        if len(self.pieces) <= tokens:
            return self
        return Reference(self.pieces[:tokens], "".join(self.pieces[:tokens]).strip(), "length")


@dataclass(frozen=True, slots=True)
class Judged:
    """The verdict on an outcome: what is wrong with it, and how many tokens were compared."""

    wrong: tuple[str, ...] = ()
    compared: int = 0
    degraded: int = 0


def judge(ask: Ask, outcome: Outcome, references: References, titles: Mapping[str, Library]) -> Judged:
    """Compare an outcome with what is promised. `titles` are those of the clouds' documents."""
    if outcome.end == "lost":
        return Judged((f"lost: {outcome.sentence}",))
    if outcome.end == "cancelled":
        return Judged()
    if outcome.end == "failed":
        known = outcome.code in FAILING and outcome.sentence.strip()
        if ask.waits and not REFUSED.search(outcome.sentence):
            return Judged((f"it was to wait for the cloud: {outcome.sentence}",))
        return Judged(() if known else (f"error {outcome.code}: {outcome.sentence}",))
    wrong = inconsistent(ask, outcome)
    compared, differing = _compare(ask, outcome, references, titles)
    return Judged((*wrong, *differing), compared, len(outcome.report["degraded"]))


def inconsistent(ask: Ask, outcome: Outcome) -> Sequence[str]:
    """Contradictions in an answer and its report, whatever its tokens are."""
    report, tokens = outcome.report, outcome.report["tokens"]
    degraded = list(report["degraded"])
    claims = {
        "more tokens than asked for": 0 < tokens <= ask.tokens,
        "another number of tokens in the usage": outcome.tokens == tokens,
        "an unknown reason for its end": outcome.reason in ("stop", "length"),
        "cut before its length": outcome.reason != "length" or tokens == ask.tokens,
        "another seed": report["seed"] == ask.fields["seed"],
        "another method": report["method"] == ask.method,
        "degraded positions out of order": degraded == sorted(set(degraded)),
        "degraded positions that it does not have": all(0 <= position < tokens for position in degraded),
        "degraded, and no note says so": not degraded or bool(report["notes"]),
        "degraded, though it waits for the cloud": not (degraded and ask.waits),
        "degraded, though no cloud takes part": not degraded or ask.law.promise.cloud or offline(ask),
        "pieces that are not its text": _same(report["pieces"], outcome.text),
    }
    return [
        f"{claim}: {tokens} tokens, {outcome.reason}, degraded {degraded}"
        for claim, holds in claims.items()
        if not holds
    ]


def offline(ask: Ask) -> bool:
    """Whether the request keeps the question on the device."""
    return ask.fields.get("privacy") == "offline"


def _compare(
    ask: Ask, outcome: Outcome, references: References, titles: Mapping[str, Library]
) -> tuple[int, Sequence[str]]:
    """Number of tokens that were compared, and differences."""
    pieces, degraded = tuple(outcome.report["pieces"]), list(outcome.report["degraded"])
    tokens, notes = int(outcome.report["tokens"]), outcome.report["notes"]
    if len(pieces) != tokens:
        return 0, (f"{len(pieces)} pieces for {tokens} tokens",)
    changed, unread = (
        [int(found[1]) for note in notes if (found := sentence.match(note))] for sentence in (CHANGED, UNREAD)
    )
    until = min([tokens, *degraded, *changed, *unread])
    candidates: Sequence[Library] = ("first", "other")
    if offline(ask) or (ask.law.promise.alone and len(degraded) == tokens):
        candidates, until = ("alone" if ask.law.promise.alone else "first",), tokens
    elif named := {titles[each["title"]] for each in outcome.report["sources"] if each["title"] in titles}:
        candidates = candidates if changed else sorted(named)
    known = [references[key] for each in candidates if (key := (ask.law.number, each)) in references]
    differing = [difference(pieces, outcome, each.cut(ask.tokens), until) for each in known]
    if not known or "" in differing:
        return until if known else 0, ()
    return until, differing


def difference(pieces: Sequence[str], outcome: Outcome, expected: Reference, until: int) -> str:
    """The first difference of an answer's first tokens from those of a reference; empty where there is none."""
    for position in range(until):
        if position >= len(expected.pieces) or pieces[position] != expected.pieces[position]:
            return (
                f"token {position} of {len(pieces)} is {pieces[position]!r}: "
                f"{''.join(pieces)!r}, not {''.join(expected.pieces)!r}"
            )
    if until < len(pieces):
        return ""
    if len(pieces) != len(expected.pieces) or outcome.reason != expected.reason:
        return f"it ends by {outcome.reason} after {outcome.text!r}, not by {expected.reason} after {expected.text!r}"
    same = outcome.text.strip() == expected.text.strip()
    return "" if same else f"the text is {outcome.text!r}, not {expected.text!r}"


def _same(pieces: Sequence[str], text: str) -> bool:
    return "".join(pieces).strip() == text.strip()


def bad_lines(log: str, marks: frozenset[str]) -> list[str]:
    """Lines of a log that tell of an error, and those with private words."""
    found = []
    for line in log.splitlines():
        if ERROR_LINE.search(line) and not any(pattern.search(line) for pattern, _ in ALLOWED):
            found.append(line)
        elif private := marks.intersection(re.findall(r"\w+", line)):
            found.append(f"private words {sorted(private)}: {line}")
    return found


def as_reference(answer: Mapping[str, Any]) -> Reference:
    """An undisturbed answer, as the HTTP interface gives it. Raises `ValueError` for one that is disturbed."""
    (choice,), report = answer["choices"], answer["dragon"]
    if report["degraded"] or report["disagreements"]:
        raise ValueError(f"a reference answer is degraded: {report['notes']}")
    return Reference(tuple(report["pieces"]), choice["message"]["content"], choice["finish_reason"])
