"""Attacks on times and sizes of the link's traffic, recorded from two real daemons."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from scripts.bench.asking import PATIENT, WARM_UP, answered, filled, linked
from scripts.bench.latency import emulated
from scripts.bench.measuring import MEDIANS, Table
from scripts.bench.privacy.attacks import separation, share_of, shown
from scripts.bench.results import Results
from scripts.bench.rows import Row, grid, groups, pivot, spread, where
from scripts.bench.workload import Texts
from scripts.netlab.faulty_proxy import Line

LINE: Final = Line(delay=0.03)
STEPS: Final = (40.0, 20.0)  # milliseconds, device and cloud
LEVELS: Final[Mapping[str, Mapping[str, str]]] = {
    "strict": {"privacy": "strict"},
    "balanced": {"privacy": "balanced", "placement": "mirrored"},
    "secret": {"privacy": "secret"},
}
WATCHED: Final = ("strict", "balanced")  # `secret` sends as `strict` does
MODES: Final = {**LEVELS, "token by token": {"privacy": "strict", "method": "token-wise"}}
RTTS: Final = (0, 100, 300)  # milliseconds
QUICK: Final = (20.0, 10.0)
QUESTIONS, REPEATS, ANSWERS, TIMED, TOKENS, SEED = 50, 6, 40, 8, 24, 11
SHORTEST: Final = 2  # tokens of an answer whose time per token counts
CLASSES: Final = {"as sent": 1, "padded to 256 B": 256, "padded to 1 KiB": 1024}


def run(results: Results) -> None:
    """Record and attack."""
    cases = [*grid(part=("times",), level=LEVELS), *grid(part=("traffic",), level=WATCHED)]
    cases += grid(part=("speed",), rtt=RTTS)
    if results.short:
        cases = [cases[0], cases[3], cases[-1]]
    rows = results.measured(cases, partial(recorded, results.short, results.say))
    rows = [row for row in rows if "part" in row]
    results.table(
        "Times of targets", times(where(rows, part="times")), "AUC for whether the device's own draft was right."
    )
    results.table("Milliseconds per token", speeds(where(rows, part="speed")), MEDIANS)
    results.table("Encrypted traffic", fingerprints(where(rows, part="traffic")), "Questions named, per cent [95 %].")


# --- recording


def recorded(short: bool, say: Callable[[str], None], case: Row) -> Iterator[Row]:
    """Answers of two daemons at a level: traces of them, or the pieces that pass."""
    if case["part"] == "speed":
        yield from timed(short, case["rtt"])
        return
    times_, level = case["part"] == "times", LEVELS[case["level"]]
    count = (2 if times_ else 3) if short else (ANSWERS if times_ else QUESTIONS)
    texts = Texts.draw(count)
    device, cloud = map(emulated, STEPS) if times_ else ({}, {})
    line = LINE if times_ else Line()
    with filled(texts) as data, linked(data, {**PATIENT, **level, **device}, cloud, line, line) as (pair, proxy):
        law: dict[str, Any] = {"temperature": float(times_), "max_tokens": TOKENS, "seed": SEED}
        for question in texts.questions:
            pair.complete(question, **level, **law | {"max_tokens": WARM_UP})
        repeats = 1 if times_ else 2 if short else REPEATS
        for again, (number, question) in product(range(repeats), enumerate(texts.questions)):
            first = len(proxy.seen)
            report = pair.complete(question, **level, **law | {"seed": SEED + number, "trace": times_})["dragon"]
            if times_:
                yield from ({"question": number} | gap for gap in gaps(report["trace"]["spans"]))
                continue
            pieces = list(proxy.seen[first:])
            began = pieces[0][0]
            told = [[round(1e3 * (at - began), 1), size if way == "up" else -size] for at, way, size in pieces]
            yield {"question": number, "repeat": again, "pieces": told}
    say(f"{case['part']} at {case['level']}: done")


def gaps(spans: Sequence[Row]) -> Iterator[Row]:
    """For each target the delay after all that it needed, and whether the device's draft before it was right."""
    targets = {each["position"]: each for each in spans if each["kind"] == "transmit" and each["detail"] == "target"}
    drafts: dict[int, float] = {}
    for each in spans:
        if each["kind"] == "transmit" and each["detail"] == "draft" and each["side"] == "cloud":
            drafts[each["position"]] = each["start"]  # the last one counts, the cloud's own clock
    right = {each["position"]: each["device_accepted"] for each in spans if each["kind"] == "aggregate"}
    for position, target in sorted(targets.items()):
        before = targets.get(position - 1)
        if before is not None and position in drafts and right.get(position - 1) is not None:
            since = max(before["end"], drafts[position] + 2e9 * LINE.delay)
            yield {"gap": round((target["end"] - since) / 1e6, 2), "right": right[position - 1]}


