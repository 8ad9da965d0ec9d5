"""Libraries for real daemons, filled once."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cloud.settings import CloudSettings
from common.configuration.settings import EMBEDDED_MODEL
from common.daemon.profile import keep
from device.settings import DeviceSettings
from scripts import daemons
from scripts.daemons import fill_library
from tests.preloaded import Preloaded, run_preloaded, start_preloading
from tests.support.sides import make_side

NOTES = {
    "games": "Horror games are what I enjoy most.",
    "dance": "My dance class is at Delthcine House.",
    "kettle": "I bought a kettle from Yormcrus.",
    "supervisor": "I should call Freya Quarmdus, who is my supervisor.",
    "rabbit": "My rabbit is called Yarszis.",
    "health": "My problem is cold feet.",
}
ENTRIES = {
    "horror": "The best-selling horror game is Falling Circus.",
    "puzzle": "Among puzzle games, Iron Road sells best.",
    "racing": "The racing game with the highest sales is Scarlet Summer.",
    "remedy": "Against cold feet, people take thorthcran powder.",
    "based": "Yormcrus is based in Mairvo.",
    "opening": "Delthcine House opens at 12 pm.",
}


@pytest.fixture(scope="module", autouse=True)
def starts(request: pytest.FixtureRequest) -> Iterator[None]:
    """Daemons and commands start without the seconds that imports take, except where a module has `BY_COMMAND`."""
    with pytest.MonkeyPatch.context() as patch:
        if not getattr(request.module, "BY_COMMAND", False):
            start_preloading()
            patch.setattr(daemons, "launch", Preloaded)
            patch.setattr(daemons, "perform", run_preloaded)
        yield


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder whose two libraries are filled, as `dragon library add` leaves them, and where daemons with the
    usual model have started before: on a machine as busy as that of tests, each of them would measure its steps anew.
    """
    data = tmp_path_factory.mktemp("libraries")
    for role, texts, kind in (("device", NOTES, DeviceSettings), ("cloud", ENTRIES, CloudSettings)):
        fill_library(data, role, texts)
        settings = kind(data=data / role, model=str(EMBEDDED_MODEL), search="dense", threads=1)
        side = make_side(role, settings)
        keep(side.decoder, settings.documents, side.profiler.line, settings.profiles)
        side.close()
    return data


@pytest.fixture(scope="module")
def fresh_data(libraries: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """Copies of it, one per pair of daemons."""

    def copy() -> Path:
        target = tmp_path_factory.mktemp("data")
        shutil.copytree(libraries, target, dirs_exist_ok=True)
        return target

    return copy
