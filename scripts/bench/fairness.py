"""The suite `fairness`: devices that ask now and then, beside one that asks for all that it may.

One cloud daemon, and devices without a model: each is a link with a key of its own, whose answers the cloud decides.
What counts is an answer as its device sees it, from the request to the last token.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Final

import numpy as np

from common.daemon.side import SideRuntime
from common.transport.interface import Peer
from common.transport.keys import DeviceKeys, KeyFolder
from common.transport.link import DeviceLink
from device.settings import DeviceSettings
from proto.errors import ProtocolError
from proto.messages import Busy, Close, Closed, Error, Hello, Message, Open, Target, Welcome
from scripts.bench.asking import filled
from scripts.bench.measuring import Spread, Table, load
from scripts.bench.results import Results
from scripts.bench.workload import Texts
from scripts.daemons import Daemon, exchange_keys, free_port

POLITE: Final = 7
DOCUMENTS: Final = 4
PATIENCE: Final = 300.0  # seconds for one answer
WARMING: Final = 1.0  # seconds in which the greedy one begins
ALONE: Final = 10.0  # seconds of the greedy one by itself
GREEDY: Final = "the greedy one, alone"


@dataclass(frozen=True, slots=True)
class Usage:
    """Polite devices' way to ask."""

    name: str
    pause: float  # seconds between two questions of one device, on average
    answers: int  # of each device, in each round


# People who read the answers, and a machine that is full anyway.
USAGES: Final = (Usage("now and then", 3.0, 8), Usage("nearly always", 0.3, 24))


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes of a run."""

    rounds: int = 5
    tokens: int = 24
    hurry: int = 1  # by which pauses and answers are divided
    at_a_time: int = 16  # of the greedy one


class _Device:
    """Asks one answer after the other, on each of its threads."""

    def __init__(self, address: str, keys: DeviceKeys, hello: Hello) -> None:
        self.link = DeviceLink(address, keys, self)
        self.welcomed = threading.Event()
        self._refused: str | None = None
        self._hello = hello
        self._asked: dict[int, _Asked] = {}
        self._last = 0
        self._lock = threading.Lock()

    def on_connected(self, peer: Peer) -> None:
        self.link.send(self._hello)

    def on_message(self, peer: Peer, message: Message, size: int) -> None:
        match message:
            case Welcome():
                self.welcomed.set()
            case Target(session=session, position=position, tokens=tokens):
                self._asked[session].decided(position + len(tokens), tokens[-1])
            case Error(session=0, text=text):
                self._refused = text
                self.welcomed.set()
            case Closed() | Busy() | Error():
                self._asked[message.session].end(message)

    def meet(self) -> None:
        """Wait for the cloud's welcome. Raises `RuntimeError` where it gives none."""
        if not self.welcomed.wait(PATIENCE) or self._refused is not None:
            raise RuntimeError(f"the cloud does not answer: {self._refused}")

    def on_invalid(self, peer: Peer, error: ProtocolError) -> None:
        raise AssertionError("the cloud's messages are valid")

    def on_gone(self, peer: Peer) -> None:
        """The suite is over."""

    def ask(self, question: str, tokens: int) -> float:
        """Seconds of an answer, to its last token; who is told to wait asks again. Raises `RuntimeError` where there is
        none.
        """
        prompt = f"\nQuestion: {question}\nAnswer:"
        began = time.perf_counter()
        while True:
            with self._lock:
                self._last = session = self._last + 1
            self._asked[session] = asked = _Asked(tokens, self._hello.eos)
            law = (DOCUMENTS, session, 1.0, "race", "race", 32, True, 1.0, "cloud", "cloud", 1, tokens)
            self.link.send(Open(session, "speculative", question, prompt, *law, eos=self._hello.eos))  # type: ignore[arg-type]
            refused = asked.wait(asked.whole)
            seconds = time.perf_counter() - began
            if refused is None:
                self.link.send(Close(session, asked.position))
                refused = asked.wait(asked.closed)
            if refused is None:
                return seconds
            if not isinstance(refused, Busy):
                raise RuntimeError(f"an answer did not come to its end: {refused}")
            time.sleep(refused.retry_after / 1e6)


class _Asked:
    """One answer."""

    def __init__(self, tokens: int, eos: tuple[int, ...]) -> None:
        self.position = 0
        self.whole, self.closed = threading.Event(), threading.Event()
        self._tokens, self._eos = tokens, eos
        self._refused: Message | None = None

    def decided(self, position: int, last: int) -> None:
        self.position = max(self.position, position)
        if position >= self._tokens or last in self._eos:
            self.whole.set()

    def end(self, message: Message) -> None:
        if not isinstance(message, Closed):
            self._refused = message
            self.whole.set()
        self.closed.set()

    def wait(self, event: threading.Event) -> Message | None:
        """The refusal, if it was refused. Raises `RuntimeError` when nothing comes."""
        if not event.wait(PATIENCE):
            raise RuntimeError("the cloud says nothing")
        return self._refused


@dataclass(frozen=True, slots=True)
class Lap:
    """A case in one round."""

    seconds: list[float]  # of the polite ones' answers
    greedy: float  # answers per second of the greedy one


