"""The document-parsing process: requests on stdin, lines of JSON on stdout.

* `{"page": 3, "pages": 20}` reports progress, at most a few times a second.
* `{"scan": 0}` says that recognition begins, `{"scan": 0, "found": "..."}` is its result; see `scans.Course`.
* The last line is the answer.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from typing import BinaryIO, Final

from common.library.readers.content import MOST_TEXT, TOO_MUCH_TEXT, Unreadable, storable
from common.library.readers.formats import parser_of
from common.library.readers.scans import Course, Later, following, unpacked
from common.process.child import allow_seconds, limit

_PAUSE: Final = 0.2  # seconds between reports of pages


def main() -> None:
    """Answers until stdin ends; arguments: memory in bytes, processor seconds per document."""
    memory, seconds = (int(argument) for argument in sys.argv[1:])
    limit(memory, file_bytes=0)
    warnings.simplefilter("ignore")
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # libraries may print
    while line := sys.stdin.buffer.readline():
        allow_seconds(seconds)
        request = json.loads(line)
        content = sys.stdin.buffer.read(request["size"])
        course = Course(
            {int(number): unpacked(found) for number, found in request["scans"].items()},
            _Lines(answers, seconds),
            request["later"],
        )
        with following(course):
            answer = answer_request(request["suffix"], content)
        _write(answers, answer)


class _Lines:
    """Sends lines; every scan may take `seconds` of processor time."""

    def __init__(self, answers: BinaryIO, seconds: int) -> None:
        self._answers = answers
        self._seconds = seconds
        self._sent = 0.0

    def __call__(self, line: dict[str, object]) -> None:
        if "scan" in line:
            allow_seconds(self._seconds)
        else:
            now = time.monotonic()
            if now - self._sent < _PAUSE:
                return
            self._sent = now
        _write(self._answers, line)


def _write(answers: BinaryIO, line: dict[str, object]) -> None:
    answers.write(json.dumps(line).encode() + b"\n")
    answers.flush()


def answer_request(suffix: str, content: bytes) -> dict[str, object]:
    """Title, sections and remarks of a document, or the reason for refusal."""
    try:
        found = parser_of(suffix)(content)
    except Later:
        return {"later": True}
    except Unreadable as error:
        return {"reason": error.reason}
    except MemoryError:
        return {"reason": "reading it takes more memory than it may have"}
    except RecursionError:
        return {"reason": "its parts are nested too deeply"}
    except Exception as error:  # any error of a library about a damaged file
        return {"reason": f"it is damaged, or no {suffix.removeprefix('.')} file ({type(error).__name__})"}
    if sum(len(section.text) for section in found.sections) > MOST_TEXT:
        return {"reason": TOO_MUCH_TEXT}
    return {
        "title": storable(found.title),
        "sections": [(storable(part.text), storable(part.place), part.unit) for part in found.sections],
        "remarks": [storable(remark) for remark in found.remarks],
    }


if __name__ == "__main__":
    main()
