"""`dragon ask --files` and the options that choose documents, against a real server."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.library.commands import open_library
from device.documents import OwnDocuments
from device.http.server import HttpServer
from device.settings import DeviceSettings
from tests.device.cli.conftest import Dragon
from tests.device.table_engine import TableEngine


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    paths = [tmp_path / "a.pdf", tmp_path / "b.md"]
    for path in paths:
        path.write_bytes(path.name.encode())
    return list(map(str, paths))


def asked(engine: TableEngine) -> tuple[str, dict[str, bytes]]:
    request = engine.generation().request
    return request.question, {each.name: each.content for each in request.files}


BOTH = {"a.pdf": b"a.pdf", "b.md": b"b.md"}


def test_several_files_and_then_the_question(
    dragon: Dragon, server: HttpServer, engine: TableEngine, files: list[str]
) -> None:
    assert dragon("ask", "--files", *files, "one two", "--url", server.url).stdout == "one two\n"
    assert asked(engine) == ("one two", BOTH)


@pytest.mark.parametrize("question", ["why " * 70, "я" * 130], ids=["ascii", "cyrillic"])
def test_the_question_behind_files_may_be_longer_than_a_name(
    dragon: Dragon, server: HttpServer, engine: TableEngine, files: list[str], question: str
) -> None:
    done = dragon("ask", "--files", *files, question, "--url", server.url)
    assert (done.returncode, asked(engine)) == (0, (question.strip(), BOTH))


def test_the_question_and_then_files(dragon: Dragon, server: HttpServer, engine: TableEngine, files: list[str]) -> None:
    assert dragon("ask", "one two", "--url", server.url, "--files", *files).returncode == 0
    assert asked(engine) == ("one two", BOTH)


def test_the_first_may_be_joined_to_the_option(
    dragon: Dragon, server: HttpServer, engine: TableEngine, files: list[str]
) -> None:
    first, second = files
    assert dragon("ask", "one two", f"--files={first}", second, "--url", server.url).returncode == 0
    assert asked(engine) == ("one two", BOTH)


def test_one_at_a_time_and_the_question_from_a_pipe(
    dragon: Dragon, server: HttpServer, engine: TableEngine, files: list[str]
) -> None:
    done = dragon("ask", "--files", files[0], "--files", files[1], "--url", server.url, given="one two")
    assert done.returncode == 0
    assert asked(engine) == ("one two", BOTH)


def test_files_that_can_not_be_read_are_told_before_anything_is_asked(
    dragon: Dragon, server: HttpServer, engine: TableEngine, files: list[str], tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.pdf").touch()
    for given, words in (
        ((str(tmp_path / "none.pdf"),), "is not a file"),
        (("n" * 300,), "is not a file"),
        ((files[0], str(tmp_path / "other" / "a.pdf")), "two of the files are called a.pdf"),
    ):
        done = dragon("ask", "--files", *given, "one", "--url", server.url)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert words in done.stderr
    assert dragon("ask", "--keep", "one", "--url", server.url).returncode == 2
    assert engine.generations == []


def test_kept_files_are_uploaded_after_the_answer(
    dragon: Dragon, server: HttpServer, engine: TableEngine, files: list[str], tmp_path: Path
) -> None:
    settings = DeviceSettings(data=tmp_path / "data")
    with open_library(settings) as library:
        engine.documents = OwnDocuments(settings, library, library.search)
        assert dragon("ask", "--files", *files, "one two", "--url", server.url).returncode == 0
        assert not settings.uploads.exists()
        assert dragon("ask", "--files", *files, "--keep", "one two", "--url", server.url).returncode == 0
        assert {path.name: path.read_bytes() for path in settings.uploads.iterdir()} == BOTH


def test_options_that_choose_documents(dragon: Dragon, server: HttpServer, engine: TableEngine) -> None:
    options = ("--only", "journal/**", "--device-documents", "tag:work", "--cloud-documents", "tag:faq")
    assert dragon("ask", "one", *options, "--url", server.url).returncode == 0
    request = engine.generation().request
    assert request.device_documents == ("journal/**", "tag:work")
    assert request.cloud_documents == ("tag:faq",)
    refused = dragon("ask", "one", "--only", "/etc", "--url", server.url)
    assert refused.returncode == 2
    assert "Invalid value for --only: pattern 1 is no path below an added folder" in refused.stderr


def test_tags_of_a_library(dragon: Dragon, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("A kettle.")
    folder = str(tmp_path / "notes")

    def tags() -> str:
        listed = dragon("library", "list")
        assert listed.returncode == 0
        return listed.stdout.rstrip("\n").split("\t")[-1]

    assert dragon("library", "add", folder).returncode == 0
    assert tags() == ""
    assert dragon("library", "add", "--tag", "work", "--tag", " urgent ", folder).returncode == 0
    assert tags() == "urgent, work"
    assert dragon("library", "add", folder).returncode == 0
    assert tags() == "urgent, work"
    assert dragon("library", "add", "--tag", "late", folder).returncode == 0
    assert tags() == "late"
    assert dragon("library", "add", "--no-tags", folder).returncode == 0
    assert tags() == ""
    for wrong in (("--tag", " "), ("--tag", "x" * 65), ("--tag", "a", "--no-tags")):
        done = dragon("library", "add", *wrong, folder)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)


def test_switches_can_still_be_turned_off(dragon: Dragon, server: HttpServer, engine: TableEngine) -> None:
    assert dragon("ask", "one", "--no-wait", "--url", server.url).returncode == 0
    assert engine.generation().request.wait is False
