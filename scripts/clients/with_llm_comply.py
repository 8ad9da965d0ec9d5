"""llm-comply: OpenAI's and Open Responses' schemas. This daemon has no images, and needs no `model`.

The embedded model does not end the text in a call's arguments, so that the call of a chat is cut.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from checking import same, url

FAILED = {
    "openai-chat": {"tool-calling", "image-input", "error-handling"},
    "open-responses": {"image-input", "error-handling"},
}

for style, expected in FAILED.items():
    flags = ("--format", style, "-u", f"{url}/v1", "-k", "x", "-m", "dragon", "--json")
    done = subprocess.run([Path(sys.executable).with_name("llm-comply"), *flags], capture_output=True, text=True)
    results = {case["id"].removeprefix("chat-"): case["status"] for case in json.loads(done.stdout)["results"]}
    failed = {name for name, status in results.items() if status == "failed"}
    same(f"{style}: {list(results.values()).count('passed')} of {len(results)} passed", failed, expected)
