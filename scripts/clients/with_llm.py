"""The `llm` command, with an entry in its extra-openai-models.yaml."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from checking import expected, question, same, url

with tempfile.TemporaryDirectory() as folder:
    models = Path(folder) / "extra-openai-models.yaml"
    models.write_text(f'- model_id: dragon\n  model_name: dragon\n  api_base: "{url}/v1"\n')
    for what, flags in (("streamed chat", []), ("chat", ["--no-stream"])):
        done = subprocess.run(
            [Path(sys.executable).with_name("llm"), "-m", "dragon", *flags, question],
            env=os.environ | {"LLM_USER_PATH": folder, "OPENAI_API_KEY": "unused"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        same(what, done.stdout.strip() or done.stderr, expected)
