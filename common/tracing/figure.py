"""Fig. 9 of the paper: both sides' pipelines, the round trip, the estimation score and the acceptance rates.

Draws on axes that the caller made; matplotlib is not imported here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from common.session.values import OTHER
from common.tracing.trace import Interval, Trace
from proto.messages import Side

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROWS: Final = 5
COLORS: Final = {
    "decode": "#4c78a8",
    "wasted": "#c9d6e6",
    "prefill": "#9d9d9d",
    "draft": "#f2a541",
    "target": "#59a14f",
    "other": "#b07aa1",
}
SIDE_COLORS: Final[dict[Side, str]] = {"device": "#e15759", "cloud": "#4c78a8"}
SUBLANES: Final = 4  # messages of one type that are under way together lie below each other
_LANES: Final = ("decode", "draft", "target", "other")  # from the top


def draw_timeline(axes: Sequence[Axes], trace: Trace, title: str = "") -> None:
    """Fill `ROWS` axes, from the top. Time is in seconds since the request, from where decoding begins."""
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
        each.grid(axis="x", alpha=0.3)
    axes[0].set_title(title)
    axes[-1].set_xlabel("seconds since the request")


def accumulated_acceptance(trace: Trace, side: Side) -> tuple[list[float], list[float]]:
    """Times (seconds) and the share of `side`'s judged drafts that were the target, up to each decision."""
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
    """The aggregation of each position: the device's where both sides make it."""
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
            axis.broken_barh([bar], (bottom, height), facecolors=_color(span, name), edgecolor="white", linewidth=0.4)
    for span in trace.of("aggregate", side=side):
        axis.axvline(span.end / 1e9, color="black", linewidth=0.5, alpha=0.5)
    for span in trace.of("roll back", side=side):
        axis.plot(span.start / 1e9, 0.0, marker="x", color=SIDE_COLORS["device"], markersize=4)
    for span in trace.of("migrate", side=side):
        axis.axvline(span.start / 1e9, color=SIDE_COLORS["device"], linestyle="--", linewidth=1.0)
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


def _color(span: Interval, lane: str) -> str:
    if span.kind == "prefill":
        return COLORS["prefill"]
    if span.kind == "decode" and span.detail != "kept":
        return COLORS["wasted"]
    return COLORS[lane]


def _round_trips(axis: Axes, trace: Trace) -> None:
    axis.plot(
        [probe.at / 1e9 for probe in trace.probes], [1000 * probe.rtt for probe in trace.probes], "o-", markersize=3
    )
    known = [(span.end / 1e9, 1000 * span.estimates.rtt) for span in _decisions(trace) if span.estimates is not None]
    axis.plot([time for time, _ in known], [rtt for _, rtt in known], color="gray", linewidth=1.0)
    axis.set_ylabel("RTT [ms]")
    axis.set_ylim(bottom=0)


def _scores(axis: Axes, trace: Trace) -> None:
    for side in OTHER:
        known = [span for span in _decisions(trace) if span.side == side and span.estimates is not None]
        points = [(span.end / 1e9, 1000 * span.estimates.delta_z) for span in known if span.estimates is not None]
        if points:
            times, scores = zip(*points, strict=True)
            axis.plot(times, scores, "o-", markersize=3, color=SIDE_COLORS[side], label=f"{side} aggregates")
    axis.axhline(0.0, color="black", linewidth=0.6)
    axis.set_ylabel("ΔZ [ms]")
    if axis.get_legend_handles_labels()[0]:
        axis.legend(loc="upper right", fontsize="small")


def _acceptances(axis: Axes, trace: Trace) -> None:
    for side in OTHER:
        times, shares = accumulated_acceptance(trace, side)
        axis.plot(times, shares, drawstyle="steps-post", color=SIDE_COLORS[side], label=side)
    axis.set_ylim(-0.05, 1.05)
    axis.set_ylabel("acceptance")
    axis.legend(loc="lower right", fontsize="small")
