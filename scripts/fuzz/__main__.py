"""Fuzz the wire's decoders: `python -m scripts.fuzz [NAME] [--seconds N]`; without a name all, one after the other."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scripts.fuzz.targets import Target

FOUND = 1
NAMES = ("frame", "race", "top-p", "raw", "sparse", "lattice", "tokens", "kv", "trace", "ids", "number")
NO_ATHERIS = (
    "fuzz: atheris is not installed, so golden messages are mutated blindly; `pip install atheris` in an environment "
    "of its own (CPython up to 3.13 on Linux) makes it see what the decoders do."
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.fuzz", description="Fuzz the wire's decoders.")
    parser.add_argument("name", nargs="?", choices=NAMES, help="the decoder; all if left out")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each decoder (60)")
    options = parser.parse_args(arguments)
    if not options.seconds > 0:
        parser.error("--seconds must be above 0")
    guided = importlib.util.find_spec("atheris") is not None
    if not guided:
        print(NO_ATHERIS, file=sys.stderr)
    if options.name is not None and guided:
        _fuzz_guided(options.name, options.seconds)
    codes = [_fuzz(name, options.seconds, guided) for name in ([options.name] if options.name else NAMES)]
    return FOUND if any(codes) else 0


def _fuzz(name: str, seconds: float, guided: bool) -> int:
    if guided:  # libFuzzer ends its process
        print(f"{name}:", flush=True)
        command = [sys.executable, "-m", "scripts.fuzz", name, "--seconds", str(seconds)]
        return subprocess.run(command, check=False).returncode
    from scripts.fuzz.mutation import Finding, search
    from scripts.fuzz.targets import TARGETS, seeds

    warnings.simplefilter("error")
    try:
        count = search(TARGETS[name], seeds(), seconds)
    except Finding as finding:
        print(f"{name}: {finding}")
        return FOUND
    print(f"{name}: {count} inputs, nothing found")
    return 0


def _fuzz_guided(name: str, seconds: float) -> None:
    """Hand over to atheris, which ends the process: with 0, or with its own code for a finding."""
    atheris: Any = importlib.import_module("atheris")  # optional, and without types
    with atheris.instrument_imports(include=["proto"]):
        from scripts.fuzz.targets import TARGETS, probe, seeds
    warnings.simplefilter("error")
    target: Target = TARGETS[name]

    def one(data: bytes) -> None:
        probe(target, data)

    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        for index, seed in enumerate(seeds()):
            (Path(folder) / f"seed-{index}").write_bytes(seed)
        options = [f"-max_total_time={max(1, round(seconds))}", "-max_len=4096", "-rss_limit_mb=1024", "-timeout=10"]
        options += ["-verbosity=0", "-print_final_stats=1", f"-artifact_prefix={name}-"]
        atheris.Setup([sys.argv[0], *options, folder], one)
        atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
