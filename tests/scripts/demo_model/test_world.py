"""The synthetic world is the one that the embedded models learnt: its texts do not change by a byte."""

from __future__ import annotations

import hashlib
import json
from dataclasses import astuple

import pytest

from scripts.demo_model.rows import Encoder, RowMaker
from scripts.demo_model.tokenizer import build_tokenizer
from scripts.demo_model.world.library import LibraryPlan, World, draw_questions, make_library


def sha(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


@pytest.mark.parametrize(
    ("seed", "test", "plan", "digest"),
    [
        (2024, True, LibraryPlan(), "76476c63b1fd79cd"),
        (8100, True, LibraryPlan(kinds=24, entities_per_kind=2, private_facts=24), "aa77d96af80c1bf4"),
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
