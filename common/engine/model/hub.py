"""Models of the Hugging Face Hub and on this machine: files, names and errors.

All programs of this user share the Hub's cache. `models--<owner>--<name>` has contents in `blobs`, named by their
checksums, and links to them in `snapshots/<commit>`.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from common.engine.model.errors import ModelError
from common.engine.model.files import SETTINGS_BYTES, check_files, read_header
from common.engine.model.gguf import SUFFIX, is_complete, is_gguf, source_of
from common.process.files import expanded

CARD = "README.md"  # a model's card, with the licence
_PATIENCE = 10.0  # seconds without data from the Hub
_LICENCE_LENGTH = 80  # characters shown
_SHA256 = re.compile(r"[0-9a-f]{64}")
_GIT_SHA1 = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class Offer:
    """Licence and file names of a model on the Hub."""

    hub_id: str
    licence: str | None
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file on the Hub at one commit."""

    name: str
    commit: str
    size: int  # bytes
    here: bool  # whether it is in the cache


def snapshot(hub_id: str, wanted: Sequence[str], unwanted: Sequence[str]) -> Path:
    """Finds a Hub model's files by name patterns, in the cache or by download.

    Contacts the Hub only for missing files. Raises `FileNotFoundError` with the reason.
    """
    folder = _cached(hub_id, wanted, unwanted)
    # Caches of older libraries don't record the files of a snapshot.
    needed = [pattern for pattern in wanted if pattern in WEIGHTS or pattern.endswith(SUFFIX)]
    if folder is not None and all(any(folder.rglob(pattern)) for pattern in needed):
        return folder
    return Path(_downloaded(hub_id, wanted, unwanted))


def download_newest(hub_id: str, wanted: Sequence[str], unwanted: Sequence[str]) -> Path:
    """Downloads the newest files of a Hub model, except those in the cache.

    Raises `FileNotFoundError` with the reason.
    """
    with _quiet():
        return Path(_downloaded(hub_id, wanted, unwanted))


def offered(hub_id: str) -> Offer:
    """Asks the Hub for a model's licence and files. Raises `ModelError`, one sentence."""
    from huggingface_hub import HfApi

    try:
        info = HfApi().model_info(hub_id, files_metadata=True, timeout=_PATIENCE)
    except _failures() as error:
        raise ModelError(f"{hub_id}: {_reason(hub_id, error)}") from error
    told = [each.lfs.sha256 if each.lfs is not None else each.blob_id for each in info.siblings or ()]
    if not all(each is None or _SHA256.fullmatch(str(each)) or _GIT_SHA1.fullmatch(str(each)) for each in told):
        raise ModelError(f"{hub_id}: the Hub sent no valid checksum for a file")  # it becomes a path in the cache
    card = info.card_data.to_dict() if info.card_data is not None else {}
    return Offer(hub_id, licence_of(card), tuple(each.rfilename for each in info.siblings or ()))


def list_hub_files(hub_id: str, wanted: Sequence[str], unwanted: Sequence[str]) -> list[HubFile]:
    """Lists a Hub model's current, matching files. Raises `ModelError`, one sentence."""
    try:
        with _quiet():
            found = _downloaded(hub_id, wanted, unwanted, dry_run=True)
    except FileNotFoundError as error:
        raise ModelError(f"{hub_id}: {error}") from error
    return [HubFile(each.filename, each.commit_hash, each.file_size or 0, each.is_cached) for each in found]


def fetch(hub_id: str, file: HubFile, reached: Callable[[int], object]) -> None:
    """Downloads a file into the cache unless it is there. Raises `ModelError`.

    `reached` gets the number of received bytes. A broken connection resumes.
    """
    from huggingface_hub import hf_hub_download

    try:
        with _quiet():
            hf_hub_download(hub_id, file.name, revision=file.commit, tqdm_class=_counter(reached))
    except _failures() as error:
        raise ModelError(
            f"{hub_id}: {_reason(hub_id, error)}; complete files are kept; run the same command again for the others"
        ) from error
    reached(file.size)


def damaged_blobs(folder: Path) -> list[str]:
    """Names of a snapshot's files with wrong checksums. Reads all files."""
    return [path.name for path in sorted(folder.iterdir()) if path.is_symlink() and _is_damaged(path)]


