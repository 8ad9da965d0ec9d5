"""`dragon simulate`: what an answer's latency would be, without models and network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer

from device.cli import options
from device.cli.failures import bad_input
from proto.fields import Placement

if TYPE_CHECKING:
    from common.simulation.acceptance import AcceptanceModel
    from common.simulation.scenario import Scenario, SimulatedAnswer
    from common.simulation.timing import Jitter

JitterKind = Literal["none", "sinusoid", "scatter"]
SYNCHRONOUS = "synchronous"  # a row of its own: token-wise exchange, the device aggregates

HEADS = ("placement", "ms/token", "/ slower", "TTFT s", "total s", "drafts device", "cloud", "switches")


def simulate(
    device_ms: Annotated[float, typer.Option("--device-ms", help="Decode step of the device, milliseconds")] = 150.0,
    cloud_ms: Annotated[float, typer.Option("--cloud-ms", help="Decode step of the cloud, milliseconds")] = 50.0,
    rtt_ms: Annotated[float, typer.Option("--rtt-ms", help="Round trip of the network as it is")] = 2.0,
    extra_ms: Annotated[float, typer.Option("--extra-ms", help="Round trip added to it, which jitters")] = 300.0,
    jitter: Annotated[JitterKind, typer.Option("--jitter", help="How the added round trip varies")] = "none",
    jitter_share: Annotated[float, typer.Option("--jitter-share", help="By what share of itself it varies")] = 0.2,
    accepted: Annotated[
        str, typer.Option("--accepted", help="How often drafts are accepted: DEVICE,CLOUD or DEVICE,CLOUD,BOTH")
    ] = "0.9,0.9",
    record: Annotated[
        Path | None, typer.Option("--record", help="Accepted drafts of real answers, a JSON file, instead")
    ] = None,
    placement: Annotated[
        list[str] | None, typer.Option("--placement", help="Which side aggregates (may be repeated)")
    ] = None,
    tokens: Annotated[int, typer.Option("--tokens", help="Tokens of an answer")] = 100,
    sequences: Annotated[int, typer.Option("--sequences", help="Answers to average over")] = 20,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the first answer")] = 0,
    as_json: options.AsJson = False,
) -> None:
    """Predict an answer's latency, placement by placement.

    Both sessions run under a virtual clock, by the rules and estimates of the daemons.
    """
    from common.simulation.scenario import Scenario
    from common.simulation.scenario import simulate as run
    from common.simulation.timing import DecodeTime, Way

    if sequences < 1:
        raise bad_input(f"--sequences must be at least 1, not {sequences}")
    if seed < 0:
        raise bad_input(f"--seed must not be negative, got {seed}")
    steps = _steps(device_ms, "--device-ms"), _steps(cloud_ms, "--cloud-ms")
    possible = [SYNCHRONOUS, *get_args(Placement)]
    names = placement or possible
    if unknown := set(names) - set(possible):
        raise bad_input(f"there is no placement {', '.join(sorted(unknown))}; there are {', '.join(possible)}")
    rows = {}
    try:
        way = Way(rtt_ms / 1e3, extra_ms / 1e3, _jitter(jitter, jitter_share))
        model = _acceptance(accepted, record)
        for name in names:
            synchronous = name == SYNCHRONOUS
            place: Any = "device" if synchronous else name
            device, cloud = map(DecodeTime.constant, steps)
            scenario = Scenario(device, cloud, way, model, place, tokens, synchronous)
            rows[name] = _row(scenario, [run(scenario, seed + number) for number in range(sequences)])
    except ValueError as error:
        raise bad_input(str(error)) from None
    if as_json:
        settings = {
            "device_ms": device_ms,
            "cloud_ms": cloud_ms,
            "rtt_ms": rtt_ms,
            "extra_ms": extra_ms,
            "jitter": jitter,
            "jitter_share": jitter_share,
            "accepted": accepted if record is None else str(record),
            "tokens": tokens,
            "sequences": sequences,
            "seed": seed,
        }
        print(json.dumps({"settings": settings, "placements": rows}))
    else:
        print(_table(rows))


def _steps(milliseconds: float, option: str) -> float:
    if not 0.0 < milliseconds < float("inf"):
        raise bad_input(f"{option} must be a positive number of milliseconds, got {milliseconds}")
    return milliseconds / 1e3


def _jitter(kind: JitterKind, share: float) -> Jitter | None:
    from common.simulation.timing import Scatter, Sinusoid

    match kind:
        case "sinusoid":
            return Sinusoid(share)
        case "scatter":
            return Scatter(share)
        case "none":
            return None


def _acceptance(rates: str, record: Path | None) -> AcceptanceModel:
    """Raises `ValueError`, one sentence."""
    from common.simulation.acceptance import Rates, load_record

    if record is not None:
        try:
            return load_record(record)
        except OSError as error:
            raise bad_input(f"can't read {record}: {error.strerror}") from None
    try:
        numbers = [float(part) for part in rates.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) not in (2, 3):
        raise bad_input(f"--accepted is two or three rates, such as 0.85,0.86,0.73, not {rates!r}")
    return Rates(*numbers) if len(numbers) == 3 else Rates.independent(*numbers)


def _row(scenario: Scenario, outcomes: list[SimulatedAnswer]) -> dict[str, float]:
    """Means over the answers."""
    from statistics import fmean

    def per_token(side: Any) -> float:
        return fmean(outcome.drafted[side] / len(outcome.times) for outcome in outcomes)

    latency = fmean(outcome.per_token for outcome in outcomes)
    slower = max(scenario.device.mean(scenario.tokens), scenario.cloud.mean(scenario.tokens))
    return {
        "ms_per_token": 1e3 * latency,
        "ratio_to_slower_side": latency / slower,
        "ttft": fmean(outcome.ttft for outcome in outcomes),
        "seconds": fmean(outcome.seconds for outcome in outcomes),
        "drafts_per_token_device": per_token("device"),
        "drafts_per_token_cloud": per_token("cloud"),
        "switches": fmean(outcome.switches for outcome in outcomes),
    }


def _table(rows: dict[str, dict[str, float]]) -> str:
    digits = (1, 2, 2, 2, 2, 2, 1)
    cells = [
        [name, *(f"{value:.{places}f}" for value, places in zip(row.values(), digits, strict=True))]
        for name, row in rows.items()
    ]
    widths = [max(len(line[column]) for line in [HEADS, *cells]) for column in range(len(HEADS))]
    return "\n".join(
        "  ".join(cell.ljust(width) if number == 0 else cell.rjust(width) for number, (cell, width) in pairs)
        for line in [HEADS, *cells]
        for pairs in [enumerate(zip(line, widths, strict=True))]
    )
