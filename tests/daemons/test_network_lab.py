"""Both daemons in the network lab: an encrypted link with latency, and an answer over it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import get_args

import httpx
import pytest

from scripts.daemons import Pair
from scripts.netlab.lab import Kind, NetLab
from scripts.netlab.namespaces import Unavailable
from scripts.netlab.setting import LinkSetting

RTT = 0.06


@pytest.fixture(params=get_args(Kind))
def lab(request: pytest.FixtureRequest) -> Iterator[NetLab]:
    with ExitStack() as resources:
        try:
            lab = resources.enter_context(NetLab(LinkSetting(rtt=RTT), request.param))
        except Unavailable as error:
            pytest.skip(str(error))
        yield lab


def test_an_answer_over_an_encrypted_link_with_latency(lab: NetLab, fresh_data: Callable[[], Path]) -> None:
    data = fresh_data()
    with Pair(data, device={"patience": 60.0}, lab=lab) as pair:
        assert (data / "cloud" / "keys" / "own.json").exists()
        answer = pair.complete("Where is my dance class?")
        report = answer["dragon"]
        assert answer["choices"][0]["message"]["content"].strip()
        assert report["cloud"]["accepted"] > 0
        assert not report["degraded"]
        assert report["rtt_ms"] >= RTT * 1000
        if lab.kind == "netem":
            with pytest.raises(httpx.ConnectError):  # nothing of it can be reached from outside
                httpx.get(f"{pair.url}/health", trust_env=False)
