"""Asks two daemons, and keeps what the device reports of every answer."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from scripts.bench.measuring import load
from scripts.bench.rows import Row, groups
from scripts.bench.workload import Texts
from scripts.daemons import Pair, free_port
from scripts.netlab.faulty_proxy import FaultyProxy, Line

WARM_UP: Final = 16  # tokens of the first answers, which do not count: what they wait for is not their latency
PATIENT: Final[Mapping[str, object]] = MappingProxyType(
    {"privacy": "balanced", "patience": 60.0}  # of a device: an answer that goes on without the cloud is no measurement
)
SETTLED: Final = 0.1  # share of the round trip that the device's estimate may be off before anything is timed
SETTLING: Final = 60.0  # seconds
ANY: Final = (
    5.0  # seconds that a round trip may be off in short runs: they measure nothing, and go on beside other work
)
_POLL: Final = 0.2


class TokensDiffer(RuntimeError):
    """A run that must give the same tokens as another gave others: its time means nothing."""


@dataclass(frozen=True, slots=True)
class Mode:
    """A way to ask. `exact`: the tokens are the race's, whatever the network does. Modes of one `family` differ in who
    decides how long proposals are."""

    name: str
    fields: Mapping[str, Any]
    exact: bool = False
    family: str = ""


def make_mode(name: str, /, *, exact: bool = False, family: str = "", **fields: Any) -> Mode:
    """A mode that asks with `fields`."""
    return Mode(name, MappingProxyType(fields), exact, family)


def answered(report: Mapping[str, Any]) -> Row:
    """Returns the fields of a report that rows keep: times in milliseconds, sizes in bytes, and the machine's load."""
    return {
        "tokens": int(report["tokens"]),
        "pieces": "|".join(report["pieces"]),  # the text of each token
        "per_token": 1e3 * float(report["per_token"]),  # mean between the first token and the last
        "ttft": 1e3 * float(report["ttft"]),
        "whole": 1e3 * float(report["seconds"]),  # from the request to the last token
        "accepted_device": report["device"]["acceptance"],  # share of the drafts that were right
        "accepted_cloud": report["cloud"]["acceptance"],
        "sent": int(report["sent"]["tokens"] + report["sent"]["probabilities"]),  # of the messages that decide tokens
        "received": int(report["received_bytes"]),
        "load": load()[0],
    }


def ask(pair: Pair, question: str, mode: Mode, **law: object) -> dict[str, Any]:
    """The report of an answer. Raises `RuntimeError` where the device decided tokens alone."""
    report: dict[str, Any] = pair.complete(question, **{**law, **mode.fields})["dragon"]
    check_whole(report, mode.name)
    return report


def in_turn(modes: Sequence[Mode], number: int) -> list[Mode]:
    """All modes, another one first for each `number`: none is always the first."""
    first = number % len(modes)
    return [*modes[first:], *modes[:first]]


def check_whole(report: Mapping[str, Any], name: str) -> None:
    """Raises `RuntimeError` where the device decided tokens alone."""
    if report["degraded"]:
        raise RuntimeError(f"{name}: the device decided tokens {report['degraded']} alone: {report['notes']}")


@contextmanager
def own_folder() -> Iterator[Path]:
    """A folder that is removed in the end."""
    with tempfile.TemporaryDirectory(prefix="dragon-bench-") as name:
        yield Path(name)


@contextmanager
def filled(texts: Texts) -> Iterator[Path]:
    """A folder whose two libraries hold the texts' documents."""
    with own_folder() as folder:
        texts.fill_libraries(folder)
        yield folder


@contextmanager
def linked(
    data: Path, device: Mapping[str, object], cloud: Mapping[str, object], up: Line, down: Line, seed: int = 0
) -> Iterator[tuple[Pair, FaultyProxy]]:
    """Daemons whose connection goes through a proxy."""
    port = free_port()
    with FaultyProxy(port, up=up, down=down, seed=seed) as proxy:
        between = int(proxy.address.rpartition(":")[2])
        with Pair(data, device, cloud, between=between, cloud_port=port) as pair:
            yield pair, proxy


def settle(pair: Pair, rtt: Callable[[], float] = lambda: 0.0, own: float = math.inf) -> None:
    """Wait until the device's estimate has followed the link, whose round trip takes `rtt` seconds now, but for a tenth
    and `own` seconds of the daemons; by default, until there is an estimate. Raises `RuntimeError`.
    """
    deadline = time.monotonic() + SETTLING
    while (seen := pair.status()["cloud"]["rtt_ms"]) is None or abs(seen / 1e3 - rtt()) > SETTLED * rtt() + own:
        if time.monotonic() > deadline:
            raise RuntimeError(f"the device measures {seen} ms where the link has {1e3 * rtt():.0f} ms")
        time.sleep(_POLL)


def check_same(rows: Sequence[Row], *by: str) -> None:
    """Raises `TokensDiffer` where two rows that are equal in `by` have other tokens."""
    for those in groups(rows, *by).values():
        for row in those:
            if row["pieces"] != those[0]["pieces"]:
                same = ", ".join(f"{field} {row[field]}" for field in by)
                gave = " and ".join(f"{each['mode']} gave {each['pieces']}" for each in (those[0], row))
                raise TokensDiffer(f"{same}: {gave}")
