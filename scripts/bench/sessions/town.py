"""The cloud daemon of the suite in a process of its own, with a library, and its devices in this one."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from common.daemon.side import SideRuntime
from device.settings import DeviceSettings
from scripts.bench.sessions.player import Player
from scripts.daemons import Daemon, fill_library, free_port

LOOK = 0.02  # seconds between two looks at the cloud's memory


class Town:
    """A context manager: inside, the cloud is ready and `players` are connected to it, at most as many as wanted."""

    def __init__(self, data: Path, players: int, documents: Sequence[str], model: Mapping[str, object]) -> None:
        """`documents` fill the cloud's library below `data`; `model` are the settings that name another one than the
        embedded.
        """
        self.players: list[Player] = []
        self._count = players
        self._closing = ExitStack()
        fill_library(data, "cloud", {f"{number:03}": f"{text}\n" for number, text in enumerate(documents)})
        # Nothing is kept on disk: what is measured is memory and processor.
        address = f"tcp://127.0.0.1:{free_port()}"
        shared: dict[str, Any] = {
            "model": "embedded",
            "curve": "off",
            "threads": 1,
            "dtype": "float32",
            "document_store_bytes": 0,
        }
        shared |= model
        self._cloud = Daemon("cloud", data, shared | {"bind": address}, data / "cloud.log")
        self._settings = DeviceSettings(data=data / "device", cloud=address, **shared)
        self._address = address

    def __enter__(self) -> Town:
        with self._closing:
            self._closing.callback(self._cloud.stop)
            self._cloud.start()
            side = SideRuntime("device", self._settings)
            self._closing.callback(side.close)
            self._cloud.wait_for("cloud ready")
            for _ in range(self._count):
                player = Player(self._address, side)
                self._closing.callback(player.close)
                self.players.append(player)
            for player in self.players:
                player.wait()
            self._closing = self._closing.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.close()

    @property
    def process(self) -> psutil.Process:
        """The cloud's."""
        if self._cloud.process is None:
            raise RuntimeError("the cloud was not started")
        return psutil.Process(self._cloud.process.pid)

    @property
    def resident(self) -> int:
        """Bytes of the cloud's memory now."""
        resident: int = self.process.memory_info().rss
        return resident


class Meter:
    """A context manager; `most` are the most bytes of the cloud's memory that were seen inside."""

    def __init__(self, cloud: psutil.Process) -> None:
        self.most = 0
        self._cloud = cloud
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="meter", daemon=True)

    def __enter__(self) -> Meter:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        looking = True
        while looking:
            looking = not self._over.wait(LOOK)
            self.most = max(self.most, self._cloud.memory_info().rss)
