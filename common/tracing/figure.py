"""Fig. 9 of the paper: pipelines, round trip, estimation score and acceptance rates.

matplotlib is imported when drawing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from common.figures import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILLION, key_beside, picture
from common.tracing.trace import Interval, Trace
from proto.messages import OTHER, Side

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INCHES: Final = (13.0, 10.0)
HEIGHTS: Final = (2.0, 2.0, 1.0, 1.0, 1.0)  # of the rows
ROWS: Final = len(HEIGHTS)
# Options and key text of each kind of bar.
BARS: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "decode": ({"facecolor": SKY, "edgecolor": "white"}, "useful decode step"),
    "wasted": ({"facecolor": "white", "edgecolor": SKY, "hatch": "////"}, "wasted decode step: rejected, late"),
    "prefill": ({"facecolor": GREY, "edgecolor": "white"}, "reading the prompt"),
    "draft": ({"facecolor": ORANGE, "edgecolor": "white"}, "draft under way"),
    "target": ({"facecolor": GREEN, "edgecolor": "white"}, "target under way"),
    "other": ({"facecolor": PURPLE, "edgecolor": "white"}, "other message under way"),
}
# Lines and marks of the pipelines.
DECISION: Final[dict[str, Any]] = {"color": "black", "linewidth": 0.5, "alpha": 0.5}
MOVE: Final[dict[str, Any]] = {"color": VERMILLION, "linewidth": 1.2, "linestyle": "--"}
ROLL_BACK: Final[dict[str, Any]] = {"color": VERMILLION, "marker": "x", "markersize": 5, "linestyle": ""}
LINES: Final = {
    "the side decides a token": DECISION,
    "the deciding role moves": MOVE,
    "roll-back": ROLL_BACK,
}
SIDE_STYLES: Final[dict[Side, dict[str, Any]]] = {
    "device": {"color": VERMILLION, "linestyle": "-", "marker": "s"},
    "cloud": {"color": BLUE, "linestyle": "--", "marker": "o"},
}
HEADROOM: Final = 0.15  # above the longest round trip
SUBLANES: Final = 4  # simultaneous messages of one type are drawn below each other
_LANES: Final = ("decode", "draft", "target", "other")  # from the top


def save_timeline(path: Path, trace: Trace, title: str) -> None:
    """Saves the figure as a PNG. Raises `OSError`."""
    with picture(path, rows=ROWS, title=title, inches=INCHES, heights=HEIGHTS, share_x=True) as axes:
        draw_timeline(axes, trace)


def draw_timeline(axes: Sequence[Axes], trace: Trace) -> None:
    """Fills `ROWS` axes from the top; time is in seconds since the request.

    The time axis begins with decoding.
    """
    if len(axes) != ROWS:
        raise ValueError(f"the timeline needs {ROWS} axes, not {len(axes)}")
    _pipeline(axes[0], trace, "cloud")
    _pipeline(axes[1], trace, "device")
    _round_trips(axes[2], trace)
    _scores(axes[3], trace)
    _acceptances(axes[4], trace)
    shown = [span for span in trace.spans if span.kind in ("decode", "aggregate")]
    for each in axes:
        if shown:
            first, last = min(span.start for span in shown) / 1e9, max(span.end for span in shown) / 1e9
            margin = 0.01 * (last - first)
            each.set_xlim(first - margin, last + margin)
        each.grid(visible=False, axis="y")
    _add_key(axes[0])
    axes[-1].set_xlabel("time since the request, s")


def accumulated_acceptance(trace: Trace, side: Side) -> tuple[list[float], list[float]]:
    """Times (seconds) and accepted share of `side`'s judged drafts, up to each decision."""
    times: list[float] = []
    shares: list[float] = []
    right = judged = 0
    for span in _decisions(trace):
        verdict = span.device_accepted if side == "device" else span.cloud_accepted
        if verdict is not None:
            judged += 1
            right += verdict
            times.append(span.end / 1e9)
            shares.append(right / judged)
    return times, shares


