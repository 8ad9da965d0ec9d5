"""Texts that clients have tokenized cost other clients no more than a moment."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

from device.http.tokens import LONGEST_TEXT
from scripts.daemons import Daemon, free_port
from tests.attacks.side_by_side import resident_bytes
from tests.daemons.streaming import wait_until

CLIENTS = 12
ROUNDS = 5
SLOW = 2.0  # seconds for `/health` and `/status`; some milliseconds on an idle machine, which may stand still for once
GROWTH = 128 * 2**20  # bytes
LONG: dict[str, Any] = {"content": "7a b" * 2**18, "with_pieces": True}
LONGEST: dict[str, Any] = {"content": "7a b" * (LONGEST_TEXT // 4), "with_pieces": True}


def test_clients_that_have_long_texts_tokenized_are_not_felt(fresh_data: Callable[[], Path]) -> None:
    data, port = fresh_data(), free_port()
    url = f"http://127.0.0.1:{port}"
    device = Daemon("device", data, {"threads": 1, "port": port, "privacy": "offline"}, data / "device.log")
    enough = threading.Event()
    statuses: set[int] = set()
    device.start()
    try:
        device.wait_for("device ready")
        with httpx.Client(base_url=url, timeout=60, trust_env=False) as client:
            refused = client.post("/tokenize", json={"content": "x" * (LONGEST_TEXT + 1)})
            assert (refused.status_code, refused.json()["error"]["code"]) == (413, "text_too_long")
            assert client.post("/tokenize", json=LONG).status_code == 413
            assert client.post("/tokenize", json=LONGEST).status_code == 200
            assert device.process is not None
            before = resident_bytes(device.process.pid)

            def tokenize(_: int) -> None:
                with httpx.Client(base_url=url, timeout=60, trust_env=False) as other:
                    while not enough.is_set():
                        statuses.add(other.post("/tokenize", json=LONGEST).status_code)

            with ThreadPoolExecutor(CLIENTS) as pool:
                working = pool.map(tokenize, range(CLIENTS))
                try:
                    wait_until(lambda: bool(statuses), "the clients are at it")
                    for path in ("/health", "/status"):
                        times = []
                        for _ in range(ROUNDS):
                            began = time.monotonic()
                            assert client.get(path).status_code == 200
                            times.append(time.monotonic() - began)
                        assert statistics.median(times) < SLOW, (path, times)
                    grown = resident_bytes(device.process.pid) - before
                finally:
                    enough.set()
                list(working)
        assert statuses <= {200, 429} and 200 in statuses
        assert grown < GROWTH
    finally:
        device.stop()
