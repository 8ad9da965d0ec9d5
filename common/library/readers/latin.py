"""Distinguishes Western from Central European text by the letters of languages.

Both encodings use the same bytes for letters. But each language has only a few letters beyond ASCII, and a text's
letters are of one language.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Final
from unicodedata import category

_WESTERN: Final = "cp1252"
_CENTRAL: Final = ("cp1250", "iso8859_2")
_LANGUAGES: Final = {
    _WESTERN: (
        "äöüßé",  # German, Swedish with the next
        "åäöéü",  # Swedish, Finnish
        "æøåéòô",  # Danish, Norwegian
        "àâäçéèêëîïôöùûüÿœæ",  # French
        "áéíñóúüçª¿¡",  # Spanish
        "ãáàâçéêíóõôúüª",  # Portuguese
        "àèéìíòóùúî",  # Italian
        "àçèéíïòóúü",  # Catalan
        "áéëèêïíóöúü",  # Dutch
        "áéíóúýðþæö",  # Icelandic
        "õäöüšž",  # Estonian
    ),
    _CENTRAL[0]: (
        "áčďéěíňóřšťúůýžöü",  # Czech, with German names
        "áäčďéíĺľňóôŕšťúýž",  # Slovak
        "ąćęłńóśźżöü",  # Polish
        "áéíóöőúüű",  # Hungarian
        "ăâîşţ",  # Romanian
        "čćđšž",  # Croatian, Slovenian
    ),
}
_LANGUAGES[_CENTRAL[1]] = _LANGUAGES[_CENTRAL[0]]
_FOREIGN: Final = 2  # letters of the language that one foreign letter outweighs
_CLEARLY: Final = 2  # lead in letters that Central Europe needs
_OF_ONE: Final = 0.9  # share of a text's letters that belong to its language
_BEYOND_ASCII: Final = re.compile(r"[^\x00-\x7f]")
_OF_WORDS: Final = frozenset("·\xad\xa0\u2018\u2019“”„–—…")  # signs between letters in any language
_RAISED: Final = frozenset("ªº¹²³")  # signs at the end of a word
_OPENING: Final = frozenset("¿¡")  # Spanish signs that count as letters


@dataclass(frozen=True, slots=True)
class _Likeness:
    letters: int  # beyond ASCII, of that language
    others: int  # characters foreign to it

    @property
    def score(self) -> int:
        return self.letters - _FOREIGN * self.others

    @property
    def is_clear(self) -> bool:
        return self.letters >= _OF_ONE * (self.letters + self.others)


def central_european(sample: bytes) -> str | None:
    """Encoding of a text in a Central European language; None for other texts.

    None also for unclear texts: their letters in the Western encoding would fit a Western language.
    """
    western = _likeness(sample, _WESTERN)
    found = [(likeness, name) for name in _CENTRAL if (likeness := _likeness(sample, name)) is not None]
    if not found:
        return None
    best, name = max(found, key=lambda each: each[0].score)  # the first of equals
    ahead = western is None or best.score >= western.score + _CLEARLY
    return name if best.is_clear and ahead else None


def _likeness(sample: bytes, encoding: str) -> _Likeness | None:
    """None where the bytes cannot be text in this encoding."""
    try:
        text = f" {sample.decode(encoding).lower()} "
    except UnicodeDecodeError:
        return None
    letters, raised, wrong = Counter[str](), 0, 0
    for match in _BEYOND_ASCII.finditer(text):
        character, before, after = match.group(), text[match.start() - 1], text[match.end()]
        if character in _RAISED:
            raised += not after.isalpha()
            wrong += after.isalpha()
        elif character.isalpha():
            if before.isdigit() or after.isdigit():  # a currency sign or a fraction in another encoding
                wrong += 1
            else:
                letters[character] += 1
        elif character in _OPENING:
            letters[character] += 1
        elif before.isalpha() and after.isalpha() and character not in _OF_WORDS:
            wrong += 1
        elif category(character) == "Cc":
            return None
    most = max(sum(letters[each] for each in language) for language in _LANGUAGES[encoding])
    return _Likeness(most + raised, letters.total() - most + wrong)
