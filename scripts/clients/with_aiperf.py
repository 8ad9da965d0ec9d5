"""AIPerf: a load of streamed chats, with the tokenizer of the embedded model."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from checking import same, url

TOKENIZER = Path(__file__).resolve().parents[2] / "common" / "demo_model" / "tokenizer"
REQUESTS = 8

with tempfile.TemporaryDirectory() as folder:
    load = ("--request-count", f"{REQUESTS}", "--concurrency", "2", "--isl", "64", "--osl", "16")
    place = ("--model", "dragon", "--url", url, "--endpoint-type", "chat", "--streaming", "--tokenizer", TOKENIZER)
    done = subprocess.run(
        [Path(sys.executable).with_name("aiperf"), "profile", *place, *load, "--ui", "none", "--artifact-dir", folder],
        capture_output=True,
        text=True,
    )
    found = [*Path(folder).rglob("profile_export_aiperf.json")]
    if not found:
        sys.exit(done.stdout[-2000:] + done.stderr[-2000:])
    report = json.loads(found[0].read_text())
same("requests", report["request_count"]["avg"], REQUESTS)
same("errors", report["error_summary"], [])
same("times", report["time_to_first_token"]["avg"] > 0 and report["inter_token_latency"]["avg"] > 0, True)
