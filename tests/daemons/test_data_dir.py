"""One setting moves all that is kept: beside that folder nothing is written, and without it nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from cloud.settings import CloudSettings
from device.settings import DeviceSettings
from scripts.daemons import ANSWER_PATIENCE, LOCALLY, ROOT, START_PATIENCE, free_port
from tests.daemons.streaming import wait_until

BY_COMMAND = True  # as users start them: what libraries read when they are imported counts

PATIENCE = 3 * START_PATIENCE  # every loop is compiled anew: nothing is in the caches

pytestmark = [pytest.mark.walkthrough, pytest.mark.timeout(4 * PATIENCE)]


@dataclass(frozen=True, slots=True)
class Machine:
    """A user with an empty home and an empty working directory, and the folder that they chose."""

    home: Path
    working: Path
    data: Path

    def environment(self) -> dict[str, str]:
        gone = ("DRAGON_", "XDG_", "NUMBA_", "HF_HOME", "MPLCONFIGDIR", "PYTHONPATH")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(gone)}
        return kept | {"HOME": str(self.home), "DRAGON_DATA_DIR": str(self.data), "PYTHONPATH": str(ROOT)}

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "device.cli.main", *words]

    def dragon(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words),
            env=self.environment(),
            cwd=self.working,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    @contextmanager
    def running(self, log: Path, *words: str) -> Iterator[None]:
        """A daemon that serves, until behind the block."""
        with log.open("wb") as output:
            process = subprocess.Popen(
                self.command(*words), env=self.environment(), cwd=self.working, stdout=output, stderr=output
            )
        try:
            wait_until(lambda: process.poll() is not None or " ready on " in log.read_text(), "it serves", PATIENCE)
            assert process.poll() is None, log.read_text()
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(START_PATIENCE)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    home, working = tmp_path / "home", tmp_path / "working"
    for folder in (home, working):
        folder.mkdir()
    return Machine(home, working, tmp_path / "chosen")


def written(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def test_all_is_in_the_folder_and_goes_with_it(machine: Machine, tmp_path: Path) -> None:
    documents, settings = tmp_path / "documents", machine.home / ".config" / "dragon"
    documents.mkdir()
    settings.mkdir(parents=True)
    (documents / "dance.html").write_text("<p>My dance class is at Delthcine House.</p>")
    port, cloud = free_port(), f"tcp://127.0.0.1:{free_port()}"
    both = 'model = "embedded"\nthreads = 1\n'
    (settings / "device.toml").write_text(f'{both}cloud = "{cloud}"\nport = {port}\npatience = 60\n')
    (settings / "cloud.toml").write_text(f'{both}bind = "{cloud}"\n')
    before = written(machine.home)
    for role in ("device", "cloud"):
        done = machine.dragon("library", "add", "--watch", "--role", role, str(documents))
        assert done.returncode == 0, done.stderr
    assert machine.dragon("keys", "new", "--role", "cloud").returncode == 0
    with (
        machine.running(tmp_path / "cloud.log", "cloud"),
        machine.running(tmp_path / "device.log", "device"),
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=ANSWER_PATIENCE, **LOCALLY) as client,
    ):
        wait_until(lambda: client.get("/status").json()["cloud"]["state"] == "connected", "they meet", PATIENCE)
        asked = machine.dragon("ask", "Where is my dance class?")
        assert asked.returncode == 0, asked.stderr
        kind = {"content-type": "application/octet-stream"}
        sent = client.post("/library/documents", params={"name": "note.md"}, content=b"A note.", headers=kind)
        assert sent.is_success, sent.text
        for role, words in (("device", ()), ("cloud", ("--role", "cloud"))):
            refused = machine.dragon("data", "remove", "--yes", *words)
            assert (refused.returncode, f"the {role} daemon runs at" in refused.stderr) == (2, True), refused
    assert (written(machine.home), written(machine.working)) == (before, [])
    made = DeviceSettings(data_dir=machine.data), CloudSettings(data_dir=machine.data)
    known = {folder for each in made for folder in each.kept.values()}
    locks = {file for each in made for file in (each.lock, each.starting)}
    files = [path for path in machine.data.rglob("*") if path.is_file() and path not in locks]
    assert [path for path in files if not known & {*path.parents}] == []
    assert any(path.is_relative_to(machine.data / "cache" / "numba") for path in files)
    done = machine.dragon("data", "remove", "--role", "both", "--yes")
    assert done.returncode == 0, done.stderr
    assert not machine.data.exists()
    assert (written(machine.home), written(machine.working)) == (before, [])
