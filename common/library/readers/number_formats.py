"""Numbers, dates and times as a sheet shows them, by their cells' formats."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time, timedelta
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from fractions import Fraction
from functools import lru_cache
from typing import Final

GENERAL: Final = "General"
_DIGITS: Final = 15  # significant digits of spreadsheet numbers
_LONGEST: Final = 300  # characters of a format
_MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June", "July", "August", "September", "October"),
    *("November", "December"),
)
_WEEKDAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_SECTION: Final = re.compile(r'(?:"[^"]*"|\\.|\[[^\]]*\]|[^;])*')
# Literals, widths or fillers (dropped), brackets, exponents, placeholders and the rest.
_TOKEN: Final = re.compile(
    r'"(?P<quoted>[^"]*)"|\\(?P<escaped>.)|(?P<unseen>[_*].)|\[(?P<bracket>[^\]]*)\]|(?P<other>.)', re.DOTALL
)
_CURRENCY: Final = re.compile(r"\$([^-]*)(?:-[0-9A-Fa-f]+)?")
_CONDITION: Final = re.compile(r"(<=|>=|<>|<|>|=)\s*(-?[\d.]+)")
_OF_TIME: Final = re.compile(r"AM/PM|A/P|y+|m+|d+|h+|s+(?:\.0+)?", re.IGNORECASE)
_ELAPSED: Final = re.compile(r"h+|m+|s+", re.IGNORECASE)
_PLACEHOLDERS: Final = frozenset("0#?")
_EXPONENT: Final = re.compile(r"[Ee][+-]")
_FIXED: Final = re.compile(r"/\s*(\d+)")


@lru_cache(maxsize=512)
def sections_of(code: str) -> tuple[str, ...]:
    """The parts of a format: for positive and negative numbers, zero and text."""
    found, at = list[str](), 0
    code = code[:_LONGEST]
    while at <= len(code):
        match = _SECTION.match(code, at)
        end = match.end() if match else at
        found.append(code[at:end])
        at = end + 1
    return tuple(found)


def shown(value: object, code: str) -> str:
    """A cell's value in this format; whole dates are written year first."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, str):
        parts = sections_of(code)
        return "".join(_text_in(parts[3], value)) if len(parts) > 3 else value
    if isinstance(value, datetime | date | time | timedelta):
        return _moment(value, code)
    if not isinstance(value, int | float):
        return str(value)
    if code == GENERAL or not code:
        return _plain(value)
    return _number(value, code)


def _plain(value: float) -> str:
    return f"{value:.{_DIGITS}g}" if isinstance(value, float) else str(value)


def _text_in(section: str, value: str) -> Iterator[str]:
    for kind, text in _tokens(section):
        yield value if (kind, text) == ("other", "@") else text


@lru_cache(maxsize=512)
def _tokens(section: str) -> tuple[tuple[str, str], ...]:
    found = list[tuple[str, str]]()
    for match in _TOKEN.finditer(section):
        kind = str(match.lastgroup)
        text = match[kind]
        if kind in ("quoted", "escaped"):
            found.append(("literal", text))
        elif kind == "bracket":
            currency = _CURRENCY.fullmatch(text)
            if currency:
                found.append(("literal", currency[1]))
            elif _ELAPSED.fullmatch(text):
                found.append(("elapsed", text.lower()))
        elif kind == "other":
            found.append((kind, text))
    return tuple(found)


def _number(value: float, code: str) -> str:
    parts = sections_of(code)
    section, signed = _section_for(value, parts)
    if section.strip().lower() in ("general", "@"):
        return _plain(value if signed else abs(value))
    tokens = _tokens(section)
    if not any(kind == "other" and text in _PLACEHOLDERS for kind, text in tokens):
        literal = "".join(text for _, text in tokens)
        return literal if section or len(parts) > 1 else _plain(value)
    try:
        number = abs(Decimal(f"{value:.{_DIGITS}g}"))
        text = _filled(number, tokens, section)
    except (InvalidOperation, OverflowError, ValueError):  # not a number, or infinite
        return _plain(value)
    negative = signed and value < 0 and any(each in text for each in "123456789")
    return ("-" + text if negative else text).strip()


def _section_for(value: float, parts: Sequence[str]) -> tuple[str, bool]:
    conditions = [next(filter(None, map(_CONDITION.fullmatch, _brackets(part))), None) for part in parts[:2]]
    if any(conditions):
        for part, condition in zip(parts, conditions, strict=False):
            if condition and _holds(value, condition[1], float(condition[2])):
                return part, True
        return parts[min(len(parts) - 1, sum(map(bool, conditions)))], True
    if len(parts) == 1:
        return parts[0], True
    if value < 0:
        return parts[1], False
    return (parts[2] if value == 0 and len(parts) > 2 else parts[0]), False


