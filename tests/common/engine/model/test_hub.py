"""Downloads from a local server that speaks as the Hub: interruptions, checksums, refusals."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants
from huggingface_hub.utils import close_session

from common.engine.model import hub
from common.engine.model.decoder import Decoder
from common.engine.model.errors import ModelError
from common.engine.model.hub import NOT_A_DECODER_S, SETTINGS, WEIGHTS, locate
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


def weights(offer: hub.Offer) -> hub.HubFile:
    (found,) = [file for file in offer.files if file.name.endswith(".safetensors")]
    return found


def pulled() -> list[int]:
    """Fetch the weights; how many bytes were here at each moment that was told."""
    told: list[int] = []
    offer = hub.offered(NAME)
    hub.fetch(offer, weights(offer), told.append)
    return told


def test_an_offer_tells_sizes_checksums_and_the_licence(server: Hub) -> None:
    offer = hub.offered(NAME)
    content = (server.repositories[NAME] / "model.safetensors").read_bytes()
    assert offer.licence == "apache-2.0"
    assert weights(offer) == hub.HubFile("model.safetensors", len(content), hashlib.sha256(content).hexdigest())


def test_a_broken_connection_is_gone_on_with(server: Hub) -> None:
    server.break_after = BROKEN
    told = pulled()
    begin, again = server.ranges()
    assert begin is None and again is not None
    resumed = int(again.removeprefix("bytes=").rstrip("-"))
    assert 0 < resumed <= BROKEN + PIECE
    assert told == sorted(told) and told[-1] == weights(hub.offered(NAME)).size


def test_what_a_failure_left_is_gone_on_with_later(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda seconds: None)
    offer = hub.offered(NAME)
    server.break_after, server.broken_for_good = BROKEN, True
    with pytest.raises(ModelError, match=r"bytes of model\.safetensors are here, and the same command goes on"):
        hub.fetch(offer, weights(offer), lambda here: None)
    here = hub.present(offer, weights(offer))
    assert 0 < here < weights(offer).size
    server.broken_for_good = False
    server.requests.clear()
    pulled()
    assert server.ranges() == [f"bytes={here}-"]
    assert hub.present(offer, weights(offer)) == weights(offer).size


def test_a_killed_download_is_gone_on_with(server: Hub, tmp_path: Path) -> None:
    server.hold_after = BROKEN
    environment = {name: value for name, value in os.environ.items() if "OFFLINE" not in name}
    environment |= {"HF_ENDPOINT": server.url, "HF_HUB_CACHE": str(tmp_path / "cache")}
    code = (
        "from common.engine.model import hub\n"
        f"offer = hub.offered({NAME!r})\n"
        "(file,) = [file for file in offer.files if file.sha256]\n"
        "hub.fetch(offer, file, lambda here: None)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, env=environment) as process:
        try:
            deadline = time.monotonic() + 100
            while not hub.present(offer := hub.offered(NAME), weights(offer)):
                assert process.poll() is None and time.monotonic() < deadline
                time.sleep(0.05)
        finally:
            process.kill()
    server.released.set()
    here = hub.present(offer, weights(offer))
    server.requests.clear()
    assert pulled()[-1] == weights(offer).size
    assert server.ranges() == [f"bytes={here}-"]


def test_it_loads_from_the_cache_without_a_question(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    pulled()
    folder = hub.newest(NAME, (*SETTINGS, *WEIGHTS, hub.CARD), NOT_A_DECODER_S)
    assert not (folder / "pytorch_model.bin").exists()
    assert hub.damaged_blobs(folder) == []
    assert len(server.ranges()) == 1
    server.requests.clear()
    assert locate(NAME) == folder
    assert Decoder.load(NAME, threads=1).max_context == 1024
    assert server.requests == []
    blob = (folder / "model.safetensors").resolve()
    blob.write_bytes(blob.read_bytes()[:-1] + b"\xff")
    assert hub.damaged_blobs(folder) == ["model.safetensors"]


def test_settings_alone_are_not_taken_for_the_model(server: Hub) -> None:
    assert locate(NAME, weights=False) == hub.newest(NAME, SETTINGS, NOT_A_DECODER_S)
    assert server.ranges() == []
    assert (locate(NAME) / "model.safetensors").exists()


def test_chat_templates_come_along_where_there_are_several(server: Hub) -> None:
    """They lie in a folder of their own; what else lies in folders is not the decoder's."""
    for name in ("additional_chat_templates/tool_use.jinja", "original/params.json", "fp16/model.safetensors"):
        path = server.repositories[NAME] / name
        path.parent.mkdir()
        path.write_text("{}")
    folder = hub.newest(NAME, (*SETTINGS, *WEIGHTS, hub.CARD), NOT_A_DECODER_S)
    assert [path.name for path in folder.iterdir() if path.is_dir()] == ["additional_chat_templates"]


def test_bytes_that_are_not_the_hubs_are_refused_and_forgotten(server: Hub) -> None:
    server.swapped = b"something else"
    with pytest.raises(ModelError, match=r"model\.safetensors did not arrive as the Hub has it"):
        pulled()
    offer = hub.offered(NAME)
    assert hub.present(offer, weights(offer)) == 0
    server.swapped = None
    assert pulled()[-1] == weights(offer).size


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


def test_a_checksum_that_is_a_path_is_none(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    large = {"size": 5, "sha256": "../../elsewhere", "pointerSize": 1}
    described = {"id": NAME, "sha": "0" * 40, "siblings": [{"rfilename": "a.safetensors", "size": 5, "lfs": large}]}
    monkeypatch.setattr("tests.support.hub_server._described", lambda *asked: described)
    assert weights(hub.offered(NAME)).sha256 is None


def test_why_a_model_cannot_be_had(server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def why(name: str) -> str:
        with pytest.raises(ModelError) as offered:
            hub.offered(name)
        with pytest.raises(ModelError) as located:
            locate(name)
        reason = str(offered.value).removeprefix(f"{name}: ")
        assert str(located.value) == f"{name}: no folder here, and not available from the Hub: {reason}"
        assert "\n" not in reason
        return reason

    assert "has no such model, or keeps it private" in why("somebody/nothing")
    server.gated.add(NAME)
    with pytest.raises(ModelError, match=r"its owner wants to be asked first: agree at http://.*/somebody/small"):
        locate(NAME)
    close_session()
    point_at("http://127.0.0.1:9", tmp_path / "cache", monkeypatch)
    assert why(NAME).startswith("http://127.0.0.1:9 can't be reached (")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    close_session()
    assert why(NAME) == "it is not, or not all, on this machine, and HF_HUB_OFFLINE forbids to ask the Hub"
