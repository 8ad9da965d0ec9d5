"""One town whose both sides have a long document, and questions about it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from common.configuration.settings import EMBEDDED_DRAFT, EMBEDDED_MODEL, EMBEDDED_TOKENIZER
from common.engine.jobs import Prompt
from common.engine.model.decoder import Decoder
from common.methods.drafted.distributions import VerifierDrawing
from common.methods.rapid.long_context import BETWEEN
from common.sampling.rejection import Warp
from device.interface import Finished, TokenEvent
from proto.messages import Open
from scripts.daemons import fill_library
from tests.cloud.test_giving_up import OPEN
from tests.cloud.town import Resident, Town
from tests.daemons.conftest import ENTRIES
from tests.support.one_side import OneSide

TARGET: dict[str, Any] = {"model": str(EMBEDDED_MODEL), "dtype": "float32"}
QUESTION = "What is the best-selling horror game?"
LENGTH = 24
SECTIONS = [
    "The winter timetable of the harbour ferry begins in November and has one crossing less.",
    "Yormcrus is based in Mairvo, and has had a shop for kettles there since the war.",
    *ENTRIES.values(),
]
ALMANAC = "\n\n".join(SECTIONS * 4)
TITLE = "almanac"


@pytest.fixture(scope="module")
def data(fresh_data: Callable[[], Path]) -> Path:
    data = fresh_data()
    for role in ("device", "cloud"):
        (data / f"{role}-documents").rename(data / f"{role}-short")
        texts = {TITLE: ALMANAC, "endless": ALMANAC * 6, "one": "# Twin\n\nFirst.", "two": "# Twin\n\nSecond."}
        fill_library(data, role, texts)
    return data


@pytest.fixture(scope="module")
def town(data: Path) -> Iterator[Town]:
    with Town(data, **TARGET) as town:
        yield town


@pytest.fixture(scope="module")
def device(town: Town) -> Resident:
    return town.device("drafting", **TARGET, draft_model=str(EMBEDDED_DRAFT))


@pytest.fixture(scope="module")
def private(town: Town) -> Resident:
    """A device that keeps everything to itself."""
    return town.device("private", **TARGET, draft_model=str(EMBEDDED_DRAFT))


READ = 320  # tokens, which the most similar two of the document's four passages have, nearly
NETWORK: dict[str, Any] = {"method": "rapid", "long_document": TITLE, "retrieval_tokens": READ}
RESIDENT: dict[str, Any] = NETWORK | {"verifier": "device", "sources": "device", "privacy": "offline"}


def tokens_of(device: Resident, **fields: Any) -> tuple[list[int], Finished]:
    *events, last = device.begin(QUESTION, max_tokens=LENGTH, **fields)
    assert isinstance(last, Finished)
    return [event.token for event in events if isinstance(event, TokenEvent)], last


@pytest.fixture(scope="module")
def alone(town: Town) -> list[int]:
    """Tokens of the verifier's model by itself, behind the whole document."""
    decoder = Decoder.load(str(EMBEDDED_MODEL), tokenizer=str(EMBEDDED_TOKENIZER), dtype="float32")
    side = town.cloud
    text = BETWEEN.join(hit.text for hit in side.library.passages(TITLE, QUESTION))
    query = decoder.tokenizer.encode(f"\nQuestion: {QUESTION}\nAnswer:")
    prompt = Prompt((tuple(side.format.document_tokens(text)),), tuple(query), (1.0,))
    judging = VerifierDrawing(Warp(0.0), travels=False)
    one = OneSide(decoder, prompt, side.scorer, judging, LENGTH + 1)
    path: list[int] = []
    while len(path) < LENGTH and (not path or path[-1] not in side.eos):
        path.append(one.draft(path).view.token)
    one.close()
    decoder.close()
    return path


def opening(session: int, **options: Any) -> Open:
    own = {"long_document": TITLE} | options
    return replace(
        OPEN,
        session=session,
        method="rapid",
        sources="cloud",
        placement="cloud",
        sampler="rejection",
        aggregation="context",
        eos=(),
        options=json.dumps(own),
    )
