"""The shape of the source tree: permitted imports, and the length of files.

Files are parsed, not imported, so that an import inside a function counts as well.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FIRST_PARTY = {"proto", "common", "device", "cloud", "scripts", "tests"}

# proto <- common <- {device, cloud}; scripts and tests may use everything.
MAY_IMPORT = {
    "proto": {"proto"},
    "common": {"proto", "common"},
    "device": {"proto", "common", "device"},
    "cloud": {"proto", "common", "cloud"},
}
# The wire is readable without the engine: neither torch nor sockets.
PROTO_LIBRARIES = {"numpy", "msgpack", "lz4"}

# What each of these builds on is below the engine, never the engine.
FOUNDATIONS = ("sampling", "model", "kv", "weights", "retrieval", "scoring", "placement", "draft_policy")
ENGINE = (
    "common.session",
    "common.engine",
    "common.methods",
    "common.runtime",
    "common.transport",
    "common.simulation",
)

# The same objects run in daemons, under a virtual clock and in tests: no clock, thread, socket or model.
PURE = ("session", "rounds", "trees", "simulation", "placement", "draft_policy")
IMPURE_LIBRARIES = (
    "torch",
    "transformers",
    "zmq",
    "time",
    "threading",
    "socket",
    "asyncio",
    "multiprocessing",
)

# Loading one of these runs code that the data names.
UNSAFE_LIBRARIES = ("pickle", "_pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal")

MAXIMUM_LINES = {"proto": 300, "common": 300, "device": 300, "cloud": 300, "scripts": 350, "tests": 350}


def imported(path: str, source: str) -> Iterator[str]:
    """Dotted names that `source` imports, written as statements or `import_module("...")`."""
    package = path.split("/")[:-1]
    for node in ast.walk(ast.parse(source, path)):
        match node:
            case ast.Import():
                yield from (alias.name for alias in node.names)
            case ast.ImportFrom():
                base = package[: len(package) - node.level + 1] if node.level else []
                prefix = ".".join([*base, *([node.module] if node.module else [])])
                yield from (f"{prefix}.{alias.name}" for alias in node.names)
            case ast.Call(func=function, args=[ast.Constant(value=str(name)), *_]):
                called = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
                if called in ("import_module", "__import__"):
                    yield name


def within(name: str, modules: tuple[str, ...]) -> bool:
    return any(name == module or name.startswith(module + ".") for module in modules)


def violations(path: str, source: str) -> list[str]:
    """Violations of the rules in `source`, the content of `path` (relative to the root, with slashes)."""
    parts = path.split("/")
    package, folder = parts[0], parts[1] if len(parts) > 2 else ""
    allowed = MAY_IMPORT.get(package, FIRST_PARTY)
    found = []
    for name in imported(path, source):
        top = name.split(".")[0]
        library = top not in FIRST_PARTY
        forbidden = (
            (not library and top not in allowed)
            or within(name, UNSAFE_LIBRARIES)
            or (
                package == "proto"
                and library
                and (top in IMPURE_LIBRARIES or top not in PROTO_LIBRARIES | sys.stdlib_module_names)
            )
            or (package == "common" and folder in FOUNDATIONS and within(name, ENGINE))
            or (package == "common" and folder in PURE and within(name, IMPURE_LIBRARIES))
        )
        if forbidden:
            found.append(f"{path} imports {name}")
    lines = source.count("\n")
    if lines > MAXIMUM_LINES[package]:
        found.append(f"{path} has {lines} lines, more than {MAXIMUM_LINES[package]}: is it two things?")
    return found


def test_source_tree_keeps_its_shape() -> None:
    paths = [path for package in FIRST_PARTY for path in (ROOT / package).rglob("*.py")]
    assert len(paths) > 20, "the tree was not found"
    found = [
        line
        for path in sorted(paths)
        for line in violations(path.relative_to(ROOT).as_posix(), path.read_text("utf-8"))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("proto/a.py", "import common.model"),
        ("proto/a.py", "import torch"),
        ("proto/a.py", "import zmq"),
        ("proto/a.py", "import socket"),
        ("common/model/a.py", "import device"),
        ("common/runtime/a.py", "from cloud.server import Server"),
        ("common/runtime/a.py", "import scripts.demo"),
        ("device/a.py", "import cloud.server"),
        ("device/api/a.py", "from cloud import server"),
        ("cloud/a.py", "import device"),
        ("cloud/a.py", "from tests import conftest"),
        ("common/sampling/a.py", "from common.session.session import Session"),
        ("common/sampling/a.py", "from common import session"),
        ("common/sampling/a.py", "from ..session import values"),
        ("common/sampling/a.py", "from .. import session"),
        ("common/retrieval/a.py", "def later():\n    from common.runtime import request"),
        ("common/scoring/a.py", "import common.transport.link as link"),
        ("common/session/a.py", "import torch"),
        ("common/session/a.py", "from time import monotonic"),
        ("common/session/deep/a.py", "import threading"),
        ("common/simulation/a.py", "import zmq.asyncio"),
        ("common/placement/a.py", "import time"),
        ("common/draft_policy/a.py", "import torch"),
        ("common/trees/a.py", "import torch"),
        ("common/draft_policy/a.py", "from common.simulation import rounds"),
        ("common/model/a.py", "import pickle"),
        ("scripts/a.py", "from joblib import load"),
        ("tests/a.py", "import importlib\nimportlib.import_module('pickle')"),
        ("common/model/a.py", "__import__('device.daemon')"),
        ("common/model/a.py", "\n" * 301),
        ("tests/a.py", "\n" * 351),
    ],
)
def test_violation_is_caught(path: str, source: str) -> None:
    assert violations(path, source)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        (
            "proto/a.py",
            "from __future__ import annotations\nimport struct, msgpack, lz4.frame\nimport proto.bounds",
        ),
        (
            "common/model/a.py",
            "import torch, time, threading\nfrom common.sampling import noise\nimport proto",
        ),
        ("common/runtime/a.py", "from common.session import session\nimport zmq, time"),
        ("common/session/a.py", "from common.sampling import noise\nimport numpy, collections"),
        ("common/session/a.py", "import threadpoolctl"),
        ("device/a.py", "import common, proto, device.cli\nimport time"),
        ("tests/a.py", "import device, cloud, torch, time"),
        ("common/model/a.py", "\n" * 300),
        ("tests/a.py", "\n" * 350),
    ],
)
def test_what_is_allowed_passes(path: str, source: str) -> None:
    assert violations(path, source) == []
