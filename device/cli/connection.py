"""Choice of the daemon that a command talks to."""

from __future__ import annotations

from device.cli.daemon import Daemon


def find_daemon(url: str | None, api_key: str | None) -> Daemon:
    """The daemon at `url`, with http:// or without, else the one that this machine's device settings describe.

    The settings' API key is for the settings' daemon only: it is not sent to another `url`.
    """
    if url is not None:
        return Daemon(url if "://" in url else f"http://{url}", api_key)
    from device.cli.settings import device_http

    local = device_http()
    return Daemon(local.url, api_key or local.api_key)
