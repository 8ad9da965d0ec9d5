"""A drafter and a verifier in one process, with messages encoded and decoded between them, over table models."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from common.answer.values import Action, Commit, Send, View
from common.draft_policy.times import DraftPlan, Extension
from common.methods.drafted.drafting import Lengths
from common.methods.drafted.eager import make_drafting, make_verifying
from common.methods.drafted.method import Scheme
from common.sampling.race import RaceKernel
from proto.framing import decode, encode
from proto.messages import Decided, Defer, Message, Propose, Sync, Verdict

Model = Callable[[Sequence[int]], NDArray[np.float64]]  # next-token distribution [vocab] behind a path


@dataclass(frozen=True, slots=True)
class Length:
    """Proposals of one length."""

    length: int
    most_ahead: int = 64

    def plan(self, confidences: Sequence[float]) -> DraftPlan:
        return DraftPlan(self.length)

    def extension(self, confidence: float, drafted: int) -> Extension:
        return "more"

    def proposed(self, message: Propose, confidences: Sequence[float], steps: Sequence[float]) -> None:
        assert len(confidences) > 0

    def undrafted(self, message: Decided, tokens: int) -> None:
        assert tokens > 0

    def judged(self, message: Verdict | Decided, accepted: Sequence[int], last: int, token: bool) -> None:
        assert len(accepted) > 0
        assert isinstance(message, Decided) or (sum(accepted), token) == (message.accepted, bool(message.token))


def by_path(compute: Callable[[tuple[int, ...]], NDArray[np.float64]]) -> Model:
    """A model whose distribution behind a path is computed once: enumerated laws ask for it thousands of times."""
    known: dict[tuple[int, ...], NDArray[np.float64]] = {}

    def model(path: Sequence[int]) -> NDArray[np.float64]:
        key = tuple(path)
        if key not in known:
            known[key] = compute(key)
            known[key].flags.writeable = False
        return known[key]

    return model


def table_model(vocabulary: int, salt: int, sharpness: float = 1.0, beside: Model | None = None) -> Model:
    """A model with a distribution of its own behind every path; `beside`: it is mixed half and half with that one."""

    @by_path
    def model(path: tuple[int, ...]) -> NDArray[np.float64]:
        name = f"{salt} {list(path)}".encode()
        random = np.random.default_rng(int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "big"))
        weights = random.dirichlet(np.full(vocabulary, 1.0 / sharpness))
        return weights if beside is None else (weights + beside(path)) / 2

    return model


def mixture(model: Model, path: Sequence[int]) -> torch.Tensor:
    return torch.from_numpy(model(path).astype(np.float32))


@dataclass
class Pair:
    """Both sides of one answer. `up` and `down` hold the frames on their way."""

    scheme: Scheme
    drafter: Model
    verifier: Model
    lengths: Lengths
    up: deque[bytes] = field(default_factory=deque)
    down: deque[bytes] = field(default_factory=deque)
    tokens: list[int] = field(default_factory=list)  # that the device shows
    degraded: list[bool] = field(default_factory=list)
    vocabulary: int = 0
    decodes_on: Callable[[], bool] = lambda: True  # whether an eager verifier may decide what nobody proposed

    @property
    def now(self) -> float:
        """Seconds; here nothing takes any."""
        return 0.0

    @property
    def draft_seconds(self) -> float:
        """Seconds that the device is told that a draft took."""
        return 0.0

    @property
    def verify_seconds(self) -> float:
        """Seconds that the verifier is told that a pass took."""
        return 0.0

    def __post_init__(self) -> None:
        self.vocabulary = self.scheme.config.vocabulary
        self.kernel = RaceKernel(self.vocabulary, "cpu")
        self.device = make_drafting(self.scheme.config, self.scheme.drafts, self.lengths)
        self.renew_cloud()

    def run(self, until: int | None = None) -> list[int]:
        """The answer, over a link without faults; or its beginning, as soon as that has `until` tokens."""
        self.act(self.device.begin())
        while self.device.finished is None and (until is None or len(self.tokens) < until):
            if not (self.draft() or self.deliver_up() or self.verify() or self.deliver_down()):
                raise AssertionError("nobody has anything to do")
        return self.tokens

    # --- steps; each says whether there was anything to do

    def draft(self) -> bool:
        work = self.device.work()
        if work is None:
            return False
        view = self.view(self.scheme.drafter, work.position, mixture(self.drafter, work.path))
        self.act(self.device.drawn(work, [view], self.draft_seconds, self.now))
        return True

    def verify(self) -> bool:
        work = self.cloud.work()
        if work is None:
            return False
        views = [self.view(self.scheme.verifier, len(path), mixture(self.verifier, path)) for path in work.paths]
        self.act(self.cloud.drawn(work, views, self.verify_seconds, self.now), self.down)
        return True

    def deliver_up(self) -> bool:
        if self.up:
            self.received_by_cloud(decode(self.up.popleft()))
            return True
        return False

    def deliver_down(self) -> bool:
        if self.down:
            self.received_by_device(decode(self.down.popleft()))
            return True
        return False

    def received_by_device(self, message: Message) -> None:
        assert isinstance(message, Verdict | Decided | Sync)
        if isinstance(message, Verdict):
            self.act(self.device.judged(message))
        elif isinstance(message, Decided):
            self.act(self.device.decided_by_verifier(message))

    def received_by_cloud(self, message: Message) -> None:
        if isinstance(message, Propose):
            self.act(self.cloud.proposed(message, self.now), self.down)
        elif isinstance(message, Defer):
            self.act(self.cloud.deferred(message, self.now), self.down)
        elif isinstance(message, Sync):
            self.act(self.cloud.synchronised(message), self.down)

    def renew_cloud(self) -> None:
        """Another session, which knows nothing yet."""
        self.cloud = make_verifying(self.scheme.config, self.scheme.judge, self.decodes_on)

    def act(self, actions: Sequence[Action], link: deque[bytes] | None = None) -> None:
        for action in actions:
            if isinstance(action, Send):
                (self.up if link is None else link).append(encode(action.message))
            elif isinstance(action, Commit) and link is None:
                assert action.position == len(self.tokens)
                self.tokens.append(action.token)
                self.degraded.append(action.degraded)

    def view(self, drawing: Any, position: int, probabilities: torch.Tensor) -> View:
        """The view that the engine would make of a distribution [vocab]."""
        race = drawing.race(position)
        found = None if race is None else self.kernel.run(probabilities[None], [race])[0]
        view: View = drawing.drafted(position, probabilities, found)
        return view
