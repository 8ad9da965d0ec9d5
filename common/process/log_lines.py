"""Log lines as text or JSON, with an answer name shared by both sides."""

from __future__ import annotations

import json
import logging
import sys
import traceback
import unicodedata
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final, Literal, Self, TypeVar

LogFormat = Literal["text", "json"]
Kind = TypeVar("Kind")

_TEXT: Final = "%(asctime)s %(levelname)s %(message)s"

# Embeddings, overrides and isolates disguise text.
_REORDERING: Final = frozenset({"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"})


def steers(character: str) -> bool:
    """Whether a character could steer a terminal, break a line or reorder text."""
    control = unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")
    return control or unicodedata.bidirectional(character) in _REORDERING


# JSON escapes of such characters; names and error texts may contain them.
_SPELLED: Final = {code: f"\\u{code:04x}" for code in range(0x2070) if steers(chr(code))} | {ord("\n"): "\\n"}
_BUT_LINES: Final = _SPELLED | {ord("\n"): "\n"}


class AnswerName(str):
    """An answer's session number in 8 hex digits, shared by device and cloud.

    It contains no text. As an argument of a log line it also becomes the JSON field `request`.
    """

    __slots__ = ()

    @classmethod
    def of(cls, session: int) -> Self:
        return cls(f"{session:08x}")


class CodePlace(str):
    """An exception's traceback without its text, as an argument of a log line.

    Text logs keep its line breaks.
    """

    __slots__ = ()

    @classmethod
    def of(cls, error: BaseException) -> Self:
        return cls("\n" + "".join(traceback.format_tb(error.__traceback__)).rstrip())


class TextLines(logging.Formatter):
    """A line per message, with escaped line breaks and terminal controls."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        line = super().formatMessage(record)
        place = _argument(record, CodePlace)
        if place is None:
            return line.translate(_SPELLED)
        before, _, behind = line.partition(place)
        return f"{before.translate(_SPELLED)}{place.translate(_BUT_LINES)}{behind.translate(_SPELLED)}"

    def formatException(self, ei: Any) -> str:
        return super().formatException(ei).translate(_BUT_LINES)


class JsonLines(logging.Formatter):
    """A JSON object per line: `time` (ISO 8601, UTC), `level`, `logger`, `message`.

    Optional fields are `worker`, `request` for an answer, and `exception`.
    """

    def __init__(self, worker: int | None = None) -> None:
        super().__init__()
        self._worker = {} if worker is None else {"worker": worker}

    def format(self, record: logging.LogRecord) -> str:
        value: dict[str, object] = self._worker | {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        named = _argument(record, AnswerName)
        if named is not None:
            value["request"] = named
        if record.exc_info:
            value["exception"] = self.formatException(record.exc_info)
        return json.dumps(value, ensure_ascii=False).translate(_SPELLED)


def _argument(record: logging.LogRecord, kind: type[Kind]) -> Kind | None:
    arguments = record.args if isinstance(record.args, tuple) else ()
    return next((argument for argument in arguments if isinstance(argument, kind)), None)


def log_to_stderr(level: str, form: LogFormat, noisy: Iterable[str] = (), worker: int | None = None) -> None:
    """Logs from `level` to stderr; from `noisy` loggers warnings only; with `worker` number."""
    handler = logging.StreamHandler(sys.stderr)
    text = _TEXT if worker is None else _TEXT.replace("%(message)s", f"worker {worker}: %(message)s")
    handler.setFormatter(JsonLines(worker) if form == "json" else TextLines(text))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name in noisy:
        logging.getLogger(name).setLevel(logging.WARNING)
