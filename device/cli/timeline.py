"""A trace as text, for `dragon trace`."""

from __future__ import annotations

from statistics import mean

from common.tracing.analysis import CAUSES, Step, milliseconds_per_token, steps
from common.tracing.trace import Trace


def summary(trace: Trace) -> str:
    """Causes of the time per token, the clocks' offset, and missing parts of the trace."""
    found = steps(trace)
    lines = list(trace.notes)
    if found:
        lines.append(f"first token after {found[0].end / 1e6:.1f} ms: {_parts(found[0])}")
    later = [step for step in found if step.position > 0]
    if later:
        total = mean((step.end - step.start) / 1e6 for step in later)
        lines.append(f"each of the other {len(later)} after {total:.1f} ms on average:")
        for cause, milliseconds in milliseconds_per_token(found).items():
            if milliseconds > 0:
                lines.append(f"  {cause:28}{milliseconds:8.2f} ms {milliseconds / total:6.0%}")
        cloud = sum(step.waited_for == "cloud" for step in later)
        lines.append(f"the cloud was waited for {cloud} times, the device {len(later) - cloud} times")
    if trace.ahead is not None and trace.uncertainty is not None:
        lines.append(
            f"the cloud's clock is {trace.ahead / 1e6:.3f} ms ahead, known to {trace.uncertainty / 1e6:.1f} ms: where "
            "the two directions differ, its times are off by half of that"
        )
    if trace.dropped:
        lines.append(f"{trace.dropped} spans are missing: an answer this long has too many")
    return "\n".join(lines)


def table(trace: Trace) -> str:
    """One line per token: its time, the time since the token before, the side that was waited for, and the causes."""
    lines = [f"{'token':>6} {'at ms':>9} {'took ms':>8}  {'waited for':11}for"]
    for step in steps(trace):
        at, took = step.end / 1e6, (step.end - step.start) / 1e6
        lines.append(f"{step.position:6} {at:9.1f} {took:8.1f}  {step.waited_for:11}{_parts(step)}")
    return "\n".join(lines)


def _parts(step: Step) -> str:
    spent = {cause: step.spent(cause) / 1e6 for cause in CAUSES}
    return ", ".join(f"{cause} {milliseconds:.1f}" for cause, milliseconds in spent.items() if milliseconds >= 0.05)