def run(results: Results) -> None:
    """Both cases in turn, round by round, on one cloud."""
    plan = Plan(1, 6, 8, 4) if results.short else Plan()
    texts = Texts.draw(3 * POLITE)
    laps: list[dict[str, Lap]] = []
    with filled(texts) as data, served(data) as devices:
        *polite, greedy = devices
        for device in devices:  # documents are read, and the cloud knows how long its steps take
            for question in texts.questions:
                device.ask(question, 2)
        for number in range(plan.rounds):
            lap = {}
            for usage, beside in product(USAGES, (False, True)):
                name = case(usage, beside)
                results.say(f"round {number + 1} of {plan.rounds}: {name}")
                with crowding(greedy if beside else None, texts.questions, plan) as rate:
                    seconds = timed(polite, texts.questions, plan, usage, number)
                    lap[name] = Lap(seconds, rate())
            with crowding(greedy, texts.questions, plan) as rate:
                time.sleep(ALONE / plan.hurry)
                lap[GREEDY] = Lap([], rate())
            laps.append(lap)
    results.samples("plan", plan)
    results.samples("laps", laps)
    sizes = f"{plan.tokens} tokens, {DOCUMENTS} documents; the greedy one has {plan.at_a_time} under way at any time"
    results.table("Fairness", shown(laps), f"{plan.rounds} rounds; load {load()}; answers of {sizes}.")


@contextmanager
def served(data: Path) -> Iterator[list[_Device]]:
    """Devices of a cloud, the polite ones first."""
    exchange_keys(data)
    runtime = SideRuntime("device", DeviceSettings(data=data / "device", model="embedded"))
    hello = runtime.hello
    runtime.close()
    port = free_port()
    cloud = Daemon("cloud", data, {"bind": f"tcp://127.0.0.1:{port}"}, data / "cloud.log")
    trusted = KeyFolder(data / "cloud" / "keys", "cloud")
    with ExitStack() as stack:
        stack.callback(cloud.stop)
        devices = []
        for number in range(POLITE + 1):
            own = KeyFolder(data / f"device-{number}").own_or_new()
            trusted.trust(f"device-{number}", own.public)
            device = _Device(f"tcp://127.0.0.1:{port}", DeviceKeys(own, trusted.own().public), hello)
            devices.append(device)
        cloud.start()
        cloud.wait_for("cloud ready")
        for device in devices:
            stack.enter_context(device.link)
            device.meet()
        yield devices


@contextmanager
def crowding(device: _Device | None, questions: tuple[str, ...], plan: Plan) -> Iterator[Callable[[], float]]:
    """Have a device ask for as much as it may meanwhile; what is given says how many of its answers a second have come
    to their end since then.
    """
    over = threading.Event()
    answered: list[float] = []  # seconds of its answers

    def ask(first: int) -> None:
        number = first
        while not over.is_set():
            assert device is not None
            answered.append(device.ask(questions[number % len(questions)], plan.tokens))
            number += 1

    threads = [threading.Thread(target=ask, args=(first,)) for first in range(plan.at_a_time if device else 0)]
    for thread in threads:
        thread.start()
    time.sleep(WARMING)
    before, began = len(answered), time.perf_counter()
    try:
        yield lambda: (len(answered) - before) / (time.perf_counter() - began)
    finally:
        over.set()
        for thread in threads:
            thread.join()


def case(usage: Usage, beside: bool) -> str:
    """The name of a case."""
    return f"{POLITE} that ask {usage.name}" + (", beside a greedy one" if beside else "")


def timed(devices: list[_Device], questions: tuple[str, ...], plan: Plan, usage: Usage, seed: int) -> list[float]:
    """Seconds of all answers of these devices, which ask at the same time."""
    taken: list[float] = []

    def ask(number: int, device: _Device) -> None:
        draw = random.Random(1000 * seed + number)
        for each in range(usage.answers // plan.hurry):
            time.sleep(draw.expovariate(plan.hurry / usage.pause))
            taken.append(device.ask(questions[(3 * number + each) % len(questions)], plan.tokens))

    threads = [threading.Thread(target=ask, args=each) for each in enumerate(devices)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return taken


def shown(laps: list[dict[str, Lap]]) -> Table:
    """A row for each case; ratios are of the same round."""
    rows = []
    for usage, beside in product(USAGES, (False, True)):
        name, first = case(usage, beside), case(usage, False)
        cells = [name]
        for share in (50, 95):
            values = [float(np.percentile(lap[name].seconds, share)) for lap in laps]
            bases = [float(np.percentile(lap[first].seconds, share)) for lap in laps]
            cells += [
                Spread.of(values).short(2),
                Spread.of([value / base for value, base in zip(values, bases, strict=True)]).short(2),
            ]
        rows.append([*cells, Spread.of([lap[name].greedy for lap in laps]).short(1) if beside else "-"])
    rows.append([GREEDY, "-", "-", "-", "-", Spread.of([lap[GREEDY].greedy for lap in laps]).short(1)])
    heads = ["devices", "median, s", "of alone", "95 of 100 within, s", "of alone", "the greedy one's answers per s"]
    return Table(heads, rows)
