"""One side of a simulated answer: a session, a predictor in place of a model, and a decode time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from common.answer.patience import Patience, Watch
from common.answer.values import Commit, Finish, Send, View, Withdraw
from common.estimates.ahead import Ahead
from common.methods.aggregate.drafts import DraftWork, LocalDraft
from common.methods.aggregate.session import Action, LookUp, Session
from proto.messages import Message, Ready
from scripts.simulation.clock import Clock

LOOK = 0.1  # seconds between two looks at the clock, at most; the daemons look more often


class Predictor(Protocol):
    """This side's documents and model: the draft at a position, a function of the prefix alone."""

    def predict(self, position: int, prefix: Sequence[int]) -> tuple[View, float]:
        """The drafted view after `prefix` and the evidence log h."""
        ...


@dataclass(slots=True)
class SimulatedSide:
    """Drives a `Session` as a daemon does: decodes when there is work, pre-empts, delivers, looks at the clock."""

    clock: Clock
    session: Session
    predictor: Predictor
    decode_seconds: Callable[[int], float]  # of a position
    limits: Patience
    send: Callable[[Message], None] = lambda message: None
    decoded: Callable[[int, float], None] = lambda position, seconds: None  # told of every finished step
    documents: bool = True  # whether this side finds any for the question
    observe_acceptance: Callable[[Commit], None] = lambda commit: None  # told of positions where both drafts are known
    row_seconds: float = 0.0  # that a step takes longer for each prefix more than one
    step_overhead: float = 0.0  # seconds of work beside the model per step, not part of the step's own time
    commits: list[tuple[float, Commit]] = field(default_factory=list)
    finished_at: float | None = None
    _prepared: bool = False  # what comes before the prefill's end is taken in, but nothing is decoded
    _busy: DraftWork | None = None
    _watch: Watch = field(default_factory=Watch)

    def start(self) -> None:
        """Begin, retrieval being over. A cloud without documents says so, and that is all it does."""
        self._prepared = True
        if not self.documents:
            if self.session.role == "cloud":
                self.send(Ready(self.session.config.session, (), 0, -1.0))
            self._carry_out(self.session.without_documents(self.session.role))
        self._decode()
        self._tick()

    def receive(self, message: Message) -> None:
        self._carry_out(self.session.received(message))

    def look_ahead(self, ahead: Ahead) -> None:
        """Decode so far ahead from now on."""
        self.session.ahead = ahead
        self._decode()

    def _decode(self) -> None:
        """Begin the next step; a step of an old epoch is given up at once."""
        if self._busy is not None and self._busy.epoch == self.session.epoch:
            return
        work = self._busy = self.session.work if self._prepared else None
        if work is not None:
            seconds = self.decode_seconds(work.position) + self.row_seconds * (work.count - 1)
            self.clock.after(seconds + self.step_overhead, lambda: self._decoded(work, seconds))

    def _decoded(self, work: DraftWork, seconds: float) -> None:
        if self._busy is not work:
            return
        self._busy = None
        actions: list[Action] = []
        for (position, digest), path in zip(work.prefixes, work.paths, strict=True):
            view, evidence = self.predictor.predict(position, path)
            actions += self.session.drafted(LocalDraft(position, digest, view, evidence, int(1e6 * seconds)))
        self._carry_out(actions)
        self.decoded(work.position, seconds)

    def _carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Send():
                    self.send(action.message)
                case LookUp():
                    payload = self.session.sampler.supply(action.view, action.ids, action.depth)
                    self._carry_out(self.session.looked_up(action, payload))
                case Commit():
                    self.commits.append((self.clock.now, action))
                    if len(action.accepted) == 2:
                        self.observe_acceptance(action)
                case Withdraw():
                    del self.commits[action.position :]
                    self.finished_at = None
                case Finish():
                    self.finished_at = self.clock.now
        self._decode()

    def _tick(self) -> None:
        if self.session.role == "device":
            again, ended = self._watch.look(self.clock.now, self.session, self.limits)
            self._carry_out(self.session.stalled() if again else [])
            self._carry_out(self.session.out_of_patience() if ended else [])
        self.clock.after(min(self.limits.resync / 4, LOOK), self._tick)
