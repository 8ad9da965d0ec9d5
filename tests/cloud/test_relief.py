"""The device's larger model in the cloud's place: it does what the request says of tokens, as the cloud would have."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from common.answer.driver import Driver, NullObserver
from common.answer.values import Commit
from common.configuration.settings import EMBEDDED_DRAFT, EMBEDDED_MODEL
from common.methods.catalog import METHODS
from common.methods.edgellm.relief import TreeRelief
from device.interface import Finished, TokenEvent
from proto.framing import decode
from proto.messages import Message, Verdict
from scripts.netlab.faulty_proxy import FaultyProxy
from tests.cloud.town import Resident, Town
from tests.common.methods.drafted.schemes import SHARING
from tests.common.methods.drafted.test_faults import pair_of

QUESTION = "What is the best-selling horror game?"
TOKENS = 12
TARGET = {"model": str(EMBEDDED_MODEL), "dtype": "float32"}
BIAS = 20.0
PENALTIES = {"frequency_penalty": 2.0, "presence_penalty": 2.0}
HOT: dict[str, Any] = {"temperature": 1.8, "draft_temperature": 1.8}


@pytest.fixture(scope="module")
def device(fresh_data: Callable[[], Path]) -> Iterator[Resident]:
    """One whose cloud hears and says nothing, and which has a larger model."""
    with Town(fresh_data(), **TARGET) as town, FaultyProxy(int(town.link.address.rpartition(":")[2])) as proxy:
        larger: dict[str, Any] = {"local_target": str(EMBEDDED_MODEL), "draft_model": str(EMBEDDED_DRAFT)}
        device = town.device("alone", proxy.address, **TARGET, **larger, patience=0.1)
        proxy.black_hole(True)
        yield device
        proxy.black_hole(False)


def decided(device: Resident, method: str, **fields: Any) -> list[int]:
    """The tokens of an answer, all of which the larger model decides."""
    *events, last = device.begin(QUESTION, method=method, max_tokens=TOKENS, **fields)
    assert isinstance(last, Finished)
    assert last.report.degraded == tuple(range(last.report.tokens))
    assert "From token 0 on, local_target decides while the cloud is away." in last.report.notes
    return [event.token for event in events if isinstance(event, TokenEvent)]


@pytest.mark.parametrize(
    ("method", "fields"),
    [
        *((method, {"top_k": 1}) for method in SHARING if "top_k" in METHODS[method].request.model_fields),
        *((method, {"top_p": 0.001}) for method in SHARING),
    ],
)
def test_one_token_is_left(device: Resident, method: str, fields: dict[str, Any]) -> None:
    """A law that is cut to its most probable token is greedy, however hot."""
    greedy = decided(device, method, temperature=0.0)
    assert [decided(device, method, seed=seed, **HOT, **fields) for seed in (1, 2)] == [greedy] * 2


@pytest.mark.parametrize("method", SHARING)
def test_biases_and_penalties(device: Resident, method: str) -> None:
    plain = decided(device, method, temperature=0.0)
    banned = dict.fromkeys(plain[:3], -100.0)
    for fields in ({"temperature": 0.0}, HOT):
        assert not set(decided(device, method, logit_bias=banned, **fields)) & set(banned)
    again: dict[str, Any] = {"temperature": 0.0, "logit_bias": {plain[0]: BIAS}}
    repeated, penalised = (decided(device, method, **again, **each) for each in ({}, PENALTIES))
    assert repeated == plain[:1] * TOKENS
    assert penalised.count(plain[0]) < TOKENS


@pytest.mark.parametrize("method", SHARING)
def test_a_format(device: Resident, method: str) -> None:
    *_, last = device.begin(QUESTION, method=method, max_tokens=TOKENS, response_format={"type": "json_object"}, **HOT)
    assert isinstance(last, Finished)
    assert last.report.degraded
    assert last.text.startswith("{")


def test_mutant_nothing_is_cut_off(device: Resident, monkeypatch: pytest.MonkeyPatch) -> None:
    init = TreeRelief.__init__

    def without(
        self: TreeRelief, context: Any, drafter: Any, machine: Any, driver: Any, part: Any, cut: object
    ) -> None:
        init(self, context, drafter, machine, driver, part, None)

    monkeypatch.setattr(TreeRelief, "__init__", without)
    greedy = decided(device, "dsd", temperature=0.0)
    assert [decided(device, "dsd", seed=seed, top_k=1, **HOT) for seed in (1, 2)] != [greedy] * 2


@pytest.mark.parametrize("before", [0, 1])
def test_a_verdict_that_comes_late(before: int) -> None:
    """The larger model has decided some tokens, and hands them over one by one, each under the answer's lock. A verdict
    takes that before the first of them: what it decides is not what the others follow. Behind one it counts no more.
    """
    pair = pair_of("dsd", {"top_k": 4}, 3)
    while not pair.down:
        assert pair.draft() or pair.deliver_up() or pair.verify()
    verdict, device = decode(pair.down.popleft()), pair.device
    assert isinstance(verdict, Verdict)
    pair.act(device.out_of_patience(relieved=True))
    sent: list[Message] = []
    driver = Driver("device", device, [], sent.append, NullObserver())
    context: Any = SimpleNamespace(side=SimpleNamespace(local_target=None))
    relief: Any = TreeRelief(context, context, device, driver, context, None)
    trees = Driver("device", device, [], sent.append, relief)
    tokens = [(device.position + place, 2 + place % 3) for place in range(6)]
    commits = [Commit(position, token, False, None, None, {}) for position, token in tokens]

    trees.carry_out(commits[:before])
    with driver.lock:
        handing_over = threading.Thread(target=trees.carry_out, args=(commits[before:],))
        handing_over.start()  # it waits for the lock
        driver.apply(lambda: device.judged(verdict))
        decided = device.decided
    handing_over.join()
    assert len(decided) == (before or verdict.accepted + len(verdict.token))
    assert device.decided == ([token for _, token in tokens] if before else decided)
    assert trees.over != bool(before)
