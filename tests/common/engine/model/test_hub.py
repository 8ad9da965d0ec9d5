"""Downloads from a local server that speaks as the Hub: interruptions, checksums, refusals."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants
from huggingface_hub.utils import close_session

from common.engine.model import hub
from common.engine.model.decoder import Decoder
from common.engine.model.errors import ModelError
from common.engine.model.hub import NOT_A_DECODER_S, SETTINGS, WEIGHTS, find_decoder_files
from tests.support.hub_server import PIECE, Hub, serving
from tests.support.local_hub import add_demo, point_at

NAME = "somebody/small"
ROOT = Path(__file__).parents[4]
BROKEN = 11 * 2**20  # bytes after which a connection breaks; the library writes 10 MiB at a time


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with serving() as running:
        point_at(running.url, tmp_path / "cache", monkeypatch)
        add_demo(running, NAME, tmp_path / "repository", "target")
        yield running
        close_session()


ALL = (*SETTINGS, *WEIGHTS, hub.CARD)


def weights() -> hub.HubFile:
    (found,) = hub.list_hub_files(NAME, WEIGHTS, NOT_A_DECODER_S)
    return found


def pulled() -> list[int]:
    """Fetch the weights; how many bytes were here at each moment that was told."""
    told: list[int] = []
    hub.fetch(NAME, weights(), told.append)
    return told


def test_an_offer_tells_names_sizes_and_the_licence(server: Hub) -> None:
    offer = hub.offered(NAME)
    assert offer.licence == "apache-2.0"
    assert {"config.json", "model.safetensors", "pytorch_model.bin"} < set(offer.names)
    file = weights()
    assert (file.name, file.here) == ("model.safetensors", False)
    assert file.size == (server.repositories[NAME] / "model.safetensors").stat().st_size
    assert server.ranges() == [], "nothing was downloaded"


def test_the_bytes_that_have_come_are_counted(server: Hub) -> None:
    told = pulled()
    assert len(told) > 2 and told == sorted(told) and told[-1] == weights().size
    assert weights().here


def test_a_broken_connection_is_gone_on_with(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda seconds: None)
    server.break_after = BROKEN
    told = pulled()
    begin, again = server.ranges()
    assert begin is None and again is not None
    resumed = int(again.removeprefix("bytes=").rstrip("-"))
    assert 0 < resumed <= BROKEN + PIECE
    assert told == sorted(told) and told[-1] == weights().size


def test_after_a_failure_the_same_command_gets_what_lacks(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda seconds: None)
    hub.download_newest(NAME, SETTINGS, NOT_A_DECODER_S)
    server.break_after, server.broken_for_good = BROKEN, True
    file = weights()
    with pytest.raises(ModelError, match=r"complete files are kept; run the same command again for the others"):
        hub.fetch(NAME, file, lambda here: None)
    server.broken_for_good = False
    assert not weights().here
    assert pulled()[-1] == file.size
    server.requests.clear()
    assert (hub.download_newest(NAME, ALL, NOT_A_DECODER_S) / "model.safetensors").stat().st_size == file.size
    assert server.ranges() == []


def test_a_killed_download_leaves_nothing_that_is_taken_for_the_file(server: Hub, tmp_path: Path) -> None:
    server.hold_after = BROKEN
    environment = {name: value for name, value in os.environ.items() if "OFFLINE" not in name}
    environment |= {"HF_ENDPOINT": server.url, "HF_HUB_CACHE": str(tmp_path / "cache")}
    code = (
        "from common.engine.model import hub\n"
        f"(file,) = hub.list_hub_files({NAME!r}, hub.WEIGHTS, hub.NOT_A_DECODER_S)\n"
        f"hub.fetch({NAME!r}, file, lambda here: print(here, flush=True))\n"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None and int(process.stdout.readline()) > 0
        finally:
            process.kill()
    server.released.set()
    assert not weights().here
    assert pulled()[-1] == weights().size
    assert hub.damaged_blobs(hub.download_newest(NAME, ALL, NOT_A_DECODER_S)) == []


def test_it_loads_from_the_cache_without_a_question(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    pulled()
    folder = hub.download_newest(NAME, ALL, NOT_A_DECODER_S)
    assert not (folder / "pytorch_model.bin").exists()
    assert hub.damaged_blobs(folder) == []
    assert len(server.ranges()) == 1
    server.requests.clear()
    assert find_decoder_files(NAME) == folder
    assert Decoder.load(NAME, threads=1).max_context == 1024
    assert server.requests == []
    blob = (folder / "model.safetensors").resolve()
    blob.write_bytes(blob.read_bytes()[:-1] + b"\xff")
    assert hub.damaged_blobs(folder) == ["model.safetensors"]


def test_settings_alone_are_not_taken_for_the_model(server: Hub) -> None:
    assert find_decoder_files(NAME, weights=False) == hub.download_newest(NAME, SETTINGS, NOT_A_DECODER_S)
    assert server.ranges() == []
    assert (find_decoder_files(NAME) / "model.safetensors").exists()


def test_chat_templates_come_along_where_there_are_several(server: Hub) -> None:
    """They lie in a folder of their own; what else lies in folders is not the decoder's."""
    for name in ("additional_chat_templates/tool_use.jinja", "original/params.json", "fp16/model.safetensors"):
        path = server.repositories[NAME] / name
        path.parent.mkdir()
        path.write_text("{}")
    folder = hub.download_newest(NAME, ALL, NOT_A_DECODER_S)
    assert [path.name for path in folder.iterdir() if path.is_dir()] == ["additional_chat_templates"]


