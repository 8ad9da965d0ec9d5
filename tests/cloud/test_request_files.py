"""Files that come with a request: all that the device answers from, and nothing is left of them."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from common.answer.request import MOST_FILES, AnswerFailed, Request, RequestError, RequestFile
from common.library.library import Library
from common.library.store import INDEX
from device.interface import Finished
from device.request_files import MOST_FILE_BYTES, RequestFiles
from device.settings import DeviceSettings
from tests.cloud.town import Resident, finished
from tests.daemons.conftest import NOTES
from tests.daemons.streaming import wait_until

QUESTION = "Where is my dance class?"
LETTER = RequestFile(name="letter.md", content=b"# A letter\n\nMy dance class is at Mairvo, above the bakery.")
LIST = RequestFile(name="list.txt", content=b"Milk, a kettle, cold feet powder.")
COPY = RequestFile(name="copy.txt", content=NOTES["dance"].encode())
BROKEN = RequestFile(name="broken.pdf", content=b"%PDF-1.7 and nothing else")


LATIN = RequestFile(name="latin.txt", content="Mairvo: un café crème, déjà vu.".encode("latin-1"))


def letter(what: object) -> RequestFile:
    """A letter that no other test has asked about."""
    return RequestFile(name="letter.md", content=LETTER.content + f" I told you: {what}".encode())


def folder(device: Resident) -> Path:
    return device.engine._files._folder


def left(device: Resident) -> list[str]:
    """Files that there are; some may go while it looks."""
    return [name for _, folders, files in os.walk(folder(device)) for name in (*folders, *files)]


def kept(device: Resident) -> set[str]:
    """Files of the keys and values that are kept on disk."""
    device.side.decoder.document_cache.flush()
    return {path.name for path in device.side.settings.document_store.rglob("*.safetensors")}


def ask(device: Resident, *files: RequestFile, **fields: Any) -> Finished:
    return device.ask(QUESTION, files=files, **{"documents": 64, "max_tokens": 4} | fields)


def own(answer: Finished) -> set[str]:
    return {source.title for source in answer.report.sources if source.side == "device"}


@pytest.fixture(scope="module", autouse=True)
def primed(device: Resident) -> None:
    """Has what every answer reads kept already."""
    device.ask(QUESTION, sources="device", documents=1, max_tokens=4)


@pytest.fixture(autouse=True)
def nothing_left(device: Resident) -> Any:
    identity = device.side.library.identity
    yield
    wait_until(lambda: not left(device), "the files are gone")
    assert device.side.library.identity == identity


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"sources": "device"},
        {"method": "fetch-text"},
        {"method": "sequence-wise"},
        {"method": "edgellm", "sources": "device"},
        {"method": "edgellm", "sources": "both"},
        {"sources": "device", "aggregation": "context"},
    ],
    ids=str,
)
def test_the_device_answers_from_them_alone(device: Resident, fields: dict[str, Any]) -> None:
    ask(device, letter([fields]), **fields)  # keeps the beginning that all rows have, which is nobody's
    before = kept(device)
    answer = ask(device, letter(fields), LIST, **fields)
    assert own(answer) == {"A letter", "list"}
    assert all(source.origin.chunk is None for source in answer.report.sources if source.origin is not None)
    others = {source.title for source in answer.report.sources if source.side == "cloud"}
    assert bool(others) == (fields.get("sources") != "device")
    if fields.get("sources") == "device" or fields.get("method") in (None, "sequence-wise"):
        assert kept(device) == before  # the others keep the cloud's documents


def test_nothing_is_made_for_a_next_start(device: Resident) -> None:
    """The answer would wait for it."""
    files = device.engine._files
    library = files.open([LETTER])
    try:
        assert [hit.title for hit in library.search("dance class", 1)] == ["A letter"]
        assert not (library.folder / INDEX).exists()
    finally:
        files.close(library)


def test_what_is_computed_of_other_documents_is_kept(device: Resident) -> None:
    """Control of the test above."""
    before = kept(device)
    device.ask(QUESTION, sources="device", documents=64, max_tokens=4)
    assert kept(device) > before


@pytest.mark.parametrize("method", ["long-context", "rapid"])
def test_one_of_them_is_read_whole(device: Resident, method: str) -> None:
    before = kept(device)
    fields: dict[str, Any] = {"method": method, "sources": "device", "long_document": "letter.md"}
    fields |= {"verifier": "device", "temperature": 1.0, "retrieval_threshold": -1.0} if method == "rapid" else {}
    assert own(ask(device, letter(method), LIST, **fields)) == {"A letter"}
    assert kept(device) == before
    with pytest.raises(RequestError, match="has no document of this name"):
        ask(device, LETTER, **fields | {"long_document": "dance"})


def test_a_copy_in_the_library_does_not_hide_them(device: Resident) -> None:
    assert own(ask(device, COPY, sources="device")) == {"copy"}


def test_several_at_a_time_see_their_own(device: Resident) -> None:
    running = [
        device.begin(QUESTION, files=(file,), sources="device", documents=9, max_tokens=8) for file in (LETTER, LIST)
    ]
    running.append(device.begin(QUESTION, sources="device", documents=64, max_tokens=8))
    told = [own(finished(each)) for each in running]
    assert told == [{"A letter"}, {"list"}, set(NOTES)]


def test_a_cancelled_answer_leaves_nothing(device: Resident) -> None:
    running = device.begin(QUESTION, files=(LETTER,), sources="device", max_tokens=200)
    assert left(device)
    running.cancel()


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ((LETTER, BROKEN), "File 2 can't be read: "),
        ((RequestFile(name="a.exe", content=b"a"),), "File 1 can't be read: its type is not supported"),
        ((RequestFile(name="../a.txt", content=b"a"),), "File 1 can't be read: the name must be a file name"),
        ((RequestFile(name="a.txt", content=b""),), "File 1 can't be read: it is empty"),
        ((LETTER, LETTER), "File 2 has the name of another one"),
        ((RequestFile(name="a.pdf", content=bytes(MOST_FILE_BYTES + 1)),), "larger than 16777216 bytes together"),
    ],
    ids=["broken", "type", "name", "empty", "twice", "large"],
)
def test_one_that_can_not_be_read_is_refused(device: Resident, files: tuple[RequestFile, ...], words: str) -> None:
    with pytest.raises(RequestError) as refused:
        ask(device, *files)
    assert words in str(refused.value)
    assert refused.value.field == "files"
    assert not any(file.name in str(refused.value) for file in files)
    assert not left(device)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"sources": "cloud"}, "files"),
        ({"device_documents": ("dance.*",)}, "device_documents"),
        ({"documents": 0}, "documents"),
    ],
    ids=["cloud", "patterns", "none"],
)
def test_where_there_is_no_use_for_them_they_are_refused(device: Resident, fields: dict[str, Any], field: str) -> None:
    with pytest.raises(RequestError) as refused:
        ask(device, LETTER, **fields)
    assert refused.value.field == field


def test_an_answer_that_is_refused_later_leaves_nothing(device: Resident) -> None:
    with pytest.raises(RequestError, match="sources"):
        ask(device, LETTER, method="coupled", sources="device")


def test_reading_them_is_part_of_the_wait(device: Resident, monkeypatch: pytest.MonkeyPatch) -> None:
    files, reading = device.engine._files, 0.5

    def slow(*given: Any) -> Library:
        time.sleep(reading)
        return RequestFiles.open(files, *given)

    monkeypatch.setattr(files, "open", slow)
    report = ask(device, letter("the time"), trace=True).report
    assert report.trace is not None
    assert report.ttft > reading
    assert min(span.start for span in report.trace.spans if span.side == "device") > reading * 1e9


def test_reading_ends_when_nobody_wants_the_answer(device: Resident) -> None:
    """The embedder would go on for minutes over a long file."""
    asked: list[bool] = []

    def wanted() -> bool:
        asked.append(True)
        return len(asked) < 3

    long = RequestFile(name="long.txt", content="".join(f"Line {n} of a list.\n\n" for n in range(4000)).encode())
    request = Request(prompt=QUESTION, question=QUESTION, files=(long,))
    with pytest.raises(AnswerFailed, match="Nobody waits"):
        device.engine.generate(request, lambda event: None, wanted=wanted)
    assert len(asked) == 3 and not left(device)


def test_what_a_killed_daemon_left_is_removed_by_the_next_start(device: Resident, tmp_path: Path) -> None:
    settings = DeviceSettings(data=tmp_path)
    (tmp_path / "request-files" / "left" / "files").mkdir(parents=True)
    (tmp_path / "request-files" / "left" / "files" / "diary.txt").write_text("Dear diary")
    RequestFiles(settings, device.side.embedder, device.engine.documents.most_bytes)
    assert not (tmp_path / "request-files").exists()


def test_no_more_than_there_may_be() -> None:
    files = [{"name": f"{number}.txt", "content": "YQ=="} for number in range(MOST_FILES + 1)]
    with pytest.raises(ValueError, match="up to 16 files"):
        Request.model_validate({"question": "?", "prompt": "?", "files": files})
    with pytest.raises(ValueError, match="base64"):
        Request.model_validate({"question": "?", "prompt": "?", "files": [{"name": "a.txt", "content": "!"}]})


def test_what_was_guessed_or_not_read_is_told_with_the_answer(device: Resident) -> None:
    remark = "latin.txt: its encoding was guessed: cp1252; --encoding sets another one."
    assert remark in ask(device, LETTER, LATIN).report.notes
    assert not [note for note in ask(device, LETTER).report.notes if "encoding" in note]
