"""Settings of the suite `methods`: ways to ask, networks, and which are measured where."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from scripts.bench.asking import ANY, Mode, make_mode
from scripts.bench.rows import Row

DRAFT_MS: Final = 5.0  # floor of a draft step, as in quantize-sample-verify
VERIFY_MS: Final = 32.0  # and of a pass of the target


def setting(mode: Mode) -> Row:
    """Returns the fields of a way to ask: also whether lengths follow rounds' times, and whether drafting goes on."""
    return {
        "mode": mode.name,
        "family": mode.family,
        "adaptive": mode.fields.get("draft_policy", "fixed") != "fixed",
        "ahead": bool(mode.fields.get("ahead", False)),
    }


def _fixed(method: str, length: int, name: str, **fields: Any) -> Mode:
    return make_mode(
        f"{name} γ {length}", family=name, method=method, draft_policy="fixed", draft_length=length, **fields
    )


def _adaptive(method: str, policy: str, name: str, **fields: Any) -> Mode:
    return make_mode(f"{name} {policy}", family=name, method=method, draft_policy=policy, **fields)


_FIXED_INDEX: Final = {"index_code": "fixed", "resolution": 64}
TARGET = make_mode("target alone", family="target alone", sources="cloud")
DRAFT = make_mode("draft alone", family="draft alone", sources="device")
DSSD = tuple(_fixed("dssd", length, "dssd") for length in (4, 6, 8))  # the published lengths
DSSD_GOODPUT = _adaptive("dssd", "goodput", "dssd")
QSV_FIXED_INDEX = (
    _fixed("qsv", 6, "qsv fixed index", **_FIXED_INDEX),
    _adaptive("qsv", "goodput", "qsv fixed index", **_FIXED_INDEX),
)
QSV_SHORT = _fixed("qsv", 6, "qsv short index")
QSV_GOODPUT, QSV_HEURISTIC, QSV_DDQN = (
    _adaptive("qsv", policy, "qsv short index") for policy in ("goodput", "heuristic", "ddqn")
)
DSD = _fixed("dsd", 6, "dsd top-k 10", top_k=10)
DSD_WHOLE = _fixed("dsd", 6, "dsd all tokens", top_k=0)
SYNCHRONOUS = (
    _fixed("coupled", 6, "coupled synchronous", ahead=False),
    _adaptive("coupled", "goodput", "coupled synchronous", ahead=False),
)
AHEAD_FIXED = _fixed("coupled", 6, "coupled ahead", ahead=True, eager=False)
AHEAD = _adaptive("coupled", "goodput", "coupled ahead", ahead=True, eager=False)
EAGER = _adaptive("coupled", "goodput", "coupled eager", ahead=True, eager=True)

MAIN = (*DSSD, DSSD_GOODPUT, QSV_FIXED_INDEX[0], QSV_GOODPUT, AHEAD)
OTHERS = (TARGET, DSD, QSV_FIXED_INDEX[1], QSV_SHORT, QSV_HEURISTIC, QSV_DDQN, *SYNCHRONOUS, AHEAD_FIXED)
POLICIES = (TARGET, *DSSD, DSSD_GOODPUT, QSV_SHORT, QSV_GOODPUT, QSV_HEURISTIC, QSV_DDQN, AHEAD)
COMPARED = (TARGET, EAGER, AHEAD, DSSD_GOODPUT, QSV_GOODPUT)  # whole answers
AIMED = (TARGET, *DSSD, *QSV_FIXED_INDEX, AHEAD)  # what the aims compare


@dataclass(frozen=True, slots=True, order=True)
class Network:
    """A link whose downlink has the uplink's delay, and no limit of its rate."""

    delay: float  # milliseconds, one way
    rate: float  # kilobits per second, up

    @property
    def bytes_per_second(self) -> float:
        return 125 * self.rate

    @property
    def row(self) -> Row:
        return {"network": self.name, "delay": self.delay, "rate": self.rate}

    @property
    def name(self) -> str:
        return "none" if self == NO_NETWORK else f"{self.delay:g} ms, {rate_name(self.rate)}"


def rate_name(rate: float) -> str:
    """A rate in kilobits per second as it is shown."""
    return f"{rate:g} kb/s" if rate < 1000 else f"{rate / 1000:g} Mb/s"


