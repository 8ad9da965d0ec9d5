"""Checks of a side of this machine, each with a remedy.

Shared by commands and a running daemon. They change nothing.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal

from common.configuration.settings import Settings, absolute
from common.configuration.settings import is_loopback as is_local
from common.daemon.start import TRUSTED_CLOUD
from common.library.errors import LibraryError
from common.library.readers.formats import converter
from common.library.readers.scans import ENGINE, can_read_scans
from common.transport.address import TransportError, is_local_address, split_address
from common.transport.keys import KeyFolder, fingerprint, local_pair
from device.access import tls
from device.access.api_keys import ApiKeyError, ApiKeyFiles
from device.doctor.packages import Package, packages
from device.settings import DeviceSettings
from proto.messages import Side

if TYPE_CHECKING:
    from common.library.library import Library
    from device.interface import CloudStatus

Level = Literal["ok", "warn", "wrong"]

FIRST_YEAR: Final = 2025  # of the oldest release
EXPIRING: Final = 21  # days left for a renewal
LEAST_DISK, LITTLE_DISK = 64 * 2**20, 2**30
SLOW_MS: Final = 500.0  # round trip; answers then often continue without the cloud
PATIENCE: Final = 3.0  # seconds for a connection


@dataclass(frozen=True, slots=True)
class Finding:
    """A line of a diagnosis. `remedy`: empty if all is well or the text has it."""

    level: Level
    topic: str
    text: str
    remedy: str = ""


def check_running(settings: DeviceSettings, cloud: CloudStatus, library: Library) -> Iterator[Finding]:
    """Yields a running daemon's diagnosis; may take `PATIENCE`.

    Settings and models are in use, so not checked. The cloud's address is tried only without a connection.
    """
    address = None if settings.privacy == "offline" else settings.cloud
    yield check_keys(settings, "device", address)
    yield check_access(settings)
    yield from check_https(settings)
    if address is not None and cloud.state != "connected":
        yield check_reach(address)
    yield check_link(cloud.state, cloud.detail, cloud.rtt_ms)
    try:
        counts = library.counts
        skipped = sum(len(reading.skipped) for reading in library.readings())
    except LibraryError as error:
        yield Finding("wrong", "library", str(error))
    else:
        yield check_library(settings, "device", counts.documents, counts.chunks, skipped)
    yield check_disk(settings)
    yield from check_clock(datetime.now(UTC).year)
    yield from check_packages(packages())
    yield check_formats()


def check_keys(settings: Settings, role: Side, address: str | None) -> Finding:
    """Checks the keys of the link at `address`, None without a link."""
    if address is None:
        return Finding("ok", "keys", "no keys are needed: no cloud takes part")
    pairing = "`dragon pair CODE`" if role == "device" else "`dragon pair --role cloud --address tcp://HOST:PORT`"
    here = is_local_address(address)
    if settings.curve == "off":
        text = f"the link with {address} is not encrypted: curve = 'off'"
        return (
            Finding("ok", "keys", text)
            if here
            else Finding("warn", "keys", text, "leave curve at auto, and pair the machines")
        )
    folder = KeyFolder(settings.keys, role)
    shared = False
    try:
        shared = here and not folder.complete(TRUSTED_CLOUD if role == "device" else None)
        if shared:
            if settings.local_keys.exists():  # otherwise a daemon makes it
                local_pair(settings.local_keys)
            return Finding("ok", "keys", f"one key pair, which this user's daemons share on {address}")
        own = folder.own()
        if role == "device":
            folder.device_keys(TRUSTED_CLOUD)
    except (TransportError, OSError) as error:
        return Finding("wrong", "keys", describe_error(error), "" if shared else f"or pair again with {pairing}")
    peers = [peer.name for peer in folder.trusted() if role == "cloud" or peer.name == TRUSTED_CLOUD]
    if not peers:
        return Finding("wrong", "keys", "nobody is trusted, so nobody can connect", f"pair the machines with {pairing}")
    return Finding("ok", "keys", f"own key {fingerprint(own.public)}; trusted: {', '.join(peers)}")


def check_access(settings: DeviceSettings) -> Finding:
    """Checks that only intended clients may use the daemon."""
    host, make = settings.host, "make a key with `dragon api-keys create NAME`"
    try:
        names = [key.name for key in ApiKeyFiles(settings.keys).all()]
    except ApiKeyError as error:
        return Finding("wrong", "access", str(error))
    if names:
        return Finding("ok", "access", f"{host} is open to {counted(len(names), 'API key')}: {', '.join(names)}")
    if is_local(host):
        return Finding("ok", "access", f"{host} is open to every program of this machine: there are no API keys")
    text = f"everybody who reaches {host} could question the private documents: there are no API keys"
    if settings.insecure:
        return Finding("warn", "access", f"{text}, and insecure = true", f"{make}, and leave insecure out")
    return Finding("wrong", "access", text, f"{make}, or set host to 127.0.0.1")


def check_https(settings: DeviceSettings) -> Iterator[Finding]:
    """Checks encryption towards clients, and the certificate."""
    files, renew = settings.tls, "renew it, and restart the daemon"
    if files is None:
        if not is_local(settings.host):
            text = "keys, questions and answers are not encrypted: there is no certificate"
            remedy = "set tls_certificate and tls_key, unless a proxy in front has TLS"
            yield Finding("warn", "tls", text, remedy)
        return
    try:
        certificate = tls.check_tls_files(files)
    except tls.TlsError as error:
        yield Finding("wrong", "tls", str(error), "set tls_certificate and tls_key to files that belong together")
        return
    now = tls.now()
    days = certificate.days_left(now)
    for text in tls.complaints(files, certificate, now):
        expired = days < 0 and "expired" in text
        yield Finding("wrong" if expired else "warn", "tls", text, renew if expired else "")
    named = f"{files.certificate} for {', '.join(certificate.names) or 'no name'}"
    left = counted(days, "day")
    if 0 <= days < EXPIRING:
        yield Finding("warn", "tls", f"{named} expires in {left}", renew)
    elif days >= EXPIRING:
        yield Finding("ok", "tls", f"{named} is valid for {left}")


def check_reach(address: str) -> Finding:
    """Checks that the cloud's address accepts TCP connections."""
    host, port = split_address(address)
    try:
        socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        text = f"the name in {address} can't be resolved: {reason(error)}"
        return Finding("wrong", "cloud", text, "check its spelling, and the network")
    try:
        with socket.create_connection((host, port), timeout=PATIENCE):
            return Finding("ok", "cloud", f"{address} accepts connections")
    except OSError as error:
        text = f"{address} accepts no connections: {reason(error)}"
    if is_local_address(address):
        return Finding("warn", "cloud", text, "start it with `dragon cloud`, or both daemons with `dragon up`")
    return Finding(
        "wrong",
        "cloud",
        text,
        "check that the cloud runs, that its bind is not a loopback address, and that the port is open",
    )


