"""Origin of computed numbers: needed where they outlive the process that computed them."""

from __future__ import annotations

import hashlib
import platform
import zlib

import torch
import transformers
from transformers import PreTrainedModel

_PASSES = 4  # which of the ways to compute that there were


def numbers_source(model: PreTrainedModel, identity: str) -> str:
    """Names the very bits that `model` (its `identity` is a sample only) computes in this process, as far as is known.

    Every weight enters, and what orders the summations: hardware, versions of the libraries, threads. Reads all
    weights once, several GB per second.
    """
    place = next(model.parameters()).device
    digest = hashlib.sha256(f"{identity} {_PASSES}".encode())
    for name, weight in sorted(model.state_dict().items()):
        flat = weight.detach().contiguous().reshape(-1).view(torch.uint8)
        digest.update(f"{name} {zlib.crc32(flat.cpu().numpy().data):08x}\n".encode())
    if place.type == "cpu":
        where = f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()} {torch.get_num_threads()}"
    else:
        where = torch.cuda.get_device_name(place)
    digest.update(f"{torch.__version__} {transformers.__version__} {place.type} {where}".encode())
    return digest.hexdigest()
