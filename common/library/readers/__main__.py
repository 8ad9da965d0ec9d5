"""The document-parsing process: requests on stdin, answers on stdout, in lines of JSON."""

from __future__ import annotations

import json
import os
import sys
import warnings

from common.library.readers.content import MOST_TEXT, TOO_MUCH_TEXT, Unreadable, storable
from common.library.readers.formats import parser_of
from common.process.child import allow_seconds, limit


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
        answers.write(json.dumps(answer_request(request["suffix"], content)).encode() + b"\n")
        answers.flush()


def answer_request(suffix: str, content: bytes) -> dict[str, object]:
    """Title, sections and remarks of a document, or the reason for refusal."""
    try:
        found = parser_of(suffix)(content)
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
