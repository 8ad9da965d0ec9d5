"""Old office files through LibreOffice: a stand-in program notes how it is called, and misbehaves.

The real program is not among the packages of the tests.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from common.library.documents import File, UnusableDocument, read_content
from common.library.library import Library
from common.library.readers import conversion, formats
from common.library.readers.content import Unreadable
from common.library.readers.conversion import converted
from common.library.readers.isolated import IsolatedReader
from tests.common.library.conftest import Write
from tests.common.library.readers.test_golden import GOLDEN

STAND_IN = f"""#!{sys.executable}
import json, os, shutil, socket, subprocess, sys, time
from pathlib import Path
options = dict(zip(sys.argv[1:], sys.argv[2:]))
document = Path(sys.argv[-1])
told = document.read_bytes().decode()
folder, target = Path(options["--outdir"]), options["--convert-to"]
notes = Path(__file__).with_name("notes.json")
profile = [each for each in sys.argv if each.startswith("-env:UserInstallation=file://")]
settings = Path(profile[0].partition("file://")[2], "user/registrymodifications.xcu").read_text()
def reaches():
    try:
        with socket.create_connection(("127.0.0.1", int(told.split()[1])), timeout=2):
            return True
    except OSError:
        return False
if told == "hang":
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    notes.write_text(json.dumps({{"process": os.getpid()}}))
    time.sleep(60)
if told == "large":
    (folder / f"document.{{target}}").write_bytes(bytes(2 * 10**8))
if told != "refuse":
    golden = {{"docx": "headings-are-places", "pptx": "notes-of-slides", "xlsx": "sheets"}}[target]
    shutil.copy(f"{GOLDEN}/{{target}}/{{golden}}.{{target}}", folder / f"document.{{target}}")
notes.write_text(json.dumps({{"arguments": sys.argv[1:], "settings": settings, "environment": dict(os.environ),
    "user": os.getuid(), "reaches": told.startswith("connect") and reaches()}}))
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in the path with the stand-in; it has `notes.json` afterwards."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "soffice").write_text(STAND_IN)
    (folder / "soffice").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


@pytest.fixture
def no_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "_NAMES", ("a-program-that-is-not-there",))


def notes(program: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((program / "notes.json").read_text())
    return found


@pytest.mark.parametrize(
    ("suffix", "target", "golden"),
    [
        (".doc", "docx", "headings-are-places"),
        (".xls", "xlsx", "sheets"),
        (".ppt", "pptx", "notes-of-slides"),
    ],
)
def test_is_converted_and_read(program: Path, suffix: str, target: str, golden: str) -> None:
    with closing(IsolatedReader()) as reader:
        found = read_content(File(suffix, b"fine", "", 0, 0), reader)
        present = (GOLDEN / target / f"{golden}.{target}").read_bytes()
        assert found == read_content(File(f".{target}", present, "", 0, 0), reader)
    arguments = notes(program)["arguments"]
    assert isinstance(arguments, list)
    assert arguments[1:7] == [
        "--headless",
        "--invisible",
        "--norestore",
        "--nolockcheck",
        "--nodefault",
        "--nofirststartwizard",
    ]
    assert arguments[7:9] == ["--convert-to", target] and arguments[-1].endswith(f"document{suffix}")
    folder = arguments[10]
    assert arguments[0] == f"-env:UserInstallation=file://{folder}/profile"
    assert not os.path.exists(folder)  # nothing of the document is left


def test_runs_without_macros_links_and_the_users_profile(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGON_SECRET", "x")
    converted(".doc", b"fine")
    found = notes(program)
    environment, settings = found["environment"], str(found["settings"])
    assert isinstance(environment, dict) and "DRAGON_SECRET" not in environment
    assert environment["HOME"] != os.environ.get("HOME")
    assert found["user"] == os.getuid()
    for name in ("DisableMacrosExecution", "DisableActiveContent"):
        assert f'oor:name="{name}" oor:op="fuse"><value>true<' in settings


def test_reaches_no_network(program: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        converted(".doc", f"connect {server.getsockname()[1]}".encode())
    if not _has_namespaces():
        pytest.skip("this system has no network namespaces for its users")
    assert notes(program)["reaches"] is False


def _has_namespaces() -> bool:
    child = os.fork()
    if not child:
        try:
            conversion._leave_network()
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_one_that_hangs_is_ended_with_its_children(program: Path) -> None:
    with pytest.raises(Unreadable, match="LibreOffice takes longer than 3 s to read it"):
        converted(".doc", b"hang", seconds=3)
    process = notes(program)["process"]
    assert isinstance(process, int) and not psutil.pid_exists(process)
    assert not [
        each for each in psutil.process_iter(["cmdline"]) if "time.sleep(60)" in " ".join(each.info["cmdline"] or ())
    ]
    assert not list(Path(tempfile.gettempdir()).glob("dragon-*/document.doc"))


@pytest.mark.parametrize("told", [b"refuse", b"large"])
def test_one_that_writes_nothing_or_too_much(program: Path, told: bytes) -> None:
    with closing(IsolatedReader()) as reader, pytest.raises(UnusableDocument) as refused:
        read_content(File(".doc", told, "", 0, 0), reader)
    assert refused.value.reason.startswith(("LibreOffice can't read it", "it is damaged"))


@pytest.mark.usefixtures("no_program")
def test_without_it_they_are_named(library: Library, documents: Path, write: Write) -> None:
    write("old.doc", b"\xd0\xcf\x11\xe0")
    write("old.xls", (GOLDEN / "xls/a-hidden-sheet-and-merged-cells.xls").read_bytes())
    report = library.add(documents)
    assert dict(report.skipped) == {
        "old.doc": "doc is read if LibreOffice is installed: install it, or save it as docx"
    }
    assert report.added == 1  # workbooks are read in a simpler way


def test_one_that_comes_later_is_used(
    library: Library, documents: Path, write: Write, monkeypatch: pytest.MonkeyPatch, program: Path
) -> None:
    write("old.doc", b"fine")
    with monkeypatch.context() as without:
        without.setattr(formats, "_NAMES", ("a-program-that-is-not-there",))
        assert len(library.add(documents).skipped) == 1
    assert library.add(documents).added == 1
    assert library.add(documents).unchanged == 1