def forget_blobs(folder: Path, names: Sequence[str]) -> None:
    """Removes files of a snapshot from the cache, for a new download."""
    for path in (folder / name for name in names):
        for place in (path.resolve(), _blob(path), path):  # a blob may itself be a link to one that models share
            place.unlink(missing_ok=True)


def cache_folder() -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def licence_of(card: dict[str, Any]) -> str | None:
    """The licence in a model card's metadata, by name if unusual."""
    given = (card.get("license_name") if card.get("license") == "other" else None) or card.get("license")
    words = [each for each in (given if isinstance(given, list) else [given]) if isinstance(each, str)]
    return ", ".join(words)[:_LICENCE_LENGTH] or None


def _downloaded(hub_id: str, wanted: Sequence[str], unwanted: Sequence[str], **options: Any) -> Any:
    from huggingface_hub import snapshot_download

    try:
        return snapshot_download(hub_id, allow_patterns=list(wanted), ignore_patterns=list(unwanted), **options)
    except _failures() as error:
        raise FileNotFoundError(_reason(hub_id, error)) from error


def _counter(reached: Callable[[int], object]) -> Any:
    from huggingface_hub import utils

    base: Any = utils.tqdm

    class Bar(base):  # type: ignore[misc]
        most = 0  # of a file's bars: one may count received bytes, another written ones

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options | {"disable": True})
            self.count = 0

        def update(self, n: float | None = 1) -> None:
            self.count += int(n or 0)
            if self.count > Bar.most:
                Bar.most = self.count
                reached(self.count)

    return Bar


def _blob(link: Path) -> Path:
    return link.parent / os.readlink(link)


def _is_damaged(link: Path) -> bool:
    name = _blob(link).name
    try:
        with link.open("rb") as content:
            if _SHA256.fullmatch(name):
                return hashlib.file_digest(content, "sha256").hexdigest() != name
            if _GIT_SHA1.fullmatch(name):
                text = content.read()
                return hashlib.sha1(b"blob %d\0" % len(text) + text).hexdigest() != name
    except OSError:
        return True
    return False


def _failures() -> tuple[type[Exception], ...]:
    from huggingface_hub import errors

    # The base class of its HTTP library. Connection errors are not the Hub's own classes.
    transport: type[Exception] = errors.HTTPError
    return transport, errors.HFValidationError, OSError, ModelError


def _reason(hub_id: str, error: Exception) -> str:
    """Explains a failure and the remedy, without a full stop."""
    from huggingface_hub import constants, errors

    cause = error.__cause__
    if isinstance(error, errors.LocalEntryNotFoundError) and isinstance(cause, Exception):
        error = cause
    place = constants.ENDPOINT
    match error:
        case errors.GatedRepoError():
            return (
                f"its owner asks for an agreement: agree at {place}/{hub_id}, make a token there, and set HF_TOKEN or "
                "run `hf auth login`"
            )
        case errors.RepositoryNotFoundError():
            return (
                f"{place} has no such model, or the model is private: check the name; for a private model set "
                "HF_TOKEN or run `hf auth login`"
            )
        case errors.OfflineModeIsEnabled() | errors.LocalEntryNotFoundError():
            return "it is not completely on this machine, and HF_HUB_OFFLINE forbids downloads"
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
    """Hides the library's progress bars and warnings: the caller prints its own."""
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


# --- location
# Distinguishes folders from Hub ids, and finds their files.

SETTINGS = ("*.json", "*.txt", "*.model", "*.jinja")
WEIGHTS = ("*.safetensors",)
# A decoder's files are in its top folder, except multiple chat templates. Mistral's `consolidated` files are the same
# weights again.
NOT_A_DECODER_S = ("*/*.json", "*/*.txt", "*/*.model", "*/*.safetensors", "consolidated*")

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?")


def is_folder(folder_or_hub_id: str) -> bool:
    """True for a local folder, False for a possible Hub id; else raises `ModelError`."""
    path = expanded(folder_or_hub_id)
    if os.path.isdir(path):  # `Path.is_dir` raises OSError for some names on some Pythons
        return True
    if os.path.exists(path):
        raise ModelError(f"{folder_or_hub_id} is a file; give the folder it is in")
    if not _HUB_ID.fullmatch(folder_or_hub_id):
        raise ModelError(f"{folder_or_hub_id}: no such folder, and not a Hub id (owner/name)")
    return False


