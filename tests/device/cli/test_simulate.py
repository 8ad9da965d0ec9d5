"""`dragon simulate`: the table, the JSON object, and one sentence for what can't be simulated."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from common.simulation.acceptance import Rates, save_record
from tests.device.cli.conftest import Dragon

SMALL = ("--tokens", "30", "--sequences", "2")


def test_a_row_for_every_placement_and_the_synchronous_exchange(dragon: Dragon) -> None:
    done = dragon("simulate", *SMALL)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    rows = [line.split() for line in lines[1:]]
    assert [row[0] for row in rows] == ["synchronous", "device", "cloud", "greedy", "random", "mirrored"]
    assert len({len(line) for line in lines}) == 1
    assert float(rows[0][1]) == pytest.approx(352 + 2.6, abs=0.5)  # a round trip, the cloud's step and work beside it
    assert float(rows[0][2]) == pytest.approx(float(rows[0][1]) / 150, abs=0.01)


def test_json_repeats_what_was_simulated(dragon: Dragon) -> None:
    options = "--device-ms 20 --cloud-ms 10 --rtt-ms 0 --extra-ms 100 --accepted 1,1 --placement device --seed 4"
    done = dragon("simulate", *SMALL, *options.split(), "--jitter", "sinusoid", "--json")
    value = json.loads(done.stdout)
    assert value["settings"]["seed"] == 4
    assert set(value["placements"]) == {"device"}
    row = value["placements"]["device"]
    assert row["drafts_per_token_device"] == 1.0
    assert 0.3 < row["ratio_to_slower_side"] < 1.1


def test_a_record_decides_which_drafts_are_accepted(dragon: Dragon, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    save_record(path, [Rates(1.0, 0.0, 0.0).draw(30, 0)])
    options = ("--device-ms", "20", "--cloud-ms", "10", "--placement", "device", "--record", str(path))
    row = json.loads(dragon("simulate", *SMALL, *options, "--json").stdout)["placements"]["device"]
    assert row["ms_per_token"] == pytest.approx(302 + 10 + 2.6, abs=0.5)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--device-ms 0", "--device-ms must be a positive number"),
        ("--cloud-ms inf", "--cloud-ms must be a positive number"),
        ("--extra-ms -1", "must not be negative"),
        ("--accepted 0.9", "two or three rates"),
        ("--accepted 0.9,0.9,0.1", "both drafts are accepted"),
        ("--accepted 2,0", "in [0, 1]"),
        ("--placement moon", "there is no placement moon"),
        ("--tokens 0", "at least 1"),
        ("--sequences 0", "at least 1"),
        ("--seed -1", "must not be negative"),
        ("--jitter sinusoid --jitter-share 3", "jitter"),
        ("--record /nowhere.json", "/nowhere.json"),
    ],
)
def test_bad_input_is_one_sentence(dragon: Dragon, options: str, words: str) -> None:
    done = dragon("simulate", *SMALL, *options.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