def _decisions(trace: Trace) -> list[Interval]:
    """Aggregation of each position; the device's if both sides have one."""
    found: dict[int, Interval] = {}
    for span in trace.of("aggregate"):
        if span.position not in found or span.side == "device":
            found[span.position] = span
    return sorted(found.values(), key=lambda span: span.end)


def _pipeline(axis: Axes, trace: Trace, side: Side) -> None:
    for lane, name in enumerate(_LANES):
        spans = [span for span in trace.spans if span.side == side and _lane(span) == name]
        rows = 1 if name == "decode" else SUBLANES
        height = 0.8 / rows
        for number, span in enumerate(spans):
            bar = (span.start / 1e9, max(0, span.end - span.start) / 1e9)
            bottom = 0.4 - lane - height * (number % rows + 1)
            options, _ = BARS[_bar(span, name)]
            axis.broken_barh([bar], (bottom, height), linewidth=0.4, **options)
    for span in trace.of("aggregate", side=side):
        axis.axvline(span.end / 1e9, **DECISION)
    for span in trace.of("roll back", side=side):
        axis.plot(span.start / 1e9, 0.0, **ROLL_BACK)
    for span in trace.of("migrate", side=side):
        axis.axvline(span.start / 1e9, **MOVE)
    axis.set_ylim(0.5 - len(_LANES), 0.5)
    axis.set_yticks(
        [-lane for lane in range(len(_LANES))], [side + ": decode", *(f"{name} sent" for name in _LANES[1:])]
    )


def _lane(span: Interval) -> str | None:
    if span.kind in ("decode", "prefill"):
        return "decode"
    if span.kind != "transmit":
        return None
    return span.detail if span.detail in _LANES else "other"


def _bar(span: Interval, lane: str) -> str:
    if span.kind == "prefill":
        return "prefill"
    if span.kind == "decode" and span.detail != "kept":
        return "wasted"
    return lane


def _add_key(axis: Axes) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    bars = [Patch(linewidth=0.4, **options) for options, _ in BARS.values()]
    lines = [Line2D([], [], **options) for options in LINES.values()]
    key_beside(axis, [*bars, *lines], [*(told for _, told in BARS.values()), *LINES])


def _round_trips(axis: Axes, trace: Trace) -> None:
    measured = [1000 * probe.rtt for probe in trace.probes]
    axis.plot([probe.at / 1e9 for probe in trace.probes], measured, "o", color=BLUE, markersize=5, label="measured")
    known = [(span.end / 1e9, 1000 * span.estimates.rtt) for span in _decisions(trace) if span.estimates is not None]
    axis.plot(
        [time for time, _ in known],
        [rtt for _, rtt in known],
        color="black",
        linewidth=1.0,
        label="estimate that the\ndecisions were made with",
    )
    axis.set_ylabel("round trip, ms")
    highest = max([*measured, *(rtt for _, rtt in known)], default=0.0)
    axis.set_ylim(0, (1 + HEADROOM) * highest or 1.0)


def _scores(axis: Axes, trace: Trace) -> None:
    for side in OTHER:
        known = [span for span in _decisions(trace) if span.side == side and span.estimates is not None]
        points = [(span.end / 1e9, 1000 * span.estimates.delta_z) for span in known if span.estimates is not None]
        if points:
            times, scores = zip(*points, strict=True)
            axis.plot(times, scores, markersize=3, label=f"when the {side} decided", **SIDE_STYLES[side])
    axis.axhline(0.0, color="black", linewidth=0.6, label="above 0 the other side\nis the better one to decide")
    axis.set_ylabel("ΔZ (Eq. 8),\nms per token")


def _acceptances(axis: Axes, trace: Trace) -> None:
    for side in OTHER:
        times, shares = accumulated_acceptance(trace, side)
        axis.plot(
            times, shares, drawstyle="steps-post", label=f"{side}'s drafts so far", **SIDE_STYLES[side] | {"marker": ""}
        )
    axis.set_ylim(0, 1.05)
    axis.set_ylabel("share accepted")
