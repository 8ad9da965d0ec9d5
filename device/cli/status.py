"""`dragon status`: the device daemon and its link to the cloud."""

from __future__ import annotations

from device.cli import options


def show_status(
    as_json: options.AsJson = False,
    url: options.Url = None,
    api_key_file: options.KeyFile = None,
    ca: options.Authority = None,
) -> None:
    """Show the device daemon and its link to the cloud."""
    from device.cli.connection import ask_daemon
    from device.cli.daemon import DaemonClient
    from device.cli.render import as_json_text, status_table, strip_controls

    value = ask_daemon(url, api_key_file, ca, DaemonClient.status)
    print(as_json_text(value) if as_json else strip_controls(status_table(value)))
