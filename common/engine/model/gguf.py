"""Models in GGUF files: imported once, as safetensors in a folder that all daemons of one user share.

Both sides must compute with the same numbers, so what a quantised file stands for is written down once and read from
there by everybody.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import filelock

from common.engine.model.errors import ModelError
from common.process.private_files import private_folder
from common.process.python import child_command, python_environment

SUFFIX = ".gguf"
MANIFEST = "imported.json"  # sizes and SHA-256 of the files, written last
_MAGIC = b"GGUF"
_IDENTITY = 16  # hexadecimal digits of the file's SHA-256 in the folder's name
_LOCK = "import.lock"
_WORK = ".import-"  # with which the names of folders begin in which imports are made

log = logging.getLogger(__name__)


def is_gguf(model: str) -> bool:
    """Whether `model` names a file rather than a folder or a Hub id."""
    return model.lower().endswith(SUFFIX)


def imported(file: Path, models: Path) -> Path:
    """The folder below `models` with the model of a GGUF file; it is made when it is not there. Raises `ModelError`.

    Takes as long as reading both once it is there, and the first time as the model is large: 10 to 30 s for 135M
    parameters. An import that is not what was written is made anew. Several processes may ask at the same time; one of
    them does the work.
    """
    file = file.expanduser()
    folder = models / f"{file.stem}-{_digest(file)[:_IDENTITY]}"
    if _is_whole(folder):
        return folder
    try:
        private_folder(models)
        with filelock.FileLock(models / _LOCK):
            if not _is_whole(folder):
                log.info("importing %s, once", file.name)
                began = time.monotonic()
                _clear(models)
                _import(file, folder)
                log.info("imported %s in %.0f s", file.name, time.monotonic() - began)
    except OSError as error:
        raise ModelError(
            f"{models}: the model can't be kept there: {(error.strerror or str(error)).lower()}"
        ) from error
    return folder


def is_complete(folder: Path) -> bool:
    """Whether all files of an import are there, in their sizes; see `damaged_files` for their content."""
    try:
        files = json.loads((folder / MANIFEST).read_text())
        return all((folder / name).stat().st_size == size for name, (size, _) in files.items())
    except (OSError, ValueError, TypeError, AttributeError):
        return False


def damaged_files(folder: Path) -> list[str]:
    """Names of an import's files that are not what was written. Reads all of them. Raises `ModelError`."""
    try:
        files = json.loads((folder / MANIFEST).read_text())
        return [name for name, (_, digest) in files.items() if _digest(folder / name) != digest]
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ModelError(f"{folder}: is no imported model") from error


def _is_whole(folder: Path) -> bool:
    """Whether an import is there, and every byte of it is what was written."""
    if not is_complete(folder):
        return False
    try:
        damaged = damaged_files(folder)
    except ModelError:  # somebody is making it again
        return False
    if damaged:
        log.warning("the import %s is damaged (%s): it is made again", folder, ", ".join(damaged))
    return not damaged


def _clear(models: Path) -> None:
    """Remove what imports left that were killed. The caller holds the lock: none is under way."""
    for left in models.glob(f"{_WORK}*"):
        log.info("removing what an import left that was not finished")
        shutil.rmtree(left, ignore_errors=True)


def _import(file: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)  # what an interruption left, or somebody damaged
    with tempfile.TemporaryDirectory(prefix=_WORK, dir=folder.parent) as work:
        made = Path(work) / "model"
        # A process of its own: it takes several times the model's memory, and the file may be a stranger's.
        command = child_command("common.engine.model.gguf_conversion", str(file.absolute()), str(made))
        # What goes to stderr is progress, for people only.
        watched = None if sys.stderr is not None and sys.stderr.isatty() else subprocess.DEVNULL
        environment = python_environment()
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=watched, text=True, check=False)
        if done.returncode:
            reason = done.stdout.strip().rpartition("\n")[2] or f"the conversion ended with {done.returncode}"
            raise ModelError(f"{file}: can't be imported: {reason}")
        files = {path.name: (path.stat().st_size, _digest(path)) for path in sorted(made.iterdir())}
        (made / MANIFEST).write_text(json.dumps(files, indent=1) + "\n")
        for path in made.iterdir():
            _to_disk(path)
        os.replace(made, folder)
        _to_disk(folder.parent)


def _to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _digest(file: Path) -> str:
    try:
        with file.open("rb") as content:
            if file.suffix.lower() == SUFFIX and content.read(len(_MAGIC)) != _MAGIC:
                raise ModelError(f"{file}: is not a GGUF file")
            content.seek(0)
            return hashlib.file_digest(content, "sha256").hexdigest()
    except OSError as error:
        raise ModelError(f"{file}: can't be read: {(error.strerror or str(error)).lower()}") from error
