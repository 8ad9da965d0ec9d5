"""The wheel, built and installed as README.md says, beside proto-plus, whose package is called `proto`, too."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from scripts import daemons
from scripts.daemons import ROOT, Pair, Process, add_documents, dragon, fill_library
from tests.daemons.conftest import ENTRIES, NOTES
from tests.support.readme import ELSEWHERE, bare, commands

BY_COMMAND = True  # as it was installed

BUILT = (
    *("setup.py", "pyproject.toml", "README.md", "LICENSE", "proto", "common", "device", "cloud", "scripts/package"),
    *("scripts/model_package", "model.lock", "torch.lock"),
)
GIT = ("git", "-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false")
STAND_IN = """
[project]
name = "proto-plus"
version = "0"
[tool.setuptools]
packages = ["proto"]
"""
OFFLINE = ("--quiet", "--no-index", "--no-deps")
# What README's lines call; what they need is in the environment of the tests, to which `tests.pth` leads.
PIP = """#!/bin/sh
command=$1
shift
exec "{tests}" -m pip --python "{python}" "$command" --quiet --no-index {more} "$@"
"""
BUILDING, INSTALLING = "pip wheel ", "pip install "
PATIENCE = 300.0  # seconds; what a busy machine takes to import and compile


def run(*command: object, at: Path) -> str:
    """Output of the command. Raises for one that fails."""
    return subprocess.run([*map(str, command)], cwd=at, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def run_of_readme(first: str, python: Path | str, more: str, at: Path) -> None:
    """Run the lines of README's section that begin with `first`, with `pip` for that `python`."""
    lines = [bare(line) for line in commands()[ELSEWHERE] if line.startswith(first)]
    assert lines
    tools = at / ".tools"
    tools.mkdir(exist_ok=True)
    (tools / "pip").write_text(PIP.format(tests=sys.executable, python=python, more=more))
    (tools / "pip").chmod(0o755)
    environment = os.environ | {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
    for line in lines:
        subprocess.run(["bash", "-c", line], cwd=at, env=environment, check=True)


@dataclass(frozen=True, slots=True)
class Wheels:
    """The wheel of this project, the commit that it was built from, and one of a stand-in for proto-plus."""

    own: Path
    commit: str
    other: Path


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Wheels:
    own, other, made = (tmp_path_factory.mktemp(name) for name in ("own", "other", "made"))
    for name in BUILT:
        (own / name).parent.mkdir(exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, own / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, own / name)
    for arguments in (["init", "--quiet"], ["add", "README.md"], ["commit", "--quiet", "--message", "All"]):
        run(*GIT, *arguments, at=own)
    (own / "build/lib/device").mkdir(parents=True)
    (own / "build/lib/device/forgotten.py").write_text("")  # by an earlier build
    (other / "pyproject.toml").write_text(STAND_IN)
    (other / "proto").mkdir()
    (other / "proto/__init__.py").write_text("OWNER = 'proto-plus'\n")
    build = (sys.executable, "-m", "pip", "wheel", *OFFLINE, "--no-build-isolation", "--wheel-dir", made)
    run(*build, other, at=made)
    run_of_readme(BUILDING, sys.executable, "--no-build-isolation", at=own)
    (first,), (second,) = own.glob("dist/dragon_runtime-*.whl"), made.glob("proto_plus-*.whl")
    return Wheels(first, run(*GIT, "rev-parse", "--short=12", "HEAD", at=own), second)


@pytest.fixture(scope="module", params=["first", "last"])
def installation(request: pytest.FixtureRequest, wheels: Wheels, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment in which proto-plus was installed first, or last."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", folder, at=folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "tests.pth").write_text(sysconfig.get_path("purelib"))  # after the environment's own packages
    python = folder / "bin/python"
    other = (sys.executable, "-m", "pip", "--python", python, "install", *OFFLINE, wheels.other)
    if request.param == "first":
        run(*other, at=folder)
    run_of_readme(INSTALLING, python, "", at=wheels.own.parent.parent)
    if request.param == "last":
        run(*other, at=folder)
    return folder


def run_from(script: Path, outside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have `scripts.daemons` run that `dragon` in the folder `outside`, without a way to the checkout."""

    def surroundings(environment: Mapping[str, str]) -> dict[str, Any]:
        own = {name: value for name, value in environment.items() if name != "PYTHONPATH"}
        return {"env": own, "cwd": outside}

    def perform(arguments: Sequence[str], environment: Mapping[str, str], timeout: float | None) -> Any:
        command = [str(script), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, **surroundings(environment))

    def launch(module: str, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> Process:
        command = [str(script), *(["cloud"] if module == "cloud.__main__" else []), *arguments]
        with log.open("ab") as output:
            return subprocess.Popen(command, stdout=output, stderr=output, **surroundings(environment))

    monkeypatch.setattr(daemons, "perform", perform)
    monkeypatch.setattr(daemons, "launch", launch)


def test_every_line_of_readme_is_run() -> None:
    assert all(line.startswith((BUILDING, INSTALLING)) for line in commands()[ELSEWHERE])


def test_its_only_top_level_is_dragon_runtime(wheels: Wheels) -> None:
    tops = {name.split("/")[0] for name in ZipFile(wheels.own).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"dragon_runtime"}


def test_it_holds_the_page(wheels: Wheels) -> None:
    folder = ROOT / "device/page"
    wanted = {f"dragon_runtime/device/page/{path.relative_to(folder)}" for path in folder.rglob("*") if path.is_file()}
    assert len(wanted) > 10
    with ZipFile(wheels.own) as wheel:
        assert wanted <= set(wheel.namelist())


@pytest.mark.walkthrough
def test_nothing_is_overwritten(installation: Path, tmp_path: Path) -> None:
    (packages,) = installation.glob("lib/python*/site-packages")
    installed = {each.name: each.files or [] for each in distributions(path=[str(packages)])}
    assert installed.keys() - {"dragon-smollm2"} == {"dragon-runtime", "proto-plus"}
    for file in [file for files in installed.values() for file in files if file.hash is not None]:
        digest = hashlib.sha256(Path(str(file.locate())).read_bytes()).digest()
        assert file.hash is not None
        assert base64.urlsafe_b64encode(digest).decode().rstrip("=") == file.hash.value, file
    seen = run(installation / "bin/python", "-I", "-c", "import proto; print(proto.OWNER)", at=tmp_path)
    assert seen == "proto-plus"


@pytest.mark.walkthrough
@pytest.mark.timeout(2 * PATIENCE)  # the first daemon of an installation compiles
@pytest.mark.parametrize("installation", ["last"], indirect=True)
def test_both_sides_answer(installation: Path, wheels: Wheels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_from(installation / "bin/dragon", tmp_path, monkeypatch)
    assert f"({wheels.commit})" in dragon("--version").stdout
    data, notes = tmp_path / "data", tmp_path / "notes"
    data.mkdir()
    fill_library(data, "cloud", ENTRIES)
    notes.mkdir()
    for name, text in NOTES.items():  # parsed by a child of the command
        (notes / f"{name}.html").write_text(f"<p>{text}</p>")
    add_documents(data, "device", notes)
    with Pair(data, device={"patience": PATIENCE}, patience=PATIENCE) as pair:
        asked = dragon("ask", "Where is my dance class?", "--json", "--url", pair.url, timeout=PATIENCE)
    assert asked.returncode == 0, asked.stderr
    result = json.loads(asked.stdout)
    assert result["answer"]
    assert {source["side"] for source in result["dragon"]["sources"]} == {"device", "cloud"}
    assert result["dragon"]["cloud"]["acceptance"] is not None, "the cloud took no part"
