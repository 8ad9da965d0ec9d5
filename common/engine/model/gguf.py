"""Models in GGUF files, imported once into a common folder of a user's daemons.

The folder gets settings and tokenizer; the weights stay in the file. They become bfloat16 safetensors only for another
layout in Transformers (experts of a mixture, GPT-2's matrices) or streamed layers.
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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import filelock
from tokenizers import AddedToken, Regex, Tokenizer, normalizers, pre_tokenizers

from common.engine.model.errors import ModelError
from common.process.files import expanded, put_in_place, to_disk
from common.process.lifetime import Startup
from common.process.machine import child_command, python_environment

SUFFIX = ".gguf"
MANIFEST = "imported.json"  # sizes and SHA-256 of the files, written last
WEIGHTS = "weights.json"  # the weights' tensors and GGUF file
CONVERSION = 4  # version of the import; others are made again
_MAGIC = b"GGUF"
_IDENTITY = 16  # hexadecimal digits of the file's SHA-256 in the folder's name
_CONVERTED_NAME = ".bfloat16"  # in the name of an import with bfloat16 weights
_LOCK = "import.lock"
_WORK = ".import-"  # name prefix of folders of unfinished imports
_CONVERTED = re.compile(r"converted (\d\.\d+)")  # a line of the conversion's output
_WRITING = "writing"  # the last line

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class InFile:
    """A tensor of a GGUF file: bytes `first` to before `last`, of type `kind`."""

    name: str
    kind: str
    shape: tuple[int, ...]
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class WeightSource:
    """An imported model's weights in its GGUF file, by their names in the model."""

    path: Path
    size: int
    architecture: str
    tensors: Mapping[str, InFile]

    def mapped(self) -> Any:
        """The file's bytes. Raises `ModelError` if it is missing or has changed."""
        import numpy as np

        try:
            content = np.memmap(self.path, np.uint8, "r")
        except (OSError, ValueError) as error:
            raise ModelError(f"{self.path}: can't be read; put the file back, or give its new path") from error
        if len(content) != self.size:
            raise ModelError(f"{self.path}: has changed since it was imported; name it to import it again")
        return content


def source_of(folder: Path) -> WeightSource | None:
    """The GGUF file with a model's weights, or None if `folder` has them. Raises `ModelError`."""
    path = folder / WEIGHTS
    if not path.is_file():
        return None
    try:
        stated = json.loads(path.read_bytes())
        tensors = {
            name: InFile(stored, kind, tuple(shape), first, last)
            for name, (stored, kind, shape, first, last) in stated["tensors"].items()
        }
        size = int(stated["size"])
        if any(not 0 <= tensor.first <= tensor.last <= size for tensor in tensors.values()):
            raise ValueError("a tensor is not in the file")
        return WeightSource(Path(stated["file"]), size, str(stated["architecture"]), tensors)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{path}: is damaged; name the .gguf file to import it again") from error


def unread_type(path: Path, tensor: str, kind: str) -> str:
    return f"{path}: {tensor} is of type {kind}, which dragon does not read; get the model as Q4_K_M, Q8_0 or F16"


def is_gguf(model: str) -> bool:
    return model.lower().endswith(SUFFIX)


def imported(file: Path, models: Path, startup: Startup | None = None, converted: bool = False) -> Path:
    """The folder below `models` for a GGUF file, imported if needed. Raises `ModelError`.

    Reads both completely; an import takes some seconds more. With `converted`, writes bfloat16 weights in 10 to 30 s
    per 135M parameters and reports progress to `startup`. A damaged import is made again. Of several processes, one
    does the work.
    """
    file = expanded(file)
    digest = _digest(file)
    folder = models / f"{file.stem}{_CONVERTED_NAME if converted else ''}-{digest[:_IDENTITY]}"
    if _is_whole(folder, file):
        return folder
    try:
        models.mkdir(mode=0o700, parents=True, exist_ok=True)  # an existing folder may have others' files, too
        startup = Startup() if startup is None else startup
        with _import_lock(models, startup):
            if not _is_whole(folder, file):
                began = time.monotonic()
                _clear(models)
                _import(file, digest, folder, startup, converted)
                log.info("imported %s in %.0f s", file.name, time.monotonic() - began)
    except OSError as error:
        raise ModelError(
            f"{models}: the model can't be saved there: {(error.strerror or str(error)).lower()}"
        ) from error
    return folder


