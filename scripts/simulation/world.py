"""A whole simulated answer: two sides, two links and a clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from common.answer.patience import Patience
from common.estimates.ahead import Ahead
from common.methods.aggregate.session import PlacementPolicy, Session, SessionConfig, SessionSampler
from proto.messages import Message, Side
from scripts.simulation.clock import Clock
from scripts.simulation.link import Fate, Outage, SimulatedLink
from scripts.simulation.side import Predictor, SimulatedSide


@dataclass(frozen=True, slots=True)
class SideModel:
    """Predictor, aggregation and decode time (seconds) of one side."""

    predictor: Predictor
    aggregation: SessionSampler
    decode_seconds: Callable[[int], float]  # of a position
    documents: bool = True  # whether its library has any for the question


@dataclass(frozen=True, slots=True)
class Network:
    """Both directions of the link. Delays are asked for each message, in seconds."""

    fate: Callable[[Side], Fate]  # of a message sent by that side
    ordered: bool = True
    outages: tuple[Outage, ...] = ()


class World:
    """Two sessions that answer one question together."""

    def __init__(
        self,
        config: SessionConfig,
        device: SideModel,
        cloud: SideModel,
        policy: Callable[[Side], PlacementPolicy],
        network: Network,
        limits: Patience,
        ahead: Ahead,
    ) -> None:
        self.clock = Clock()
        self.device = self._side("device", config, device, policy("device"), limits, ahead)
        self.cloud = self._side("cloud", config, cloud, policy("cloud"), limits, ahead)
        self.up = self._link("device", self.cloud, network)
        self.down = self._link("cloud", self.device, network)
        self.device.send = self.up.send
        self.cloud.send = self.down.send

    def run(self, until: float = 1e6) -> bool:
        """Run to the end of the device's answer; returns whether it came before the time `until`."""
        self.device.start()
        self.cloud.start()
        return self.clock.run(until, lambda: self.device.session.finished is not None)

    def _side(
        self,
        role: Side,
        config: SessionConfig,
        model: SideModel,
        policy: PlacementPolicy,
        limits: Patience,
        ahead: Ahead,
    ) -> SimulatedSide:
        session = Session(role, config, model.aggregation, policy, ahead)
        return SimulatedSide(
            self.clock, session, model.predictor, model.decode_seconds, limits, documents=model.documents
        )

    def _link(self, sender: Side, receiver: SimulatedSide, network: Network) -> SimulatedLink[Message]:
        return SimulatedLink(
            self.clock, receiver.receive, lambda message: network.fate(sender), network.ordered, network.outages
        )