def timed(short: bool, rtt: float) -> Iterator[Row]:
    """Whole answers at temperature 1 in every mode, one after another."""
    texts = Texts.draw_joint(1 if short else TIMED)
    device, cloud = map(emulated, QUICK)
    line = Line(delay=rtt / 2e3)
    with filled(texts) as data, linked(data, {**PATIENT, **device}, cloud, line, line) as (pair, _):
        for number, question in enumerate(texts.questions):
            for fields in MODES.values():  # every document has been read
                pair.complete(question, **fields, max_tokens=2 if number else WARM_UP)
        for number, question in enumerate(texts.questions):
            for mode, fields in MODES.items():
                law = {"temperature": 1.0, "seed": SEED + number, "max_tokens": TOKENS}
                report = pair.complete(question, **fields, **law)["dragon"]
                yield {"mode": mode, "question": number} | answered(report)


def speeds(rows: Sequence[Row]) -> Table:
    """Whole answers by added round trip, and the share of the cloud's drafts that were right."""
    named = [row | {"each": row["whole"] / row["tokens"]} for row in rows if row["tokens"] >= SHORTEST]
    table = pivot(named, {"mode": "mode"}, "rtt", spread("each"), RTTS)
    right = [np.mean([row["accepted_cloud"] for row in those]) for those in groups(named, "mode").values()]
    heads = [table.heads[0], *(f"{rtt} ms" for rtt in table.heads[1:]), "cloud's drafts right"]
    return Table(heads, [[*line, f"{share:.2f}"] for line, share in zip(table.rows, right, strict=True)])


# --- attacks


def times(rows: Sequence[Row]) -> Table:
    lines = []
    for (level,), those in groups(rows, "level").items():
        early = [-row["gap"] for row in where(those, right=True)]
        late = [-row["gap"] for row in where(those, right=False)]
        area, alarms = separation(early, late) if early and late else (0.5, 0.0)
        lines.append([level, len(early), len(late), f"{area:.2f}", f"{100 * alarms:.0f}"])
    return Table(["level", "right", "wrong", "AUC", "TPR at 1 %"], lines)


def features(pieces: Sequence[Sequence[float]], grain: int, sizes: bool, clock: bool) -> list[float]:
    """Numbers of an answer's traffic, with sizes rounded up to multiples of `grain`."""
    up = [(at, -(-size // grain) * grain) for at, size in pieces if size > 0]
    down = [(at, -(size // grain) * grain) for at, size in pieces if size < 0]
    found: list[float] = []
    for way in (up, down):
        numbers = [size for _, size in way]
        if sizes:
            found += [len(numbers), sum(numbers), max(numbers, default=0)]
            found += (numbers + [0] * 12)[:12]
        if clock:
            moments = [at for at, _ in way] or [0.0]
            found += [
                moments[-1],
                *np.percentile(np.diff(moments) if len(moments) > 1 else [0.0], (10, 50, 90)).tolist(),
            ]
            found += (moments + [0.0] * 8)[:8]
    return found


def named(rows: Sequence[Row], grain: int, sizes: bool, clock: bool) -> tuple[int, int]:
    """Questions that a forest names from other repetitions, and how many there were."""
    from sklearn.ensemble import ExtraTreesClassifier

    numbers = np.asarray([features(row["pieces"], grain, sizes, clock) for row in rows])
    questions, folds = (np.asarray([row[field] for row in rows]) for field in ("question", "repeat"))
    right = 0
    for fold in (0, 1):
        learnt: NDArray[np.bool_] = folds % 2 == fold
        model = ExtraTreesClassifier(200, random_state=0)
        model.fit(numbers[learnt], questions[learnt])
        right += int((model.predict(numbers[~learnt]) == questions[~learnt]).sum())
    return right, len(rows)


def fingerprints(rows: Sequence[Row]) -> Table:
    lines = []
    for ((level,), those), (name, grain) in product(groups(rows, "level").items(), CLASSES.items()):
        sent = sum(abs(size) for row in those for _, size in row["pieces"])
        padded = sum(-(-abs(size) // grain) * grain for row in those for _, size in row["pieces"])
        cells = [
            shown(share_of(*named(those, grain, *views))) for views in ((True, False), (False, True), (True, True))
        ]
        lines.append([level, name, f"+{100 * (padded / sent - 1):.0f} %", *cells])
    return Table(["level", "sizes", "bytes", "by sizes", "by times", "by both"], lines)