def test_bytes_that_are_not_the_hubs_are_found_and_forgotten(server: Hub) -> None:
    server.swapped = b"something else"
    pulled()
    folder = hub.download_newest(NAME, ALL, NOT_A_DECODER_S)
    assert hub.damaged_blobs(folder) == ["model.safetensors"]
    hub.forget_blobs(folder, ["model.safetensors"])
    assert not weights().here
    server.swapped = None
    assert pulled()[-1] == weights().size
    assert hub.damaged_blobs(folder) == []


@pytest.mark.parametrize(
    ("card", "licence"),
    [
        ({}, None),
        ({"license": "mit"}, "mit"),
        ({"license": ["mit", "apache-2.0", {"odd": 1}]}, "mit, apache-2.0"),
        ({"license": "other", "license_name": "of-its-own"}, "of-its-own"),
        ({"license": "other"}, "other"),
        ({"license": {"a": "b"}}, None),
    ],
    ids=["none", "one", "several", "named", "other", "odd"],
)
def test_the_licence_of_a_card(card: dict[str, Any], licence: str | None) -> None:
    assert hub.licence_of(card) == licence


@pytest.mark.parametrize("large", [True, False])
def test_a_checksum_that_is_a_path_is_refused(server: Hub, monkeypatch: pytest.MonkeyPatch, large: bool) -> None:
    """The Hub's library would write there."""
    sibling: dict[str, Any] = {"rfilename": "a.safetensors", "size": 5, "blobId": "../../elsewhere"}
    if large:
        sibling |= {"blobId": "0" * 40, "lfs": {"size": 5, "sha256": "../../elsewhere", "pointerSize": 1}}
    described = {"id": NAME, "sha": "0" * 40, "siblings": [sibling]}
    monkeypatch.setattr("tests.support.hub_server._described", lambda *asked: described)
    with pytest.raises(ModelError, match="the Hub sent no valid checksum for a file"):
        hub.offered(NAME)


def test_why_a_model_cannot_be_had(server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def why(name: str) -> str:
        with pytest.raises(ModelError) as offered:
            hub.offered(name)
        with pytest.raises(ModelError) as located:
            find_decoder_files(name)
        reason = str(offered.value).removeprefix(f"{name}: ")
        assert str(located.value) == f"{name}: no folder here, and not available from the Hub: {reason}"
        assert "\n" not in reason
        return reason

    assert "has no such model, or the model is private" in why("somebody/nothing")
    server.gated.add(NAME)
    with pytest.raises(ModelError, match=r"its owner asks for an agreement: agree at http://.*/somebody/small"):
        find_decoder_files(NAME)
    close_session()
    point_at("http://127.0.0.1:9", tmp_path / "cache", monkeypatch)
    assert why(NAME).startswith("http://127.0.0.1:9 can't be reached (")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    close_session()
    assert why(NAME) == "it is not completely on this machine, and HF_HUB_OFFLINE forbids downloads"
