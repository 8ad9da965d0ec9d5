"""The lattice suite in its short form. How long anything takes is not tested."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from proto.index_code import fixed, short
from proto.varint import encode_number
from scripts.bench import lattice
from scripts.bench.results import Results

pytestmark = pytest.mark.suite


def test_short_suite(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = Results("lattice", tmp_path, short=True)
    lattice.run(results)
    assert "A position by index code" in capsys.readouterr().out
    plan = lattice.SHORT
    kept: list[dict[str, Any]] = json.loads(results.write().read_text())["samples"]["lattice"]["measured"]
    assert len(kept) == 2 * len(plan.resolutions)  # of one vocabulary: one entropy, and all different
    for row in kept:
        resolution, vocabulary = row["resolution"], row["vocabulary"]
        assert len(row["tokens"]) == plan.positions
        assert len(row["quantising"]) == (0 if row["entropy"] is None else plan.positions)
        if row["entropy"] is None:
            assert row["tokens"] == [resolution] * plan.positions
        assert set(row["coded"]) == ({"fixed", "short"} if resolution <= lattice.MOST_FIXED else {"short"})
        for code, coded in row["coded"].items():
            assert min(coded["encoding"] + coded["decoding"]) > 0
            for tokens, size in zip(row["tokens"], coded["sizes"], strict=True):
                index = short.width(tokens, resolution, vocabulary)
                bits = (fixed.width(resolution, vocabulary) if code == "fixed" else index) + (tokens - 1).bit_length()
                assert size == 2 + len(encode_number(resolution)) + (bits + 7) // 8
