"""The simplest answer there is: every draft is the next token. What the engine sees of a session, and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from common.answer.values import SideDraft, Work
from common.engine.jobs import AnswerJob, DecodeRequest, Prompt
from common.engine.model.decoder import Decoder
from common.sampling.race import Found, LocalRace, Race, RaceSampler
from common.scoring.static import StaticScorer


class RaceDrafter:
    """A race without a session around it."""

    def __init__(self, vocabulary: int, seed: int = 1, temperature: float = 1.0) -> None:
        self.sampler = RaceSampler(seed, temperature, 8, vocabulary)

    def race(self, position: int) -> Race | None:
        return self.sampler.race(position)

    def drafted(self, position: int, probabilities: object, found: Found | None) -> LocalRace:
        assert found is not None
        return self.sampler.drafted(position, probabilities, found)  # type: ignore[arg-type]


@dataclass
class GreedyClient:
    """Takes `length` tokens; `rejects` positions are drafted once more, as after a roll-back."""

    length: int
    rejects: set[int] = field(default_factory=set)
    on_token: Callable[[int], None] = lambda position: None
    tokens: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    failure: Exception | None = None
    over: bool = False
    recorder: None = None
    given_up: int = 0
    epoch: int = 0
    done: threading.Event = field(default_factory=threading.Event)

    def work(self) -> Work | None:
        return None if self.over else Work(self.epoch, tuple(self.tokens))

    @property
    def resting(self) -> bool:
        return False

    def outdated(self, work: Work) -> bool:
        return self.over or work.epoch != self.epoch

    def drawn(self, work: Work, drawn: Sequence[SideDraft], seconds: float) -> None:
        (draft,) = drawn
        position = work.position
        if self.over or position != len(self.tokens):
            return
        self.seconds.append(seconds)
        self.tokens.append(draft.view.token)
        if position in self.rejects:
            self.rejects.remove(position)
            del self.tokens[position // 2 :]
            self.epoch += 1
            return
        self.on_token(position)
        if len(self.tokens) == self.length:
            self.end(None)

    def gave_up(self, work: Work, started: int) -> None:
        self.given_up += 1

    def end(self, failure: Exception | None) -> None:
        if not self.over:
            self.over, self.failure = True, failure
            self.done.set()

    def wait(self) -> list[int]:
        assert self.done.wait(60), "the answer never ended"
        if self.failure is not None:
            raise self.failure
        return self.tokens


def job(
    decoder: Decoder, client: GreedyClient, documents: Sequence[Sequence[int]], query: Sequence[int], **changes: object
) -> AnswerJob[Work]:
    """An answer over `documents`; `changes` replace parts of it, or its `peer`."""
    drafter = changes.pop("drafter", RaceDrafter(decoder.vocabulary))
    request = DecodeRequest(client, drafter, tenant=changes.pop("peer", None))  # type: ignore[arg-type]
    fields: dict[str, object] = {
        "prompt": Prompt(
            tuple(tuple(each) for each in documents), tuple(query), tuple(0.1 * i for i in range(len(documents)))
        ),
        "scorer": StaticScorer(1.0),
        "reserve": client.length + 1,
    } | changes
    return AnswerJob(request, **fields)  # type: ignore[arg-type]
