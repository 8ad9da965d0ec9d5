"""Models in GGUF files: imported once, as safetensors in a folder that all daemons of one user share.

Both sides must compute with the same numbers, so what a quantised file stands for is written down once and read from
there by everybody.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock

from common.engine.model.errors import ModelError
from common.process.durable_files import put_in_place, to_disk
from common.process.paths import expanded
from common.process.python import child_command, python_environment
from common.process.startup import Startup

SUFFIX = ".gguf"
MANIFEST = "imported.json"  # sizes and SHA-256 of the files, written last
CONVERSION = 3  # which way imports are made; those of another way are made again
_MAGIC = b"GGUF"
_IDENTITY = 16  # hexadecimal digits of the file's SHA-256 in the folder's name
_LOCK = "import.lock"
_WORK = ".import-"  # with which the names of folders begin in which imports are made
_CONVERTED = re.compile(r"converted (\d\.\d+)")  # a line of the conversion
_WRITING = "writing"  # the last one

log = logging.getLogger(__name__)


def is_gguf(model: str) -> bool:
    """Whether `model` names a file rather than a folder or a Hub id."""
    return model.lower().endswith(SUFFIX)


def imported(file: Path, models: Path, startup: Startup | None = None) -> Path:
    """The folder below `models` with the model of a GGUF file; it is made when it is not there. Raises `ModelError`.

    Takes as long as reading both once it is there, and the first time as the model is large: 10 to 30 s for 135M
    parameters; the `startup` is told how far it is. An import that is not what was written is made anew. Several
    processes may ask at the same time; one of them does the work.
    """
    file = expanded(file)
    folder = models / f"{file.stem}-{_digest(file)[:_IDENTITY]}"
    if _is_whole(folder):
        return folder
    try:
        models.mkdir(mode=0o700, parents=True, exist_ok=True)  # one that is there may hold others' files, too
        startup = Startup() if startup is None else startup
        with _import_lock(models, startup):
            if not _is_whole(folder):
                began = time.monotonic()
                _clear(models)
                _import(file, folder, startup)
                log.info("imported %s in %.0f s", file.name, time.monotonic() - began)
    except OSError as error:
        raise ModelError(
            f"{models}: the model can't be kept there: {(error.strerror or str(error)).lower()}"
        ) from error
    return folder


def is_complete(folder: Path) -> bool:
    """Whether all files of an import are there, in their sizes; see `damaged_files` for their content."""
    try:
        return all((folder / name).stat().st_size == size for name, (size, _) in _manifest(folder).items())
    except (OSError, ValueError, TypeError, AttributeError):
        return False


def damaged_files(folder: Path) -> list[str]:
    """Names of an import's files that are not what was written. Reads all of them. Raises `ModelError`."""
    try:
        return [name for name, (_, digest) in _manifest(folder).items() if _digest(folder / name) != digest]
    except ModelError:
        raise
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ModelError(f"{folder}: is no imported model") from error


def _manifest(folder: Path) -> dict[str, tuple[int, str]]:
    """Size and digest of each file. Raises what comes of a manifest that is none, `ModelError` for an older one."""
    stated = json.loads((folder / MANIFEST).read_text())
    if stated.get("conversion") != CONVERSION:
        raise ModelError(f"{folder}: was imported by another release; name the .gguf file, and it is imported again")
    files: dict[str, tuple[int, str]] = stated["files"]
    return files


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


@contextmanager
def _import_lock(models: Path, startup: Startup) -> Iterator[None]:
    """Hold the lock of imports; the startup is told where another process has it."""
    lock = filelock.FileLock(models / _LOCK)
    try:
        lock.acquire(blocking=False)
    except filelock.Timeout:
        startup.at("waiting for another process that imports a model")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _clear(models: Path) -> None:
    """Remove what imports left that were killed. The caller holds the lock: none is under way."""
    for left in models.glob(f"{_WORK}*"):
        log.info("removing what an import left that was not finished")
        shutil.rmtree(left, ignore_errors=True)


def _import(file: Path, folder: Path, startup: Startup) -> None:
    shutil.rmtree(folder, ignore_errors=True)  # what an interruption left, or somebody damaged
    with tempfile.TemporaryDirectory(prefix=_WORK, dir=folder.parent) as work:
        made = Path(work) / "model"
        # A process of its own: it takes several times the model's memory, and the file may be a stranger's.
        command = child_command("common.engine.model.gguf_conversion", str(file.absolute()), str(made))
        said, code = _followed(command, startup)
        if code:
            reason = said.strip().rpartition("\n")[2] or f"the conversion ended with {code}"
            raise ModelError(f"{file}: can't be imported: {reason}")
        files = {path.name: (path.stat().st_size, _digest(path)) for path in sorted(made.iterdir())}
        (made / MANIFEST).write_text(json.dumps({"conversion": CONVERSION, "files": files}, indent=1) + "\n")
        for path in made.iterdir():
            to_disk(path)
        put_in_place(made, folder)


def _followed(command: list[str], startup: Startup) -> tuple[str, int]:
    """Run a conversion to its end; what it wrote to stdout, and its exit code. Its progress comes by stderr."""
    work = "importing the model, once"
    startup.at(work)
    shown = sys.stderr is not None and sys.stderr.isatty() and not log.isEnabledFor(logging.INFO)  # a person waits
    with subprocess.Popen(
        command, env=python_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace"
    ) as conversion:
        assert conversion.stderr is not None and conversion.stdout is not None
        try:
            for line in conversion.stderr:
                if converted := _CONVERTED.fullmatch(line.strip()):
                    startup.at(work, float(converted[1]))
                    if shown:
                        print(f"\r{startup}", end="", file=sys.stderr, flush=True)
                elif line.strip() == _WRITING:
                    startup.at("writing the imported model")
            said = conversion.stdout.read()
        except BaseException:  # as when this process is told to stop
            conversion.kill()
            raise
    if shown:
        print(file=sys.stderr)
    return said, conversion.returncode


def _digest(file: Path) -> str:
    try:
        with file.open("rb") as content:
            if file.suffix.lower() == SUFFIX and content.read(len(_MAGIC)) != _MAGIC:
                raise ModelError(f"{file}: is not a GGUF file")
            content.seek(0)
            return hashlib.file_digest(content, "sha256").hexdigest()
    except OSError as error:
        raise ModelError(f"{file}: can't be read: {(error.strerror or str(error)).lower()}") from error
