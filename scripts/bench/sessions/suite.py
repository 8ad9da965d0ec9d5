"""The suite `sessions`: tokens per second of many devices on one cloud, against the bare model's batch curve.

So many devices ask at the same moment, and the bare model steps as many rows beside them: plain Transformers forward
passes, which is what any server of it starts from.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from statistics import fmean
from typing import Final, Literal

import numpy as np
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from common.answer.request import Request
from common.configuration.settings import EMBEDDED_MODEL
from common.daemon.start import SWITCH_INTERVAL
from scripts.bench.asking import own_folder
from scripts.bench.engine.suite import Plain
from scripts.bench.measuring import INTERVALS, MEDIANS, Spread, Table, load
from scripts.bench.results import Results
from scripts.bench.rows import Cell, Row, lines, only, over, spread, table, values, where
from scripts.bench.sessions.player import Play, Played, Town, town
from scripts.bench.synthetic_model import Shape, make_model
from scripts.bench.workload import Texts

WARM = 2  # passes before those that count: the first ones touch fresh memory


def bare_pass(model: PreTrainedModel, rows: int, prompt: int, room: int, passes: int) -> float:
    """Seconds of a pass of the bare model over `rows` rows of `prompt` tokens, the mean of `passes` passes.

    The cache has places for `room` tokens more, and every pass reads all of its columns, whatever they hold.
    """
    generator = torch.Generator().manual_seed(rows)
    texts = torch.randint(2, model.config.vocab_size, (rows, prompt), generator=generator).tolist()
    plain = Plain(model, texts, room)
    for token in range(2, 2 + WARM):
        plain.step(token)
    started = time.perf_counter()
    for token in range(2, 2 + passes):
        plain.step(token)
    return (time.perf_counter() - started) / passes


Kind = Literal["listening", "drafting"]  # a device without documents; one with drafts of its own
KINDS: tuple[Kind, ...] = ("listening", "drafting")

DOCUMENTS = 4


@dataclass(frozen=True, slots=True)
class Plan:
    """Numbers of sessions in turn, all of that `repeats` times over."""

    sessions: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    tokens: int = 100
    repeats: int = 5
    temperature: float = 1.0
    seed: int = 700  # of the first session; the others count up
    weight: float = 0.1  # of a drafting device
    passes: int = 23  # of the bare model in every repeat
    shape: Shape | None = None  # of a synthetic model; None: the embedded one
    together: bool = True  # whether to measure from the first question on, too

    @property
    def most(self) -> int:
        return max(self.sessions)

    @property
    def settling(self) -> int:
        """Tokens after which what was drafted while sessions waited is used up."""
        return self.tokens // 8


SHORT = Plan(sessions=(1, 3), tokens=16, repeats=2, passes=4)

# What stands beside the model in a pass costs the same, however large the model is.
LARGER = tuple(
    Plan(sessions=(16,), tokens=60, repeats=3, shape=shape, together=False)
    for shape in (Shape(512, 8, 1408, 8, 2), Shape(576, 30, 1536, 9, 3))
)
SHORT_LARGER = (Plan(sessions=(2,), tokens=16, repeats=1, passes=4, shape=Shape(64, 2, 128, 4, 2), together=False),)


class Asking:
    """The plan's questions, and what each is answered alone on the idle daemon."""

    def __init__(self, town: Town, plan: Plan, questions: Sequence[str]) -> None:
        """One session per question; answers all of them, one after the other, with and without drafts."""
        self._town = town
        self._plan = plan
        self._questions = questions
        alone = {kind: [self._begin(one, kind).result() for one in range(plan.most)] for kind in KINDS}
        self._alone = {kind: [played.tokens for played in found] for kind, found in alone.items()}
        self.prompt = round(fmean(played.prompt_tokens for played in alone[KINDS[0]]) / DOCUMENTS)

    def ask(self, kind: Kind, sessions: int, steady: bool) -> Row:
        """That many sessions, asked for at the same moment: everything counts.

        In a `steady` run they wait for each other's first token. Its rate and gaps are of the time while all of them
        were decoding, its counts of whole answers.
        """
        plays = [self._begin(session, kind, held=True) for session in range(sessions)] if steady else []
        for play in plays:
            play.wait_for_draft()
        with self._town.most_resident() as most:
            for play in plays:
                play.release()
            plays = plays or [self._begin(session, kind) for session in range(sessions)]
            found = [play.result() for play in plays]
        if steady:
            span, first = steady_time(found, self._plan.settling), {}
        else:
            span = min(played.asked for played in found), max(played.times[-1] for played in found)
            first = dict(zip(("ttft", "ttft_95"), usual([played.ttft for played in found]), strict=True))
        gap, gap_95 = usual([gap for played in found for gap in gaps_within(played, span)])
        weights = [played.device_weight for played in found if played.device_weight is not None]
        differing = [played.tokens != expected for played, expected in zip(found, self._alone[kind], strict=False)]
        return first | {
            "rate": sum(within(played, span) for played in found) / (span[1] - span[0]),
            "gap": gap,  # seconds between tokens of a session
            "gap_95": gap_95,
            "resident": most[0],
            "differing": sum(differing),  # sessions whose tokens are not those of the same question alone
            "tokens": sum(len(played.tokens) for played in found),
            "device_weight": fmean(weights) if weights else None,
            "rollbacks": sum(played.closed.rollbacks for played in found),
        }

    def _begin(self, session: int, kind: Kind, held: bool = False) -> Play:
        question = self._questions[session]
        request = Request(
            question=question,
            prompt=f"\nQuestion: {question}\nAnswer:",
            max_tokens=self._plan.tokens,
            temperature=self._plan.temperature,
            seed=self._plan.seed + session,
            documents=DOCUMENTS,
        )
        weight = self._plan.weight if kind == "drafting" else 0.0
        return self._town.players[session].begin(request, weight, held)


