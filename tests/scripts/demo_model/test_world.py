"""The synthetic world is the one that the embedded models learnt: its texts do not change by a byte."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import astuple
from pathlib import Path

import pytest

from scripts.demo_model.rows import Encoder, RowMaker
from scripts.demo_model.tokenizer import build_tokenizer
from scripts.demo_model.world.facts import World
from scripts.demo_model.world.library import LibraryPlan, draw_questions, make_library
from scripts.demo_model.world.relations import CLOSED, FOLDER, read_domains


def sha(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


@pytest.mark.parametrize(
    ("seed", "test", "plan", "digest"),
    [
        (2024, True, LibraryPlan(), "76476c63b1fd79cd"),
        (8100, True, LibraryPlan(kinds=24, entities_per_kind=2, private_facts=24), "aa77d96af80c1bf4"),
        (1, False, LibraryPlan(crowded=True), "dc7283c80f6b0fee"),
        (2, False, LibraryPlan(unseen=True), "41ab8ed44a1e40e7"),
    ],
)
def test_libraries_and_questions(seed: int, test: bool, plan: LibraryPlan, digest: str) -> None:
    world = World(seed, test, long_share=0.2)
    library = make_library(world, plan)
    documents = [
        [document.text, [[*fact.key, fact.value] for fact in document.facts]]
        for document in library.private + library.public
    ]
    assert sha([documents, [astuple(question) for question in draw_questions(world, library, 12)]]) == digest


def test_tokenizer_and_training_rows() -> None:
    tokenizer = build_tokenizer()
    assert sha(sorted(tokenizer.get_vocab().items())) == "44f6af60aba14a16"
    world = World(5)
    maker = RowMaker(world, Encoder(tokenizer))
    drawn = []
    for number in range(300):
        world.canonical_share = 0.3 * (number % 3)
        row = maker.draw(easy=number % 4 == 0)
        drawn.append([row.ids, row.codes, row.parts])
    assert sha(drawn) == "3931621fe976a9ed"


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('value = "name"', 'value = "nam"', "domain 1, link: there are no values `nam`"),
        ('full = "the {k} maker {l}"', 'full = "the {k} maker {link}"', "`full` can't fill {link}"),
        ('short = "{l}"', 'shorter = "{l}"', "domain 1 needs `short`"),
        ('short = "{l}"', 'short = "{l}"\nlong = "{l}"', "domain 1 has no use for `long`"),
        ('"My {k} is made by {v}.", ', '"My {k} is made.", ', "every statement must hold {v}"),
        ('kinds = "bike', 'kinds = "bike bike', "`kinds` must be different words"),
        ("[[domain]]", "[[domain]", "is not TOML"),
    ],
)
def test_a_mistake_in_the_data_is_named(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    text = (FOLDER / "domains.toml").read_text("utf-8")
    assert old in text
    path = tmp_path / "domains.toml"
    path.write_text(text.replace(old, new, 1), "utf-8")
    with pytest.raises(ValueError, match=re.escape(complaint)):
        read_domains(path, CLOSED)
