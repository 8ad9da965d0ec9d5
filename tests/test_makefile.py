"""The environment of `make setup` is kept until something else is named. Tests are divided by places that exist."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from scripts.daemons import ROOT
from tests.conftest import LONG, PROCESSES, QUICK

INDEX = "https://packages.example/cu"
# Stands for an interpreter of one installation: it says which, and makes environments with it and with a pip.
PYTHON = """#!/bin/sh
echo "{name} $*" >> {log}
case "$*" in
*base_prefix*) echo /opt/{name} ;;
"-m venv"*)
    for folder; do :; done
    if [ "$3" = --clear ]; then rm -rf "$folder"; fi
    mkdir -p "$folder/bin"
    cp "$0" "$folder/bin/python"
    cp {pip} "$folder/bin/pip" ;;
"-c import torch") test ! -e {broken} ;;
esac
"""
PIP = """#!/bin/sh
echo "pip $*" >> {log}
test ! -e {away}
"""


class Checkout:
    """A copy of the makefile, with interpreters that note what they are asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "log"
        self.broken = folder / "broken"  # while it is there, torch does not start
        self.away = folder / "away"  # while it is there, nothing can be fetched
        binaries = folder / "usr" / "bin"
        binaries.mkdir(parents=True)
        shutil.copy(ROOT / "Makefile", folder)
        for name in ("requirements.lock", "torch.lock", "model.lock", "pyproject.toml", "setup.py"):
            (folder / name).touch()
            os.utime(folder / name, (0, 0))
        pip = self._program(folder / "pip", PIP.format(log=self.log, away=self.away))
        for name, called in (("first", "python3"), ("first", "python3.11"), ("second", "python3.12")):
            text = PYTHON.format(name=name, log=self.log, pip=pip, broken=self.broken)
            self._program(binaries / called, text)
        self._environment = {"PATH": f"{binaries}:{os.environ['PATH']}"}  # no flags of a `make test`

    @staticmethod
    def _program(path: Path, text: str) -> Path:
        path.write_text(text)
        path.chmod(0o755)
        return path

    def setup(self, *words: str, code: int = 0, **exported: str) -> list[str]:
        """Run `make setup` with these words and variables; what environments and packages were asked for."""
        self.log.write_text("")
        done = subprocess.run(
            ["make", "setup", *words],
            cwd=self.folder,
            env=self._environment | exported,
            capture_output=True,
            text=True,
            umask=0o022,  # as most users have it
        )
        assert done.returncode == code, done.stderr
        assert ("Ready: " in done.stdout) is (code == 0)
        told = self.log.read_text().splitlines()
        return [line for line in told if "-m venv" in line or line.startswith(("pip install", "pip uninstall"))]

    def torch(self, *words: str) -> list[str]:
        """Run the same; options of pip where it was to install torch."""
        found = [line.split() for line in self.setup(*words) if line.endswith(" -r torch.lock")]
        return [
            " ".join(each for each in line[2:-2] if "--quiet" not in each and "pip-version" not in each)
            for line in found
        ]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    made = Checkout(tmp_path)
    assert made.setup()
    assert made.setup() == [], "nothing changed"
    return made


def test_torch_comes_from_where_it_is_said_to_come(checkout: Checkout) -> None:
    """A build for GPUs comes with what it needs, takes another's place, and stays until another one is asked for."""
    elsewhere = f"TORCH_INDEX={INDEX}"
    assert checkout.torch(elsewhere) == [f"--no-deps --force-reinstall --index-url {INDEX}", f"--index-url {INDEX}"]
    assert checkout.setup(elsewhere) == checkout.setup() == []
    os.utime(checkout.folder / "torch.lock")
    assert checkout.torch() == [f"--no-deps --index-url {INDEX}", f"--index-url {INDEX}"]
    (taken,) = checkout.torch("TORCH_INDEX=")
    assert "--force-reinstall" in taken and INDEX not in taken
    assert checkout.setup() == []


def test_where_torch_comes_from_is_kept_for_this_user_alone(checkout: Checkout) -> None:
    """The address may have a password; a former file of it may be anybody's to read."""
    kept = checkout.folder / ".venv" / ".torch-index"
    kept.chmod(0o644)
    checkout.setup(f"TORCH_INDEX={INDEX}")
    assert (kept.read_text().strip(), kept.stat().st_mode & 0o077) == (INDEX, 0)


def test_torch_that_does_not_start_is_not_kept(checkout: Checkout) -> None:
    checkout.broken.touch()
    assert "pip uninstall" in checkout.setup(f"TORCH_INDEX={INDEX}", code=2)[-1]
    checkout.broken.unlink()
    (taken,) = checkout.torch()
    assert INDEX not in taken, "what failed is not taken again"
    assert checkout.setup() == []


def test_another_interpreter_makes_another_environment(checkout: Checkout) -> None:
    assert checkout.setup("PYTHON=python3.11") == [], "the same by another name"
    made = checkout.setup("PYTHON=python3.12")
    assert made[0] == "second -m venv --clear .venv" and len(made) > 4
    assert checkout.setup("PYTHON=python3.12") == checkout.setup() == []
    os.utime(checkout.folder / "setup.py")
    assert not any("-m venv" in line for line in checkout.setup()), "it has that interpreter, whatever python3 is"
    assert checkout.setup("PYTHON=python4", code=2) == []
    assert checkout.setup() == [], "one that is not there harms nothing"


def test_where_torch_comes_from_outlives_a_setup_that_failed(checkout: Checkout) -> None:
    assert checkout.torch(f"TORCH_INDEX={INDEX}")
    checkout.away.touch()
    checkout.setup("PYTHON=python3.12", code=2)
    checkout.away.unlink()
    assert f"--no-deps --index-url {INDEX}" in checkout.torch("PYTHON=python3.12")


def test_an_interpreter_that_went_is_replaced(checkout: Checkout) -> None:
    python = checkout.folder / ".venv" / "bin" / "python"
    python.unlink()
    python.symlink_to("/nowhere/python3.11")
    os.utime(checkout.folder / "setup.py")
    assert checkout.setup()[0] == "first -m venv --clear .venv"


def test_an_interpreter_that_is_exported_makes_the_first_environment_alone(checkout: Checkout) -> None:
    """Other tools read the same variable, which may name Python 2."""
    for named in ("python3.12", "python2"):
        assert checkout.setup(PYTHON=named) == []
        os.utime(checkout.folder / "setup.py")
        assert not any("-m venv" in line for line in checkout.setup(PYTHON=named))
    shutil.rmtree(checkout.folder / ".venv")
    assert checkout.setup(PYTHON="python3.12")[0] == "second -m venv --clear .venv"


@pytest.mark.parametrize("place", [*LONG, *PROCESSES, *QUICK])
def test_what_is_divided_by_place_is_there(place: str) -> None:
    """A file that was renamed would change its target in silence."""
    file, *names = place.partition("[")[0].split("::")
    found = list((ROOT / "tests").glob(file if file.endswith(("/", ".py")) else f"{file}*"))
    assert found
    assert all(name in found[0].read_text() for name in names)