def measure(town: Town, plan: Plan, questions: Sequence[str], model: Path, say: Callable[[str], None]) -> Iterator[Row]:
    """All runs of `plan`, the bare model's beside each; `model` is where that lies. `say` is told how far it is.

    Rows of kind `bare model` have the rate of bare forward passes.
    """
    say("every question alone")
    asking = Asking(town, plan, questions)
    bare: PreTrainedModel = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    room = plan.tokens // 2  # as many columns as the rows have in the middle of the answer
    common = {
        "parameters": bare.num_parameters(),
        "idle": town.resident,  # bytes of the cloud's memory when every question had been answered alone
        "prompt": asking.prompt,
    }
    for repeat, count in product(range(plan.repeats), plan.sessions):
        say(f"repeat {repeat + 1} of {plan.repeats}, {count} sessions")
        setting = common | {"sessions": count, "repeat": repeat}
        for kind in KINDS if plan.together else ():
            yield setting | {"kind": kind, "steady": False} | asking.ask(kind, count, steady=False)
        # Next to each other, as one is the other's measure.
        yield setting | {"kind": "listening", "steady": True} | asking.ask("listening", count, steady=True)
        rate = count / bare_pass(bare, count * DOCUMENTS, asking.prompt, room, min(plan.passes, room - WARM))
        yield setting | {"kind": "bare model", "steady": True, "rate": rate}
        yield setting | {"kind": "drafting", "steady": True} | asking.ask("drafting", count, steady=True)


def steady_time(found: Sequence[Played], settling: int) -> tuple[float, float]:
    """Start and end of the time from every session's token number `settling` to the first session's last one.

    Raises `RuntimeError` where that is no time at all.
    """
    start, end = max(played.times[settling] for played in found), min(played.times[-1] for played in found)
    if start >= end:
        raise RuntimeError("a session ended before all others were decoding: nothing was steady")
    return start, end


def within(played: Played, time: tuple[float, float]) -> int:
    """Tokens of an answer in a stretch of time, those at its very beginning left out."""
    return sum(time[0] < moment <= time[1] for moment in played.times)


def gaps_within(played: Played, time: tuple[float, float]) -> list[float]:
    """Seconds between tokens of an answer in a stretch of time."""
    return [later - earlier for earlier, later in pairwise(played.times) if time[0] <= earlier and later <= time[1]]


def usual(seconds: Sequence[float]) -> tuple[float, float]:
    """The 50th and the 95th percentile."""
    middle, high = np.percentile(np.asarray(seconds), (50, 95))
    return float(middle), float(high)


MEBIBYTE: Final = 2**20
ENTROPY: Final = 1.0  # nats of the larger models
SIZES: Final = "The embedded model, and random ones of its kind."


