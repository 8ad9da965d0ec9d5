"""Answers judged as a person would who knows what is right: by rules, from the text alone.

Words are compared: numbers, dates, plurals and negations in one spelling each.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Final

_UNITS: Final = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_TENS: Final = "twenty thirty forty fifty sixty seventy eighty ninety"
_COUNTED: Final = {word: value for value, word in enumerate(_UNITS.split())} | {
    word: 10 * value for value, word in enumerate(_TENS.split(), 2)
}
_LARGE: Final = {"hundred": 100, "thousand": 1000, "million": 1_000_000}
_ENGLISH: Final = "January February March April May June July August September October November December"
_MONTHS: Final = tuple(_ENGLISH.split())
_MONTH: Final = rf"(?P<month>{'|'.join(f'{name}|{name[:3]}' for name in _MONTHS)}|Sept)\b\.?"
_DAY: Final = r"(?P<day>[0-3]?\d)(?:st|nd|rd|th)?\b"
# The name of a month is a capital's, or "it may 5 times" would be a date.
_DATES: Final = (
    re.compile(rf"\b{_DAY}[\s-]+(?:of\s+)?{_MONTH}"),
    re.compile(rf"\b{_MONTH}\s+(?:the\s+)?{_DAY}(?!\.\d)"),
)
_ISO: Final = re.compile(r"\b(?P<year>\d{4})-(?P<month>[01]\d)-(?P<day>[0-3]\d)\b")
_THOUSANDS: Final = re.compile(r"(?<=\d)[,'\N{THIN SPACE}\N{NARROW NO-BREAK SPACE}\N{NO-BREAK SPACE}](?=\d{3}(?!\d))")
_SHORTENED: Final = (
    (r"\bcan(?:no|')t\b", "can not"),
    (r"\bwon't\b", "will not"),
    (r"n't\b", " not"),
    (r"\b(it|that|he|she|there|here|what|who|where)'s\b", r"\1 is"),
    (r"'s\b", ""),  # the possessive
)
_WORD: Final = re.compile(r"\d+/\d+|\d+(?:\.\d+)*|[^\W\d_]+")
_LEFT_OUT: Final = frozenset(("a", "an", "the"))
_ORDINALS: Final = frozenset(("st", "nd", "rd", "th"))
_LEAST_PLURAL: Final = 4  # letters; "gas" and "bus" are none


def words(text: str) -> list[str]:
    """Words of `text` in lower case and the singular, numbers as digits, a day of a year as `month/day`.

    Articles, punctuation and the possessive are left out. A year follows its day.
    """
    return with_digits([_singular(word) for word in plain(_dates(text)) if word not in _LEFT_OUT])


def plain(text: str) -> list[str]:
    """Words of `text` in lower case as they stand there, but for shortened negations, which are whole."""
    text = unicodedata.normalize("NFC", text).replace("\N{RIGHT SINGLE QUOTATION MARK}", "'").lower()
    for short, whole in _SHORTENED:
        text = re.sub(short, whole, text)
    found: list[str] = []
    for match in _WORD.finditer(_THOUSANDS.sub("", text)):
        if not (match[0] in _ORDINALS and found and found[-1].isdigit()):
            found.append(match[0])
    return found


def find(phrase: Sequence[str], among: Sequence[str]) -> list[int]:
    """Places at which `phrase` begins in `among`."""
    size = len(phrase)
    return [place for place in range(len(among) - size + 1) if list(among[place : place + size]) == list(phrase)]


def _dates(text: str) -> str:
    def told(match: re.Match[str]) -> str:
        month = next(number for number, name in enumerate(_MONTHS, 1) if name.startswith(match["month"][:3]))
        return f"{month}/{int(match['day'])}"

    text = _ISO.sub(lambda match: f"{int(match['month'])}/{int(match['day'])} {match['year']}", text)
    for form in _DATES:
        text = form.sub(told, text)
    return text


def with_digits(found: Sequence[str]) -> list[str]:
    """`found` with numbers in words as digits; "twenty-one" and "two hundred and forty" are one number."""
    result: list[str] = []
    place = 0
    while place < len(found):
        end, value = _number(found, place)
        result.append(found[place] if end == place else str(value))
        place = max(end, place + 1)
    return result


def _number(found: Sequence[str], start: int) -> tuple[int, int]:
    """Place behind the number in words, or digits with "thousand", that begins at `start`, and its value."""
    total, part, last = 0, 0, 0
    place = start
    while place < len(found):
        word = found[place]
        value = int(word) if word.isdecimal() and place == start else _COUNTED.get(word)
        if value is not None and (place == start or last >= 100 or (last in range(20, 100, 10) and 0 < value < 10)):
            part, last = part + value, 0 if word.isdecimal() else value  # "5560 four" are two numbers
        elif word in _LARGE:
            scale, part = _LARGE[word], part if place > start else 1  # "a hundred": articles are left out
            total, part = (total, part * scale) if scale == 100 else (total + part * scale, 0)
            last = scale
        elif not (word == "and" and last >= 100 and found[place + 1 : place + 2] and found[place + 1] in _COUNTED):
            break
        place += 1
    return place, total + part


def _singular(word: str) -> str:
    if len(word) < _LEAST_PLURAL or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    if word.endswith("ies") and len(word) > _LEAST_PLURAL:
        return f"{word[:-3]}y"
    return word[:-2] if word.endswith(("xes", "ches", "shes", "sses")) else word[:-1]


# Words right before a thing that say that it is not the answer, and small ones that may stand between.
_DENIALS: Final = (("not",), ("never",), ("instead", "of"), ("rather", "than"), ("no", "longer"))
_TITLES: Final = ("doctor", "dr", "mister", "mr", "mrs", "ms", "madame")
_BETWEEN: Final = frozenset(
    ("called", "named", "in", "on", "at", "by", "of", "for", "to", "with", "from", "just", "only", *_TITLES)
)
_BEHIND_A_VERB: Final = frozenset(("in", "on", "at", "by", "of", "for", "to", "with", "from"))  # "not set to 5"
_ADDING: Final = frozenset(("just", "only"))  # "not only 5" says 5
_NAMED_BY_NUMBER: Final = frozenset(("pep",))  # the number behind it is a name

_SOURCE: Final = (
    r"(?:texts?|documents?|passages?|contexts?|notes?|informations?|sources?|library|libraries|excerpts?|above|question|"
    r"provided|given|it|they|there)"
)
_TELL: Final = (
    r"(?:say|mention|specify|state|tell|indicate|name|list|describe|explain|disclose|reveal|answer|give|provide)"
)
_TOLD: Final = (
    r"(?:mentioned|specified|stated|provided|given|disclosed|said|told|revealed|clear|indicated|"
    r"known(?! (?:to|as|for)\b))"
)
_ADVERB: Final = r"(?: (?:explicitly|directly|actually|specifically|clearly|exactly|really))?"
_HOLD: Final = r"(?:contain|include|have|hold|offer)"
_KNOWLEDGE: Final = r"(?:information|details?|mentions?|answers?|data|records?|references?|indications?)"
_UNKNOWING: Final = re.compile(
    "|".join(
        (
            rf"\bi (?:do|did) not{_ADVERB} (?:know|remember|recall)\b",
            r"\b(?:i|we) (?:do|did) not have (?:\w+ ){0,3}(?:information|knowledge|access|details?|answer|data)\b",
            r"\b(?:i|we) (?:am|m|are|re) (?:not (?:sure|certain|aware)|unsure|uncertain|unaware)\b",
            (
                r"\b(?:i|we) (?:can not|could not|am unable to|m unable to|am not able to|are unable to) "
                r"(?:find|tell|say|answer|determine|provide|see|give|know|help|locate)\b"
            ),
            rf"\b{_SOURCE}(?: \w+){{0,4}} (?:do|did)(?:es)? not{_ADVERB} {_TELL}\b",
            rf"\b{_SOURCE}(?: \w+){{0,4}} (?:do|did)(?:es)? not{_ADVERB} {_HOLD}(?: \w+){{0,3}} {_KNOWLEDGE}\b",
            rf"\b(?:pep|note|document|text|passage)(?: \w+)? does not{_ADVERB} (?:say|mention|specify|state|tell)\b",
            rf"\b(?:is|are|was|were|has|have) not(?: been)?{_ADVERB} {_TOLD}\b",
            (
                r"\b(?:is|are|was|were) not (?:available|listed|found|included|contained|described) "
                r"(?:in|from|by) (?:\w+ )?(?:text|document|passage|context|note|source|information)"
            ),
            rf"\bthere (?:is|are|was|were) (?:no|not any|not enough) (?:\w+ ){{0,2}}{_KNOWLEDGE}\b",
            (
                rf"\bno (?:\w+ )?{_KNOWLEDGE}(?: \w+){{0,4}} (?:is|are|was|were) (?:\w+ )?"
                r"(?:given|provided|available|found)\b"
            ),
            (
                r"\b(?:no|none of) (?:\w+ )?(?:documents?|texts?|notes?|passages?|sources?)(?: \w+)? "
                r"(?:say|says|mention|mentions|state|states|tell|tells)\b"
            ),
            r"\bcan not be (?:determined|found|answered|known|inferred|told)\b",
            r"\b(?:not enough|insufficient|no) information\b",
            r"\b(?:is|are|was|remains?) unknown\b|^unknown$|^not (?:known|specified|stated|mentioned|given|provided)\b",
            r"^(?:the )?(?:text|document|passage|note)s? says? nothing\b",
        )
    )
)
_NO_MORE: Final = re.compile(r"\b(?:more|further|anything else|why)\b")  # of which it is said that it is not known
_CLAUSE: Final = re.compile(
    r"(?<=[.!?])\s+|[;:\n]+|,\s+(?=(?:perhaps|maybe|probably|possibly|likely)\b)|"
    r",?\s+(?=(?:but|however|although|though|yet)\b)",
    re.IGNORECASE,
)
_BUT: Final = re.compile(r"^(?:but|however|although|though|yet)\b,?\s*", re.IGNORECASE)
# A clause behind a confession that gives an answer all the same, or dares a guess.
_SUBJECT: Final = r"(?:it|that|this|he|she|they|the answer)"
_VERB: Final = (
    r"(?: (?:is|are|was|were|has|have|had|must|may|might|could|should|would|will)|['\N{RIGHT SINGLE QUOTATION MARK}]s)"
)
_GUESS: Final = re.compile(
    r"^(?:and |so )?(?:\d|(?:perhaps|maybe|probably|possibly|likely|presumably)\b|"
    r"i (?:think|believe|guess|suppose|assume)\b"
    rf"|my guess\b|{_SUBJECT}{_VERB} (?:probably|possibly|likely|perhaps)\b)",
    re.IGNORECASE,
)
_CLAIM: Final = re.compile(rf"^(?:and |so |still )?(?i:{_SUBJECT}{_VERB})\b(?: [a-z]+){{0,2}} (?:\d|[A-Z])")
_CLAIM_BEHIND_BUT: Final = re.compile(rf"^(?:(?i:{_SUBJECT}{_VERB})\b|(?!I\b)[A-Z\d])")


def right(text: str, parts: Sequence[Sequence[str]], wrong: Sequence[str] = ()) -> bool:
    """Whether `text` says one of each part's alternatives, and nothing that is wrong. What it denies it doesn't say."""
    said = words(text)
    return all(any(_says(said, one) for one in part) for part in parts) and not any(_says(said, one) for one in wrong)


def abstains(text: str) -> bool:
    """Whether `text` says that it does not know, or that the documents don't say, and gives no answer after that."""
    unknowing = False
    for clause in _CLAUSE.split(text.strip()):
        flat = " ".join(plain(clause))
        found = _UNKNOWING.search(flat)
        if found and not _NO_MORE.search(flat, found.start()):
            unknowing = True
        elif unknowing and _answers(clause.strip()):
            return False
    return unknowing


def _answers(clause: str) -> bool:
    rest = _BUT.sub("", clause)
    claims = _CLAIM if rest == clause else _CLAIM_BEHIND_BUT
    return bool(_GUESS.search(rest) or claims.search(rest))


def _says(said: Sequence[str], alternative: str) -> bool:
    wanted = words(alternative)
    return any(not (_denied(said[:place]) or _a_name(said, place)) for place in find(wanted, said))


def _a_name(said: Sequence[str], place: int) -> bool:
    """Whether the word at `place` is a number that only names something, as that of "PEP 20"."""
    return place > 0 and said[place - 1] in _NAMED_BY_NUMBER and said[place][0].isdigit()


def _denied(before: Sequence[str]) -> bool:
    """Whether what follows these words is denied by them."""
    end = len(before)
    while end and before[end - 1] in _BETWEEN:
        end -= 1
    if _ADDING & set(before[end:]):
        return False
    if end > 1 and _BEHIND_A_VERB & set(before[end : end + 1]) and before[end - 2] in ("not", "never"):
        return True
    return any(tuple(before[max(end - len(each), 0) : end]) == each for each in _DENIALS)
