"""`dragon models pull`: a model is brought to this machine, after it was said what it takes.

Results go to stdout, everything else to stderr.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path

from rich.filesize import decimal

from common.daemon.models_here import Sides
from common.engine.model import hub
from common.engine.model.errors import ModelError
from common.engine.model.gguf import imported, is_gguf
from common.engine.model.location import NOT_A_DECODER_S, SETTINGS, WEIGHTS, is_folder
from common.engine.model.pulled import card, link
from common.library.terminal import progress_bar
from common.process.paths import expanded

PICKLES = (".bin", ".pt", ".pth", ".ckpt")

Say = Callable[[str], object]


def pull(given: str, sides: Sides, say: Say) -> str:
    """Bring a model here by Hub id, folder or `.gguf` file; `say` is told lines about it.

    Returns the name that the setting `model` takes. Raises `ModelError`.
    """
    models = sides["device"].models
    if is_gguf(given):
        return _import(expanded(given), models, sides, say)
    if is_folder(given):
        return _link(expanded(given), models, sides, say)
    return _download(given, sides, say)


def _import(file: Path, models: Path, sides: Sides, say: Say) -> str:
    if os.path.isfile(file):
        say(f"{file.name}: {decimal(file.stat().st_size)}; its weights are written as bfloat16 to {models}")
    folder = imported(file, models)
    _tell(folder.name, folder, _stored(folder), sides, say)
    return folder.name


def _link(folder: Path, models: Path, sides: Sides, say: Say) -> str:
    if not any(folder.glob(WEIGHTS[0])):
        raise ModelError(f"{folder}: no safetensors weights (*.safetensors); pickled weights are not read")
    stored, licence = _stored(folder), hub.licence_of(card(folder)) or "not stated"
    say(f"{folder}: {decimal(stored)} of weights, licence {licence}; they stay there")
    _tell(str(folder), folder, stored, sides, say)
    return link(folder, models)


def _download(hub_id: str, sides: Sides, say: Say) -> str:
    offer = hub.offered(hub_id)
    weights = [file for file in offer.files if _is_wanted(file.name, WEIGHTS)]
    if not weights:
        raise ModelError(_without_weights(offer))
    total, present = sum(file.size for file in weights), sum(hub.present(offer, file) for file in weights)
    begun = f", of which {decimal(present)} are here" if present else ""
    say(f"{hub_id}: {decimal(total)} of weights{begun}, licence {offer.licence or 'not stated'}")
    _tell(hub_id, _get(hub_id, (*SETTINGS, hub.CARD)), total, sides, say)
    room = shutil.disk_usage(hub.cache_folder()).free
    if room < total - present:
        raise ModelError(f"{hub_id}: {hub.cache_folder()} has room for {decimal(room)} only; make some, or set HF_HOME")
    with progress_bar("downloading", in_bytes=True) as bar:
        before = 0
        for file in weights:

            def reached(here: int, before: int = before, name: str = file.name) -> None:
                bar(before + here, total, name)

            hub.fetch(offer, file, reached)
            before += file.size
    folder = _get(hub_id, (*SETTINGS, *WEIGHTS, hub.CARD))
    if damaged := hub.damaged_blobs(folder):
        raise ModelError(
            f"{hub_id}: {', '.join(damaged)} changed on this disk; `dragon models remove {hub_id}`, and pull it again"
        )
    return hub_id


def _get(hub_id: str, wanted: tuple[str, ...]) -> Path:
    """The folder of the newest commit with the files that match."""
    try:
        return hub.newest(hub_id, wanted, NOT_A_DECODER_S)
    except FileNotFoundError as error:
        raise ModelError(f"{hub_id}: {error}") from error


def _tell(name: str, folder: Path, stored: int, sides: Sides, say: Say) -> None:
    from common.daemon.fitting import fitting  # takes seconds, in which the Hub may have refused already

    for line in fitting(name, folder, stored, sides):
        say(line)


def _stored(folder: Path) -> int:
    """Bytes of a folder's weights."""
    return sum(path.stat().st_size for path in folder.glob(WEIGHTS[0]))


def _is_wanted(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch(name, each) for each in patterns) and not any(fnmatch(name, each) for each in NOT_A_DECODER_S)


def _without_weights(offer: hub.Offer) -> str:
    """Explains why a model of the Hub that has no safetensors can't be pulled, and what to do."""
    names = [file.name for file in offer.files]
    if files := [name for name in names if is_gguf(name)]:
        return f"{offer.hub_id}: holds .gguf files; download one, for example {files[0]}, and pull that file"
    if any(name.endswith(PICKLES) for name in names):
        return f"{offer.hub_id}: its weights are pickled, which is never read; choose a model with safetensors"
    return f"{offer.hub_id}: holds no weights (*.safetensors)"