def is_complete(folder: Path) -> bool:
    """Whether all files of an import exist in their sizes; `damaged_files` checks content."""
    try:
        if (source := source_of(folder)) is not None and source.path.stat().st_size != source.size:
            return False
        return all((folder / name).stat().st_size == size for name, (size, _) in _manifest(folder).items())
    except (OSError, ValueError, TypeError, AttributeError):
        return False


def damaged_files(folder: Path) -> list[str]:
    """Names of an import's damaged files, including the GGUF file with its weights.

    Reads all of them. Raises `ModelError`.
    """
    try:
        damaged = [name for name, (_, digest) in _manifest(folder).items() if _digest(folder / name) != digest]
        source = source_of(folder)
        if source is not None and _digest(source.path) != json.loads((folder / MANIFEST).read_text())["source"]:
            damaged.append(str(source.path))
        return damaged
    except ModelError:
        raise
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ModelError(f"{folder}: is no imported model") from error


def _manifest(folder: Path) -> dict[str, tuple[int, str]]:
    """Returns size and digest of each file. An invalid manifest raises errors, an older one `ModelError`."""
    stated = json.loads((folder / MANIFEST).read_text())
    if stated.get("conversion") != CONVERSION:
        raise ModelError(f"{folder}: was imported by another release; name the .gguf file to import it again")
    files: dict[str, tuple[int, str]] = stated["files"]
    return files


def _is_whole(folder: Path, file: Path) -> bool:
    """Reads every byte of the import."""
    if not is_complete(folder):
        return False
    try:
        source = source_of(folder)
        if source is not None and source.path != file.absolute():  # it was moved
            return False
        damaged = [name for name, (_, digest) in _manifest(folder).items() if _digest(folder / name) != digest]
    except ModelError:  # another process makes it again
        return False
    if damaged:
        log.warning("the imported model %s is damaged (%s): importing it again", folder, ", ".join(damaged))
    return not damaged


@contextmanager
def _import_lock(models: Path, startup: Startup) -> Iterator[None]:
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
    """Removes remains of killed imports. The caller holds the lock."""
    for left in models.glob(f"{_WORK}*"):
        log.info("removing the files of an unfinished import")
        shutil.rmtree(left, ignore_errors=True)


