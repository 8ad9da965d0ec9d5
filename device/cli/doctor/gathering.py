"""Facts are gathered here: from files, ports and the running daemon. Nothing is changed, and no model is loaded."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from device.cli.doctor import ports
from device.cli.doctor.facts import Access, Facts, Https, Keys, LibraryState, Machine, Model, SettingsFile
from device.cli.doctor.packages import packages
from device.cli.failures import CommandFailed
from device.cli.settings import cloud_settings, load_device
from proto.fields import Side

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
        return Facts(role, SettingsFile(str(path), path.is_file(), failure.text), packages(), year)
    address = None if role == "device" and own["privacy"] == "offline" else own["cloud" if role == "device" else "bind"]
    port, status = (None, None) if device is None else ports.of_device(device)
    return Facts(
        role,
        SettingsFile(str(path), path.is_file()),
        packages(),
        year,
        _keys(settings, role, address),
        None if device is None else _access(device),
        None if device is None else _https(device),
        ports.of_cloud(own["bind"]) if port is None else port,
        status,
        ports.reach(address) if role == "device" and address is not None else None,
        tuple(_models(settings, own)),
        _library(settings),
        _machine(settings),
    )


def _settings(role: Side, file: Path | None) -> tuple[Settings, Mapping[str, Any], DeviceSettings | None]:
    """Facts that both roles have, all by name, and those of a device if it is one. Raises `CommandFailed`."""
    from common.configuration.settings import Settings

    if role == "cloud":
        values, _ = cloud_settings(file)
        return Settings(**{name: values[name] for name in Settings.model_fields}), values, None
    device = load_device(file=file)
    return device, {name: getattr(device, name) for name in type(device).model_fields}, device


def _access(settings: DeviceSettings) -> Access:
    from common.configuration.settings import is_loopback
    from device.access.api_keys import ApiKeyError, ApiKeyFiles

    here, host = is_loopback(settings.host), settings.host
    try:
        names = tuple(key.name for key in ApiKeyFiles(settings.keys).all())
    except ApiKeyError as error:
        return Access(host, here, settings.insecure, problem=str(error))
    return Access(host, here, settings.insecure, names)


def _https(settings: DeviceSettings) -> Https:
    from common.configuration.settings import is_loopback
    from device.access import tls

    here, files = is_loopback(settings.host), settings.tls
    if files is None:
        return Https(here)
    try:
        certificate = tls.checked(files)
    except tls.TlsError as error:
        return Https(here, str(files.certificate), problem=str(error))
    now = tls.now()
    told = tuple(tls.complaints(files, certificate, now))
    return Https(here, str(files.certificate), certificate.names, certificate.days_left(now), None, told)


def _keys(settings: Settings, role: Side, address: str | None) -> Keys:
    from common.daemon.daemon import TRUSTED_CLOUD
    from common.transport.address import TransportError, is_loopback
    from common.transport.keys import KeyFolder, fingerprint
    from common.transport.local_keys import local_pair

    if address is None:
        return Keys("none", "", True)
    here = is_loopback(address)
    if settings.curve == "off":
        return Keys("plain", address, here)
    folder = KeyFolder(settings.keys, role)
    shared = False
    try:
        shared = here and not folder.complete(TRUSTED_CLOUD if role == "device" else None)
        if shared:
            if settings.local_keys.exists():  # else the first daemon makes it
                local_pair(settings.local_keys)
            return Keys("shared", address, here)
        own = folder.own()
        if role == "device":
            folder.device_keys(TRUSTED_CLOUD)
    except (TransportError, OSError) as error:
        return Keys("shared" if shared else "exchanged", address, here, _sentence(error))
    peers = tuple(peer.name for peer in folder.trusted() if role == "cloud" or peer.name == TRUSTED_CLOUD)
    return Keys("exchanged", address, here, None, fingerprint(own.public), peers)


def _models(settings: Settings, own: Mapping[str, Any]) -> Iterator[Model]:
    """The models that settings name, other than `auto`, which is one of the others or small."""
    for setting in ("model", "draft_model", "local_target"):
        name = own.get(setting)
        if name not in (None, "auto", "none"):
            budget = own.get("memory_budget") if setting == "local_target" else None
            yield _model(setting, name, settings.models, budget)


def _model(setting: str, name: str, models: Path, budget: int | None) -> Model:
    from common.configuration.settings import readable_name
    from common.engine.model.errors import ModelError
    from common.engine.model.gguf import is_complete, is_gguf
    from common.engine.model.location import is_folder, locate
    from common.engine.model.pulled import place_of

    try:
        if (named := place_of(name, models)) is not None:
            return Model(setting, name, "there", _weights(named), memory=budget)
        if is_gguf(name):
            file = Path(name).expanduser()
            done = [folder for folder in models.glob(f"{file.stem}-*") if is_complete(folder)]
            if done and file.is_file():
                return Model(setting, readable_name(name), "there", max(map(_weights, done)), memory=budget)
            if not file.is_file():
                raise ModelError("there is no such file")
            return Model(setting, readable_name(name), "importable", file.stat().st_size, memory=budget)
        local = is_folder(name)
        try:
            size = _weights(locate(name))
        except ModelError:
            if local:
                raise
            size = 0
        if not size and local:
            raise ModelError("no safetensors weights are in it")
    except (ModelError, OSError) as error:
        return Model(setting, name, "wrong", problem=_sentence(error).removeprefix(f"{name}: "))
    return Model(setting, readable_name(name), "there" if size else "remote", size, memory=budget)


def _weights(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("*.safetensors"))


def _library(settings: Settings) -> LibraryState:
    from common.engine.model.errors import ModelError
    from common.library import seal
    from common.library.embedder import SentenceTransformerEmbedder
    from common.library.errors import LibraryError
    from common.library.store import DATABASE, Store

    folder, identity, problem = str(settings.library), None, None
    try:
        identity = SentenceTransformerEmbedder(settings.embedder).identity
    except (LibraryError, ModelError, OSError) as error:
        problem = _sentence(error)
    try:
        if not (settings.library / DATABASE).is_file():
            return LibraryState(folder, False, embedder=identity, embedder_problem=problem)
        seal.check(settings.library)
        store = Store(settings.library)
        try:
            with store.reading():
                counts, stored = store.counts(), store.state().embedder
                skipped = sum(len(reading.skipped) for reading in store.readings.all())
        finally:
            store.close()
    except (LibraryError, OSError) as error:
        return LibraryState(folder, True, _sentence(error), embedder=identity, embedder_problem=problem)
    kept = counts.documents, counts.chunks, skipped
    return LibraryState(folder, True, None, *kept, stored, identity, problem)


def _machine(settings: Settings) -> Machine:
    import psutil

    from common.configuration.settings import KV_SHARE, absolute

    memory = psutil.virtual_memory()
    data = absolute(settings.data)
    there = next(folder for folder in (data, *data.parents) if os.path.exists(folder))
    gpu = settings.torch_device == "cuda" or (settings.torch_device == "auto" and Path("/dev/nvidiactl").exists())
    kv = settings.kv_bytes or memory.total // KV_SHARE
    return Machine(memory.available, str(data), shutil.disk_usage(there).free, kv, gpu)


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.filename}: can't be read: {(error.strerror or str(error)).lower()}"
    return str(error)
