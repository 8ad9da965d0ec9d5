"""The shape of the source tree: permitted imports, the length of files, and the beginnings of docstrings.

Files are parsed, not imported, so that an import inside a function counts as well.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from functools import cache
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
# The `dragon` command shows and uses both roles' settings: what it needs of the cloud's is imported when it is needed.
COMMANDS, SETTINGS_OF_CLOUD = "device/cli/", ("cloud.settings",)
# The wire is readable without the engine: neither torch nor sockets.
PROTO_LIBRARIES = {"numpy", "msgpack", "lz4"}

# Each builds on those before it, and on none behind it.
LAYERS = (
    "common.process",
    "common.sampling",
    "common.transport",
    "common.configuration",
    "common.estimates",
    "common.draft_policy",
    "common.processors",
    "common.figures",
    "common.tracing",
    "common.answer",
    "common.engine",
    "common.library",
    "common.scoring",
    "common.daemon",
    "common.metrics",
    "common.methods",  # what all of them have
    "common.methods.aggregate",
    "common.methods.drafted",
    "common.methods.coupled",
    "common.methods.edgellm",
    "common.methods.paper",
    "common.methods.rapid",
    "common.methods.rejection",
    "common.methods.catalog",
)

# Rooms of methods. The product knows them by the catalogue alone.
ROOMS = (
    "common.methods.coupled",
    "common.methods.edgellm",
    "common.methods.paper",
    "common.methods.rapid",
    "common.methods.rejection",
)
CATALOGUE = "common/methods/catalog.py"

# The same objects run in daemons, under a virtual clock and in tests: no clock, thread, socket or model.
PURE = (
    "common/answer",
    "common/methods/aggregate/drafts.py",
    "common/methods/aggregate/session.py",
    "common/methods/drafted/drafting.py",
    "common/methods/drafted/eager.py",
    "common/methods/drafted/verifying.py",
    "common/methods/edgellm/growth.py",
    "common/methods/edgellm/rounds.py",
    "scripts/simulation",
    "common/estimates",
    "common/draft_policy",
)
# Parts of a daemon that live beside the rules they carry out.
CARRIES_OUT = (
    "common/answer/driver.py",
    "common/answer/recorder.py",
    "common/estimates/profiler.py",
)
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

# A docstring that begins so asks what it should tell. `Whether` is the habit for what is true or false.
QUESTION = re.compile(r"(What|Who|Whose|How|Where|When|Which|Why)\b")

MAXIMUM_LINES = dict.fromkeys(("proto", "common", "device", "cloud", "scripts", "tests"), 900)


def imported(path: str, nodes: Sequence[ast.AST]) -> Iterator[str]:
    """Dotted names that the module at `path` imports, written as statements or `import_module("...")`."""
    package = path.split("/")[:-1]
    for node in nodes:
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


def at_import(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a module that are executed when it is imported."""
    for child in ast.iter_child_nodes(node):
        typing = isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING"
        if not typing and not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield child
            yield from at_import(child)


