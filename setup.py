"""Build steps that `pyproject.toml` can't say: where the packages lie, and which commit they are.

Site-packages gets one name, `dragon_runtime`, with the four folders of the checkout inside: `common` and `proto` are
names that others use, too.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
PACKAGE = "dragon_runtime"
FOLDERS = ("proto", "common", "device", "cloud")

sys.path.insert(0, str(ROOT))  # the build backend leaves it out


class Build(build_py):
    """Build the wheel's files. An editable install has none: it runs from the checkout."""

    def run(self) -> None:
        from common.process.version import COMMIT, commit

        if self.editable_mode:
            super().run()
            return
        # An earlier build's modules, deleted or moved since, would get into the wheel.
        shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()
        if built_from := commit():
            Path(self.build_lib, PACKAGE, COMMIT).write_text(built_from)


found = find_packages(str(ROOT), include=[name for folder in FOLDERS for name in (folder, f"{folder}.*")])
setup(
    packages=[PACKAGE, *(f"{PACKAGE}.{name}" for name in found)],
    package_dir={PACKAGE: "scripts/package"} | {f"{PACKAGE}.{folder}": folder for folder in FOLDERS},
    cmdclass={"build_py": Build},
)
