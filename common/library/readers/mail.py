"""Readers of mails, mailboxes and calendars; attachments become documents below the mail."""

from __future__ import annotations

import email
import email.policy
import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from dataclasses import replace
from email.header import decode_header
from email.headerregistry import HeaderRegistry, UnstructuredHeader
from email.message import EmailMessage, MIMEPart
from email.policy import EmailPolicy
from itertools import chain, islice
from typing import Any, Final

from common.library.readers.content import Content, Section, TooMuchText, Unreadable, in_lines
from common.library.readers.encodings import decoded, decoded_as
from common.library.readers.within import read_within

_HEADERS: Final = ("From", "To", "Cc", "Date", "Subject")
_TEXTS: Final = ("text/plain", "text/html", "text/calendar")
_WORD: Final = re.compile(r"\w+")
_AS_RICH: Final = 0.9  # share of the richest alternative's words that makes an earlier one preferable
_SIGNATURE: Final = "-- "
_QUOTED: Final = re.compile(r">*")
_BEGINS_MAIL: Final = re.compile(rb"(?:\A|\n\r?\n)From [^\n]*\n")
_SUFFIXES: Final = {"text/plain": ".txt", "text/html": ".html", "text/calendar": ".ics", "application/pdf": ".pdf"}
_MOST_MAILS: Final = 100_000
_FOLDED: Final = re.compile(r"\r?\n[ \t]")
_PROPERTY: Final = re.compile(r"([A-Za-z-]+)((?:;[^:;=]+=(?:\"[^\"]*\"|[^\":;]*))*):(.*)")
_PARAMETER: Final = re.compile(r";([^:;=]+)=(?:\"([^\"]*)\"|([^\":;]*))")
_ESCAPED: Final = re.compile(r"\\(.)")
_MOMENT: Final = re.compile(r"(\d{4})(\d\d)(\d\d)(?:T(\d\d)(\d\d)\d\d(Z?))?")
_EVENTS: Final = ("VEVENT", "VTODO", "VJOURNAL")
# Event properties that calendars show.
_SHOWN: Final = {
    "STATUS": "Status",
    "DTSTART": "Begins",
    "DTEND": "Ends",
    "DUE": "Due",
    "LOCATION": "Place",
    "ORGANIZER": "Organizer",
    "ATTENDEE": "Attendee",
    "RRULE": "Repeats",
    "DESCRIPTION": "Description",
}


def read_mail(content: bytes) -> Content:
    """A message with its main headers, then its attachments. Raises `Unreadable`."""
    message = email.message_from_bytes(content.removeprefix(BOM_UTF8), _class=EmailMessage, policy=_policy())
    headers = _headers(message)
    if not headers:
        raise Unreadable("it is not a mail: it has neither a sender nor a subject")
    texts = [text.strip("\r\n") for text in _texts(message)]
    attached = read_within(_attached(message))
    if not attached.sections and not any(map(_WORD.search, texts)):
        raise Unreadable("; ".join(["it has headers but no text", *attached.remarks]))
    text = Section("\n".join([*headers, *(f"\n{text}" for text in texts)]))
    return Content((text, *attached.sections), _header(message, "Subject"), attached.remarks)


def read_mbox(content: bytes) -> Content:
    """The messages of a mailbox, each with its attachments. Raises `Unreadable`."""
    starts = [each.end() for each in islice(_BEGINS_MAIL.finditer(content), _MOST_MAILS)]
    ends = [each.start() for each in islice(_BEGINS_MAIL.finditer(content), 1, _MOST_MAILS)]
    if not starts or content[: starts[0]].strip().count(b"\n"):
        raise Unreadable("it is not a mailbox: it does not begin with a mail")
    sections, remarks = list[Section](), list[str]()
    for number, (start, end) in enumerate(zip(starts, [*ends, len(content)], strict=True), 1):
        try:
            found = read_mail(content[start:end].replace(b"\n>From ", b"\nFrom "))
        except TooMuchText:
            raise
        except Unreadable as error:
            remarks.append(f"mail {number}: {error.reason}")
            continue
        place = f"mail {number}"
        sections += (replace(each, place=", ".join(filter(None, (place, each.place)))) for each in found.sections)
        remarks += (f"{place}: {remark}" for remark in found.remarks)
    return Content(tuple(sections), "", tuple(remarks))


