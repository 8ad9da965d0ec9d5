"""A stored document whose header was written by somebody else is refused with the one error, whatever it says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from common.engine.kv.documents import DamagedFile, Label, load_states, save_states
from tests.common.engine.kv.storing import LAYOUT, synthetic

LABEL = Label("ab", "source")
LIMIT = 10**6

HEADERS: dict[str, Callable[[dict[str, Any]], object]] = {
    "endless tokens": lambda header: header["__metadata__"].update(tokens=float("inf")),
    "many tokens": lambda header: header["__metadata__"].update(tokens=10**4000),
    "no tokens": lambda header: header["__metadata__"].update(tokens=0),
    "endless place": lambda header: header["0.keys"].update(data_offsets=[float("inf")] * 2),
    "far place": lambda header: header["0.keys"].update(
        data_offsets=[10**30 + offset for offset in header["0.keys"]["data_offsets"]]
    ),
    "place behind the end": lambda header: header["0.keys"].update(
        data_offsets=[10**5 + offset for offset in header["0.keys"]["data_offsets"]]
    ),
    "one place": lambda header: header["0.keys"].update(data_offsets=[0]),
    "many dimensions": lambda header: header["0.keys"].update(shape=[1] * 100_000),
    "endless dimension": lambda header: header["0.keys"].update(shape=[float("inf")]),
    "type of types": lambda header: header["0.keys"].update(dtype=[]),
    "list for a tensor": lambda header: header.update({"0.keys": []}),
    "list of metadata": lambda header: header.update(__metadata__=[]),
}


@pytest.mark.parametrize("change", HEADERS.values(), ids=HEADERS)
def test_headers_that_nobody_writes(change: Callable[[dict[str, Any]], object], tmp_path: Path) -> None:
    path = tmp_path / "file"
    save_states(path, synthetic(1), LABEL)
    content = path.read_bytes()
    length = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:length])
    change(header)
    written = json.dumps(header).encode()
    path.write_bytes(len(written).to_bytes(8, "little") + written + content[length:])
    with pytest.raises(DamagedFile):
        load_states(path, LAYOUT, LABEL, LIMIT)
