"""Fetches the libraries of the device's page from npm: pinned, checked, without bare import specifiers.

The page's Content-Security-Policy forbids the inline import map that would resolve `import "preact"`, so what a package
imports by name is rewritten to the file beside it. `npm pack` fetches the packages; nothing of theirs is run.
"""

from __future__ import annotations

import base64
import hashlib
import re
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from scripts.daemons import ROOT

FOLDER: Final = ROOT / "device/page/vendor"
CHECKSUMS: Final = "SHA256SUMS"  # of the other files in the folder, as `sha256sum --check` reads them
SPECIFIER: Final = re.compile(r"""(\bfrom|\bimport)(\s*)(["'])([^"'.][^"']*)\3""")
SOURCE_MAP: Final = re.compile(r"//# sourceMappingURL=.*\n?")


@dataclass(frozen=True, slots=True)
class Package:
    """A release on npm, and which of its files are kept: name in the package, name here."""

    name: str
    version: str
    integrity: str  # SHA-512 of the archive, as npm writes it
    files: dict[str, str]


PACKAGES: Final = (
    Package(
        "preact",
        "11.2.0",
        "sha512-/HfHI/7N84e6GrWBJ3J280z3mLaRJiDcSvj/A+y/4AbLnND/1UlGHe1sR6oYuTGwId0nP7dqDU9OnLxMPZ7xBg==",
        {"dist/preact.mjs": "preact.js", "hooks/dist/hooks.mjs": "hooks.js", "LICENSE": "preact.LICENSE.txt"},
    ),
    Package(
        "htm",
        "3.1.1",
        "sha512-983Vyg8NwUE7JkZ6NmOqpCZ+sh1bKv2iYTlUkzlWmA5JD2acKoxd4KVxbMmxX/85mtfdnDmTFoNKcg5DGAvxNQ==",
        {"dist/htm.module.js": "htm.js", "LICENSE": "htm.LICENSE.txt"},
    ),
)
MODULES: Final = {"preact": "./preact.js"}  # by bare specifier


def main() -> None:
    """Replace the folder's files."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    made: dict[str, bytes] = {}
    with TemporaryDirectory() as work:
        for package in PACKAGES:
            made |= _kept(package, _archive(package, Path(work)))
    for path in FOLDER.iterdir():
        path.unlink()
    for name, content in made.items():
        (FOLDER / name).write_bytes(content)
    (FOLDER / CHECKSUMS).write_text(checksums(made))
    print(f"{len(made)} files in {FOLDER.relative_to(ROOT)}")


def checksums(files: dict[str, bytes]) -> str:
    """A line for each of `files`, by name."""
    return "".join(f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files))


def relative(source: str) -> str:
    """The module `source` with the bare specifiers of its imports made relative. Raises KeyError for an unknown one."""
    return SPECIFIER.sub(lambda found: f"{found[1]}{found[2]}{found[3]}{MODULES[found[4]]}{found[3]}", source)


def _archive(package: Package, work: Path) -> Path:
    release = f"{package.name}@{package.version}"
    subprocess.run(["npm", "pack", "--silent", "--ignore-scripts", release], cwd=work, check=True, stdout=sys.stderr)
    (path,) = work.glob(f"{package.name}-*.tgz")
    found = "sha512-" + base64.b64encode(hashlib.sha512(path.read_bytes()).digest()).decode()
    if found != package.integrity:
        raise SystemExit(f"{release} is another archive than the one that is pinned: it has {found}")
    return path


def _kept(package: Package, archive: Path) -> dict[str, bytes]:
    kept = {}
    with tarfile.open(archive) as members:
        for inside, name in package.files.items():
            member = members.extractfile(f"package/{inside}")
            assert member is not None, f"{inside} is not a file"
            content = member.read()
            if name.endswith(".js"):
                content = relative(SOURCE_MAP.sub("", content.decode())).encode()
            kept[name] = content
    return kept


if __name__ == "__main__":
    main()
