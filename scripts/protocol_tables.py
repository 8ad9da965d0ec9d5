"""`python -m scripts.protocol_tables`: the tables of docs/protocol.md, from the schema in `proto/`.

A table stands between `<!-- table NAME -->` and `<!-- table end -->`. Names, types and bounds come from the schema;
meanings are the page's own, and stay.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args, get_origin, get_type_hints

from proto import codes
from proto.framing import HEADER_LIMIT, LARGEST_PAYLOAD, PAYLOAD_LIMIT, PROTOCOL_VERSION, TAGS
from proto.messages import Bytes, Count, Message, Real, Text
from proto.payloads.trace import DETAILS

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "protocol.md"
BLOCK: Final = re.compile(r"<!-- table (?P<name>\w+) -->\n(?P<rows>.*?)<!-- table end -->", re.DOTALL)
SHARED: Final = "session"  # the first field of nearly all messages, which the page explains once
KINDS: Final = {kind.__name__: kind for kind in TAGS}


def wire_type(annotation: Any) -> str:
    """A field's type and bounds, as the page's table of types explains them."""
    base, bound = annotation, None
    if get_origin(annotation) is Annotated:
        base, bound = get_args(annotation)
    if get_origin(base) is Literal:
        return f"enum({', '.join(f'`{name}`' for name in get_args(base))})"
    match bound:
        case Count(limit, least) if base is int:
            return f"uint{_within(limit, least)}"
        case Count(limit, least):
            return f"array({wire_type(get_args(base)[0])}){_within(limit, least)}"
        case Real(low, high, or_zero):
            return f"float[{low:g},{high:g}]" + " or 0" * or_zero
        case Text(limit):
            return f"text≤{limit}"
        case Bytes(limit):
            return f"payload≤{limit}"
    return str(base.__name__)


def _within(limit: int, least: int) -> str:
    if least:
        return f"[{least},{limit - 1}]"
    return f"<2^{limit.bit_length() - 1}" if limit & (limit - 1) == 0 else f"≤{limit - 1}"


def with_tables(page: str) -> str:
    """The page with the schema's tables, and its own meanings of fields."""
    return BLOCK.sub(lambda block: f"<!-- table {block['name']} -->\n\n{_table(block)}\n<!-- table end -->", page)


def meanings(rows: str) -> dict[str, str]:
    """The last cell of each row, by the name in its first one."""
    return dict(re.findall(r"^\| `(\w+)` \|.*\| ([^|]*?) \|$", rows, re.MULTILINE))


def _table(block: re.Match[str]) -> str:
    match block["name"]:
        case "constants":
            return _rows(("constant", "value"), _constants())
        case "spans":
            return _rows(("kind", "what", "detail"), _spans())
        case name:
            return _rows(("field", "type", "meaning"), _fields(KINDS[name], meanings(block["rows"])))


def _rows(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in (heads, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(heads), *lines[1:]]) + "\n"


def _fields(kind: type[Message], meant: dict[str, str]) -> Iterable[Sequence[str]]:
    hints = get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        if field.name == SHARED:
            continue
        yield f"`{field.name}`", wire_type(hints[field.name]), meant.get(field.name, "?")


def _constants() -> Iterable[Sequence[str]]:
    yield "Protocol version", str(PROTOCOL_VERSION)
    yield "Header", f"{HEADER_LIMIT} bytes at most"
    yield "Payload, unless configured", f"{PAYLOAD_LIMIT} bytes at most"
    yield "Payload, at most", f"{LARGEST_PAYLOAD} bytes"
    yield "Digest modulus", f"{codes.PRIME} = 2^61 − 1"
    yield "Digest base", str(codes.BASE)
    yield "Digest of the empty prefix", str(codes.EMPTY)


def _spans() -> Iterable[Sequence[str]]:
    first = dict[tuple[str, ...], str]()
    for number, (kind, details) in enumerate(DETAILS.items()):
        if not any(details):
            names = "0"
        elif first.setdefault(details, kind) == kind:
            names = ", ".join(f"{index} `{detail}`" for index, detail in enumerate(details))
        else:
            names = f"as `{first[details]}`"
        yield str(number), f"`{kind}`", names


def main() -> int:
    """Write the page; 1 where a field has no meaning yet."""
    page = with_tables(PAGE.read_text("utf-8"))
    PAGE.write_text(page, "utf-8")
    missing = re.findall(r"^\| `(\w+)` \| .* \| \? \|$", page, re.MULTILINE)
    print(f"{PAGE.name}: " + (f"say what {', '.join(missing)} means" if missing else "as the schema has it"))
    return bool(missing)


if __name__ == "__main__":
    sys.exit(main())