def _brackets(part: str) -> Iterator[str]:
    return (match["bracket"] for match in _TOKEN.finditer(part) if match["bracket"] is not None)


def _holds(value: float, sign: str, limit: float) -> bool:
    return {
        "<": value < limit,
        ">": value > limit,
        "=": value == limit,
        "<=": value <= limit,
        ">=": value >= limit,
        "<>": value != limit,
    }[sign]


def _filled(number: Decimal, tokens: Sequence[tuple[str, str]], section: str) -> str:
    pattern = "".join(text if kind == "other" else "\0" for kind, text in tokens)
    number = number.scaleb(2 * pattern.count("%"))
    first = min(at for at, sign in enumerate(pattern) if sign in _PLACEHOLDERS)
    last = max(at for at, sign in enumerate(pattern) if sign in _PLACEHOLDERS)
    before, after = "".join(text for _, text in tokens[:first]), tokens[last + 1 :]
    body = tokens[first : last + 1]
    if _EXPONENT.search(pattern):
        return before + _with_exponent(number, pattern) + "".join(text for _, text in after)
    if "/" in pattern[first:]:
        fixed = _FIXED.search(section)
        end = fixed.end() if fixed and pattern.endswith(fixed[0]) else 0
        return before + _fraction(number, pattern[first:], fixed) + ("" if end else "".join(text for _, text in after))
    thousands = 0  # commas after the placeholders
    while after and after[0] == ("other", ","):
        thousands, after = thousands + 1, after[1:]
    point = next((at for at, token in enumerate(body) if token == ("other", ".")), len(body))
    whole, part = body[:point], body[point + 1 :]
    while whole and whole[-1] == ("other", ","):
        thousands, whole = thousands + 1, whole[:-1]
    places = sum(kind == "other" and text in _PLACEHOLDERS for kind, text in part)
    rounded = number.scaleb(-3 * thousands).quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP)
    digits, _, decimals = f"{rounded:f}".partition(".")
    text = _whole(digits.lstrip("0"), whole) + _decimals(decimals, part)
    return before + text + "".join(each for _, each in after)


def _whole(digits: str, tokens: Sequence[tuple[str, str]]) -> str:
    """Fills placeholders from the last to the first; the first takes the rest."""
    grouped = ("other", ",") in tokens
    places = [at for at, (kind, text) in enumerate(tokens) if kind == "other" and text in _PLACEHOLDERS]
    out, left, written = list[str](), list(digits), 0
    for at in range(len(tokens) - 1, -1, -1):
        kind, text = tokens[at]
        if (kind, text) == ("other", ","):
            continue
        if at not in places:
            if left or any(each < at and tokens[each][1] == "0" for each in places) or not written:
                out.append(text)
            continue
        taken = len(left) if places and at == places[0] else 1
        for _ in range(max(taken, 1)):
            digit = left.pop() if left else ("0" if text == "0" else "")
            if digit:
                if grouped and written and written % 3 == 0:
                    out.append(",")
                out.append(digit)
                written += 1
    return "".join(reversed(out))


def _decimals(digits: str, tokens: Sequence[tuple[str, str]]) -> str:
    out, left = list[str](), list(digits)
    needed = 0
    for kind, text in tokens:
        if kind == "other" and text in _PLACEHOLDERS:
            out.append(left.pop(0) if left else "0")
            if text == "0" or out[-1] != "0":
                needed = len(out)
        else:
            out.append(text)
            needed = len(out)
    shown_digits = "".join(out[:needed])
    return f".{shown_digits}" if shown_digits else ""


def _with_exponent(number: Decimal, pattern: str) -> str:
    mantissa, exponent = _EXPONENT.split(pattern, maxsplit=1)
    sign = "+" if "+" in _EXPONENT.findall(pattern)[0] else ""
    places = sum(each in _PLACEHOLDERS for each in mantissa.partition(".")[2])
    digits, _, power = f"{number:.{places}e}".partition("e")
    width = max(1, sum(each in _PLACEHOLDERS for each in exponent))
    count = int(power)
    return f"{digits}E{'-' if count < 0 else sign}{abs(count):0{width}}"


