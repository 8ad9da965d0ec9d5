"""The process that keeps the library of workers elsewhere, for real, and a side that reads what it publishes."""

from __future__ import annotations

import errno
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from cloud.gateway import fleet as librarian_module
from cloud.gateway.fleet import Librarian
from cloud.settings import CloudSettings
from common.configuration.configuration import ConfigurationError
from common.configuration.settings import EMBEDDED_MODEL
from common.daemon.side import SideRuntime
from common.library.library import Library
from common.library.snapshots import find_newest_snapshot, publish
from tests.common.library.toy_embedder import ToyEmbedder
from tests.daemons.streaming import wait_until
from tests.support.sides import make_side

pytestmark = pytest.mark.timeout(300)

FIRST, SECOND = "The ferry leaves at nine.", "The museum opens at ten."
AT_ONCE = 60.0  # seconds, on a busy machine, too
STARTED = 120.0  # seconds within which a process has imported what it needs


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    folder = tmp_path / "documents"
    folder.mkdir()
    (folder / "ferry.txt").write_text(FIRST)
    return folder


@pytest.fixture
def settings(tmp_path: Path) -> CloudSettings:
    return CloudSettings(data=tmp_path / "cloud", model=str(EMBEDDED_MODEL), search="dense", threads=1)


def library_of(settings: CloudSettings, side: SideRuntime | None = None) -> Library:
    return Library(settings.library, ToyEmbedder() if side is None else side.embedder)


class TestLibrarian:
    @pytest.fixture
    def process(self, settings: CloudSettings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Any]]:
        """The process that a librarian runs at the moment."""
        monkeypatch.setattr(librarian_module, "_PAUSE", 0.1)
        settings.data.mkdir()
        librarian = Librarian({name: getattr(settings, name) for name in CloudSettings.model_fields})
        yield lambda: librarian._process
        left = librarian._process
        librarian.close()
        assert left is not None and left.poll() is not None

    def test_publishes_what_is_in_watched_folders_and_outlives_its_process(
        self, process: Callable[[], subprocess.Popen[bytes]], settings: CloudSettings, documents: Path
    ) -> None:
        wait_until(lambda: find_newest_snapshot(settings.library) is not None, "the empty one is published", STARTED)
        with library_of(settings) as library:
            library.watch(documents)
        wait_until(lambda: self.published(settings) == [FIRST], "the folder is read, and published", STARTED)
        first = process()
        psutil.Process(first.pid).kill()
        (documents / "museum.txt").write_text(SECOND)
        wait_until(lambda: process() is not first, "another one is started")
        wait_until(lambda: self.published(settings) == [FIRST, SECOND], "it goes on", STARTED)

    @staticmethod
    def published(settings: CloudSettings) -> list[str]:
        place = find_newest_snapshot(settings.library)
        assert place is not None
        with Library(place, ToyEmbedder()) as snapshot:
            return sorted(snapshot.texts())


def test_a_librarian_goes_on_where_no_process_is_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """As just after the one before was killed for want of memory."""
    monkeypatch.setattr(librarian_module, "_PAUSE", 0.01)
    tries: list[int] = []

    def refusing(command: Sequence[str], given: bytes) -> subprocess.Popen[bytes]:
        tries.append(1)
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(librarian_module, "start_process", refusing)
    librarian = Librarian({})
    wait_until(lambda: len(tries) > 2, "it is tried again", AT_ONCE)
    librarian.close()
    assert not librarian._thread.is_alive()


class TestSide:
    def test_searches_the_newest_snapshot(self, settings: CloudSettings, documents: Path) -> None:
        with pytest.raises(ConfigurationError, match="no snapshot of the library; a worker's machine has to share"):
            make_side("cloud", settings, watches=False, snapshots=True)
        publish(settings.library)
        side = make_side("cloud", settings, watches=False, snapshots=True)
        try:
            assert (side.hello.library, side.library.count) == ("", 0)
            with library_of(settings, side) as library:
                library.add(documents)
                publish(settings.library)
                wait_until(lambda: side.library.count == 1, "it is taken")
                assert side.hello.library == library.identity
            assert [hit.text for hit in side.library.search("When does the ferry leave?", 1)] == [FIRST]
        finally:
            side.close()