NO_NETWORK: Final = Network(0.0, 0.0)  # where the device answers by itself
DELAYS: Final = (0.0, 20.0, 50.0, 150.0)
RATES: Final = (40.0, 400.0, 10_000.0, 100_000.0)
SLOW, FAST = Network(25.0, RATES[0]), Network(25.0, RATES[-1])  # the networks of the aims: 50 ms both ways
CROSS = (*(Network(25.0, rate) for rate in RATES), *(Network(delay, RATES[-1]) for delay in (0.0, 50.0, 150.0)))


@dataclass(frozen=True, slots=True)
class Part:
    """One pair of models, and what is asked on which network. `alone`: the drafter by itself, too.

    Answers of several parts with one pair count together.
    """

    overlap: float
    modes: Mapping[Network, tuple[Mode, ...]]
    alone: bool = False
    seeds: tuple[int, ...] = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole run."""

    parts: tuple[Part, ...]
    max_tokens: int = 128
    draft_ms: float = DRAFT_MS
    verify_ms: float = VERIFY_MS
    temperature: float = 1.0
    own: float = 0.01  # seconds that daemons on a busy machine add to a round trip


def _everything(network: Network) -> tuple[Mode, ...]:
    return (*MAIN, *OTHERS, *((DSD_WHOLE,) if network == FAST else ()))


def _on(networks: Iterable[Network], modes: tuple[Mode, ...]) -> dict[Network, tuple[Mode, ...]]:
    return dict.fromkeys(networks, modes)


BY_DELAY: Final = tuple(Network(delay, RATES[-1]) for delay in DELAYS)
FULL = Plan(
    (
        Part(0.9, {each: _everything(each) if each in (SLOW, FAST) else MAIN for each in CROSS}, alone=True),
        Part(0.97, _on((SLOW, FAST), AIMED)),
        # What policies are worth hangs on which tokens are drawn: more answers.
        Part(0.9, _on((SLOW, FAST), POLICIES), seeds=(4, 5, 6, 7, 8, 9)),
    )
)
# Every rate with every delay, and all pairs on two networks.
EVERY: Final = [Network(delay, rate) for rate in RATES for delay in DELAYS]
ENDS: Final = [Network(20.0, RATES[0]), Network(20.0, RATES[-1])]
GRID = Plan(
    (
        Part(0.9, _on(EVERY, (TARGET, *MAIN)), alone=True, seeds=(1,)),
        *(Part(overlap, _on(ENDS, (TARGET, *MAIN)), seeds=(1,)) for overlap in (0.6, 0.8, 0.97)),
    )
)
# Whole answers, the first token included, beside what needs no drafts: the target's own, streamed over the same link.
WHOLE = Plan((Part(0.9, _on(BY_DELAY, COMPARED), seeds=(1, 2, 3, 4, 5, 6, 7)),), max_tokens=32)
STEPS: Final = (32.0, 10.0)  # milliseconds of a pass of the target
_EAGERLY: Final = _on((*BY_DELAY, Network(300.0, RATES[-1])), (TARGET, EAGER))
EAGERLY: Final = tuple(
    Plan(
        tuple(Part(overlap, _EAGERLY, seeds=(1, 2, 3, 4, 5)) for overlap in (0.1, 0.9, 0.97)),
        max_tokens=32,
        verify_ms=step,
    )
    for step in STEPS
)


def _short(modes: Mapping[Network, tuple[Mode, ...]], tokens: int, alone: bool = False) -> Plan:
    return Plan((Part(0.9, modes, alone, (1,)),), max_tokens=tokens, draft_ms=2.0, verify_ms=8.0, own=ANY)


SHORT_WHOLE = _short({Network(5.0, RATES[-1]): (TARGET, AHEAD)}, 8)
SHORT_EAGERLY = (_short({Network(5.0, RATES[-1]): (TARGET, EAGER)}, 8),)
_ONE: Final = (TARGET, DSSD[0], DSSD_GOODPUT, QSV_FIXED_INDEX[0], QSV_SHORT, AHEAD)
SHORT = _short({Network(5.0, RATES[1]): _ONE, Network(0.0, RATES[1]): (DSSD[0], AHEAD)}, 12, alone=True)
