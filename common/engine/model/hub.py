"""Models of the Hugging Face Hub: their files in its cache, those that it offers, and why they can't be had.

The cache is the one that all programs of this user share: `models--<owner>--<name>` with the contents in `blobs`, named
by their checksums, and links to them in `snapshots/<commit>`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import filelock

from common.engine.model.errors import ModelError
from common.process.durable_files import put_in_place

CARD = "README.md"  # a model's card, which states the licence
_PATIENCE = 10.0  # seconds without a word from the Hub
_LICENCE_LENGTH = 80  # characters that are shown
_SHA256 = re.compile(r"[0-9a-f]{64}")
_GIT_SHA1 = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file that the Hub has. Large ones have a checksum."""

    name: str
    size: int  # bytes
    sha256: str | None


@dataclass(frozen=True, slots=True)
class Offer:
    """Files and licence of a model on the Hub, at one commit."""

    hub_id: str
    commit: str
    licence: str | None
    files: tuple[HubFile, ...]


def snapshot(hub_id: str, wanted: Sequence[str], unwanted: Sequence[str]) -> Path:
    """The files of a Hub model by patterns of their names: from the cache, and from the Hub what is not all there.

    Raises `FileNotFoundError`, which says why. The Hub is asked nothing where the cache has them.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    patterns: dict[str, Any] = {"allow_patterns": list(wanted), "ignore_patterns": list(unwanted)}
    try:
        folder = Path(snapshot_download(hub_id, local_files_only=True, **patterns))
        # Caches of older libraries don't tell which files belong to a snapshot.
        if "*.safetensors" not in wanted or any(folder.rglob("*.safetensors")):
            return folder
    except (LocalEntryNotFoundError, HFValidationError):
        pass
    return _downloaded(hub_id, wanted, unwanted)


def newest(hub_id: str, wanted: Sequence[str], unwanted: Sequence[str]) -> Path:
    """The files of a Hub model as the Hub has them now; those that are in the cache are not downloaded again.

    Raises `FileNotFoundError`, which says why.
    """
    with _quiet():
        return _downloaded(hub_id, wanted, unwanted)


def offered(hub_id: str) -> Offer:
    """Asks the Hub for a model's files at its present commit. Raises `ModelError`, one sentence."""
    from huggingface_hub import HfApi

    try:
        info = HfApi().model_info(hub_id, files_metadata=True, timeout=_PATIENCE)
    except _failures() as error:
        raise ModelError(f"{hub_id}: {_reason(hub_id, error)}") from error
    files = tuple(
        HubFile(each.rfilename, each.size or 0, _checksum(each.lfs.sha256) if each.lfs is not None else None)
        for each in info.siblings or ()
    )
    card = info.card_data.to_dict() if info.card_data is not None else {}
    return Offer(hub_id, info.sha or "", licence_of(card), files)


def fetch(offer: Offer, file: HubFile, reached: Callable[[int], object]) -> None:
    """Put a file with a checksum into the cache, where `snapshot` finds it, unless it is there.

    What an interruption left is gone on with. `reached` is told how many bytes are here. Raises `ModelError`.
    """
    if file.sha256 is None:
        return
    blob = _repository(offer.hub_id) / "blobs" / file.sha256
    part = blob.with_name(f"{blob.name}.incomplete")
    try:
        blob.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(blob.with_name(f"{blob.name}.lock")):
            if not blob.exists():
                _download(offer, file, part, reached)
                _take(offer, file, part, blob)
    except _failures() as error:
        if isinstance(error, ModelError):
            raise
        here = part.stat().st_size if part.exists() else 0
        raise ModelError(
            f"{offer.hub_id}: {_reason(offer.hub_id, error)}; {here:,} of {file.size:,} bytes of {file.name} are here,"
            " and the same command goes on from there"
        ) from error
    reached(file.size)


def present(offer: Offer, file: HubFile) -> int:
    """Bytes of a file with a checksum that are in the cache already."""
    blob = _repository(offer.hub_id) / "blobs" / (file.sha256 or "none")
    part = blob.with_name(f"{blob.name}.incomplete")
    found = next((path for path in (blob, part) if path.is_file()), None)
    return min(file.size, found.stat().st_size) if found is not None else 0


def damaged_blobs(folder: Path) -> list[str]:
    """Names of a snapshot's files whose content is not what their blobs are named by. Reads all of them."""
    return [path.name for path in sorted(folder.iterdir()) if path.is_symlink() and _is_damaged(path.resolve())]