def run(results: Results) -> None:
    """Start clouds, play their devices, and show what came of it: the embedded model in full, then larger ones."""
    plans = [SHORT, *SHORT_LARGER] if results.short else [Plan(), *LARGER]
    texts = Texts.draw(max(plan.most for plan in plans))

    def ask(case: Row) -> Iterator[Row]:
        return played(plans[case["plan"]], texts, results)

    rows = results.measured([{"plan": number} for number in range(len(plans))], ask)
    plan, found = plans[0], where(rows, plan=0)
    note = (
        f"{MEDIANS} over {plan.repeats} repeats; load {load()}. {plan.tokens} tokens per answer, {DOCUMENTS} documents "
        f"that had been read before, rows of {found[0]['prompt']} tokens before the answer. `listening`: devices "
        f"without documents. `drafting`: devices with drafts of their own, of {plan.weight:.0%} weight. "
        f"{sum(row['differing'] for row in _devices(found))} answers have other tokens than alone."
    )
    results.table("Tokens per second of all sessions", rates(found), note)
    results.table("Waits of listening devices", waits(found))
    at = plans[1].most
    results.table(f"Sessions by size of the model, {at} of them, tokens per second", sizes(rows, at), SIZES)
    draw(results, found)


def played(plan: Plan, texts: Texts, results: Results) -> Iterator[Row]:
    """All runs of a plan on a cloud of its own."""
    interval = sys.getswitchinterval()
    with own_folder() as folder:
        model, place = {}, EMBEDDED_MODEL
        if plan.shape is not None:
            place = folder / "model"
            model = make_model(place, ENTROPY, plan.shape)
        sys.setswitchinterval(SWITCH_INTERVAL)  # as in a daemon: devices do not wait for each other's threads
        try:
            with town(folder, plan.most, texts.documents["cloud"], model) as clouds:
                yield from measure(clouds, plan, texts.questions, place, results.say)
        finally:
            sys.setswitchinterval(interval)


def _compared(rows: Sequence[Row], index: dict[str, str]) -> Table:
    """Rates of steady runs, and these over the bare model's of the same repeat."""
    steady = where(rows, steady=True)
    bare = where(steady, kind="bare model")
    over_bare = over(bare, "rate", "plan", "sessions", "repeat")
    columns = {kind: only(spread("rate"), kind=kind) for kind in ("bare model", *KINDS)}
    columns |= {f"{kind} / bare": only(over_bare, kind=kind) for kind in KINDS}
    return table(steady, index, columns)


def sizes(rows: Sequence[Row], at: int) -> Table:
    """So many sessions, by the model's number of parameters."""
    named = [row | {"size": f"{row['parameters'] / 1e6:.1f} M"} for row in where(rows, sessions=at)]
    return _compared(named, {"parameters": "size"})


def rates(rows: Sequence[Row]) -> Table:
    """While every session was decoding."""
    return _compared(rows, {"sessions": "sessions"})


def waits(rows: Sequence[Row]) -> Table:
    """Of listening devices."""
    columns: dict[str, Cell] = {
        "to the first token, ms, p50 / p95": only(_pair("ttft"), kind="listening", steady=False),
        "between tokens": only(_pair("gap"), kind="listening", steady=True),
        "memory per session, MiB": memory,
    }
    return table(rows, ["sessions"], columns)


def memory(rows: list[Row]) -> str | None:
    """Memory of a session beyond the idle daemon's, which keeps the place of one; None for a single session.

    Of the first repeat: what one run took stays with the process for the next.
    """
    first = [row for row in _devices(rows) if row["repeat"] == 0]
    if (sessions := first[0]["sessions"]) < 2:
        return None
    return f"{(max(row['resident'] for row in first) - first[0]['idle']) / (sessions - 1) / MEBIBYTE:.1f}"


def draw(results: Results, rows: Sequence[Row]) -> None:
    """Steady tokens per second against sessions."""
    title = f"Tokens per second of many sessions on one cloud: medians and their {INTERVALS}"
    with results.figure("throughput", title=title) as (axis,):
        numbers = {kind: number for number, kind in enumerate(("bare model", *KINDS))}
        lines(axis, where(rows, steady=True), "sessions", "rate", "kind", numbers)
        counts = sorted({row["sessions"] for row in rows})
        axis.set_xscale("log", base=2)
        axis.set_xticks(counts, [str(count) for count in counts])
        axis.set_xlabel("sessions at a time")
        axis.set_ylabel("tokens per second, all sessions")
        axis.set_ylim(bottom=0)


def _devices(rows: Sequence[Row]) -> list[Row]:
    return sorted(
        (row for row in rows if row["kind"] in KINDS), key=lambda row: (row["sessions"], KINDS.index(row["kind"]))
    )


def _pair(field: str) -> Cell:
    """Shows medians of the 50th and 95th percentile, seconds as milliseconds."""

    def shown(rows: list[Row]) -> str:
        medians = [1e3 * Spread.of(values(rows, name)).median for name in (field, f"{field}_95")]
        return " / ".join(f"{each:,.0f}" if each >= 10 else f"{each:.1f}" for each in medians)

    return shown
