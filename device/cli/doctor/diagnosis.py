"""Diagnosis from settings, files and ports. Loads no model."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from common.process.lifetime import last_start
from device.cli.doctor import ports
from device.cli.doctor.models import check_memory, check_model_files, gather_models, is_remote_encoder
from device.cli.failures import CommandFailed
from device.cli.settings import load_cloud, load_device
from device.doctor import checks
from device.doctor.checks import Finding, describe_error
from device.doctor.packages import packages
from proto.messages import Side

if TYPE_CHECKING:
    from cloud.settings import CloudSettings
    from common.configuration.settings import Settings
    from device.settings import DeviceSettings


def diagnose(role: Side, file: Path | None) -> Iterator[Finding]:
    """Yields all findings about this machine's `role`."""
    # Prevents downloads of models. Read at the import of the Hub's library.
    os.environ["HF_HUB_OFFLINE"] = "1"
    try:
        found = _of_device(load_device(file=file)) if role == "device" else _of_cloud(load_cloud(file))
    except CommandFailed as failure:
        remedy = f"correct that; `dragon config{'' if role == 'device' else ' --role cloud'}` shows all settings"
        yield Finding("wrong", "settings", failure.text, remedy)
    else:
        yield _of_file(role, file)
        yield from found
    yield from checks.check_clock(datetime.now(UTC).year)
    yield from checks.check_packages(packages())
    yield checks.check_formats()


def _of_file(role: Side, file: Path | None) -> Finding:
    from common.configuration.configuration import settings_path

    path = settings_path(role, file)
    return Finding(
        "ok",
        "settings",
        f"read from {path}" if os.path.isfile(path) else f"default settings, because there is no {path}",
    )


def _of_device(settings: DeviceSettings) -> Iterator[Finding]:
    address = None if settings.privacy == "offline" else settings.cloud
    yield checks.check_keys(settings, "device", address)
    yield checks.check_access(settings)
    yield from checks.check_https(settings)
    port, status = ports.probe_device_port(settings)
    yield ports.check_port(port, "device")
    if address is not None:
        yield checks.check_reach(address)
    if status is not None:
        cloud = status["cloud"]
        yield checks.check_link(cloud["state"], cloud["detail"], cloud["rtt_ms"])
    yield from _of_both(settings, "device", port, 1)


def _of_cloud(settings: CloudSettings) -> Iterator[Finding]:
    yield checks.check_keys(settings, "cloud", settings.bind)
    port = ports.probe_cloud_port(settings.bind)
    yield ports.check_port(port, "cloud")
    elsewhere = settings.ray not in (None, "local")
    yield from _of_both(settings, "cloud", port, 0 if elsewhere else settings.workers or 1)


def _of_both(settings: Settings, role: Side, port: ports.Port, processes: int) -> Iterator[Finding]:
    """Checks parts of both roles; `processes` have the models."""
    models = list(gather_models(settings))
    yield from map(check_model_files, models)
    yield from _of_library(settings, role)
    if port.state != "daemon":  # otherwise it has the memory
        yield check_memory(settings, models, processes)
    yield checks.check_disk(settings)
    if stages := last_start(settings.last_start(role)):
        parts = ", ".join(f"{work} {seconds:.1f}" for work, seconds in stages)
        yield Finding("ok", "start", f"the last one took {sum(seconds for _, seconds in stages):.1f} s: {parts}")


def _of_library(settings: Settings, role: Side) -> Iterator[Finding]:
    from common.engine.model.errors import ModelError
    from common.library.embedder import SentenceTransformerEmbedder
    from common.library.errors import LibraryError
    from common.library.store import DATABASE, Store

    identity = None
    try:
        if not is_remote_encoder(settings.embedder):
            identity = SentenceTransformerEmbedder(settings.embedder).identity
    except (LibraryError, ModelError, OSError) as error:
        yield Finding("wrong", "embedder", describe_error(error), "set embedder to an installed model")
    try:
        if not (settings.library / DATABASE).is_file():
            yield checks.check_library(settings, role, 0, 0, 0)
            return
        store = Store(settings.library)
        try:
            with store.reading():
                store.check(everything=True)
                counts, stored = store.counts(), store.state().embedder
                skipped = sum(len(reading.skipped) for reading in store.readings.all())
        finally:
            store.close()
    except (LibraryError, OSError) as error:
        yield Finding("wrong", "library", describe_error(error))
    else:
        yield checks.check_library(settings, role, counts.documents, counts.chunks, skipped, stored, identity)
