"""The packages that this release needs, and the installed ones."""

from __future__ import annotations

import platform
import tomllib
from dataclasses import dataclass
from importlib import metadata

from common.process.machine import ROOT

DISTRIBUTION = "dragon-runtime"


@dataclass(frozen=True, slots=True)
class Package:
    """A needed package or Python. `installed`: None if missing."""

    name: str
    wanted: str  # versions as in pyproject.toml, e.g. >=1.2
    installed: str | None
    fits: bool


def packages() -> tuple[Package, ...]:
    """Returns Python and the packages of pyproject.toml, empty if unknown."""
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

    python, required = _wanted()
    running = platform.python_version()
    found = [Package("Python", python, running, SpecifierSet(python).contains(running, prereleases=True))]
    for line in required:
        needed = Requirement(line)
        if needed.marker is not None and not needed.marker.evaluate({"extra": ""}):
            continue
        try:
            installed = metadata.version(needed.name)
        except metadata.PackageNotFoundError:
            found.append(Package(needed.name, str(needed.specifier), None, False))
        else:
            fits = needed.specifier.contains(installed, prereleases=True)
            found.append(Package(needed.name, str(needed.specifier), installed, fits))
    return tuple(found)


def _wanted() -> tuple[str, list[str]]:
    """Reads the needs from the checkout, else from the installed distribution."""
    checkout = ROOT / "pyproject.toml"
    if checkout.is_file():
        project = tomllib.loads(checkout.read_text("utf-8"))["project"]
        return project["requires-python"], project["dependencies"]
    try:
        written = metadata.metadata(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "", []
    return written["Requires-Python"] or "", metadata.requires(DISTRIBUTION) or []
