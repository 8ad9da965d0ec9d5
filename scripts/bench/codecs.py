"""The suite `codecs`: what a draft takes on the wire, and how often the way it is told changes the token.

The token to compare with is that of a race on the mixtures as the model gave them, whole and unrounded, on the same
noise. What a codec's receiver knows is raced the same way:

- raw: everything
- top-p: what is left of each side after truncation and rounding to float16, renormalised, as in the paper
- race: the list alone (the highest lower bound wins), and after asking for what a certificate lacks
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean, median

import numpy as np

from common.figures import line_style
from common.sampling.certificate import Certified, certify, lower_bound_winner
from common.sampling.paper import PaperSampler
from proto.framing import LARGEST_PAYLOAD, encode, wire_size
from proto.messages import Draft
from proto.payloads.race import encode_race
from proto.payloads.raw import RawEntries, decode_raw, encode_raw
from proto.payloads.top_p import TopPEntries, encode_top_p
from scripts.bench.engine.pair import SIDES, TYPICAL_STEP
from scripts.bench.measuring import Table
from scripts.bench.plan import Plan
from scripts.bench.positions import Position, follow, nats, race_sampler, race_winner, synthetic
from scripts.bench.results import Results
from scripts.bench.workload import Demonstration

TOP_P = 0.8  # the paper's
SHOWN = (3.0, 5.0, 7.0)  # nats, in the table by entropy
BY_ENTROPY = (
    "Bytes of a draft's message, synthetic distributions over the largest vocabulary; against the race on whole, "
    "unrounded mixtures and the same noise, the tokens that are changed by what is sent, least to most."
)
DOCUMENTS = 4


FULL = Plan(
    entries=(8, 16, 32, 64),
    temperatures=(0.3, 1.0),
    questions=24,
    tokens=48,
    vocabularies=(50_272, 151_936),
    entropies=(3.0, 4.0, 5.0, 6.0, 7.0),
    positions=400,
    seed=33,
)
SHORT = replace(FULL, entries=(8, 64), temperatures=(1.0,), questions=1, tokens=6, vocabularies=(2000,), positions=6)


@dataclass(frozen=True, slots=True)
class Told:
    """One position by one codec: sizes are of the cloud's draft."""

    entries: int
    size: int  # bytes of the whole message
    changed: bool  # by what was sent alone
    failed: bool  # the certificate: more had to be asked for
    changed_after: bool  # when it was asked for


@dataclass(frozen=True, slots=True)
class Source:
    """Origin of the distributions of one row."""

    name: str
    vocabulary: int
    entropy: float | None = None  # nats; of a synthetic distribution


@dataclass(frozen=True, slots=True)
class Measured:
    """All positions of one source by codec."""

    source: Source
    nats: list[float]  # entropy of the cloud's mixture
    told: dict[str, list[Told]]


Row = tuple[Measured, str, list[Told]]  # one codec's, by its name


def run(results: Results, demonstration: Demonstration | None = None) -> None:
    plan = SHORT if results.short else FULL
    demonstration = demonstration or Demonstration(plan.questions)
    measured = []
    for source, positions in sources(plan, demonstration):
        results.say(f"{source.name}, vocabulary of {source.vocabulary}")
        measured.append(measure(source, positions, plan.entries))
    note = "Changed: against the race on whole, unrounded mixtures and the same noise. Bytes: a whole Draft message."
    results.table("A draft by codec: bytes, and how often the token changes", show(measured), note)
    results.table("Bytes of a draft by entropy", by_entropy(measured), BY_ENTROPY)
    results.samples("codecs", {"plan": plan.sizes(), "top_p": TOP_P, "measured": measured})
    draw(measured, results)


def sources(plan: Plan, demonstration: Demonstration) -> Iterator[tuple[Source, Iterator[Position]]]:
    for temperature in plan.temperatures:
        yield (
            Source(f"embedded model, T = {temperature:g}", demonstration.decoder.vocabulary),
            answers(demonstration, temperature, plan.questions, plan.tokens, plan.seed),
        )
    for vocabulary in plan.vocabularies:
        for entropy in plan.entropies:
            name = f"synthetic, {entropy:g} nats"
            yield Source(name, vocabulary, entropy), synthetic(vocabulary, entropy, plan.positions, plan.seed)


def answers(
    demonstration: Demonstration, temperature: float, questions: int, tokens: int, seed: int
) -> Iterator[Position]:
    """All positions of the answers to so many questions, each with a seed of its own."""
    for number, question in enumerate(demonstration.questions[:questions]):
        yield from follow(demonstration, question, DOCUMENTS, temperature, seed * 1000 + number, tokens)


def measure(source: Source, positions: Iterator[Position], entries: Sequence[int]) -> Measured:
    told: dict[str, list[Told]] = {}
    entropies = []
    for position in positions:
        entropies.append(nats(position.cloud))
        exact = position.target(rounded=False)
        changed_after = position.target() != exact  # by rounding to codes: certificates change nothing
        told.setdefault("raw", []).append(_raw(position, exact))
        told.setdefault(f"top-p {TOP_P:g}", []).append(_top_p(position, exact))
        for count in entries:
            told.setdefault(f"race, K = {count}", []).append(_race(position, exact, count, changed_after))
    return Measured(source, entropies, told)


def message_size(position: Position, payload: bytes) -> int:
    """Bytes of a draft with this payload, framing included."""
    draft = Draft(2**31, 3, position.index, 2**60, position.evidence[1], TYPICAL_STEP, payload)
    return wire_size(encode(draft, LARGEST_PAYLOAD))