def docstrings(nodes: Sequence[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield ast.get_docstring(node) or ""


def within(name: str, modules: tuple[str, ...]) -> bool:
    return any(name == module or name.startswith(module + ".") for module in modules)


@cache
def layer_of(name: str) -> int:
    """The place of a module in `LAYERS`, -1 in none of them."""
    found = [layer for layer in LAYERS if within(name, (layer,))]
    return LAYERS.index(max(found, key=len)) if found else -1


def room_of(name: str) -> str | None:
    """The method's room that a module is in."""
    return next((room for room in ROOMS if within(name, (room,))), None)


def violations(path: str, source: str) -> list[str]:
    """Violations of the rules in `source`, the content of `path` (relative to the root, with slashes)."""
    package, pure = path.split("/")[0], path.startswith(PURE) and path not in CARRIES_OUT
    module = path.removesuffix(".py").replace("/", ".")
    layer, in_product = layer_of(module), package in MAY_IMPORT and path != CATALOGUE
    allowed = MAY_IMPORT.get(package, FIRST_PARTY)
    tree = ast.parse(source, path)
    nodes = list(ast.walk(tree))
    later = set(imported(path, nodes)) - set(imported(path, list(at_import(tree))))
    lazy = {name for name in later if path.startswith(COMMANDS) and within(name, SETTINGS_OF_CLOUD)}
    found = []
    for name in imported(path, nodes):
        top = name.split(".")[0]
        library = top not in FIRST_PARTY
        forbidden = (
            (not library and top not in allowed and name not in lazy)
            or within(name, UNSAFE_LIBRARIES)
            or (
                package == "proto"
                and library
                and (top in IMPURE_LIBRARIES or top not in PROTO_LIBRARIES | sys.stdlib_module_names)
            )
            or layer_of(name) > layer >= 0
            or (in_product and room_of(name) not in (None, room_of(module)))
            or (pure and within(name, IMPURE_LIBRARIES))
        )
        if forbidden:
            found.append(f"{path} imports {name}")
    asking = filter(QUESTION.match, docstrings(nodes))
    found += [f"{path}: a docstring begins with a question word: {text[:40]}" for text in asking]
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
        ("proto/a.py", "import common.engine.model"),
        ("proto/a.py", "import torch"),
        ("proto/a.py", "import zmq"),
        ("proto/a.py", "import socket"),
        ("common/engine/model/a.py", "import device"),
        ("common/daemon/a.py", "from cloud.server import Server"),
        ("common/daemon/a.py", "import scripts.demo"),
        ("device/a.py", "import cloud.server"),
        ("device/api/a.py", "from cloud import server"),
        ("device/cli/a.py", "from cloud.settings import CloudSettings"),
        ("device/cli/a.py", "class A:\n    from cloud.settings import CloudSettings"),
        ("device/cli/a.py", "def later():\n    from cloud.daemon import run_cloud"),
        ("device/cli/a.py", "def later():\n    from cloud import settings, daemon"),
        ("device/http/a.py", "def later():\n    from cloud.settings import CloudSettings"),
        ("common/a.py", "def later():\n    from cloud.settings import CloudSettings"),
        ("cloud/a.py", "import device"),
        ("cloud/a.py", "from tests import conftest"),
        ("common/sampling/a.py", "from common.answer.values import Work"),
        ("common/sampling/a.py", "from common import answer"),
        ("common/sampling/a.py", "from ..answer import values"),
        ("common/sampling/a.py", "from .. import answer"),
        ("common/library/a.py", "def later():\n    from common.daemon import side"),
        ("common/engine/a.py", "import common.scoring.worker as worker"),
        ("common/methods/a.py", "from common.methods.edgellm import device as driver"),
        ("common/methods/drafted/a.py", "from common.methods.edgellm import relief"),
        ("common/methods/rejection/a.py", "from common.methods.coupled.scheme import Equality"),
        ("common/methods/rapid/a.py", "def later():\n    from common.methods.paper import fetch"),
        ("common/engine/a.py", "from common.methods.edgellm.growth import BestFirst"),
        ("cloud/a.py", "import common.methods.rapid.method"),
        ("device/a.py", "from common.methods.rejection.method import Dsd"),
        ("common/methods/aggregate/a.py", "from common.methods.drafted import lengths"),
        ("common/methods/edgellm/device.py", "from common.methods.catalog import find"),
        ("common/methods/aggregate/session.py", "import torch"),
        ("common/methods/aggregate/drafts.py", "from time import monotonic"),
        ("common/methods/drafted/eager.py", "import threading"),
        ("scripts/simulation/a.py", "import zmq.asyncio"),
        ("common/estimates/a.py", "import time"),
        ("common/draft_policy/a.py", "import torch"),
        ("common/methods/edgellm/growth.py", "import torch"),
        ("common/draft_policy/a.py", "from scripts.simulation import scenario"),
        ("common/engine/model/a.py", "import pickle"),
        ("scripts/a.py", "from joblib import load"),
        ("tests/a.py", "import importlib\nimportlib.import_module('pickle')"),
        ("common/engine/model/a.py", "__import__('device.daemon')"),
        ("common/engine/model/a.py", "\n" * 901),
        ("tests/a.py", "\n" * 901),
        ("proto/a.py", '"""What it reads."""'),
        ("scripts/a.py", 'class Some:\n    async def text(self):\n        """How it is told."""'),
    ],
)
def test_violation_is_caught(path: str, source: str) -> None:
    assert violations(path, source)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        (
            "proto/a.py",
            "from __future__ import annotations\nimport struct, msgpack, lz4.frame\nimport proto.messages",
        ),
        (
            "common/engine/model/a.py",
            "import torch, time, threading\nfrom common.sampling import compiled as noise\nimport proto",
        ),
        ("common/daemon/a.py", "from common.engine import loop as worker\nimport zmq, time"),
        (
            "common/methods/aggregate/session.py",
            "from common.sampling import compiled as noise\nimport numpy, collections",
        ),
        ("common/methods/aggregate/session.py", "import threadpoolctl"),
        ("common/methods/edgellm/a.py", "from common.methods.edgellm import device as driver\nimport threading"),
        ("common/methods/rapid/a.py", "from common.methods.drafted import distributions"),
        ("common/methods/catalog.py", "from common.methods.coupled.method import Coupled"),
        ("tests/a.py", "from common.methods.coupled.scheme import Equality"),
        ("common/estimates/profiler.py", "import threading"),
        ("device/a.py", "import common, proto, device.cli\nimport time"),
        ("device/cli/a.py", "def later():\n    from cloud.settings import CloudSettings"),
        ("device/cli/a.py", "if TYPE_CHECKING:\n    from cloud.settings import CloudSettings"),
        ("tests/a.py", "import device, cloud, torch, time"),
        ("common/engine/model/a.py", "\n" * 900),
        ("tests/a.py", "\n" * 900),
        ("device/a.py", 'def known():\n    """Whether it is known."""'),
    ],
)
def test_what_is_allowed_passes(path: str, source: str) -> None:
    assert violations(path, source) == []