def check_link(state: str, detail: str, trip: float | None) -> Finding:
    """Reports the link; `trip` is the round trip in milliseconds."""
    if state == "off":
        return Finding("ok", "link", detail or "no cloud")
    if state == "connected":
        text = "connected" if trip is None else f"connected, round trip {trip:.1f} ms"
        if trip is not None and trip > SLOW_MS:
            return Finding(
                "warn", "link", text, "the network is slow: raise patience if answers continue without the cloud"
            )
        return Finding("ok", "link", text)
    remedy = "see Troubleshooting in docs/operations.md" if state == "refused" else "the device tries again by itself"
    return Finding("wrong" if state == "refused" else "warn", "link", f"{state}: {detail}", remedy)


def check_library(
    settings: Settings,
    role: Side,
    documents: int,
    chunks: int,
    skipped: int,
    stored: str | None = None,
    configured: str | None = None,
) -> Finding:
    """The embedding model must match the `stored` one; unknown identities are None."""
    if not documents:
        text = f"{settings.library} has no documents"
        return Finding("warn", "library", text, f"add some with {_command('library add FOLDER', role)}")
    counts = f"{settings.library}: {counted(documents, 'document')}, {counted(chunks, 'chunk')}"
    if None not in (stored, configured) and stored != configured:
        text = f"{counts}, embedded with {stored}, and {configured} is configured"
        rebuild = _command("library add --rebuild FOLDER", role)
        return Finding("wrong", "library", text, f"run {rebuild}, or configure the earlier embedder")
    if skipped:
        text = f"{counts}; {counted(skipped, 'document')} could not be read"
        return Finding("warn", "library", text, f"{_command('library status', role)} says why")
    return Finding("ok", "library", counts)


def check_disk(settings: Settings) -> Finding:
    data = absolute(settings.data)
    free = shutil.disk_usage(next(folder for folder in (data, *data.parents) if os.path.exists(folder))).free
    text = f"{in_bytes(free)} free in {data}"
    if free < LITTLE_DISK:
        level: Level = "wrong" if free < LEAST_DISK else "warn"
        return Finding(level, "disk", text, "free some space, or set data to another folder")
    return Finding("ok", "disk", text)


def check_clock(year: int) -> Iterator[Finding]:
    if year < FIRST_YEAR:
        yield Finding("warn", "clock", f"this machine's clock shows the year {year}", "set the clock; see `date`")


def check_packages(found: Sequence[Package]) -> Iterator[Finding]:
    for each in found:
        if each.installed is None:
            yield Finding("wrong", "packages", f"{each.name} is missing", f"pip install '{each.name}{each.wanted}'")
        elif not each.fits:
            text = f"{each.name} {each.installed} is installed, and this release was made for {each.wanted}"
            yield Finding("warn", "packages", text, f"pip install '{each.name}{each.wanted}'")
    if all(each.fits for each in found):
        yield Finding("ok", "packages", f"{len(found)} are installed in versions that fit")


def check_formats() -> Finding:
    """Says how documents are read that need more than the usual packages."""
    scans = f"read by {ENGINE}" if can_read_scans() else "not read without `pip install 'dragon-runtime[ocr]'`"
    program = converter()
    old = f".doc, .ppt and .xls by {program}" if program else ".doc and .ppt are not read without LibreOffice"
    return Finding("ok", "formats", f"scanned pages are {scans}; {old}")


def in_bytes(number: int) -> str:
    """Returns bytes in words: 98 MB, 1.6 GB."""
    for unit, size in (("GB", 10**9), ("MB", 10**6)):
        if number >= size:
            return f"{number / size:.1f} {unit}" if number < 10 * size else f"{number / size:.0f} {unit}"
    return f"{number / 1000:.0f} kB"


def describe_error(error: Exception) -> str:
    """Returns an error's text, with its file."""
    if isinstance(error, OSError):
        return f"{error.filename}: can't be read: {reason(error)}"
    return str(error)


def reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def counted(number: int, noun: str) -> str:
    """Returns a count in words: 1 chunk, 2,000 chunks."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _command(words: str, role: Side) -> str:
    return f"`dragon {words}{'' if role == 'device' else ' --role cloud'}`"
