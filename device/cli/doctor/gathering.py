"""Facts are gathered here: from files, ports and the running daemon. Nothing is changed, and no model is loaded."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.process.lifetime import last_start
from device.cli.doctor import ports
from device.cli.doctor.models import is_remote_encoder, of_models
from device.cli.failures import CommandFailed
from device.cli.settings import cloud_settings, load_device
from device.doctor import gathering
from device.doctor.facts import Facts, LibraryState, SettingsFile
from device.doctor.gathering import sentence
from device.doctor.packages import packages
from proto.messages import Side

if TYPE_CHECKING:
    from common.configuration.settings import Settings
    from device.settings import DeviceSettings


def gather(role: Side, file: Path | None) -> Facts:
    """The facts about this machine's `role`, whose settings are in `file` or where they usually are."""
    from common.configuration.configuration import settings_path

    # What a setting names and is not on this machine would be downloaded. Read when the Hub's library is imported.
    os.environ["HF_HUB_OFFLINE"] = "1"
    path = settings_path(role, file)
    year = datetime.now(UTC).year
    try:
        settings, own, device = _settings(role, file)
    except CommandFailed as failure:
        return Facts(role, SettingsFile(str(path), os.path.isfile(path), failure.text), packages(), year)
    address = None if role == "device" and own["privacy"] == "offline" else own["cloud" if role == "device" else "bind"]
    port, status = (None, None) if device is None else ports.of_device(device)
    return Facts(
        role,
        SettingsFile(str(path), os.path.isfile(path)),
        packages(),
        year,
        gathering.of_keys(settings, role, address),
        None if device is None else gathering.of_access(device),
        None if device is None else gathering.of_https(device),
        ports.of_cloud(own["bind"]) if port is None else port,
        status,
        gathering.of_reach(address) if role == "device" and address is not None else None,
        tuple(of_models(settings, own)),
        _library(settings),
        gathering.of_machine(settings, _processes(own)),
        tuple(last_start(settings.last_start(role))),
    )


def _settings(role: Side, file: Path | None) -> tuple[Settings, Mapping[str, Any], DeviceSettings | None]:
    """Facts that both roles have, all by name, and those of a device if it is one. Raises `CommandFailed`."""
    from common.configuration.settings import Settings

    if role == "cloud":
        values, _ = cloud_settings(file)
        return Settings(**{name: values[name] for name in Settings.model_fields}), values, None
    device = load_device(file=file)
    return device, {name: getattr(device, name) for name in type(device).model_fields}, device


def _processes(own: Mapping[str, Any]) -> int:
    """Processes on this machine that have the models: none where a cloud's workers are on those of a Ray cluster."""
    elsewhere = own.get("ray") not in (None, "none", "local")
    return 0 if elsewhere else int(own.get("workers") or 1)


def _library(settings: Settings) -> LibraryState:
    from common.engine.model.errors import ModelError
    from common.library.embedder import SentenceTransformerEmbedder
    from common.library.errors import LibraryError
    from common.library.store import DATABASE, Store

    folder, identity, problem = str(settings.library), None, None
    try:
        if not is_remote_encoder(settings.embedder):
            identity = SentenceTransformerEmbedder(settings.embedder).identity
    except (LibraryError, ModelError, OSError) as error:
        problem = sentence(error)
    try:
        if not (settings.library / DATABASE).is_file():
            return LibraryState(folder, False, embedder=identity, embedder_problem=problem)
        store = Store(settings.library)
        try:
            with store.reading():
                store.check(everything=True)
                counts, stored = store.counts(), store.state().embedder
                skipped = sum(len(reading.skipped) for reading in store.readings.all())
        finally:
            store.close()
    except (LibraryError, OSError) as error:
        return LibraryState(folder, True, sentence(error), embedder=identity, embedder_problem=problem)
    kept = counts.documents, counts.chunks, skipped
    return LibraryState(folder, True, None, *kept, stored, identity, problem)
