"""Asks two daemons, and keeps what the device reports of every answer."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from scripts.bench.measuring import load
from scripts.bench.workload import Texts
from scripts.daemons import Pair, free_port
from scripts.netlab.faulty_proxy import FaultyProxy, Line
from scripts.netlab.lab import NetLab

WARM_UP: Final = 16  # tokens of the first answers, which do not count: what they wait for is not their latency
PATIENT: Final[Mapping[str, object]] = MappingProxyType(
    {"privacy": "balanced", "patience": 60.0}  # of a device: an answer that goes on without the cloud is no measurement
)
SETTLED: Final = 0.1  # share of the round trip that the device's estimate may be off before anything is timed
SETTLING: Final = 60.0  # seconds
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer: how it was asked for, and the device's report. Times are milliseconds, sizes bytes."""

    mode: str
    question: int = 0
    report: Mapping[str, Any]
    load: float = field(default_factory=lambda: load()[0])  # of the machine, when it was there

    @property
    def tokens(self) -> int:
        return int(self.report["tokens"])

    @property
    def pieces(self) -> tuple[str, ...]:
        """Text of each token."""
        return tuple(self.report["pieces"])

    @property
    def per_token(self) -> float:
        """Mean between the first token and the last."""
        return 1e3 * float(self.report["per_token"])

    @property
    def ttft(self) -> float:
        return 1e3 * float(self.report["ttft"])

    @property
    def whole(self) -> float:
        """From the request to the last token."""
        return 1e3 * float(self.report["seconds"])

    @property
    def acceptance(self) -> tuple[float | None, float | None]:
        """Shares of the device's and of the cloud's drafts that were right."""
        return self.report["device"]["acceptance"], self.report["cloud"]["acceptance"]

    @property
    def sent(self) -> int:
        """Bytes to the cloud that decide tokens."""
        sent = self.report["sent"]
        return int(sent["tokens"] + sent["probabilities"])

    @property
    def received(self) -> int:
        return int(self.report["received_bytes"])


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
def filled(texts: Texts) -> Iterator[Path]:
    """A folder whose two libraries hold the texts' documents."""
    with tempfile.TemporaryDirectory(prefix="dragon-bench-") as folder:
        texts.fill_libraries(Path(folder))
        yield Path(folder)


def pair_of(data: Path, device: Mapping[str, object], cloud: Mapping[str, object], lab: NetLab | None = None) -> Pair:
    """Daemons on libraries that others may have used before."""
    for log in data.glob("*.log"):
        log.unlink()  # it says that the former daemons were ready
    return Pair(data, device, cloud, lab=lab)


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


def acceptance_text(answers: Sequence[Answer], missing: str = "-") -> str:
    """Mean shares of right drafts of the device and of the cloud; `missing` where no answer tells."""
    shares = []
    for side in (0, 1):
        known = [share for answer in answers if (share := answer.acceptance[side]) is not None]
        shares.append(f"{sum(known) / len(known):.2f}" if known else missing)
    return " / ".join(shares)
