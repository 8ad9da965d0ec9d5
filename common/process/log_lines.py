"""Log lines of a process: as text or as JSON, and the name by which those about an answer are found on both sides."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final, Literal, Self

LogFormat = Literal["text", "json"]

_TEXT: Final = "%(asctime)s %(levelname)s %(message)s"


class AnswerName(str):
    """The number of an answer's session, in 8 hex digits: device and cloud have the same one, and no text is in it.

    As an argument of a log line it also becomes that line's field `request`, where lines are JSON.
    """

    __slots__ = ()

    @classmethod
    def of(cls, session: int) -> Self:
        return cls(f"{session:08x}")


class JsonLines(logging.Formatter):
    """A JSON object per line: `time` (ISO 8601, UTC), `level`, `logger`, `message`; `worker` in those of
    one, `request` where the line belongs to an answer, `exception` where one was logged.
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
        arguments = record.args if isinstance(record.args, tuple) else ()
        named = next((argument for argument in arguments if isinstance(argument, AnswerName)), None)
        if named is not None:
            value["request"] = named
        if record.exc_info:
            value["exception"] = self.formatException(record.exc_info)
        return json.dumps(value, ensure_ascii=False)


def log_to_stderr(level: str, form: LogFormat, noisy: Iterable[str] = (), worker: int | None = None) -> None:
    """Log from `level` on to stderr; of the loggers `noisy` warnings only. Lines of a `worker` have its number."""
    handler = logging.StreamHandler(sys.stderr)
    text = _TEXT if worker is None else _TEXT.replace("%(message)s", f"worker {worker}: %(message)s")
    handler.setFormatter(JsonLines(worker) if form == "json" else logging.Formatter(text))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name in noisy:
        logging.getLogger(name).setLevel(logging.WARNING)
