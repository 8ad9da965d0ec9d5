"""Libraries for a cloud and its devices, filled once, in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloud.settings import CloudSettings
from common.configuration import Settings
from common.retrieval.commands import add
from device.settings import DeviceSettings
from tests.daemons.conftest import ENTRIES, NOTES, fresh_data


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder whose two libraries are filled."""
    data = tmp_path_factory.mktemp("libraries")
    kinds: tuple[tuple[type[Settings], dict[str, str]], ...] = ((DeviceSettings, NOTES), (CloudSettings, ENTRIES))
    for kind, texts in kinds:
        source = data / f"{kind.role}-documents"
        source.mkdir()
        for name, text in texts.items():
            (source / f"{name}.md").write_text(text)
        assert add(kind(data=data / kind.role), [source]) == 0
    return data


__all__ = ["fresh_data", "libraries"]
