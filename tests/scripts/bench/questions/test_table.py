"""The table of the suite `questions`."""

from __future__ import annotations

from typing import Any, get_args

from scripts.bench.measuring import mean_interval
from scripts.bench.questions.suite import IN_SHORT, Kind, Question, judged, table, unanswered
from scripts.bench.rows import Row
from tests.scripts.bench.published import heads

FOLD = Question("both", "When, and which attribute?", (("26 October",), ("fold",)), ("gap",), "clocks", 495)


def response(text: str, **report: Any) -> dict[str, Any]:
    sources = [{"side": "device", "title": "clocks"}, {"side": "cloud", "title": "pep-0495"}]
    cited = [{"source": 0, "quotes": [{"text": "On 26 October", "tokens": [[1, 2]], "differs": []}]}]
    known: dict[str, Any] = {"unmatched": False, "citations": cited, "sources": sources, "tokens": 9}
    known |= {"ttft": 0.2, "per_token": 0.08}
    return {"choices": [{"message": {"content": text}}], "dragon": known | report}


def answer(text: str, question: Question = FOLD, way: str = "first", number: int = 0, **report: Any) -> Row:
    return {"way": way, "number": number} | judged(question, response(text, **report))


def test_an_answer_is_judged() -> None:
    whole = answer(" It was 26 October; the attribute is fold.")
    assert (whole["right"], whole["abstains"], whole["doubted"]) == (True, False, False)
    assert (whole["found"], whole["ttft"], whole["per_token"]) == ("clocks, pep-0495", 200, 80)
    assert not answer("It was 26 October.")["right"]
    assert not answer("It was 26 October; fold, or gap.")["right"]
    assert answer("I don't know.")["abstains"]
    assert answer("26 October", unmatched=True)["doubted"]
    assert answer("26 October", citations=[])["doubted"], "no document says this"
    assert not answer("26 October", citations=None)["doubted"], "nothing is known of single tokens"
    assert answer("26", tokens=1)["per_token"] is None


def test_nobody_is_never_right() -> None:
    assert not answer("It was 26 October.", Question("nobody", "When?"))["right"]


def test_rows_are_compared_question_by_question() -> None:
    right, refusing = "26 October, fold", "I don't know."
    questions = [Question(kind, "When?", FOLD.parts if kind != "nobody" else ()) for kind in get_args(Kind)]
    said = zip((right, refusing, right, refusing), questions, strict=True)
    first = [answer(text, each, number=number) for number, (text, each) in enumerate(said)]
    other = [answer(right, each, "other", number, unmatched=True, ttft=0.4) for number, each in enumerate(questions)]
    found = table([*first, *other])
    lines = [dict(zip(found.heads, row, strict=True)) for row in found.rows]
    assert [line["read as"] for line in lines] == ["first", "other"]

    def shares(head: str) -> list[str]:
        return [str(line[head]).split()[0] for line in lines]

    assert shares("cloud's right") == ["0.00", "1.00"]
    assert shares("against the first") == ["+0.00", "+0.33"]
    assert shares("nobody's: model says so") == ["1.00", "0.00"]
    assert shares("nobody's: dragon says so") == ["0.00", "1.00"]
    assert shares("answerable: model refused") == ["0.33", "0.00"]
    assert shares("right: dragon doubted") == ["0.00", "1.00"]
    assert shares("wrong: dragon doubted") == ["0.00", "–"], "the other row has no wrong answer"
    assert [line["TTFT, ms"] for line in lines] == ["200", "400"]


def test_none_of_a_few_is_not_none_of_many() -> None:
    """A share of 0 in 20 questions may be one of .16."""
    both = Question("both", "When?", FOLD.parts)
    ((*shares, _, _),) = table([answer("I don't know.", both)] * 20).rows
    assert shares[3:5] == ["0.00 [0.00-0.16]"] * 2
    ((_, said, *_),) = unanswered([answer("It was 26.", Question("nobody", "When?", near="device"))] * 20).rows
    assert said == "0.00 [0.00-0.16]"


def test_unanswered_questions_are_counted_by_the_side_that_they_are_near() -> None:
    near_notes, near_public = (Question("nobody", "When?", near=side) for side in ("device", "cloud"))
    refusing, inventing = "I don't know.", "It was 26 October."
    found = [
        answer(refusing, near_notes),
        answer(inventing, near_notes),
        answer(inventing, near_public, unmatched=True),
        answer("26 October", FOLD, unmatched=True),
    ]
    ((name, *shares),) = unanswered(found).rows
    assert name == "first"
    assert [str(share).split()[0] for share in shares] == ["0.50", "0.00", "0.50", "0.00", "1.00", "1.00"]


def test_the_documents_have_these_columns() -> None:
    assert heads("questions", "Questions judged") == table([answer("26")]).heads
    assert heads("questions", "Questions that nobody answers") == unanswered([answer("26")]).heads
    assert heads("questions", "In short") == list(IN_SHORT)


def test_a_mean_difference_has_a_sign_and_an_interval() -> None:
    assert mean_interval([0.0, 0.0]) == "+0.00"
    assert mean_interval([0.0, 1.0] * 50).startswith("+0.50 [+0.4")
    assert mean_interval([-1.0, 0.0] * 50).startswith("-0.50 [-0.6")
    with_both = mean_interval([-1.0, 1.0] * 8)
    assert "[-" in with_both and " to +" in with_both
