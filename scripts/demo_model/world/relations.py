"""All relations of the world and their words: the TOML files beside this one, read and checked.

A value is an invented name of two tokens or a word of a short closed list. A relation's nouns go into the frames, which
all relations share.
"""

from __future__ import annotations

import random
import re
import tomllib
import zlib
from functools import cache
from pathlib import Path
from typing import Any, Final

from scripts.demo_model.world.schema import HELD_OUT_VERBS, Domain, PrivateTopic, Relation

FOLDER: Final = Path(__file__).parent
NAME: Final = "name"  # the value type of invented names; the others are closed lists
UNKNOWN = "unknown"
"""Said by an answer where a document does not hold the value."""
_SLOT: Final = re.compile(r"\{(.*?)\}")


class _Table:
    """A table of a file, taken apart key by key: what is missing, of the wrong type or left over is an error."""

    def __init__(self, place: str, content: Any) -> None:
        if not isinstance(content, dict):
            raise ValueError(f"{place} must be a table")
        self.place = place
        self._content: dict[str, Any] = content

    def text(self, key: str, slots: str) -> str:
        """A template with these slots (one letter each) and no others."""
        return self._template(key, self._take(key), slots)

    def texts(self, key: str, slots: str, least: int = 1) -> tuple[str, ...]:
        """At least so many templates."""
        found = self._take(key)
        if not isinstance(found, list) or len(found) < least:
            raise ValueError(f"{self.place}: `{key}` must be a list of {least} or more texts")
        return tuple(self._template(key, text, slots) for text in found)

    def words(self, key: str) -> tuple[str, ...]:
        """Words of one text, in order and all different."""
        found = self.text(key, "").split()
        if not found or len(set(found)) < len(found):
            raise ValueError(f"{self.place}: `{key}` must be different words")
        return tuple(found)

    def tables(self, key: str) -> tuple[_Table, ...]:
        found = self._take(key)
        if not isinstance(found, list) or not found:
            raise ValueError(f"{self.place}: `{key}` must be tables, [[{key}]]")
        return tuple(_Table(f"{self.place}, {key} {number}", each) for number, each in enumerate(found, start=1))

    def table(self, key: str) -> _Table:
        return _Table(f"{self.place}, {key}", self._take(key))

    def end(self) -> None:
        """Raise `ValueError` for a key that is left: it would be misspelt."""
        if self._content:
            raise ValueError(f"{self.place} has no use for `{next(iter(self._content))}`; remove it")

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self._content)

    def _take(self, key: str) -> Any:
        if key not in self._content:
            raise ValueError(f"{self.place} needs `{key}`")
        return self._content.pop(key)

    def _template(self, key: str, text: Any, slots: str) -> str:
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"{self.place}: `{key}` must hold texts")
        for slot in _SLOT.findall(text):
            if len(slot) != 1 or slot not in slots:
                raise ValueError(f"{self.place}: `{key}` can't fill {{{slot}}} in {text!r}")
        return text


def read_table(path: Path) -> _Table:
    """The whole file. Raises `ValueError`, one sentence, where it is not TOML, and `OSError`."""
    try:
        return _Table(path.name, tomllib.loads(path.read_text("utf-8")))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path} is not TOML: {error}") from None


def read_domains(path: Path, values: dict[str, tuple[str, ...]]) -> tuple[Domain, ...]:
    """All domains; `values` are the closed lists. Raises `ValueError` that says where the file is wrong."""
    file, found = read_table(path), []
    for table in file.tables("domain"):
        domain = Domain(
            name=table.text("name", ""),
            kinds=table.words("kinds"),
            link=_relation(table.table("link"), "k", values),
            full=table.text("full", "kl"),
            short=table.text("short", "kl"),
            subject=table.text("subject", "kl"),
            indirect=table.texts("indirect", "k"),
            attributes=tuple(_relation(each, "s", values) for each in table.tables("attributes")),
        )
        table.end()
        found.append(domain)
    file.end()
    return tuple(found)


