"""Log lines as text, which stays what it was, and as JSON."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from common.process.log_lines import AnswerName, CodePlace, LogFormat, log_to_stderr
from common.process.threads import QuietLog

SESSION = 0x2B3C4D
log = logging.getLogger("tests.lines")


@pytest.fixture(autouse=True)
def former() -> Iterator[None]:
    """The root logger of pytest is what it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def lines(capsys: pytest.CaptureFixture[str], form: LogFormat, *calls: Any, worker: int | None = None) -> list[str]:
    """Lines that `calls` log, from the level info on."""
    root = logging.getLogger()
    root.handlers.clear()  # those of pytest would be closed
    log_to_stderr("info", form, ["tests.noisy"], worker)
    for call in calls:
        call()
    return capsys.readouterr().err.splitlines()


def fail() -> None:
    try:
        raise RuntimeError("broken")
    except RuntimeError:
        log.exception("it stumbled")


def test_text_is_what_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = lines(capsys, "text", lambda: log.warning("answer %s: %s", AnswerName.of(SESSION), "no"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} WARNING answer 002b3c4d: no", line)


STEERING = "\x1b]0;owned\x07\x9b2J\x7f\r\n\x85\u2028\u202e\u2066"


@pytest.mark.parametrize("form", ["text", "json"])
def test_nothing_in_a_line_breaks_it_or_steers_a_terminal(capsys: pytest.CaptureFixture[str], form: LogFormat) -> None:
    (line,) = lines(capsys, form, lambda: log.warning("no such model: %s", f"é «{STEERING}»"))
    assert line.isprintable() and "é «" in line
    if form == "json":
        assert json.loads(line)["message"] == f"no such model: é «{STEERING}»"
    else:
        assert line.endswith(r"é «\u001b]0;owned\u0007\u009b2J\u007f\u000d\n\u0085\u2028\u202e\u2066»")


def test_tracebacks_and_places_in_the_code_keep_their_lines(capsys: pytest.CaptureFixture[str]) -> None:
    def stumble() -> None:
        try:
            raise RuntimeError(STEERING)
        except RuntimeError as error:
            log.exception("it %s", "stumbled\nand fell")
            log.error("%s failed with %s%s", "it\nall", type(error).__name__, CodePlace.of(error))

    told = lines(capsys, "text", stumble)
    assert all(line.isprintable() for line in told)
    first, *traced = told[: told.index(next(line for line in told if "RuntimeError:" in line))]
    assert first.endswith(r" ERROR it stumbled\nand fell") and len(traced) > 2
    place = next(
        number for number, line in enumerate(told) if line.endswith(r" ERROR it\nall failed with RuntimeError")
    )
    assert told[place + 1].startswith("  File ") and told[place + 2] == "    raise RuntimeError(STEERING)"


def test_json_has_a_line_for_each_with_time_level_and_answer(capsys: pytest.CaptureFixture[str]) -> None:
    told = lines(
        capsys,
        "json",
        lambda: log.warning("answer %s: %s", AnswerName.of(SESSION), "two\nlines «»"),
        lambda: log.info("no answer"),
        lambda: log.debug("too much"),
        lambda: logging.getLogger("tests.noisy").info("noise"),
    )
    first, second = map(json.loads, told)
    time = datetime.fromisoformat(first.pop("time"))
    assert timedelta() <= datetime.now(UTC) - time < timedelta(minutes=1)
    assert time.utcoffset() == timedelta()
    assert first == {
        "level": "warning",
        "logger": "tests.lines",
        "message": "answer 002b3c4d: two\nlines «»",
        "request": "002b3c4d",
    }
    assert "request" not in second


def test_json_has_exceptions_in_the_same_line(capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = lines(capsys, "json", fail)
    value = json.loads(line)
    assert value["message"] == "it stumbled"
    assert value["exception"].startswith("Traceback")
    assert value["exception"].endswith("RuntimeError: broken")


def test_lines_that_a_peer_causes_name_their_answer_too(capsys: pytest.CaptureFixture[str]) -> None:
    quiet = QuietLog(log, lambda: 0.0, rate=1.0, burst=1.0)
    (line,) = lines(
        capsys, "json", *2 * [lambda: quiet.tell(logging.INFO, "answer %s is open already", AnswerName.of(7))]
    )
    assert json.loads(line)["request"] == "00000007"


@pytest.mark.parametrize("form", ["text", "json"])
def test_lines_of_one_of_several_workers_have_its_number(capsys: pytest.CaptureFixture[str], form: LogFormat) -> None:
    (line,) = lines(capsys, form, lambda: log.info("it serves"), worker=3)
    if form == "json":
        assert (json.loads(line)["worker"], json.loads(line)["message"]) == (3, "it serves")
    else:
        assert line.endswith(" INFO worker 3: it serves")
