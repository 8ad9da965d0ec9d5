"""Turns answers into the figures' lines, the ratios and how far they are from the aims."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scripts.bench.latency.measure import Answered
from scripts.bench.latency.plan import DEVICE_ONLY, PAPER_GREEDY, RACE_DEVICE, RACE_MIRRORED, TOKEN_WISE, Floors, Plan
from scripts.bench.measuring import Spread, Table

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
    result = {}
    for floors in plan.floors:
        for leg in plan.legs:
            for temperature in leg.temperatures:
                for mode in plan.modes:
                    setting = (floors.name, leg.rtt, temperature, mode.name)
                    those = [
                        one
                        for one in found
                        if (one.floors, one.rtt, one.temperature, one.mode) == setting
                        and one.tokens >= min(SHORTEST, plan.max_tokens)
                    ]
                    if those:
                        result[setting] = Cell(floors, leg.rtt, temperature, tuple(those))
    return result


def table(found: Sequence[Answered], plan: Plan) -> Table:
    """Every method at every setting."""
    rows = []
    for (floors, rtt, temperature, mode), cell in cells(found, plan).items():
        per_token = cell.per_token
        rows.append(
            [
                floors,
                f"{rtt:g}",
                f"{temperature:g}",
                mode,
                cell.whole.text(0),
                cell.ttft.text(0),
                per_token.text(0),
                f"{per_token.median / cell.limit:.2f}",
                _acceptance(cell),
                f"{cell.spread(lambda answer: (answer.sent + answer.received) / answer.tokens).median:.0f}",
                len(cell.answers),
            ]
        )
    heads = [
        "floors, ms",
        "added RTT, ms",
        "T",
        "method",
        "whole answer, ms per token",
        "TTFT, ms",
        "after the first token, ms per token",
        "/ limit",
        "accepted, device / cloud",
        "bytes per token",
        "answers",
    ]
    return Table(heads, rows)


def aims(found: Sequence[Answered], plan: Plan) -> Table:
    """Aims of the race at 300 ms, and the measured values."""
    all_cells = cells(found, plan)
    rows: list[list[object]] = []
    for (floors, rtt, temperature, mode), cell in all_cells.items():
        if floors not in AIMS or rtt < 300 or mode not in (RACE_DEVICE.name, RACE_MIRRORED.name):
            continue
        device_aim, mirrored_aim, faster = AIMS[floors]
        aim = device_aim if mode == RACE_DEVICE.name else mirrored_aim
        median = cell.per_token.median

        def other(name: str, setting: tuple[str, float, float] = (floors, rtt, temperature)) -> Cell | None:
            return all_cells.get((*setting, name))

        if (token_wise := other(TOKEN_WISE.name)) is not None:
            gain = token_wise.whole.median / cell.whole.median
            rows.append([floors, f"{temperature:g}", mode, "whole answer: DRDG/TW / this", "", f"{gain:.1f}"])
        limit = median / cell.limit
        rows.append([floors, f"{temperature:g}", mode, "per token / limit", f"<= {aim:g}", f"{limit:.2f}"])
        if (token_wise := other(TOKEN_WISE.name)) is not None:
            gain = token_wise.per_token.median / median
            rows.append([floors, f"{temperature:g}", mode, "DRDG/TW / this", f">= {faster:g}", f"{gain:.1f}"])
        if (greedy := other(PAPER_GREEDY.name)) is not None:
            gain = greedy.per_token.median / median
            rows.append([floors, f"{temperature:g}", mode, "paper/greedy / this", "> 1", f"{gain:.2f}"])
        if (alone := other(DEVICE_ONLY.name)) is not None:
            share = cell.ttft.median / (alone.ttft.median + rtt)
            rows.append(
                [floors, f"{temperature:g}", mode, "TTFT / (device only + RTT)", f"<= {TTFT_AIM:g}", f"{share:.2f}"]
            )
    return Table(["floors, ms", "T", "method", "what", "aim", "measured"], rows)


def _acceptance(cell: Cell) -> str:
    """Share of the judged drafts that were right, all answers together."""
    shares = []
    for column in range(2):
        judged = [row[column] for answer in cell.answers for row in answer.accepted if row[column] is not None]
        shares.append(f"{sum(map(bool, judged)) / len(judged):.2f}" if judged else "-")
    return " / ".join(shares)
