"""Turns answers into the figures' lines, the ratios and how far they are from the aims."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scripts.bench.latency.measure import Answered
from scripts.bench.latency.plan import DEVICE_ONLY, PAPER_GREEDY, RACE_DEVICE, RACE_MIRRORED, TOKEN_WISE, Floors, Plan
from scripts.bench.measuring import Spread, Table, grouped

SHORTEST = 6  # tokens; the mean over fewer gaps says little

# At 300 ms: most that the race may take per token, over the slower side's step, and how much less than DRDG/TW.
AIMS = {
    "150/50": (1.05, 1.05, 2.2),
    "50/50": (1.5, 1.3, 4.5),
    "20/10": (2.0, 1.6, 8.0),
}
TTFT_AIM = 1.15  # over device-only plus one round trip


@dataclass(frozen=True, slots=True)
class Cell:
    """One method at one setting."""

    floors: Floors
    rtt: float
    temperature: float
    mode: str
    answers: tuple[Answered, ...]

    def spread(self, of: Callable[[Answered], float]) -> Spread:
        return Spread.of([of(answer) for answer in self.answers])

    @property
    def per_token(self) -> Spread:
        return self.spread(lambda answer: answer.per_token)

    @property
    def whole(self) -> Spread:
        """Time from the request to the last token, per token, as the paper has it (§7.3)."""
        return self.spread(lambda answer: answer.whole / answer.tokens)

    @property
    def limit(self) -> float:
        """Milliseconds per token without a network."""
        return self.floors.limit(self.spread(lambda answer: answer.context).median)

    @property
    def ttft(self) -> Spread:
        return self.spread(lambda answer: answer.ttft)


def cells(found: Sequence[Answered], plan: Plan) -> dict[tuple[str, float, float, str], Cell]:
    """Cells by (floors, added round trip, temperature, mode); answers too short to have a mean are left out."""
    long = [one for one in found if one.tokens >= min(SHORTEST, plan.max_tokens)]
    those = grouped(long, lambda one: (one.floors, one.rtt, one.temperature, one.mode))
    return {
        setting: Cell(floors, leg.rtt, temperature, mode.name, tuple(those[setting]))
        for floors in plan.floors
        for leg in plan.legs
        for temperature in leg.temperatures
        for mode in plan.modes
        if (setting := (floors.name, leg.rtt, temperature, mode.name)) in those
    }


def table(found: Sequence[Answered], plan: Plan) -> Table:
    """Every method at every setting."""
    columns: dict[str, Callable[[Cell], object]] = {
        "floors, ms": lambda cell: cell.floors.name,
        "added RTT, ms": lambda cell: f"{cell.rtt:g}",
        "T": lambda cell: f"{cell.temperature:g}",
        "method": lambda cell: cell.mode,
        "whole answer, ms per token": lambda cell: cell.whole.text(0),
        "TTFT, ms": lambda cell: cell.ttft.text(0),
        "after the first token, ms per token": lambda cell: cell.per_token.text(0),
        "/ limit": lambda cell: f"{cell.per_token.median / cell.limit:.2f}",
        "accepted, device / cloud": _acceptance,
        "bytes per token": lambda cell: f"{cell.spread(lambda one: (one.sent + one.received) / one.tokens).median:.0f}",
        "answers": lambda cell: len(cell.answers),
    }
    return Table.of(cells(found, plan).values(), columns)


def aims(found: Sequence[Answered], plan: Plan) -> Table:
    """Aims of the race at 300 ms, and the measured values."""
    every = cells(found, plan)
    rows: list[list[object]] = []
    for (floors, rtt, temperature, mode), cell in every.items():
        if floors not in AIMS or rtt < 300 or mode not in (RACE_DEVICE.name, RACE_MIRRORED.name):
            continue
        device_aim, mirrored_aim, faster = AIMS[floors]
        aim, per_token = device_aim if mode == RACE_DEVICE.name else mirrored_aim, cell.per_token.median
        token_wise, greedy, alone = (
            every.get((floors, rtt, temperature, other.name)) for other in (TOKEN_WISE, PAPER_GREEDY, DEVICE_ONLY)
        )
        told = [("per token / limit", f"<= {aim:g}", f"{per_token / cell.limit:.2f}")]
        if token_wise is not None:
            told.insert(0, ("whole answer: DRDG/TW / this", "", f"{token_wise.whole.median / cell.whole.median:.1f}"))
            told.append(("DRDG/TW / this", f">= {faster:g}", f"{token_wise.per_token.median / per_token:.1f}"))
        if greedy is not None:
            told.append(("paper/greedy / this", "> 1", f"{greedy.per_token.median / per_token:.2f}"))
        if alone is not None:
            share = cell.ttft.median / (alone.ttft.median + rtt)
            told.append(("TTFT / (device only + RTT)", f"<= {TTFT_AIM:g}", f"{share:.2f}"))
        rows += [[floors, f"{temperature:g}", mode, *each] for each in told]
    return Table(["floors, ms", "T", "method", "what", "aim", "measured"], rows)


def _acceptance(cell: Cell) -> str:
    """Share of the judged drafts that were right, all answers together."""
    shares = []
    for column in range(2):
        judged = [row[column] for answer in cell.answers for row in answer.accepted if row[column] is not None]
        shares.append(f"{sum(map(bool, judged)) / len(judged):.2f}" if judged else "-")
    return " / ".join(shares)