def find_decoder_files(folder_or_hub_id: str, weights: bool = True) -> Path:
    """The checked folder of a decoder, or only of its tokenizer. Raises `ModelError`."""
    if is_folder(folder_or_hub_id):
        folder = expanded(folder_or_hub_id)
    else:
        try:
            folder = snapshot(folder_or_hub_id, SETTINGS + (WEIGHTS if weights else ()), NOT_A_DECODER_S)
        except FileNotFoundError as error:
            raise ModelError(f"{folder_or_hub_id}: no folder here, and not available from the Hub: {error}") from error
    check_files(folder, decoder=True)
    return folder


def file_on_hub(model: str) -> tuple[str, str] | None:
    """The Hub id and file of `owner/name/file.gguf`; None for others and local files."""
    parts = model.split("/")
    if len(parts) != 3 or not is_gguf(model) or os.path.exists(expanded(model)):
        return None
    hub_id = "/".join(parts[:2])
    return (hub_id, parts[2]) if _HUB_ID.fullmatch(hub_id) else None


def gguf_file(model: str) -> Path:
    """The local path of the `.gguf` file `model`, downloaded from the Hub if needed.

    Raises `ModelError` for a file that the Hub does not have.
    """
    if (named := file_on_hub(model)) is None:
        return expanded(model)
    hub_id, name = named
    try:
        file = snapshot(hub_id, (name,), ()) / name
    except FileNotFoundError as error:
        raise ModelError(f"{model}: no file here, and not available from the Hub: {error}") from error
    if not file.exists():
        raise ModelError(f"{model}: {hub_id} has no such file")
    return file


# --- pulled
# Models on this machine by name: imported, linked or copied to the folder `models`, or in the Hub's cache.

_REPOSITORY = "models--"  # prefix of folders in the cache
_IMPORT = re.compile(r"(?P<stem>.+)-[0-9a-f]{16}")
_NUMBERS = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}


@dataclass(frozen=True, slots=True)
class Pulled:
    """A model on this machine. `folder` resolves links."""

    name: str
    kind: Literal["imported", "linked", "hub", "folder"]
    folder: Path
    whole: bool

    @property
    def size(self) -> int:
        return sum(path.stat().st_size for path in _files(self.folder))

    @property
    def numbers(self) -> str:
        """The stored type of most weights; empty if none can be read."""
        found: Counter[str] = Counter()
        try:
            if (source := source_of(self.folder)) is not None:
                for stored in source.tensors.values():
                    found[stored.kind] += stored.last - stored.first
            for path in self.folder.glob(WEIGHTS[0]):
                for tensor in read_header(path).values():
                    found[tensor.dtype] += tensor.last - tensor.first
        except ModelError:
            return ""
        most = found.most_common(1)
        return _NUMBERS.get(most[0][0], most[0][0].lower() if source is None else most[0][0]) if most else ""

    @property
    def licence(self) -> str | None:
        return licence_of(card(self.folder))


def here(models: Path) -> list[Pulled]:
    """All named models on this machine, sorted."""
    found = [*_of_folder(models), *_of_cache()]
    return sorted(found, key=lambda each: each.name.lower())


def place_of(name: str, models: Path) -> Path | None:
    """The folder of an imported or linked model, by name, import digits optional.

    None if there is no single match. A path, or an existing file or folder, is no name.
    """
    if "/" in name or not name or os.path.exists(name):
        return None
    known = list(_of_folder(models))
    exact = [each.folder for each in known if each.name == name]
    short = [each.folder for each in known if (like := _IMPORT.fullmatch(each.name)) and like["stem"] == name]
    found = exact or short
    return found[0] if len(found) == 1 else None


