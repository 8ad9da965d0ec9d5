"""The suite `edgellm` answers in every way, and stops if one gives other tokens. Times are not tested."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts.bench.edgellm import ALONE, SHORT, WAYS, Answer, check, run
from scripts.bench.results import Results

pytestmark = pytest.mark.suite


def test_short_suite(tmp_path: Path) -> None:
    results = Results("edgellm", tmp_path, short=True)
    run(results)
    record = json.loads(results.write().read_text())
    answers = record["samples"]["answers"]
    wanted = {f"{way.name}, {length}" for way in WAYS for length in SHORT.lengths[: way.lengths]}
    assert answers.keys() == wanted | {f"{ALONE}, {length}" for length in SHORT.lengths}
    for name, each in answers.items():
        assert all(len(one["tokens"]) == int(name.rpartition(" ")[2]) for one in each)
    (chain,) = answers[f"chain of 6, {SHORT.lengths[-1]}"]
    assert 0 < chain["passes"] < SHORT.lengths[-1]
    assert chain["kept"] == 0
    (table,) = record["tables"].values()
    assert len(table["rows"]) == len(answers)


def test_other_tokens_are_noticed() -> None:
    found = {("one", 2): [Answer([1, 2], 1.0, 0.5)], ("two", 1): [Answer([3], 1.0, 0.5)]}
    with pytest.raises(RuntimeError, match="two"):
        check(found)
    check({**found, ("two", 1): [Answer([1], 1.0, 0.5)]})
