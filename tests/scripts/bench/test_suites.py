"""Every suite runs in short by its command, shows tables, keeps samples and draws. How long anything takes, or how good
it is, is not tested; what must hold in any run is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from common.configuration.settings import EMBEDDED_MODEL, default_model
from scripts.bench.__main__ import SUITES, main
from scripts.bench.acceptance import SAMPLERS
from scripts.bench.quality.corpus import TEXT_FOLDER
from scripts.bench.questions.questions import first_of_each
from scripts.bench.questions.suite import SHORT
from scripts.bench.scheduling import REGIMES
from tests.scripts.bench.published import marked

pytestmark = [pytest.mark.suite, pytest.mark.timeout(900)]  # daemons to start, on a busy machine

SAME_IN_SHORT = {"methods-grid": "methods", "rapid-long": "rapid"}
# Text that is not there (it is made as that of `quality`), and a column for each distance.
NOT_IN_SHORT = (
    "Perplexity of WikiText-2",
    "Differences in per cent: Perplexity of WikiText-2",
    "Eager answers",
)
OF_REAL_TEXT = ("real-acceptance", "real-answers", "real-perplexity", "real-latency", "rapid", "questions")
PICTURES = {
    "acceptance": 1,
    "codecs": 1,
    "draft-policies": 2,
    "dssd-tables": 1,
    "edgellm": 4,
    "latency": 2,
    "methods": 2,
    "qsv": 2,
    "exact-match": 1,
    "quality": 1,
    "scheduling": len(REGIMES),
    "scheduling-link": 1,
    "scoring": 1,
    "sessions": 1,
    "theory": 1,
    "timeline": 4,
}
HEAD = "PEP: {number}\nTitle: {title}\nAuthor: {author}\nStatus: {status}\n"
BODY = "The proposal says what is to be done, why it is to be done, and what was not done although somebody asked. " * 8
PROPOSALS = {8: "Style guide", 484: "Type hints", 572: "Assignment expressions"}
MORE = {each.pep: "Asked about" for each in first_of_each(SHORT.questions) if each.pep} | {
    20: "The Zen",
    257: "Docstrings",
    440: "Versions",
}  # with whose facts `real-answers` asks

Samples = dict[str, Any]


@pytest.fixture(autouse=True)
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of proposals, for the suites that measure on text."""
    folder = tmp_path / "texts"
    (folder / "peps").mkdir(parents=True)
    for number, title in PROPOSALS.items():
        head = HEAD.format(number=number, title=title, author="A. Writer", status="Final")
        (folder / f"pep-{number:04}.rst").write_text(f"{head}\n{title}\n{'=' * 30}\n\n{BODY}")
    for place, (number, title) in enumerate((PROPOSALS | MORE).items()):
        head = HEAD.format(number=number, title=title, author=f"Author {title}", status=("Final", "Draft")[place % 2])
        text = f"{head}Python-Version: 3.{place}\n\n{title}\n{'=' * 30}\n\n{title}. {BODY}"
        (folder / "peps" / f"pep-{number:04}.rst").write_text(text)
    monkeypatch.setenv(TEXT_FOLDER, str(folder))


def of_acceptance(samples: Samples, folder: Path) -> None:
    for path in (folder / "acceptance").iterdir():
        for device, cloud, *expected in (each for answer in json.loads(path.read_text()) for each in answer):
            assert {device, cloud} <= {0, 1}
            assert all(0 <= share <= 1 for share in expected)
    assert all(set(answer["judged"]) == set(SAMPLERS) for answer in samples["answers"]["answers"])


def of_codecs(samples: Samples, folder: Path) -> None:
    for measured in samples["codecs"]["measured"]:
        assert not any(each["changed"] for each in measured["told"]["raw"])
        assert all(each["entries"] <= 8 and each["size"] < 100 for each in measured["told"]["race, K = 8"])


def of_edgellm(samples: Samples, folder: Path) -> None:
    """Tokens are the target's in every way, or the run would have stopped."""
    best, worst = (samples["drafters"][name][0] for name in ("target's own", "random weights"))
    assert best["passes"] < worst["passes"]
    assert all(one["tokens"] / one["passes"] >= 1 for one in samples["counts"])


def of_methods(samples: Samples, folder: Path) -> None:
    """The report tells the bytes that are on the line."""
    for answer in samples["answers"]:
        up, down = answer["forwarded"]
        assert answer["mode"] == "draft alone" or up > answer["report"]["sent_bytes"]
        assert answer["mode"] == "draft alone" or down > answer["report"]["received_bytes"]
    assert {answer["report"]["tokens"] for answer in samples["answers"]} == {12}


