"""Answers from a long row, a short row, and both, decoded in one thread with the state machines of the daemons."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

import torch

from common.answer.values import Action, Commit, Send, View, Work
from common.draft_policy.rules import Fixed
from common.engine.model.decoder import Decoder
from common.engine.model.packed import Item
from common.engine.sequences import AnswerRows, Prompt
from common.estimates.estimates import Estimates
from common.methods.drafted.history import RoundHistory
from common.methods.drafted.lengths import PolicyLengths
from common.methods.drafted.machine.drafting import Drafting
from common.methods.drafted.machine.verifying import Verifying
from common.methods.drafted.rapid.method import Rapid
from common.methods.drafted.rapid.request import RapidRequest
from common.methods.drafted.rapid.scheme import RapidScheme
from common.methods.drafted.rejection.drawing import Judged
from common.methods.open_message import open_message
from common.sampling.augmentation import likeliest
from common.sampling.draws import Place, seeded
from common.sampling.rejection import bonus
from proto.digest import digest
from proto.rounds import Propose, Verdict

CHUNK = 512  # tokens of a document that are fed at once
ESTIMATES = Estimates(0.01, 0.01, 0.0, 0.5, 0.5)  # of the sides; nothing depends on them here


class Reader:
    """One row, `[document][query][answer so far]`, of one model."""

    def __init__(self, decoder: Decoder, document: Sequence[int], query: Sequence[int], reserve: int) -> None:
        """Reads document and query; `prefill` is the seconds that it took."""
        self._decoder = decoder
        prompt = Prompt((tuple(document),), tuple(query), (1.0,))
        self._rows = AnswerRows(decoder, prompt, decoder.take_rows(prompt.parts, prompt.query, reserve))
        self.context = len(document) + len(query)
        started = time.perf_counter()
        while self._rows.reading:
            (feed,) = self._rows.feeds(Work(0, ()))
            part = feed.tokens[:CHUNK]
            decoder.forward([Item(feed.rows, part, 0)])
            self._rows.fed(feed, len(part))
        self.distributions([], 1)
        self.prefill = time.perf_counter() - started

    @torch.inference_mode()
    def distributions(self, path: Sequence[int], count: int) -> torch.Tensor:
        """The next-token distributions [count, vocab] behind `path` and its last `count` - 1 shorter beginnings."""
        (feed,) = self._rows.feeds(Work(0, tuple(path), count=count))
        logits = self._decoder.forward([Item(feed.rows, feed.tokens, count)])
        self._rows.fed(feed, len(feed.tokens))
        return torch.softmax(logits.float(), dim=-1)

    def close(self) -> None:
        """Give the memory back."""
        self._decoder.memory.give_back(self._rows.rows)


@dataclass(slots=True)
class Run:
    """One answer. Seconds are those of every step, without the prefill."""

    tokens: list[int] = field(default_factory=list)
    seconds: float = 0.0
    drafts: list[float] = field(default_factory=list)
    verifications: list[float] = field(default_factory=list)
    proposed: int = 0
    accepted: int = 0
    rounds: int = 0

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return len(self.tokens) / self.seconds

    @property
    def per_round(self) -> float:
        """Tokens per round: E of the speed-up's formula."""
        return len(self.tokens) / self.rounds

    def predicted(self, alone: float, lookahead: bool) -> float:
        """The speed-up E t_L / (gamma t_D + t_V) over `alone` seconds per token; one draft more with `lookahead`."""
        drafts = self.proposed / self.rounds + lookahead
        return self.per_round * alone / (drafts * median(self.drafts) + median(self.verifications))


def scheme_of(vocabulary: int, eos: tuple[int, ...], tokens: int, **options: object) -> RapidScheme:
    """Rapid's scheme for an answer of at most `tokens` tokens."""
    given = {"question": "?", "prompt": "?", "method": "rapid", "long_document": "?", "max_tokens": tokens, "top_k": 0}
    given |= {"sources": "device", "verifier": "device"}  # nothing travels
    request = RapidRequest.model_validate(given | options)
    return Rapid().scheme(open_message(Rapid(), request, 1, ESTIMATES, eos), request, vocabulary)


def alone(reader: Reader, scheme: RapidScheme, seed: int) -> Run:
    """The answer of one model that reads its row by itself, token by token."""
    run = Run()
    started = time.perf_counter()
    while not run.tokens or not scheme.config.ends(run.tokens[-1], len(run.tokens)):
        begun, position = time.perf_counter(), len(run.tokens)
        view = _judged(scheme, position, reader.distributions(run.tokens, 1)[0])
        law = likeliest(view.distribution) if scheme.judge.greedy else view.distribution
        place = Place(position, digest(run.tokens))
        run.tokens.append(bonus(law, seeded(seed)(place)))
        run.verifications.append(time.perf_counter() - begun)
    run.seconds = time.perf_counter() - started
    return run


def together(drafter: Reader, verifier: Reader, scheme: RapidScheme, length: int) -> Run:
    """The answer of both, round by round, with proposals of `length` tokens."""
    history = RoundHistory.expecting(0.01, 0.01, 0.0)
    device = Drafting(scheme.config, scheme.drafts, PolicyLengths(Fixed(length, None), history, lambda: None))
    cloud = Verifying(scheme.config, scheme.judge)
    run = Run()
    started = time.perf_counter()
    while device.finished is None:
        work = device.work()
        if work is not None:
            begun = time.perf_counter()
            view = scheme.drafter.drafted(work.position, drafter.distributions(work.path, 1)[0], None)
            run.drafts.append(time.perf_counter() - begun)
            _carry_out(device.drawn(work, [view], run.drafts[-1], 0.0), device, cloud, run)
            continue
        work = cloud.work()
        if work is None:
            raise RuntimeError("neither side has anything to do")
        begun = time.perf_counter()
        rows = verifier.distributions(work.path, work.count)
        views: list[View] = [_judged(scheme, work.position + place, row) for place, row in enumerate(rows)]
        run.verifications.append(time.perf_counter() - begun)
        _carry_out(cloud.drawn(work, views, 0.0, 0.0), device, cloud, run)
    run.seconds = time.perf_counter() - started
    counters = device.counters
    run.proposed, run.accepted, run.rounds = counters.proposed, counters.accepted, counters.rounds
    return run


def _carry_out(actions: Sequence[Action], device: Drafting, cloud: Verifying, run: Run) -> None:
    """Hand over what is sent; only what the drafter decides is the answer."""
    for action in actions:
        if not isinstance(action, Send):
            continue
        if isinstance(action.message, Propose):
            cloud.proposed(action.message, 0.0)
        elif isinstance(action.message, Verdict):
            decided = device.judged(action.message)
            run.tokens += [each.token for each in decided if isinstance(each, Commit)]


def _judged(scheme: RapidScheme, position: int, distribution: torch.Tensor) -> Judged:
    return scheme.verifier.drafted(position, distribution, None)
