"""Folders that programs fill are left out, and said; those of people are read, whatever their names."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.configuration.settings import Settings
from common.library import commands
from common.library.library import Library
from common.library.passed_over import concerns
from tests.common.library.conftest import Write

NOTE = "My rabbit is called Yarszis."


def paths(library: Library) -> list[str]:
    return [file.relative_path for file in library.files()]


@pytest.mark.parametrize(
    ("folder", "beside"),
    [
        ("node_modules", ""),
        ("__pycache__", ""),
        (".git", ""),
        (".notes", ""),
        ("env", "env/pyvenv.cfg"),
        ("cache", "cache/CACHEDIR.TAG"),
        ("build", "pyproject.toml"),
        ("build", "package.json"),
        ("build", "CMakeLists.txt"),
        ("dist", "package.json"),
        ("target", "Cargo.toml"),
        ("target", "pom.xml"),
        ("_build", "conf.py"),
    ],
)
def test_folders_of_programs(library: Library, write: Write, documents: Path, folder: str, beside: str) -> None:
    write("project/good.txt", NOTE)
    write(f"project/{folder}/below/other.txt", f"{NOTE} No.")
    if beside:
        write(f"project/{beside}", "x = 1")
    report = library.add(documents)
    assert report.passed_over == {folder: 1}
    assert f"project/{folder}/below/other.txt" not in paths(library)
    assert library.add(documents / "project" / folder).passed_over == {}
    # What was named stays, also when the folder around it is read again.
    again = library.add(documents)
    assert (again.removed, again.moved) == (0, 0)
    assert "below/other.txt" in paths(library)


@pytest.mark.parametrize("folder", ["build", "dist", "target", "venv", "_build", "vendor"])
def test_folders_of_people(library: Library, write: Write, documents: Path, folder: str) -> None:
    """Somebody builds a house, and has a project elsewhere."""
    write(f"house/{folder}/plan.txt", NOTE)
    write("project/package.json", "{}")
    write("project/pyproject.toml", "")
    report = library.add(documents)
    assert report.passed_over == {}
    assert f"house/{folder}/plan.txt" in paths(library)


def test_what_became_a_folder_of_programs_is_forgotten(library: Library, write: Write, documents: Path) -> None:
    write("project/build/made.txt", NOTE)
    assert library.add(documents).added == 1
    write("project/package.json", "{}")
    assert library.add(documents).removed == 1


def test_a_hidden_file_that_was_named_stays(library: Library, write: Write, documents: Path) -> None:
    hidden = write("sub/.note.txt", NOTE)
    write("good.txt", "a note")
    library.add(hidden)
    report = library.add(documents)
    assert (report.added, report.removed) == (1, 0)
    assert paths(library) == ["good.txt", ".note.txt"]
    write("sub/.note.txt", f"{NOTE} No.")
    assert library.add(hidden).updated == 1
    hidden.unlink()
    assert library.add(documents).removed == 1


def test_a_copy_does_not_take_the_place_of_what_was_named(library: Library, write: Write, documents: Path) -> None:
    write(".kept/note.txt", NOTE)
    library.add(documents / ".kept")
    write("copy.txt", NOTE)
    assert library.add(documents).duplicates == (("copy.txt", ".kept/note.txt"),)
    assert paths(library) == ["note.txt"]


@pytest.mark.parametrize("gone", [True, False], ids=["gone", "changed"])
def test_a_copy_in_what_was_named_takes_the_place(library: Library, write: Write, documents: Path, gone: bool) -> None:
    first = write("a.txt", NOTE)
    write(".kept/copy.txt", NOTE)
    library.add(documents)
    assert library.add(documents / ".kept").duplicates
    if gone:
        first.unlink()
    else:
        write("a.txt", f"{NOTE} No.")
    report = library.add(documents)
    assert (report.moved, report.removed) == (1, 0)
    assert sorted(paths(library)) == (["copy.txt"] if gone else ["a.txt", "copy.txt"])
    assert library.add(documents / ".kept").unchanged == 1


def test_they_are_told_in_one_line(
    tmp_path: Path, write: Write, documents: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write("good.txt", NOTE)
    for name in ("a/node_modules/x.md", "b/node_modules/y.md", ".git/z.md", "__pycache__/z.md"):
        write(name, NOTE)
    settings = Settings(data=tmp_path / "data", document_store_bytes=0)
    assert commands.add_documents(settings, [documents]) == commands.DONE
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "passed over" in line]
    assert line == (
        "4 folders (hidden, installed or built) passed over: 2 node_modules, 1 .git, 1 __pycache__;"
        " name a folder to read it"
    )


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("note.txt", True),
        ("gone/note.txt", True),
        ("build/note.txt", True),
        ("", True),
        (".note.txt.swp", False),
        ("~$note.docx", False),
        ("project/package.json", False),
        ("project/gone.json", True),
        (".git/index", False),
        ("project/node_modules/x/y/readme.md", False),
        ("project/build/x/out.txt", False),
        ("project/build", False),
        ("env/lib/readme.txt", False),
        ("env", False),
    ],
)
def test_changes_that_concern_what_is_read(write: Write, documents: Path, path: str, expected: bool) -> None:
    write("project/package.json", "{}")
    write("env/pyvenv.cfg", "")
    assert concerns(str(documents / path), str(documents)) is expected


def test_a_folder_that_was_named_is_never_passed_over(documents: Path) -> None:
    root = str(documents / ".hidden" / "node_modules")
    assert concerns(f"{root}/note.txt", root)
