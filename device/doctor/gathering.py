"""Facts that a command and a running daemon gather alike: from settings, files and the network. Nothing is changed."""

from __future__ import annotations

import os
import shutil
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from common.configuration.settings import KV_SHARE, Settings, absolute
from common.configuration.settings import is_loopback as is_local
from common.daemon.start import TRUSTED_CLOUD
from common.library.errors import LibraryError
from common.process.machine import memory
from common.transport.address import TransportError, is_loopback, split_address
from common.transport.keys import KeyFolder, fingerprint, local_pair
from device.access import tls
from device.access.api_keys import ApiKeyError, ApiKeyFiles
from device.doctor.facts import Access, Facts, Https, Keys, LibraryState, Machine, Reach
from device.doctor.packages import packages
from device.interface import CloudStatus
from device.settings import DeviceSettings
from proto.messages import Side

if TYPE_CHECKING:
    from common.library.library import Library

PATIENCE: Final = 3.0  # seconds until a port that takes no connection is given up


def of_running(settings: DeviceSettings, cloud: CloudStatus, library: Library) -> Facts:
    """The facts about a device daemon that runs with these settings, from inside it; may take `PATIENCE`.

    Settings and models are not looked at again: those in use are loaded. The way to the cloud is tried only where the
    link does not stand.
    """
    offline = settings.privacy == "offline"
    address = None if offline else settings.cloud
    return Facts(
        "device",
        None,
        packages(),
        datetime.now(UTC).year,
        of_keys(settings, "device", address),
        of_access(settings),
        of_https(settings),
        None,
        {"cloud": {"state": cloud.state, "detail": cloud.detail, "rtt_ms": cloud.rtt_ms}},
        None if address is None or cloud.state == "connected" else of_reach(address),
        library=_library(str(settings.library), library),
        machine=of_machine(settings),
    )


def _library(folder: str, library: Library) -> LibraryState:
    """A library that is open; it has the embedding model that is configured."""
    try:
        counts = library.counts
        skipped = sum(len(reading.skipped) for reading in library.readings())
    except LibraryError as error:
        return LibraryState(folder, True, str(error))
    return LibraryState(folder, True, None, counts.documents, counts.chunks, skipped)


def of_access(settings: DeviceSettings) -> Access:
    """Access to the HTTP interface: its address, its keys, its certificate."""
    here, host = is_local(settings.host), settings.host
    try:
        names = tuple(key.name for key in ApiKeyFiles(settings.keys).all())
    except ApiKeyError as error:
        return Access(host, here, settings.insecure, problem=str(error))
    return Access(host, here, settings.insecure, names)


def of_https(settings: DeviceSettings) -> Https:
    """The certificate of the HTTP interface."""
    here, files = is_local(settings.host), settings.tls
    if files is None:
        return Https(here)
    try:
        certificate = tls.checked(files)
    except tls.TlsError as error:
        return Https(here, str(files.certificate), problem=str(error))
    now = tls.now()
    told = tuple(tls.complaints(files, certificate, now))
    return Https(here, str(files.certificate), certificate.names, certificate.days_left(now), None, told)


def of_keys(settings: Settings, role: Side, address: str | None) -> Keys:
    """The keys for the link of `role` at `address`; None: there is no link."""
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
        return Keys("shared" if shared else "exchanged", address, here, sentence(error))
    peers = tuple(peer.name for peer in folder.trusted() if role == "cloud" or peer.name == TRUSTED_CLOUD)
    return Keys("exchanged", address, here, None, fingerprint(own.public), peers)


def of_machine(settings: Settings, processes: int = 1) -> Machine:
    """Room on this machine, on which so many processes have the models."""
    room = memory()
    data = absolute(settings.data)
    there = next(folder for folder in (data, *data.parents) if os.path.exists(folder))
    gpu = settings.torch_device == "cuda" or (settings.torch_device == "auto" and Path("/dev/nvidiactl").exists())
    kv = settings.kv_bytes or room.total // KV_SHARE
    return Machine(room.available, str(data), shutil.disk_usage(there).free, kv, gpu, processes)


def sentence(error: Exception) -> str:
    """The text of an error, which says where that was."""
    if isinstance(error, OSError):
        return f"{error.filename}: can't be read: {(error.strerror or str(error)).lower()}"
    return str(error)


def of_reach(address: str) -> Reach:
    """Whether the cloud's address leads to something that takes TCP connections."""
    host, port = split_address(address)
    here = is_loopback(address)
    try:
        socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        return Reach(address, here, False, False, reason(error))
    try:
        with socket.create_connection((host, port), timeout=PATIENCE):
            return Reach(address, here, True, True)
    except OSError as error:
        return Reach(address, here, True, False, reason(error))


def reason(error: OSError) -> str:
    """The clause that an error of the system is about."""
    return (error.strerror or str(error)).lower()
