"""The suite `edgellm` answers in every way, and stops if one gives other tokens. Times are not tested."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts.bench.edgellm.device import Answer
from scripts.bench.edgellm.measure import check
from scripts.bench.edgellm.plan import COUNTED, DRAFT_ALONE, NATURAL, SHORT, TEMPERATURES, WAYS
from scripts.bench.edgellm.suite import run
from scripts.bench.results import Results

pytestmark = pytest.mark.suite


def test_short_suite(tmp_path: Path) -> None:
    results = Results("edgellm", tmp_path, short=True)
    run(results)
    record = json.loads(results.write().read_text())
    answers = record["samples"]["answers"]
    wanted = {f"{way.name}, {task}" for way in WAYS for task in way.questions}
    assert answers.keys() == wanted | {f"{DRAFT_ALONE}, {task}" for task in (NATURAL, "64")}
    for name, each in answers.items():
        task = SHORT.tasks[name.rpartition(" ")[2]]
        assert all(len(one["tokens"]) == task.length or (task.end and one["tokens"]) for one in each)
        assert all(one["times"] == sorted(one["times"]) for one in each)
    (chain,) = answers["chain of 6, 64"]
    assert 0 < chain["passes"] < SHORT.tasks["64"].length
    assert chain["kept"] == 0
    counts = record["samples"]["counts"]
    assert len(counts) == len(COUNTED) * len(TEMPERATURES)
    assert all(one["tokens"] / one["passes"] >= 1 for one in counts)
    drafters = record["samples"]["drafters"]
    best, worst = (drafters[name][0] for name in ("target's own", "random weights"))
    assert best["passes"] < worst["passes"]
    tables = record["tables"].values()
    assert sum(len(table["rows"]) == len(answers) for table in tables) == 1
    for name in ("ways", "drafters", "budgets", "lengths"):
        assert (tmp_path / f"edgellm-{name}.png").stat().st_size > 0


def test_other_tokens_are_noticed() -> None:
    found = {
        ("one", NATURAL): [Answer([1, 2], 1.0, [])],
        ("two", NATURAL): [Answer([1], 1.0, [])],
        ("one", "64"): [Answer([3, 4, 5], 1.0, [])],
        ("two", "256"): [Answer([3, 4, 5, 6], 1.0, [])],
    }
    check(found)
    for place, tokens in ((("two", NATURAL), [3]), (("one", "64"), [3, 5])):
        with pytest.raises(RuntimeError, match="other tokens"):
            check({**found, place: [Answer(tokens, 1.0, [])]})
