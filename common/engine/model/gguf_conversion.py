"""Converts a GGUF file's model and tokenizer: `python -m common.engine.model.gguf_conversion FILE FOLDER`.

The weights become bfloat16: what the file's 4 to 8 bits stand for differs from it by far less than from the numbers
that were quantised.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any


def convert(file: Path, folder: Path) -> None:
    """Write safetensors, configuration, tokenizer and chat template to `folder`."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.set_verbosity_error()
    options: dict[str, Any] = {"gguf_file": file.name, "local_files_only": True, "trust_remote_code": False}
    model: Any = AutoModelForCausalLM.from_pretrained(file.parent, dtype=torch.float32, **options)
    tokenizer: Any = AutoTokenizer.from_pretrained(file.parent, **options)
    model.hf_quantizer = None  # these are plain numbers now
    del model.config.quantization_config
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def main() -> int:
    """The exit code; a failure is one line on stdout, progress goes to stderr."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    try:
        convert(Path(sys.argv[1]), Path(sys.argv[2]))
    except Exception as error:  # whatever the libraries make of a damaged or unknown file
        print(f"{type(error).__name__}: {' '.join(str(error).split())[:500]}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