def _raw(position: Position, exact: int) -> Told:
    vocabulary = len(position.cloud)
    payloads = [encode_raw(RawEntries(p.numpy(), int(p.argmax()))) for p in position.both]
    told = [decode_raw(payload, vocabulary).probabilities.astype(np.float64) for payload in payloads]
    changed = race_winner(position, *told) != exact
    return Told(vocabulary, message_size(position, payloads[1]), changed, False, changed)


def _top_p(position: Position, exact: int) -> Told:
    sampler = PaperSampler(position.seed, position.temperature, TOP_P, "top-p", len(position.cloud))
    whole = []
    for side, probabilities in zip(SIDES, position.both, strict=True):
        draft = sampler.draft(side, position.index, probabilities)
        truncated = np.zeros(len(probabilities))
        truncated[draft.distribution.ids] = draft.distribution.probabilities
        whole.append(truncated)
    if not isinstance(draft.entries, TopPEntries):
        raise TypeError("the sampler's codec is top-p")
    changed = race_winner(position, *whole) != exact
    count = len(draft.entries.ids)
    return Told(count, message_size(position, encode_top_p(draft.entries)), changed, False, changed)


def _race(position: Position, exact: int, entries: int, changed_after: bool) -> Told:
    sampler = race_sampler(position, entries)
    device, cloud = (sampler.draft(position.index, probabilities) for probabilities in position.both)
    eta = position.eta_device
    certified = isinstance(certify(device, cloud, eta), Certified)
    changed = lower_bound_winner(device, cloud, eta) != exact
    size = message_size(position, encode_race(cloud.entries))
    return Told(len(cloud.entries.ids), size, changed, not certified, changed_after)


def share(hits: Sequence[bool]) -> str:
    """Share of the hits in percent, or the number of tries without any."""
    return f"{100 * fmean(hits):.2f} %" if any(hits) else f"0 of {len(hits)}"


def show(measured: Sequence[Measured]) -> Table:
    def raced(of: Callable[[Told], bool]) -> Callable[[Row], str]:
        return lambda row: share([of(one) for one in row[2]]) if row[1].startswith("race") else ""

    columns: dict[str, Callable[[Row], object]] = {
        "V": lambda row: row[0].source.vocabulary,
        "distribution": lambda row: row[0].source.name,
        "nats": lambda row: f"{fmean(row[0].nats):.2f}",
        "codec": lambda row: row[1],
        "entries": lambda row: f"{median(one.entries for one in row[2]):.0f}",
        "bytes": lambda row: f"{fmean(one.size for one in row[2]):.0f}",
        "token changed": lambda row: share([one.changed for one in row[2]]),
        "certificate failed": raced(lambda one: one.failed),
        "changed after asking": raced(lambda one: one.changed_after),
    }
    return Table.of([(each, codec, told) for each in measured for codec, told in each.told.items()], columns)


def by_entropy(measured: Sequence[Measured]) -> Table:
    """A row for each codec, of synthetic distributions over the largest vocabulary."""
    shown = synthetic_ones(measured)
    by_nats = {each.source.entropy: each for each in shown}
    columns: dict[str, Callable[[str], str | None]] = {
        f"{entropy:g} nats": partial(_bytes, by_nats.get(entropy)) for entropy in SHOWN
    }
    columns["token changed"] = lambda codec: _changed([each.told[codec] for each in shown], "changed")
    columns["after asking for more"] = lambda codec: (
        _changed([each.told[codec] for each in shown], "changed_after") if codec.startswith("race") else None
    )
    rows = {(codec,): codec for codec in shown[0].told}
    return Table.crossed(["codec"], rows, columns, lambda codec, tell: tell(codec))


def _bytes(measured: Measured | None, codec: str) -> str | None:
    return None if measured is None else f"{fmean(one.size for one in measured.told[codec]):,.0f}"


def _changed(told: Sequence[Sequence[Told]], of: str) -> str:
    shares = [100 * fmean(getattr(one, of) for one in each) for each in told]
    return f"{min(shares):.3g}-{max(shares):.3g} %" if any(shares) else "never"


def synthetic_ones(measured: Sequence[Measured]) -> list[Measured]:
    """Those of synthetic distributions over the largest vocabulary."""
    largest = max(each.source.vocabulary for each in measured if each.source.entropy is not None)
    return [each for each in measured if each.source.entropy is not None and each.source.vocabulary == largest]


def draw(measured: Sequence[Measured], results: Results) -> None:
    """Bytes and changed tokens over the entropy, at the largest synthetic vocabulary."""
    shown = synthetic_ones(measured)
    entropies = [each.source.entropy or 0.0 for each in shown]
    title = f"A draft by codec, synthetic distributions over {shown[0].source.vocabulary:,} tokens"
    with results.figure("synthetic", columns=2, title=title) as (sizes, changes):
        for number, codec in enumerate(shown[0].told):
            bytes_sent = [fmean(one.size for one in each.told[codec]) for each in shown]
            sizes.plot(entropies, bytes_sent, label=codec, **line_style(number))
            shares = [100 * fmean(one.changed for one in each.told[codec]) for each in shown]
            changes.plot(entropies, shares, label=codec, **line_style(number))
        sizes.set_yscale("log")
        sizes.set(title="size of the message", ylabel="bytes per draft")
        changes.set(title="tokens changed by what is sent alone", ylabel="%")
        changes.set_ylim(bottom=0)
        for axis in (sizes, changes):
            axis.set_xlabel("entropy, nats")
