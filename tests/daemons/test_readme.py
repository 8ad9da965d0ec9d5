"""Every command and program of README.md, run as a reader runs it: in a shell, from an empty home folder.

Lines differ from what is written in their ports, and where a placeholder stands. What CI runs itself, and what
`test_wheel.py` runs, is listed here. A line that nothing runs fails.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from device.cli.init import PAIRS
from scripts.daemons import PATIENTLY, POLL, ROOT, free_port
from tests.common.engine.model.gguf_file import write_gguf
from tests.support.readme import ELSEWHERE, bare, commands, programs

BY_COMMAND = True  # in shells

PATIENCE = 240.0  # seconds; what a busy machine takes to import, compile and load
BY_CI = {"make demo", "make test", "make test-processes"}
CLONING = "git clone THIS_REPOSITORY dragon && cd dragon"
# Sections of which every line is run.
TOLD = ("Use it", "Two machines", "Choosing a model")
TEXTS = ROOT / "scripts/demo/texts"

pytestmark = pytest.mark.timeout(3 * PATIENCE)


class Machine:
    """A user's machine: an empty home, and ports that nobody else has."""

    def __init__(self, home: Path, **settings: str) -> None:
        home.mkdir()
        self.home = home
        self.http = free_port()
        self.link = free_port()
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("DRAGON_", "XDG_"))}
        self.environment = kept | {
            "HOME": str(home),
            "PATH": f"{sys.prefix}/bin{os.pathsep}{os.environ['PATH']}",
            "DRAGON_DEVICE_MODEL": "embedded",
            "DRAGON_CLOUD_MODEL": "embedded",
            "DRAGON_DEVICE_PORT": str(self.http),
            "HF_HOME": str(home / "hub"),
            **settings,
        }
        self.log = home / "daemons.log"
        self._starting: dict[str, tuple[str, subprocess.Popen[bytes]]] = {}

    def run(self, line: str) -> str:
        """Output of a line, run where all that was started serves. It must end with exit code 0."""
        self.ready()
        command = ["bash", "-c", line]
        done = subprocess.run(command, cwd=self.home, env=self.environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    @contextmanager
    def running(self, line: str, until: str) -> Iterator[None]:
        """A line that goes on, in another terminal; it serves when it has printed `until`."""
        with self.log.open("ab") as output:
            command = ["bash", "-c", f"exec {line}"]
            process = subprocess.Popen(command, cwd=self.home, env=self.environment, stdout=output, stderr=output)
        self._starting[line] = until, process
        try:
            yield
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(PATIENCE)
            finally:
                process.kill()

    def ready(self) -> None:
        """Wait until all that was started serves."""
        while self._starting:
            line, (until, process) = self._starting.popitem()
            self.wait(partial(self._printed, until), process, line)

    def _printed(self, text: str) -> bool:
        return text in self.log.read_text()

    def wait(self, reached: Callable[[], bool], process: subprocess.Popen[bytes] | None, line: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not reached():
            assert process is None or process.poll() is None, f"{line}\n{self.log.read_text()}"
            assert time.monotonic() < deadline, f"{line}\n{self.log.read_text()}"
            time.sleep(POLL)

    def status(self) -> dict[str, Any]:
        """The device's status, once it is connected to its cloud."""
        self.ready()
        status: dict[str, Any] = {}

        def connected() -> bool:
            status.update(httpx.get(f"http://127.0.0.1:{self.http}/status", **PATIENTLY).json())
            return bool(status["cloud"]["state"] == "connected")

        self.wait(connected, None, "dragon status")
        return status


def serving(line: str) -> str | None:
    """Words that a line prints when it serves and goes on; None for one that ends."""
    match line.split()[:2]:
        case ["dragon", "up"]:
            return "both daemons are ready"
        case ["dragon", ("cloud" | "device") as role]:
            return f"{role} ready"
    return None


@pytest.fixture
def terminals() -> Iterator[ExitStack]:
    """Terminals in which daemons go on until the test ends, the last one first."""
    with ExitStack() as stack:
        yield stack


def follow(machine: Machine, line: str, terminals: ExitStack) -> str:
    """Run a line, or have it go on; what it printed."""
    until = serving(line)
    if until is None:
        return machine.run(line)
    terminals.enter_context(machine.running(line.removesuffix(" &"), until))
    return ""


def test_every_line_is_run() -> None:
    told = {bare(line) for section, lines in commands().items() if section not in (*TOLD, ELSEWHERE) for line in lines}
    assert told == BY_CI | {CLONING}
    assert {*TOLD, ELSEWHERE} <= commands().keys()
    assert programs().keys() == {"Use it"}


def test_ci_runs_the_targets_of_make(tmp_path: Path) -> None:
    for target in ("test", "test-processes", "test-walkthroughs"):
        assert re.search(rf"make( [\w-]+)* {target}(\s|$)", (ROOT / ".ci/run").read_text())
    # The demonstration's tests run what `make demo` does.
    makefile = (ROOT / "Makefile").read_text()
    recipes = {name: re.findall(rf"^{name}:.*\n((?:\t.*\n)+)", makefile, re.M) for name in ("demo", "test")}
    assert [recipe.strip() for recipe in recipes["demo"]] == ["@$(BIN)/python -m scripts.demo"]
    assert "-m pytest" in recipes["test"][0]
    assert "from scripts.demo.__main__ import main" in (ROOT / "tests/scripts/test_demo.py").read_text()


@pytest.mark.walkthrough
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="this is no clone")
def test_a_clone_has_what_is_made_next(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "home")
    (machine.home / ".gitconfig").write_text("[safe]\n    directory = *\n")
    line = CLONING.replace("THIS_REPOSITORY", str(ROOT))
    wanted = [line.removeprefix("make ") for line in map(bare, commands()["Try it"]) if line.startswith("make ")]
    assert {f"make {target}" for target in wanted} == BY_CI
    told = machine.run(f"{line} && make help")
    assert all(f"make {target} " in told for target in wanted)


@pytest.mark.walkthrough
def test_use_it(tmp_path: Path, terminals: ExitStack, capsys: pytest.CaptureFixture[str]) -> None:
    machine = Machine(tmp_path / "home")
    machine.environment["DRAGON_CLOUD_BIND"] = f"tcp://127.0.0.1:{machine.link}"
    for folder, text in (("notes", "notes/instrument.md"), ("public-documents", "entries/viola.md")):
        (machine.home / folder).mkdir()
        shutil.copy(TEXTS / text, machine.home / folder)
    lines = [bare(line).replace(".venv/", f"{sys.prefix}/") for line in commands()["Use it"]]
    printed = {line: follow(machine, line, terminals) for line in lines}
    (asked,) = [line for line in lines if line.startswith("dragon ask")]
    assert printed[asked].strip()
    assert "<!doctype html>" in httpx.get(f"http://127.0.0.1:{machine.http}", **PATIENTLY).text.lower()
    program = programs()["Use it"].replace("127.0.0.1:8600", f"127.0.0.1:{machine.http}")
    exec(compile(program, "README.md", "exec"), {})
    answer, last = capsys.readouterr().out.strip().rsplit("\n", 1)
    assert answer
    assert "'instrument'" in last and "'viola'" in last, "a side's document took no part"


@pytest.mark.walkthrough
def test_two_machines(tmp_path: Path, terminals: ExitStack) -> None:
    cloud, device = Machine(tmp_path / "cloud"), Machine(tmp_path / "device")
    printed = ""
    for line in commands()["Two machines"]:
        machine = {"cloud": cloud, "device": device}[re.findall(r"# on the (cloud|device)", line)[0]]
        if placeholder := re.search(r"\b[A-Z]{3,}\b", bare(line)):
            # The line that was printed last, and is to be pasted here.
            pattern = re.escape(bare(line)).replace(placeholder[0], r"(\S+)")
            code = re.search(pattern + "$", printed, re.M)
            assert code, printed
            line = line.replace(placeholder[0], code[1])
        line = re.sub(r"tcp://(cloud\.example|0\.0\.0\.0):8601", meeting(cloud.link), bare(line))
        printed = follow(machine, line, terminals)
    assert device.status()["cloud"]["state"] == "connected"
    assert "the device with the fingerprint" in cloud.log.read_text(), "the link is not authenticated"


def meeting(port: int) -> Callable[[re.Match[str]], str]:
    return lambda found: f"tcp://{found[1].replace('cloud.example', '127.0.0.1')}:{port}"


@pytest.mark.walkthrough
def test_other_models(tmp_path: Path, terminals: ExitStack) -> None:
    machine = Machine(tmp_path / "home")
    address = f"tcp://127.0.0.1:{machine.link}"
    machine.environment |= {"DRAGON_CLOUD_BIND": address, "DRAGON_DEVICE_CLOUD": address}
    (line,) = [bare(line) for line in commands()["Choosing a model"]]
    assert line == "dragon init --models qwen2.5"
    for model in PAIRS["qwen2.5"].values():  # small ones, where downloads are kept
        hub_id, _, name = model.setting.rpartition("/")
        kept = machine.home / "hub/hub" / f"models--{hub_id.replace('/', '--')}"
        snapshot = kept / "snapshots" / ("0" * 40)
        snapshot.mkdir(parents=True)
        (kept / "refs").mkdir()
        (kept / "refs/main").write_text("0" * 40)
        write_gguf(snapshot / name, architecture="qwen2", kind="Q4_0", width=64, inner=64)
    del machine.environment["DRAGON_DEVICE_MODEL"], machine.environment["DRAGON_CLOUD_MODEL"]
    machine.run(f"{line} --yes")  # nobody answers at this terminal
    follow(machine, "dragon up &", terminals)
    assert machine.status()["name"] == PAIRS["qwen2.5"]["device"].setting