def of_qsv(samples: Samples, folder: Path) -> None:
    assert all(each["right"] and each["ended"] for each in samples["answers"] if each["temperature"] == 0.2)
    for each in samples["laws"]:
        assert each["law"]["exact"] < 1e-9
        assert each["law"]["right"]["target"] >= each["law"]["right"]["S-Q"] - 1e-9


def of_exact_match(samples: Samples, folder: Path) -> None:
    shares = samples["exact match"]
    assert shares["DRAGON"]["0"] == {"private fact": 0.0, "public fact": 0.0, "both": 0.0}, "without documents"
    assert shares["device only"]["2"]["private fact"] > 0
    assert shares["device only"]["2"]["public fact"] == 0.0


def of_questions(samples: Samples, folder: Path) -> None:
    answers = samples["questions"]["answers"]
    assert {row: sum(each["row"] == row for each in answers) for row in (each["row"] for each in answers)} == {
        "a row per document": 10,
        "all texts in one context": 10,
    }
    assert all(each["text"] and each["found"] for each in answers)
    assert not any(each["right"] for each in answers if each["kind"] == "nobody")


def of_retrieval(samples: Samples, folder: Path) -> None:
    assert set(samples["ranks, keyword"]) == {1}
    recalls = {share for name, shares in samples.items() if name.startswith("recall") for share in shares}
    assert recalls == {1.0}  # all lists of so few are looked into


def of_scheduling_link(samples: Samples, folder: Path) -> None:
    assert len({tuple(answer["report"]["pieces"]) for answer in samples["answers"]}) == 1


def of_sessions(samples: Samples, folder: Path) -> None:
    """Every answer is complete, and is what the cloud says alone; a drafting device is followed now and then."""
    runs = samples["runs"]["runs"]
    assert not any(ran["differing"] for ran in runs)
    assert all(ran["tokens"] == 16 * ran["sessions"] for ran in runs)
    drafting = [ran for ran in runs if ran["kind"] == "drafting"]
    assert sum(ran["rollbacks"] for ran in drafting) > 0
    assert all(ran["device_weight"] == pytest.approx(0.1, abs=0.1) for ran in drafting)


def of_theory(samples: Samples, folder: Path) -> None:
    """The theorem's idealisations hold with the device the faster side; one answer's noise remains."""
    fast = [point for point in samples["points"]["points"] if point["device"] < 0.05]
    assert fast and all(point["simulated"] == pytest.approx(point["theorem"], rel=0.15) for point in fast)


def of_timeline(samples: Samples, folder: Path) -> None:
    traces = list(folder.glob("*.perfetto.json"))
    assert traces
    for path in traces:
        assert {event["pid"] for event in json.loads(path.read_text())["traceEvents"]} >= {1, 2}, "both sides"


CHECKS: dict[str, Callable[[Samples, Path], None]] = {
    "acceptance": of_acceptance,
    "codecs": of_codecs,
    "edgellm": of_edgellm,
    "methods": of_methods,
    "qsv": of_qsv,
    "exact-match": of_exact_match,
    "questions": of_questions,
    "retrieval": of_retrieval,
    "scheduling-link": of_scheduling_link,
    "sessions": of_sessions,
    "theory": of_theory,
    "timeline": of_timeline,
}


@pytest.mark.parametrize("name", [name for name in SUITES if name not in SAME_IN_SHORT])
def test_a_suite_in_short(name: str, tmp_path: Path) -> None:
    if name in OF_REAL_TEXT and default_model() == str(EMBEDDED_MODEL):
        pytest.skip("the package with the model of real text is not installed")
    folder = tmp_path / "bench"
    main([name, "--short", "--folder", str(folder)])
    record = json.loads((folder / f"{name}.json").read_text())
    assert record["short"] and record["machine"]["versions"]["torch"]
    assert record["samples"] and record["tables"]
    for table in record["tables"].values():
        assert all(len(row) == len(table["heads"]) for row in table["rows"])
    for suite, title, heads in marked():
        if suite == name and title not in NOT_IN_SHORT:
            (table,) = [table for named, table in record["tables"].items() if named.startswith(title)]
            assert [head.strip() for head in table["heads"]] == heads, f"the documents have other columns: {title}"
    pictures = list(folder.glob(f"{name}-*.png"))
    assert len(pictures) >= PICTURES.get(name, 0)
    assert all(picture.stat().st_size > 1000 for picture in pictures)
    if name in CHECKS:
        CHECKS[name](record["samples"], folder)