def cache_folder() -> Path:
    """The folder of the Hub's cache."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def licence_of(card: dict[str, Any]) -> str | None:
    """The licence in the metadata of a model card: its name where it is none of the usual ones."""
    given = (card.get("license_name") if card.get("license") == "other" else None) or card.get("license")
    words = [each for each in (given if isinstance(given, list) else [given]) if isinstance(each, str)]
    return ", ".join(words)[:_LICENCE_LENGTH] or None


def _downloaded(hub_id: str, wanted: Sequence[str], unwanted: Sequence[str]) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(hub_id, allow_patterns=list(wanted), ignore_patterns=list(unwanted)))
    except _failures() as error:
        raise FileNotFoundError(_reason(hub_id, error)) from error


def _download(offer: Offer, file: HubFile, part: Path, reached: Callable[[int], object]) -> None:
    from huggingface_hub import hf_hub_url
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers

    with part.open("ab") as content, _quiet():
        here = content.tell()
        if here > file.size:
            content.truncate(here := 0)
        http_get(
            hf_hub_url(offer.hub_id, file.name, revision=offer.commit),
            content,
            resume_size=here,
            headers=build_hf_headers(),
            expected_size=file.size,
            tqdm_class=_counter(here, reached),
        )


def _take(offer: Offer, file: HubFile, part: Path, blob: Path) -> None:
    """Make a whole part the blob, if its checksum is right; else forget it."""
    with part.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    if digest != file.sha256:
        part.unlink()
        raise ModelError(
            f"{offer.hub_id}: {file.name} did not arrive as the Hub has it (its checksum differs); what came is"
            " removed, and the same command gets it anew"
        )
    put_in_place(part, blob)


def _counter(here: int, reached: Callable[[int], object]) -> Any:
    """A class in place of a progress bar's, which counts from `here` on."""

    class Counter:
        def __init__(self, *arguments: Any, **options: Any) -> None:
            self.count = here

        def __enter__(self) -> Counter:
            return self

        def __exit__(self, *error: object) -> None:
            pass

        def update(self, more: int) -> None:
            self.count += more
            reached(self.count)

    return Counter


def _checksum(told: object) -> str | None:
    """The Hub's SHA-256 of a file; None for anything of another form, since it becomes a file's name."""
    return told if isinstance(told, str) and _SHA256.fullmatch(told) else None


def _repository(hub_id: str) -> Path:
    return cache_folder() / f"models--{hub_id.replace('/', '--')}"


def _is_damaged(blob: Path) -> bool:
    try:
        with blob.open("rb") as content:
            if _SHA256.fullmatch(blob.name):
                return hashlib.file_digest(content, "sha256").hexdigest() != blob.name
            if _GIT_SHA1.fullmatch(blob.name):
                text = content.read()
                return hashlib.sha1(b"blob %d\0" % len(text) + text).hexdigest() != blob.name
    except OSError:
        return True
    return False


def _failures() -> tuple[type[Exception], ...]:
    """The exceptions that the Hub's library raises where a model can't be had."""
    from huggingface_hub import errors

    # The base class of its HTTP library, whichever that is; errors of connections are not the Hub's own.
    transport: type[Exception] = errors.HTTPError
    return transport, errors.HFValidationError, OSError, ModelError


def _reason(hub_id: str, error: Exception) -> str:
    """Explains why a model can't be had from the Hub, and what to do, without a full stop."""
    from huggingface_hub import constants, errors

    cause = error.__cause__
    if isinstance(error, errors.LocalEntryNotFoundError) and isinstance(cause, Exception):
        error = cause
    place = constants.ENDPOINT
    match error:
        case errors.GatedRepoError():
            return (
                f"its owner wants to be asked first: agree at {place}/{hub_id}, make a token there, and give it in"
                " HF_TOKEN or by `hf auth login`"
            )
        case errors.RepositoryNotFoundError():
            return (
                f"{place} has no such model, or keeps it private: look at the name; a private one needs a token, in"
                " HF_TOKEN or by `hf auth login`"
            )
        case errors.OfflineModeIsEnabled() | errors.LocalEntryNotFoundError():
            return "it is not, or not all, on this machine, and HF_HUB_OFFLINE forbids to ask the Hub"
        case errors.HfHubHTTPError():
            return f"{place} answered with HTTP status {error.response.status_code}; try again later"
        case errors.HFValidationError():
            return "that is not a Hub id (owner/name)"
        case OSError() if error.strerror:
            return f"{error.filename or cache_folder()}: {error.strerror.lower()}"
        case _:
            told = " ".join(str(error).split()).rstrip(".") or type(error).__name__
            return f"{place} can't be reached ({told}); is there a network?"


@contextmanager
def _quiet() -> Iterator[None]:
    """No progress bars and no warnings of the Hub's library: who asks has lines of its own."""
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars, logging

    level, hidden = logging.get_verbosity(), are_progress_bars_disabled()
    logging.set_verbosity_error()
    disable_progress_bars()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if not hidden:
            enable_progress_bars()