def _import(file: Path, digest: str, folder: Path, startup: Startup, converted: bool) -> None:
    shutil.rmtree(folder, ignore_errors=True)  # interrupted or damaged
    with tempfile.TemporaryDirectory(prefix=_WORK, dir=folder.parent) as work:
        made = Path(work) / "model"
        # A separate process: it takes several times the model's memory, and the file may be a stranger's.
        arguments = [str(file.absolute()), str(made), *(["converted"] if converted else [])]
        command = child_command("common.engine.model.gguf_conversion", *arguments)
        said, code = _followed(command, startup)
        if code:
            reason = said.strip().rpartition("\n")[2] or f"the conversion ended with {code}"
            raise ModelError(f"{file}: can't be imported: {reason}")
        files = {path.name: (path.stat().st_size, _digest(path)) for path in sorted(made.iterdir())}
        manifest = {"conversion": CONVERSION, "source": digest, "files": files}
        (made / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
        for path in made.iterdir():
            to_disk(path)
        put_in_place(made, folder)


def _followed(command: list[str], startup: Startup) -> tuple[str, int]:
    """Returns stdout and exit code. Progress comes on stderr."""
    work = "converting the model (first start only)"
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
        except BaseException:  # such as when this process is stopped
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


# --- gguf_tokenizer
# A GGUF file's tokenizer: rules and tokens that Transformers omits or changes between releases.
#
# Text is split into words before pairs are merged, by a rule (`tokenizer.ggml.pre`) named as in llama.cpp. Another rule
# gives some texts other tokens than in training.

BYTE_LEVEL, _SENTENCEPIECE = "gpt2", "llama"  # `tokenizer.ggml.model`
_CONTROL, _USER_DEFINED, _UNUSED = 3, 4, 5  # `tokenizer.ggml.token_type`
_SPACE: Final = "\u2581"  # a space in sentencepiece's vocabularies

# Rules by name. GPT-2's, alone or after a rule that makes every digit a word:
_GPT_2 = frozenset({"gpt-2", "phi-2", "olmo", "jais", "trillion", "gigachat", "default"})
_SINGLE_DIGITS = frozenset({"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"})
# Llama 3's, with numbers of up to three digits, and Qwen 2's, with single digits:
_LLAMA_3 = frozenset(
    {"llama3", "llama-v3", "llama-bpe", "falcon3", "pixtral", "dbrx", "smaug-bpe", "glm4", "chatglm-bpe"}
)
_QWEN_2 = frozenset({"qwen2", "deepseek-r1-qwen", "megrez", "stablelm2"})
_TEKKEN, _GPT_4O = frozenset({"tekken"}), frozenset({"gpt-4o", "llama4"})
# A word in the vocabulary is one token, even if merging its pairs ends elsewhere.
_WHOLE_WORDS = frozenset({"llama3", "llama-v3", "llama-bpe", "falcon3", "pixtral", "tekken"})

_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED = rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+%s|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*%s"
_SPLITS: Final = (
    (_LLAMA_3, rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"),
    (_QWEN_2, rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"),
    (_TEKKEN, rf"{_CASED % ('', '')}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"),
    (_GPT_4O, rf"{_CASED % ((f'{_ENDINGS}?',) * 2)}|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"),
)


def with_own_tokens(tokenizer: Tokenizer, tokens: Sequence[str], types: Sequence[int]) -> Tokenizer:
    """Gives a byte-level `tokenizer` of Transformers the file's own `tokens`, in id order.

    Transformers spells tokens outside of the byte alphabet in bytes (DeepSeek's control tokens, several spaces), so
    that no text becomes them. It adds tokens without ids in the model: duplicate begin and end tokens, and missing ones
    of GPT-2. Unused tokens at the end only pad the embedding, differently within a family.
    """
    used = max((place + 1 for place, kind in enumerate(types) if kind != _UNUSED), default=len(tokens))
    tokens = tokens[: used if types else None]
    description = json.loads(tokenizer.to_str())
    description["model"]["vocab"] = {token: number for number, token in enumerate(tokens)}
    description["added_tokens"] = [added for added in description["added_tokens"] if added["id"] < len(tokens)]
    restored = Tokenizer.from_str(json.dumps(description))
    typed = list(zip(tokens, types, strict=False))  # some files have no types
    restored.add_special_tokens([AddedToken(token, normalized=False) for token, kind in typed if kind == _CONTROL])
    restored.add_tokens([AddedToken(token, normalized=False) for token, kind in typed if kind == _USER_DEFINED])
    return restored


def follow_rules(tokenizer: Tokenizer, model: str, split: str) -> None:
    """Makes a `tokenizer` of Transformers follow a file's vocabulary kind and `split` rule.

    Raises `ValueError` for an unknown rule.
    """
    if model == BYTE_LEVEL:
        tokenizer.pre_tokenizer = _splitting(split)
        tokenizer.model.ignore_merges = split in _WHOLE_WORDS
        return
    spaces = tokenizer.pre_tokenizer
    if model == _SENTENCEPIECE and isinstance(spaces, pre_tokenizers.Metaspace) and spaces.prepend_scheme != "never":
        # A space precedes every text, even one that begins with a space.
        rules = [normalizers.Prepend(_SPACE), normalizers.Replace(" ", _SPACE)]
        tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.Sequence(rules), None


def _splitting(rule: str) -> pre_tokenizers.PreTokenizer:
    words = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if rule in _GPT_2:
        return words
    if rule in _SINGLE_DIGITS:
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), words])
    for names, expression in _SPLITS:
        if rule in names:
            split = pre_tokenizers.Split(Regex(expression), behavior="isolated")
            return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    raise ValueError(f"its tokenizer splits text by a rule that is not known here ({rule})")