def link(folder: Path, models: Path) -> str:
    """Links a folder into `models` and returns its name. Raises `ModelError`."""
    target = expanded(folder).resolve()
    place = models / target.name
    try:
        models.mkdir(mode=0o700, parents=True, exist_ok=True)
        if place.is_symlink() and place.resolve() == target:
            return place.name
        if place.is_symlink() or place.exists():
            removable = place.is_symlink() or _IMPORT.fullmatch(place.name) is not None
            first = f"`dragon models remove {place.name}` first, or " if removable else ""
            raise ModelError(
                f"{target}: another model is called {place.name} already; {first}give this folder another name"
            )
        place.symlink_to(target, target_is_directory=True)
    except OSError as error:
        raise ModelError(f"{place}: can't be made: {(error.strerror or str(error)).lower()}") from error
    return place.name


def delete_models(chosen: Sequence[Pulled], models: Path) -> None:
    """Removes models. Raises `ModelError`.

    Keeps linked folders and imported files, except files in the Hub's cache. Removes all of a Hub model from the cache.
    """
    for each in chosen:
        place = models / each.name
        try:
            match each.kind:
                case "linked":
                    place.unlink()
                case "imported":
                    downloaded = _downloaded_file(place)
                    shutil.rmtree(place)
                    if downloaded is not None:
                        forget_blobs(downloaded.parent, [downloaded.name])
                case "hub":
                    _forget(each.name)
        except OSError as error:
            raise ModelError(f"{each.name}: can't be removed: {(error.strerror or str(error)).lower()}") from error


def _downloaded_file(folder: Path) -> Path | None:
    try:
        source = source_of(folder)
    except ModelError:
        return None
    return source.path if source is not None and source.path.is_relative_to(cache_folder()) else None


def card(folder: Path) -> dict[str, Any]:
    """A model card's metadata, or empty."""
    from huggingface_hub.repocard import metadata_load

    path = folder / CARD
    try:
        if not path.is_file() or path.stat().st_size > SETTINGS_BYTES:
            return {}
        return metadata_load(path) or {}
    except Exception:  # a card is a stranger's text, and YAML's errors have no common class
        return {}


def _of_folder(models: Path) -> list[Pulled]:
    """Includes incomplete imports, but none in progress."""
    if not models.is_dir():
        return []
    found = []
    for path in models.iterdir():
        if path.name.startswith("."):
            continue
        if path.is_symlink():
            target = path.resolve()
            found.append(Pulled(path.name, "linked", target, any(target.glob(WEIGHTS[0]))))
        elif _IMPORT.fullmatch(path.name) and path.is_dir():
            found.append(Pulled(path.name, "imported", path, is_complete(path)))
        elif os.path.isfile(path / "config.json"):  # `Path.is_file` fails in a folder without permission
            found.append(Pulled(path.name, "folder", path, any(path.glob(WEIGHTS[0]))))
    return found


def _of_cache() -> list[Pulled]:
    found = []
    for repository in cache_folder().glob(f"{_REPOSITORY}*"):
        name = repository.name.removeprefix(_REPOSITORY).replace("--", "/")
        folder = _cached(name, SETTINGS, NOT_A_DECODER_S)
        if folder is not None and (folder / "config.json").exists():
            whole = _cached(name, (*SETTINGS, *WEIGHTS), NOT_A_DECODER_S) is not None and any(folder.glob(WEIGHTS[0]))
            found.append(Pulled(name, "hub", folder, whole))
    return found


def _cached(hub_id: str, wanted: Sequence[str], unwanted: Sequence[str]) -> Path | None:
    """The cached folder, or None if files are missing."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    patterns: dict[str, Any] = {"allow_patterns": list(wanted), "ignore_patterns": list(unwanted)}
    try:
        return Path(snapshot_download(hub_id, local_files_only=True, **patterns))
    except (LocalEntryNotFoundError, HFValidationError):
        return None


def _forget(hub_id: str) -> None:
    from huggingface_hub import scan_cache_dir

    cache = scan_cache_dir(cache_folder())
    commits = [
        revision.commit_hash
        for repository in cache.repos
        if repository.repo_type == "model" and repository.repo_id == hub_id
        for revision in repository.revisions
    ]
    cache.delete_revisions(*commits).execute()
    rest = cache_folder() / f"{_REPOSITORY}{hub_id.replace('/', '--')}"
    if rest.exists():  # left by an interrupted download
        shutil.rmtree(rest)


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_file()] if folder.is_dir() else []