def _fraction(number: Decimal, pattern: str, fixed: re.Match[str] | None) -> str:
    upper, _, lower = pattern.partition("/")
    mixed = len(upper.split()) > 1
    whole = int(number) if mixed else 0
    rest = Fraction(number) - whole
    if fixed:
        bottom = int(fixed[1])
        top = round(rest * bottom)
    else:
        most = 10 ** min(4, max(1, sum(each in _PLACEHOLDERS for each in lower))) - 1
        near = rest.limit_denominator(most)
        top, bottom = near.numerator, near.denominator
    if mixed and top and top == bottom:
        whole, top = whole + 1, 0
    if not top:
        return str(whole)
    return f"{whole} {top}/{bottom}" if whole else f"{top}/{bottom}"


def _moment(value: date | time | timedelta, code: str) -> str:
    tokens = _tokens(sections_of(code)[0])
    letters = "".join(text.lower() for kind, text in tokens if kind == "other")
    if isinstance(value, date) and ({"y", "m", "d"} <= set(letters) or not set("ymdhs") & set(letters)):
        return _whole_day(value)
    if isinstance(value, timedelta) and not any(kind == "elapsed" for kind, _ in tokens):
        return _duration(value)
    return "".join(_parts_of_moment(value, tokens)).strip()


def _whole_day(value: date) -> str:
    if not isinstance(value, datetime) or value.time() == time.min:
        return value.isoformat()[:10]
    return value.isoformat(" ", "seconds" if value.second else "minutes")


def _duration(value: timedelta) -> str:
    minutes, seconds = divmod(round(abs(value).total_seconds()), 60)
    return f"{'-' if value < timedelta() else ''}{minutes // 60}:{minutes % 60:02}:{seconds:02}"


def _parts_of_moment(value: date | time | timedelta, tokens: Sequence[tuple[str, str]]) -> Iterator[str]:
    total = round(abs(value).total_seconds()) if isinstance(value, timedelta) else _seconds(value)
    if isinstance(value, timedelta) and value < timedelta():
        yield "-"
    pieces = list[tuple[str, str]]()
    for kind, text in tokens:  # joins adjacent letters
        if kind == "other" and pieces and pieces[-1][0] == kind:
            pieces[-1] = kind, pieces[-1][1] + text
        else:
            pieces.append((kind, text))
    halves = any(kind == "other" and re.search("AM/PM|A/P", text, re.IGNORECASE) for kind, text in pieces)
    last = ""  # the previous part
    for number, (kind, text) in enumerate(pieces):
        if kind == "elapsed":
            counted = {"h": total // 3600, "m": total // 60, "s": total}[text[0]]
            yield f"{counted:0{len(text)}}"
            last = text[0]
            continue
        if kind == "literal":
            yield text
            continue
        at = 0
        for match in _OF_TIME.finditer(text):
            yield text[at : match.start()]
            at = match.end()
            part = match[0].lower()
            following = _OF_TIME.search(text, at)
            later = following[0].lower() if following else _next_part(pieces[number + 1 :])
            minutes = part[0] == "m" and len(part) < 3 and (last == "h" or later.startswith("s"))
            yield _part(value, part, total, minutes, halves)
            last = part[0]
        yield text[at:]


def _next_part(pieces: Sequence[tuple[str, str]]) -> str:
    return next((found[0].lower() for kind, text in pieces if kind == "other" and (found := _OF_TIME.search(text))), "")


def _seconds(value: date | time) -> int:
    moment = value.time() if isinstance(value, datetime) else value
    return moment.hour * 3600 + moment.minute * 60 + moment.second if isinstance(moment, time) else 0


def _part(value: date | time | timedelta, part: str, total: int, minutes: bool, halves: bool) -> str:
    hour = total // 3600 % 24
    if part in ("am/pm", "a/p"):
        half = "AM" if hour < 12 else "PM"
        return half if part == "am/pm" else half[0]
    if part[0] == "h":
        return f"{(hour + 11) % 12 + 1 if halves else hour:0{min(2, len(part))}}"
    if minutes:
        return f"{total // 60 % 60:0{len(part)}}"
    if part[0] == "s":
        return f"{total % 60:0{len(part.partition('.')[0])}}"
    if not isinstance(value, date):
        return ""
    if part[0] == "y":
        return f"{value.year:04}" if len(part) > 2 else f"{value.year % 100:02}"
    if part[0] == "m":
        name = _MONTHS[value.month - 1]
        return {3: name[:3], 4: name, 5: name[0]}.get(len(part), f"{value.month:0{min(2, len(part))}}")
    name = _WEEKDAYS[value.weekday()]
    return {3: name[:3], 4: name}.get(len(part), f"{value.day:0{min(2, len(part))}}")
