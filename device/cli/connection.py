"""Chooses a command's daemon, the API key for it, and the trust in it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from common.process.lifetime import anybody_present
from device.cli.daemon import DaemonClient
from device.cli.failures import NOT_REACHABLE, CommandFailed, DaemonStarting, bad_input

if TYPE_CHECKING:
    import ssl

    from device.settings import DeviceSettings

KEY_VARIABLE: Final = "DRAGON_API_KEY"
LONGEST_KEY: Final = 4096
POLL: Final = 0.2  # seconds
GRACE: Final = 1.0  # seconds for a concurrent `dragon up` to show its start
COMES: Final = "The device daemon is starting."

Result = TypeVar("Result")


def find_daemon(url: str | None, key_file: Path | None = None, authority: Path | None = None) -> DaemonClient:
    """Returns the daemon at `url`, else the one in this machine's settings.

    `url` may omit http://. The key is from `key_file`, else from `$DRAGON_API_KEY`. Without both, this machine's
    daemon gets the key that it made for this user; no other `url` ever does. Over https, `authority`, if given, must
    vouch for the certificate. Raises `CommandFailed`.
    """
    key = _given_key(key_file)
    trusted = None if authority is None else _trusting(authority)
    if url is not None:
        if not url.strip():
            raise bad_input("--url is empty: give the device daemon's address, for example http://127.0.0.1:8600")
        return DaemonClient(url if "://" in url else f"http://{url}", key, trusted)
    from device.cli.settings import load_device

    return own_daemon(load_device(), None, key, trusted)


@contextmanager
def ready_daemon(
    url: str | None, key_file: Path | None = None, authority: Path | None = None
) -> Iterator[DaemonClient]:
    """Waits for the daemon, and reports its progress on stderr.

    This machine's daemon starts while the process that starts it lives. Raises `CommandFailed` after `GRACE` seconds
    without one.
    """
    with ExitStack() as stack:
        daemon = stack.enter_context(find_daemon(url, key_file, authority))
        place = None if url is not None else _starting()
        end = time.monotonic() + (0.0 if place is None else GRACE)
        said = ""
        while (missing := _missing(daemon)) is not None:
            listens = isinstance(missing, DaemonStarting)
            if listens or (place is not None and anybody_present(place)):
                end = time.monotonic() + GRACE  # it may end between two checks
                text = str(missing) if listens else COMES
                if text != said:
                    print(text, file=sys.stderr, flush=True)
                    said = text
            elif time.monotonic() > end:
                raise missing
            time.sleep(POLL)
            if not listens:
                stack.close()
                daemon = stack.enter_context(find_daemon(url, key_file, authority))  # with its new key
        yield daemon


def _starting() -> Path:
    from device.cli.settings import load_device

    return load_device().starting


def ask_daemon(
    url: str | None, key_file: Path | None, authority: Path | None, question: Callable[[DaemonClient], Result]
) -> Result:
    """Returns the result of `question` to the daemon, without an earlier request.

    If the daemon can't answer yet, waits as `ready_daemon` and asks again. Raises `CommandFailed`.
    """
    try:
        with find_daemon(url, key_file, authority) as daemon:
            return question(daemon)
    except CommandFailed as failure:
        absent = url is None and failure.exit_code == NOT_REACHABLE
        if not absent and not isinstance(failure, DaemonStarting):
            raise
    with ready_daemon(url, key_file, authority) as daemon:
        return question(daemon)


def own_daemon(
    settings: DeviceSettings, port: int | None = None, key: str | None = None, trusted: ssl.SSLContext | None = None
) -> DaemonClient:
    """Returns this machine's device daemon; `port` overrides the settings. Raises `CommandFailed`."""
    from device.access.api_keys import ApiKeyFiles
    from device.cli.settings import local_url

    if port is None and not settings.port:
        raise bad_input("port = 0 lets the device daemon take any free port: give the address from its log with --url")
    own = trusted if trusted is not None else own_trust(settings)
    return DaemonClient(local_url(settings, port), key or ApiKeyFiles(settings.keys).local(), own)


def own_trust(settings: DeviceSettings) -> ssl.SSLContext | None:
    """Returns the TLS context for this machine's daemon, None without https. Raises `CommandFailed`."""
    if settings.tls is None:
        return None
    from device.access.tls import TlsError, read_certificate, trusting_only

    try:
        return trusting_only(read_certificate(settings.tls.certificate))
    except TlsError as error:
        raise bad_input(str(error)) from None


def _missing(daemon: DaemonClient) -> CommandFailed | None:
    """The failure of a starting daemon, None if it is ready. Raises `CommandFailed` if waiting can't help."""
    try:
        daemon.check_started()
        daemon.status()  # fails for other programs or a wrong key
    except DaemonStarting as starting:
        return starting
    except CommandFailed as failure:
        if failure.exit_code != NOT_REACHABLE:
            raise
        return failure
    return None


def _trusting(authority: Path) -> ssl.SSLContext:
    from device.access.tls import TlsError, trusting

    try:
        return trusting(authority)
    except TlsError as error:
        raise bad_input(str(error)) from None


def _given_key(file: Path | None) -> str | None:
    if file is None:
        given = os.environ.get(KEY_VARIABLE, "")
        return _one_key(given, f"${KEY_VARIABLE}") if given.strip() else None
    try:
        with file.open("rb") as opened:
            text = opened.read(LONGEST_KEY + 1)
    except OSError as error:
        raise bad_input(f"--api-key-file {file} can't be read: {(error.strerror or str(error)).lower()}") from None
    return _one_key(text.decode("ascii", "replace"), f"--api-key-file {file}")


def _one_key(text: str, place: str) -> str:
    """Raises `CommandFailed` without quoting the text."""
    key = text.strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key or len(text) > LONGEST_KEY:
        raise bad_input(f"{place} must have one API key and nothing else")
    return key
