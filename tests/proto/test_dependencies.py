"""The package proto needs neither torch nor sockets."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import importlib, json, pathlib, sys
modules = [".".join(path.with_suffix("").parts) for path in pathlib.Path("proto").rglob("*.py")]
import numpy, msgpack, lz4.block  # and whatever they load themselves
before = set(sys.modules)
for module in modules:
    importlib.import_module(module.removesuffix(".__init__"))
print(json.dumps([modules, sorted({name.split(".")[0] for name in set(sys.modules) - before})]))
"""


def test_proto_loads_only_numpy_msgpack_and_lz4() -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    modules, loaded = json.loads(run.stdout)
    assert "proto.framing" in modules
    assert set(loaded) <= {"proto", "numpy", "msgpack", "lz4"} | set(sys.stdlib_module_names)
    assert not set(loaded) & {"socket", "pickle", "asyncio", "threading"}
