"""Files of commands and daemons below their data folder are its user's alone, under the usual umask."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from scripts.daemons import ANSWER_PATIENCE, Daemon, dragon, free_port
from tests.common.process.test_private_files import open_to_others

MENDED = "now only this user can"

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    folder = tmp_path / "documents"
    folder.mkdir()
    for name in ("rabbit", "kettle", "dance"):
        (folder / f"{name}.md").write_text(f"A note of mine about the {name}.")
    return folder


def open_all(data: Path) -> None:
    for path in [data, *data.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)


def use(data: Path) -> str:
    """Have a daemon answer a question and stop; its log."""
    log, port = data.parent / "device.log", free_port()
    daemon = Daemon("device", data, {"port": port, "cloud": "none", "threads": 1}, log)
    daemon.start()
    try:
        daemon.wait_for("device ready on")
        body = {"prompt": "What about the rabbit?", "max_tokens": 4, "sources": "device"}
        url = f"http://127.0.0.1:{port}/v1/completions"
        assert httpx.post(url, json=body, timeout=ANSWER_PATIENCE, trust_env=False).status_code == 200
        assert open_to_others(data / "device" / "library") == []  # SQLite's side files, too
    finally:
        daemon.stop()
    return log.read_text()


def test_a_new_folder(tmp_path: Path, documents: Path) -> None:
    data = tmp_path / "data"
    done = dragon("library", "add", str(documents), data=data)
    assert done.returncode == 0, done.stderr
    assert MENDED not in done.stderr
    assert open_to_others(data / "device") == []
    assert MENDED not in use(data)
    # No decode profile: a busy machine keeps none.
    assert {path.name for path in (data / "device").iterdir()} >= {"library", "document-kv"}
    assert open_to_others(data / "device") == []


def test_a_folder_that_others_can_read(tmp_path: Path, documents: Path) -> None:
    data = tmp_path / "data"
    dragon("library", "add", str(documents), data=data)
    open_all(data)
    told = dragon("library", "status", data=data).stderr
    assert MENDED in told
    assert "rabbit" not in told
    open_all(data)
    log = use(data)
    assert [MENDED in line for line in log.splitlines()].count(True) == 1
    assert "rabbit" not in log
    assert open_to_others(data / "device") == [str(data / "device")]  # which may hold other things, too