def read_web_archive(content: bytes) -> Content:
    """A page saved by a browser with its resources. Raises `Unreadable`."""
    message = email.message_from_bytes(content, _class=EmailMessage, policy=_policy())
    texts = [text for text in _texts(message) if text.strip()]
    if not texts:
        raise Unreadable("it has no page")
    return Content((Section("\n\n".join(texts), unit="heading"),), _header(message, "Subject"))


def read_calendar(content: bytes) -> Content:
    """The events of a calendar, one section each. Raises `Unreadable`."""
    events = list(_events(decoded(content)))
    if not events:
        raise Unreadable("it has no events")
    return Content(tuple(Section(text, name) for name, text in events), events[0][0] if len(events) == 1 else "")


def _headers(message: MIMEPart) -> list[str]:
    return [f"{name}: {said}" for name in _HEADERS if (said := _header(message, name))]


def _header(message: MIMEPart, name: str) -> str:
    """A header; non-standard bytes are in the encoding of the message's first text."""
    raw = next((value for key, value in message.raw_items() if key.lower() == name.lower()), "")
    if raw.isascii():
        return str(message[name] or "")
    parts = (part.get_content_charset("") for part in message.walk())
    said = next(filter(None, parts), "")
    return " ".join(decoded_as(str(raw).encode("ascii", "surrogateescape"), said).split())


def _policy() -> EmailPolicy[EmailMessage[Any, Any]]:
    """Keeps headers as written: parsing addresses loses anything non-standard."""
    registry = HeaderRegistry()
    for name in _HEADERS:
        registry.map_to_type(name.lower(), UnstructuredHeader)  # type: ignore[arg-type]  # a partial one serves
    return email.policy.default.clone(header_factory=registry)


def _texts(part: MIMEPart) -> Iterator[str]:
    """Texts shown by a mail program, without files.

    Of alternatives this is the richest. Messages within begin with their headers.
    """
    kind = part.get_content_type()
    undivided = kind.startswith("multipart/") and not part.is_multipart()
    if kind in _TEXTS or undivided:
        text = _text(part, kind)
        if text is not None:
            yield text
        return
    parts = [each for each in part.iter_parts() if isinstance(each, MIMEPart) and not _is_file(each)]
    shown = [list(_texts(each)) for each in parts]
    if kind == "message/rfc822":
        yield from ("\n".join(_headers(each)) for each in parts if _headers(each))
    if kind == "multipart/alternative":
        invitations = [texts for each, texts in zip(parts, shown, strict=True) if _is_invitation(each)]
        yield from richest([texts for texts in shown if texts not in invitations])
        yield from chain.from_iterable(invitations)
    else:
        yield from chain.from_iterable(islice(shown, 1) if kind == "multipart/related" else shown)


def _text(part: MIMEPart, kind: str) -> str | None:
    """Text of a part, or None. Raises `TooMuchText` for the whole mail."""
    payload, said = part.get_payload(decode=True), part.get_content_charset("")
    if not isinstance(payload, bytes):
        return None
    try:
        if kind == "text/html":
            return page_of_mail(payload, said)
        text = decoded_as(payload, said)
    except TooMuchText:
        raise
    except Unreadable:  # an unreadable part does not affect others
        return None
    if kind == "text/calendar":
        return "\n\n".join(text for _, text in _events(text))
    parameters = dict(part.get_params([], "content-type", unquote=True))
    if str(parameters.get("format", "")).lower() == "flowed":
        return _unfolded(text, joins=str(parameters.get("delsp", "")).lower() == "yes")
    return text


def _is_invitation(part: MIMEPart) -> bool:
    return part.get_content_type() == "text/calendar"


def richest(alternatives: list[list[str]]) -> list[str]:
    """Of alternative texts the first one with nearly as many words as any."""
    words = [len(_WORD.findall(" ".join(texts))) for texts in alternatives]
    enough = _AS_RICH * max(words, default=0)
    return next((texts for count, texts in zip(words, alternatives, strict=True) if count and count >= enough), [])


