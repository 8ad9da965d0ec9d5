"""Commands of the first minutes, beside daemons that run, and the logs of these daemons."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx

from scripts.daemons import PATIENTLY, Pair, dragon, exchange_keys
from tests.daemons.streaming import wait_until


def test_an_upload_is_removed_by_its_name_while_the_daemon_runs(fresh_data: Callable[[], Path]) -> None:
    data = fresh_data()
    with Pair(data) as pair, httpx.Client(base_url=pair.url, **PATIENTLY) as client:

        def listed() -> bool:
            found = client.get("/library").json()["documents"]
            return any(each["path"] == "plan.md" and each["root"].endswith("/uploads") for each in found)

        kind = {"content-type": "application/octet-stream"}
        client.post("/library/documents", params={"name": "plan.md"}, content=b"A plan.", headers=kind)
        wait_until(listed, "the upload is read")
        shown = dragon("library", "list", data=data).stdout
        assert any("plan.md" in line and str(data / "device" / "uploads") in line for line in shown.splitlines()), shown
        removed = dragon("library", "remove", "plan.md", data=data)
        assert removed.returncode == 0, removed.stderr
        assert not (data / "device" / "uploads" / "plan.md").exists()
        wait_until(lambda: not listed(), "the daemon has forgotten it")
    log = pair.device.log.read_text()
    assert "POST /library/documents 201" in log
    assert not any(f"GET {path}" in log for path in ("/library", "/status", "/health")), "polls are no lines"


def test_a_cloud_without_devices_says_what_holds(fresh_data: Callable[[], Path]) -> None:
    data = fresh_data()
    exchange_keys(data)
    with Pair(data) as pair:
        revoked = dragon("keys", "revoke", "device", data=data)
        assert revoked.returncode == 0 and revoked.stdout.startswith("revoked     device  "), revoked.stderr
        assert "From its next start on, this user's devices on this machine can connect" in revoked.stderr
        pair.device.stop()
        pair.device.start()
        wait_until(lambda: "no device is trusted, so no device can connect" in pair.cloud.log.read_text(), "it says so")
        pair.cloud.stop()
        pair.cloud.start()
        wait_until(lambda: "can connect, with the keys in" in pair.cloud.log.read_text(), "so does the next one")
        assert dragon("keys", "revoke", "cloud", data=data).returncode == 0
        pair.device.stop()
        pair.device.start()
        pair.device.wait_for("device ready")
        pair.wait_for_cloud("connected")
