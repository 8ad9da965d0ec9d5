"""Try clients: `python -m scripts.clients [NAME ...]`; without a name all, each in a process of its own.

They are installed, in the versions that were tried, into an environment of their own: the project's knows nothing of
them. One that goes with none of the others (`requirements-NAME.txt`) has one for itself.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Sequence
from pathlib import Path

import platformdirs

from scripts.daemons import Pair, fill_library

HERE = Path(__file__).resolve().parent
REQUIREMENTS = HERE / "requirements.txt"
FAILED = 1
PATIENCE = 900.0  # seconds for one client
QUESTION = "Where is my dance class?"
NOTES = {"dance": "My dance class is at Delthcine House.", "kettle": "I bought a kettle from Yormcrus."}
ENTRIES = {"opening": "Delthcine House opens at 12 pm.", "based": "Yormcrus is based in Mairvo."}
NODE = "node"
NODE_VERSION = "6.49.0"  # of OpenAI's client for JavaScript
SCHEMATHESIS = "schemathesis"
# What must hold for any request, whether it fits the schema or not.
CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,"
    "unsupported_method,negative_data_rejection"
)


def main(arguments: Sequence[str] | None = None) -> int:
    names = [*sorted(path.stem.removeprefix("with_") for path in HERE.glob("with_*.py")), SCHEMATHESIS, NODE]
    parser = argparse.ArgumentParser(prog="python -m scripts.clients", description="Try clients on real daemons.")
    parser.add_argument("name", nargs="*", choices=[*names, []], help="the client; all if left out")
    parser.add_argument(
        "--environment",
        type=Path,
        default=platformdirs.user_cache_path("dragon") / "clients",
        help="folder that the clients are installed to (%(default)s)",
    )
    options = parser.parse_args(arguments)
    environment: Path = options.environment.absolute()  # clients run in it
    chosen: list[str] = options.name or [name for name in names if name != NODE or shutil.which("npm")]
    for name in chosen:
        install(place(environment, name), required(name))
    if NODE in chosen:
        install_node(environment)
    with tempfile.TemporaryDirectory(prefix="dragon-clients-") as folder:
        data = Path(folder)
        fill_library(data, "device", NOTES)
        fill_library(data, "cloud", ENTRIES)
        with Pair(data, device={"patience": 60.0}) as pair:
            expected = pair.complete(QUESTION)["choices"][0]["message"]["content"]
            failed = [name for name in chosen if not tried(name, environment, pair.url, expected)]
    print(f"\n{len(chosen) - len(failed)} of {len(chosen)} clients{'; failed: ' if failed else ''}{', '.join(failed)}")
    return FAILED if failed else 0


def required(name: str) -> Path:
    """The packages that a client needs."""
    own = HERE / f"requirements-{name}.txt"
    return own if own.exists() else REQUIREMENTS


def place(environment: Path, name: str) -> Path:
    """The environment of a client."""
    return environment if required(name) == REQUIREMENTS else environment / name


def install(environment: Path, requirements: Path) -> None:
    """Make the environment, unless it is there with all that is required."""
    stamp = environment / "requirements.txt"
    if not stamp.exists() or stamp.read_text() != requirements.read_text():
        print(f"installing clients into {environment} (minutes)", flush=True)
        venv.create(environment, with_pip=True)
        pip = (environment / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps")
        subprocess.run((*pip, "--requirement", requirements), check=True)
        shutil.copyfile(requirements, stamp)


def install_node(environment: Path) -> None:
    """Install the JavaScript client, unless it is there in the version that was tried."""
    manifest = environment / "node_modules" / "openai" / "package.json"
    if not manifest.exists() or json.loads(manifest.read_text("utf-8"))["version"] != NODE_VERSION:
        package = f"openai@{NODE_VERSION}"
        subprocess.run(["npm", "install", "--silent", "--prefix", environment, package], check=True)


def tried(name: str, environment: Path, url: str, expected: str) -> bool:
    """Run one client; returns whether it got what it should."""
    print(f"{name}", flush=True)
    started = time.monotonic()
    try:
        done = subprocess.run(command(name, environment, url, expected), timeout=PATIENCE, cwd=environment)
    except subprocess.TimeoutExpired:
        print(f"  failed, no end within {PATIENCE:g} s", flush=True)
        return False
    print(f"  {'failed' if done.returncode else 'passed'}, {time.monotonic() - started:.0f} s", flush=True)
    return done.returncode == 0


def command(name: str, environment: Path, url: str, expected: str) -> list[str | Path]:
    """The command that runs a client with the daemon's address, the question and the expected answer."""
    if name == SCHEMATHESIS:
        limits = ["--max-examples=30", "--seed=1", "--no-shrink", "--phases=examples,coverage,fuzzing"]
        return [environment / "bin" / "st", "run", f"{url}/openapi.json", f"--checks={CHECKS}", *limits]
    if name == NODE:
        # Modules are looked up from where a script lies.
        script = shutil.copy(HERE / "with_node.mjs", environment)
        return ["node", script, url, QUESTION, expected]
    return [place(environment, name) / "bin" / "python", HERE / f"with_{name}.py", url, QUESTION, expected]


if __name__ == "__main__":
    sys.exit(main())