def _is_file(part: MIMEPart) -> bool:
    """Whether mail programs show a part as a file; inline text is never one."""
    kind = part.get_content_type()
    if part.is_attachment():
        return True
    return bool(part.get_filename()) if part.is_multipart() else kind not in _TEXTS and "multipart/" not in kind


def _attached(message: MIMEPart) -> Iterator[tuple[str, bytes]]:
    for part in message.iter_parts() if message.is_multipart() else [message]:
        if not _is_file(part):
            yield from _attached(part) if part.is_multipart() else ()
        elif part.get_content_type() == "message/rfc822":
            within = part.get_payload(0)
            yield _name(part, ".eml"), within.as_bytes() if isinstance(within, MIMEPart) else b""
        elif part.get_content_maintype() != "image" or not part["content-id"]:
            payload = part.get_payload(decode=True)
            yield _name(part), payload if isinstance(payload, bytes) else b""


def _name(part: MIMEPart, suffix: str = "") -> str:
    kind = part.get_content_type()
    name = part.get_filename() or f"without a name{_SUFFIXES.get(kind, f' ({kind})')}"
    name = name if name.endswith(suffix) else name + suffix
    if "=?" not in name:
        return name
    try:
        parts = decode_header(name)
        return "".join(each if isinstance(each, str) else each.decode(said or "ascii") for each, said in parts)
    except (LookupError, ValueError):
        return name


def page_of_mail(content: bytes, said: str) -> str:
    """Text of a mail's HTML, in the stated encoding."""
    from common.library.readers.markup import markdown_of_page  # most mails do not need it

    return markdown_of_page(content, said)


def _unfolded(text: str, joins: bool) -> str:
    """Joins format=flowed lines (RFC 3676); with `joins`, without the final blank."""
    lines, going_on = list[str](), ""  # prefix of a line at the same quoting depth
    for line in in_lines(text).split("\n"):
        quoted = _QUOTED.match(line)[0]  # type: ignore[index]  # it matches anywhere
        words = line[len(quoted) :].removeprefix(" ")
        goes_on = bool(lines) and going_on == quoted + " "
        if goes_on and words != _SIGNATURE:
            lines[-1] += words
        else:
            lines.append(f"{quoted} {words}" if quoted else words)
        ends = words.endswith(" ") and words != _SIGNATURE
        going_on = quoted + " " if ends else ""
        if ends and joins:
            lines[-1] = lines[-1][:-1]
    return "\n".join(lines)


def _events(text: str) -> Iterator[tuple[str, str]]:
    name, lines, within = "", list[str](), list[str]()
    for line in _FOLDED.sub("", text).splitlines():
        found = _PROPERTY.fullmatch(line)
        if not found:
            continue
        key, value = found[1].upper(), found[3]
        if key == "BEGIN":
            within.append(value.strip().upper())
            if within[-1] in _EVENTS:
                name, lines = "", []
        elif key == "END" and within:
            if within.pop() in _EVENTS and (name or lines):
                yield name, "\n".join(filter(None, [name, *lines]))
        elif within and within[-1] in _EVENTS:
            parameters = {each[0].upper(): each[1] or each[2] for each in _PARAMETER.findall(found[2])}
            if key == "SUMMARY":
                name = _unescaped(value)
            elif key in _SHOWN:
                lines.append(f"{_SHOWN[key]}: {_value(key, value, parameters)}")


def _value(key: str, value: str, parameters: dict[str, str]) -> str:
    if key in ("ORGANIZER", "ATTENDEE"):
        address = re.sub("(?i)^mailto:", "", value)
        return f"{parameters['CN']} <{address}>" if parameters.get("CN") else address
    moment = _MOMENT.fullmatch(value)
    if not moment:
        return _unescaped(value)
    year, month, day, hour, minute, universal = moment.groups()
    zone = "UTC" if universal else parameters.get("TZID", "")
    time = f" {hour}:{minute}" if hour else ""
    return f"{year}-{month}-{day}{time}{f' ({zone})' if zone and time else ''}"


def _unescaped(value: str) -> str:
    return _ESCAPED.sub(lambda found: "\n" if found[1] in "nN" else found[1], value)
