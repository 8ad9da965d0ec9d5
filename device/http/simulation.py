"""`POST /simulate`: when the tokens of an answer would have come over another network, by the simulator."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import FailFast, Field

from common.simulation.acceptance import Position, Recorded
from common.simulation.scenario import Scenario, simulate
from common.simulation.timing import DecodeTime, Way
from device.http.errors import ApiError
from device.http.schema import Body
from proto.fields import Placement

MOST_TOKENS: Final = 512
SLOWEST: Final = 10_000.0  # milliseconds of a step, and of a round trip
MOST_SECONDS: Final = 900.0  # that an answer may take about, simulated: it costs a thousandth of that

Milliseconds = Annotated[float, Field(ge=0.0, le=SLOWEST, allow_inf_nan=False)]
Verdicts = Annotated[list[bool], Field(min_length=2, max_length=2)]


class SimulationBody(Body):
    """`POST /simulate`. Which drafts of (device, cloud) were accepted, decode steps, and the round trip to try."""

    accepted: Annotated[list[Verdicts], Field(min_length=1, max_length=MOST_TOKENS), FailFast()]
    device_ms: Annotated[float, Field(gt=0.0, le=SLOWEST, allow_inf_nan=False)]
    cloud_ms: Annotated[float, Field(gt=0.0, le=SLOWEST, allow_inf_nan=False)]
    rtt_ms: Milliseconds
    placement: Placement = "device"
    synchronous: bool = False


def simulated(body: SimulationBody) -> dict[str, Any]:
    """Seconds from the first token to each one. Raises `ApiError` (400) for an answer that takes too long."""
    count = len(body.accepted)
    slowest = count * (body.device_ms + body.cloud_ms + body.rtt_ms) / 1e3
    if slowest > MOST_SECONDS:
        raise ApiError(
            400,
            f"The simulated answer may take {slowest:.0f} seconds, and {MOST_SECONDS:.0f} are simulated at most.",
            param="rtt_ms",
            code="invalid_value",
        )
    answer = tuple(Position(device, cloud) for device, cloud in body.accepted)
    scenario = Scenario(
        DecodeTime.constant(body.device_ms / 1e3),
        DecodeTime.constant(body.cloud_ms / 1e3),
        Way(body.rtt_ms / 1e3),
        Recorded((answer,)),
        body.placement,
        count,
        body.synchronous,
    )
    times = simulate(scenario, 0).times
    return {"times": [round(time - times[0], 6) for time in times]}