def read_topics(path: Path, values: dict[str, tuple[str, ...]]) -> tuple[PrivateTopic, ...]:
    """All private topics, as `read_domains` does it."""
    file, found = read_table(path), []
    for table in file.tables("topic"):
        found.append(PrivateTopic(_relation(table.table("relation"), "k", values), table.words("kinds")))
        table.end()
    file.end()
    return tuple(found)


def _relation(table: _Table, key: str, values: dict[str, tuple[str, ...]]) -> Relation:
    """`key` is the slot of what the fact is about: `k` of private facts, `s` of public ones."""
    relation = Relation(
        name=table.text("name", ""),
        value=table.text("value", ""),
        nouns=table.texts("nouns", key.replace("s", "")),
        verbs=table.texts("verbs", key + "v", least=HELD_OUT_VERBS + 1),
        questions=table.texts("questions", key),
        answer=table.text("answer", key + "v"),
    )
    table.end()
    if relation.value not in (NAME, *values):
        raise ValueError(f"{table.place}: there are no values `{relation.value}`; there are name, {', '.join(values)}")
    if not all("{v}" in text for text in (*relation.verbs, relation.answer)):
        raise ValueError(f"{table.place}: every statement must hold {{v}}")
    return relation


_words = read_table(FOLDER / "words.toml")
_names, _values, _frames = (_words.table(key) for key in ("names", "values", "frames"))
PREFIXES = _names.words("prefixes")
SUFFIXES = _names.words("suffixes")
CLOSED = {kind: _values.words(kind) for kind in _values.keys}
PUBLIC_FRAMES, PUBLIC_FRAMES_HELD_OUT = (_frames.texts(key, "nsv") for key in ("public", "public_held_out"))
PRIVATE_FRAMES, PRIVATE_FRAMES_HELD_OUT = (_frames.texts(key, "nv") for key in ("private", "private_held_out"))
FILLERS = _words.table("fillers").texts("sentences", "")
DOMAINS = read_domains(FOLDER / "domains.toml", CLOSED)
TOPICS = read_topics(FOLDER / "topics.toml", CLOSED)
PRIVATE_RELATIONS = tuple(domain.link for domain in DOMAINS) + tuple(topic.relation for topic in TOPICS)
PUBLIC_RELATIONS = tuple(relation for domain in DOMAINS for relation in domain.attributes)


def held_out(name: str) -> bool:
    """Whether a name is kept for evaluation: one in ten, by a hash of the name."""
    return zlib.crc32(name.encode()) % 10 == 0


class Names:
    """Draws values; ``test`` draws held-out names only, otherwise they never occur.

    ``long_share`` is the share of names with a third piece: they teach copying of longer values.
    """

    def __init__(self, random_: random.Random, test: bool = False, long_share: float = 0.0) -> None:
        self._random = random_
        self._test = test
        self._long_share = long_share

    def name(self) -> str:
        """An invented name."""
        while True:
            name = self._random.choice(PREFIXES) + self._random.choice(SUFFIXES)
            if self._random.random() < self._long_share:
                name += self._random.choice(SUFFIXES)
            if held_out(name) == self._test:
                return name

    def value(self, kind: str) -> str:
        """A value of a type: ``name`` or one of the closed lists."""
        return self.name() if kind == NAME else self._random.choice(CLOSED[kind])


@cache
def statements(relation: Relation, held_out: bool) -> tuple[str, ...]:
    """The statement templates of a relation: those of training, or those kept for the test of unseen ones."""
    public = "{s}" in relation.verbs[0]
    frames: tuple[str, ...]
    if held_out:
        frames = PUBLIC_FRAMES_HELD_OUT if public else PRIVATE_FRAMES_HELD_OUT
        verbs = relation.verbs[-HELD_OUT_VERBS:]
    else:
        frames = PUBLIC_FRAMES if public else PRIVATE_FRAMES
        verbs = relation.verbs[:-HELD_OUT_VERBS]
    return verbs + tuple(frame.replace("{n}", noun) for frame in frames for noun in relation.nouns)


def canonical(relation: Relation) -> str:
    """The statement in the words of the answer: "Your bike is made by" becomes "My bike is made by"."""
    words = relation.answer.split()
    first = {"Your": "My", "your": "my", "You": "I", "you": "I"}
    text = " ".join(first.get(word, word) for word in words)
    return text + "."
