"""The Hub's library of this process, pointed at a local server and a cache of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from huggingface_hub import constants
from huggingface_hub.utils import close_session

from tests.support.hub_server import Hub

DEMO = Path(__file__).parents[2] / "common" / "demo_model"


def point_at(url: str, cache: Path, patch: pytest.MonkeyPatch) -> None:
    """Let the library ask `url`, and keep what it gets in `cache`; both are read once, when it is imported."""
    close_session()
    patch.setattr(constants, "ENDPOINT", url)
    patch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", url + "/{repo_id}/resolve/{revision}/{filename}")
    patch.setattr(constants, "HF_HUB_OFFLINE", False)
    patch.setattr(constants, "HF_HUB_CACHE", str(cache))


def add_demo(hub: Hub, hub_id: str, folder: Path, part: str = "draft") -> Path:
    """Let the server have an embedded model, with its tokenizer, a card and pickled weights, in `folder`."""
    folder.mkdir(parents=True)
    for file in (*(DEMO / part).iterdir(), *(DEMO / "tokenizer").glob("*.json")):
        shutil.copy(file, folder)
    (folder / "README.md").write_text("---\nlicense: apache-2.0\n---\n# A small model\n")
    (folder / "pytorch_model.bin").write_bytes(b"pickled")
    hub.repositories[hub_id] = folder
    return folder
