"""`dragon profile` measures the configured model, and the daemon uses what it found."""

from __future__ import annotations

import math
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from common.configuration.configuration import ConfigurationError
from common.configuration.settings import EMBEDDED_MODEL
from common.daemon.profile import ROUGH, OfflineProfile, evenly, keep, kept_line, profiled_line
from common.engine.model.decoder import Decoder, threads_of
from common.estimates.estimators import DecodeLine
from common.estimates.profile_store import KeptLine
from tests.common.engine.model.tiny_models import load_pair
from tests.device.cli.conftest import ROOT, Dragon

SHORT = ("--context", "40", "--context", "8", "--repeats", "1")


def test_lines_are_printed_and_kept_for_the_daemon(dragon: Dragon, tmp_path: Path) -> None:
    picture = tmp_path / "profile.png"
    environment = {"DRAGON_DEVICE_DATA": str(tmp_path), "DRAGON_DEVICE_TORCH_DEVICE": "cpu"}
    done = dragon("profile", "--documents", "2", "--documents", "1", *SHORT, "--png", str(picture), **environment)
    assert done.returncode == 0, done.stderr
    heads = re.findall(
        r"^(\d+) documents?: ([\d.]+) ms \+ ([\d.]+) us per token of context, residual [\d.]+%$", done.stdout, re.M
    )
    assert [head[0] for head in heads] == ["1", "2"]
    rows = re.findall(r"^ +(\d+) +[\d.]+ +[\d.]+$", done.stdout, re.M)
    assert rows == ["8", "40"] * 2
    assert picture.read_bytes().startswith(b"\x89PNG")

    kept = sorted((tmp_path / "profile").glob("decode-*"))
    assert len(kept) == 2
    decoder = Decoder.load(
        str(EMBEDDED_MODEL),
        tokenizer=str(EMBEDDED_MODEL.parent / "tokenizer"),
        torch_device="cpu",
        threads=threads_of(shares_machine=True),  # as the daemon, whose cloud is on this machine
    )
    line = profiled_line(decoder, 2, tmp_path / "profile")
    assert (1e3 * line.intercept, 1e6 * line.slope) == pytest.approx([float(heads[1][i]) for i in (1, 2)], abs=0.006)
    assert sorted((tmp_path / "profile").glob("decode-*")) == kept  # nothing was measured again


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--context", "40"), "two context lengths"),
        (("--context", "40", "--context", "4000"), "has 1024"),
        (("--documents", "0"), "--documents"),
        ((*SHORT, "--documents", "1", "--png", "/nowhere/x.png"), "/nowhere/x.png can't be written"),
    ],
)
def test_what_can_not_be_measured_is_one_sentence(
    dragon: Dragon, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    done = dragon("profile", *arguments, DRAGON_DEVICE_DATA=str(tmp_path))
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_bar_on_a_terminal_takes_no_line_from_a_file(tmp_path: Path) -> None:
    terminal, other = pty.openpty()
    command = [sys.executable, "-m", "device.cli.main", "profile", *SHORT, "--documents", "1"]
    environment = os.environ | {"DRAGON_DEVICE_DATA": str(tmp_path), "TERM": "xterm"}
    with (tmp_path / "out").open("wb") as out:
        done = subprocess.run(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=other)
    os.close(other)
    os.close(terminal)
    assert done.returncode == 0
    assert (tmp_path / "out").read_text().startswith("1 document: ")


def test_rows_without_room_take_nothing_from_the_others(dragon: Dragon, tmp_path: Path) -> None:
    little = {"DRAGON_DEVICE_DATA": str(tmp_path), "DRAGON_DEVICE_KV_BYTES": str(2**22)}
    done = dragon("profile", *SHORT, **little)
    measured = re.findall(r"^(\d+) documents?:", done.stdout, re.M)
    assert (done.returncode, measured) == (0, ["1", "2", "4", "8"]), done
    assert done.stderr == "left out: 16 documents, whose keys and values need more than kv_bytes\n"
    done = dragon("profile", *SHORT, "--documents", "64", "--documents", "2", **little)
    assert (done.returncode, done.stdout[:11], done.stderr.count("\n")) == (2, "2 documents", 1)
    assert "kv_bytes allows for" in done.stderr and "fewer --documents" in done.stderr
    assert len(list((tmp_path / "profile").glob("decode-*"))) == 4


def test_a_start_whose_documents_have_no_room_says_so(tmp_path: Path) -> None:
    decoder = load_pair("llama", tmp_path).decoder
    decoder.memory.limit_bytes = 1
    with pytest.raises(ConfigurationError, match="an answer from 3 documents has no room: its keys and values take"):
        profiled_line(decoder, 3, tmp_path / "profile")


def test_residual_is_relative_to_the_mean_step() -> None:
    measured = OfflineProfile(1, (100, 200), (0.9, 2.1), DecodeLine.of(0.01, 0.0, 150.0))
    assert measured.residual == pytest.approx(0.1 / 1.5)
    assert math.isclose(sum(median for _, median in measured.pairs), 3.0)


def test_lengths_are_even_and_end_at_the_longest() -> None:
    assert evenly(3, 512) == [170, 341, 512]
    assert evenly(6, 4) == [1, 2, 3, 4]


def test_a_first_start_keeps_a_rough_line_for_the_next(tmp_path: Path) -> None:
    decoder = load_pair("llama", tmp_path).decoder
    line = profiled_line(decoder, 3, tmp_path / "profile")
    kept = kept_line(decoder, 3, tmp_path / "profile")
    assert kept == KeptLine(line, ROUGH)
    assert profiled_line(decoder, 3, tmp_path / "profile") == line
    better = DecodeLine.of(1e-5, 0.5, 100.0)
    keep(decoder, 3, better, tmp_path / "profile", 1.5)
    assert profiled_line(decoder, 3, tmp_path / "profile") == better  # though it lacked cores
