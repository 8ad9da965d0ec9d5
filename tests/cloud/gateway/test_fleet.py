"""A fleet whose workers are links in this process: kept running, asked for their metrics, and let in by their keys."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cloud.gateway import fleet as fleet_module
from cloud.gateway.channel import Channel, ChannelKeys, Kind, Note
from cloud.gateway.fleet import Fleet, GatewayMetrics, LocalLauncher, LocalProcess
from cloud.gateway.gateway import Gateway
from common.configuration.configuration import ConfigurationError
from common.process.machine import python_environment
from common.transport.keys import KeyPair
from common.transport.sending import LinkCounters
from proto.messages import Cancel, Closed
from tests.cloud.gateway.house import HELLO, ONE, Devices
from tests.cloud.gateway.launch import PATIENCE, REASON, VOCABULARY, Launch
from tests.cloud.test_giving_up import OPEN
from tests.daemons.streaming import wait_until
from tests.support.metrics import Metrics


def test_one_that_ends_is_followed_by_another(fleet: Fleet, launch: Launch) -> None:
    gateway = Gateway(fleet, most_per_key=3)
    fleet.serve(gateway)
    assert sorted(gateway.sessions) == [1, 2]
    launch.workers[0].end()
    wait_until(lambda: sorted(gateway.sessions) == [2, 3], "another one has its place")
    assert fleet.ends == (("ended", 1), ("silent", 0))
    assert fleet.vocabulary == VOCABULARY


def test_one_that_does_not_serve_yet_is_told_of(
    launch: Launch, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(fleet_module, "_REMINDER", 0.05)
    caplog.set_level(logging.INFO)
    launch.hold.set()
    fleet = Fleet(1, launch, PATIENCE)
    fleet.start()
    wait_until(lambda: caplog.text.count(": it waits for a test") > 1, "over and over")
    assert "worker 1 does not serve after " in caplog.text
    launch.workers[0].link.ready(VOCABULARY)
    assert fleet.until_one_serves()
    fleet.close()


class TestBeforeAnyServes:
    """Ends of workers while they load."""

    @pytest.fixture
    def fleet(self, launch: Launch, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
        monkeypatch.setattr(fleet_module, "_FIRST_PAUSE", PATIENCE)  # who ends is away for the whole test
        launch.hold.set()
        fleet = Fleet(2, launch, PATIENCE)
        fleet.start()
        wait_until(lambda: len(launch.workers) == 2, "both load")
        yield fleet
        fleet.close()

    @pytest.fixture
    def begun(self, fleet: Fleet) -> Iterator[Callable[[], bool | None]]:
        """Tells whether one serves; None while that is not known."""
        told: list[bool] = []
        waiting = threading.Thread(target=lambda: told.append(fleet.until_one_serves()))
        waiting.start()
        yield lambda: told[0] if told else None
        waiting.join(PATIENCE)

    def test_one_may_end(self, fleet: Fleet, launch: Launch, begun: Callable[[], bool | None]) -> None:
        """The other one goes on: what killed the first may have been the system's memory, or its machine is away."""
        launch.workers[0].end()
        wait_until(lambda: fleet.ends[0] == ("ended", 1), "it is given up")
        assert begun() is None
        launch.workers[1].link.ready(VOCABULARY)
        wait_until(lambda: begun() is True, "the other one serves")

    def test_when_all_have_ended_none_is_waited_for(
        self, fleet: Fleet, launch: Launch, begun: Callable[[], bool | None]
    ) -> None:
        launch.workers[1].end()
        wait_until(lambda: fleet.ends[0] == ("ended", 1), "it is given up")
        assert begun() is None
        launch.workers[0].end()
        wait_until(lambda: begun() is False, "there is none")

    def test_what_is_wrong_with_the_settings_of_one_is_so_for_all(
        self, launch: Launch, begun: Callable[[], bool | None]
    ) -> None:
        launch.workers[0].wrong = True
        launch.workers[0].end()
        wait_until(lambda: begun() is False, "the other one is not waited for")

    def test_one_whose_machine_is_taken_away_has_a_follower(
        self, fleet: Fleet, launch: Launch, begun: Callable[[], bool | None]
    ) -> None:
        launch.workers[1].end()
        wait_until(lambda: fleet.ends[0] == ("ended", 1), "one is left")
        launch.workers[0].leaves = True
        wait_until(lambda: len(launch.workers) == 3, "another one is started in its place")
        launch.workers[0].end()
        wait_until(lambda: fleet.ends[0] == ("ended", 2), "it is gone")
        assert begun() is None
        launch.workers[2].link.ready(VOCABULARY)
        wait_until(lambda: begun() is True, "the follower serves")


def test_a_start_whose_workers_end_again_and_again_is_given_up(launch: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other, so that at each moment one is loading."""
    monkeypatch.setattr(fleet_module, "_FIRST_PAUSE", 0.01)
    launch.hold.set()
    fleet = Fleet(2, launch, PATIENCE)
    fleet.start()
    told: list[bool] = []
    waiting = threading.Thread(target=lambda: told.append(fleet.until_one_serves()))
    waiting.start()
    try:
        for number in range(4):
            wait_until(lambda number=number: len(launch.workers) == 2 + number, "two load")  # type: ignore[misc]
            assert not told
            launch.workers[number].end()
        waiting.join(PATIENCE)
        assert told == [False]
    finally:
        fleet.close()


@pytest.mark.parametrize(
    ("program", "how", "wrong"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "was killed (signal 9)", False),
        ("raise SystemExit(1)", "ended (exit code 1)", False),
        ("raise SystemExit(2)", "ended (exit code 2)", True),
    ],
)
def test_the_end_of_a_process_is_told(program: str, how: str, wrong: bool) -> None:
    process = LocalProcess(subprocess.Popen([sys.executable, "-S", "-c", program]))
    wait_until(lambda: process.ended() is not None, "it ends")
    assert (process.ended(), process.misconfigured()) == (how, wrong)


def test_one_that_leaves_has_its_sessions_until_they_end(fleet: Fleet, launch: Launch) -> None:
    devices = Devices()
    gateway = Gateway(fleet, most_per_key=3)
    gateway.link = devices
    fleet.serve(gateway)
    gateway.on_message(ONE, HELLO, 0)
    gateway.on_message(ONE, replace(OPEN, session=5), 0)
    (home,) = [number for number, load in gateway.sessions.items() if load]
    leaving = launch.workers[home - 1]
    leaving.leaves = True
    wait_until(lambda: sorted(gateway.sessions) == [1, 2, 3], "another one serves in its place")
    gateway.on_message(ONE, replace(OPEN, session=6), 0)
    assert gateway.load(home) == 1  # though its devices' sessions go there
    leaving.link.send(ONE, Closed(5, 0, 0, 0, 0, 0, 0))
    wait_until(lambda: home not in gateway.sessions, "it has left")
    assert leaving.how == REASON
    assert fleet.ends == (("ended", 0), ("silent", 0))


@pytest.mark.parametrize("before", [True, False])
def test_one_whose_machine_is_taken_away_while_it_loads(launch: Launch, before: bool) -> None:
    """It gets no new sessions either once it serves, which may be `before` there is a gateway."""
    launch.hold.set()
    fleet = Fleet(1, launch, PATIENCE)
    fleet.start()
    wait_until(lambda: len(launch.workers) == 1, "one loads")
    launch.workers[0].leaves = True
    wait_until(lambda: len(launch.workers) == 2, "another one is started in its place")
    gateway = Gateway(fleet, most_per_key=3)
    gateway.link = Devices()
    if before:
        launch.workers[0].link.ready(VOCABULARY)
        assert fleet.until_one_serves()
    fleet.serve(gateway)
    if not before:
        launch.workers[0].link.ready(VOCABULARY)
    wait_until(lambda: 1 in gateway.sessions, "it serves")
    gateway.on_message(ONE, HELLO, 0)
    gateway.on_message(ONE, replace(OPEN, session=5), 0)
    launch.workers[1].link.ready(VOCABULARY)
    wait_until(lambda: 2 in gateway.sessions, "the other one serves")
    gateway.on_message(ONE, replace(OPEN, session=6), 0)
    assert gateway.sessions == {1: 1, 2: 1}
    fleet.close()


def test_a_socket_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    address = f"ipc://{tmp_path / 'none' / 's'}"
    sentence = rf"workers can't be listened for at {address} \(no such file or directory\); set data to a folder"
    with pytest.raises(ConfigurationError, match=sentence):
        Fleet(1, LocalLauncher({}, address, 1), PATIENCE)


def test_the_last_one_leaves_when_another_serves(launch: Launch) -> None:
    fleet, gateway = alone(launch)
    hold = launch.hold
    hold.set()
    launch.workers[0].leaves = True
    wait_until(lambda: len(launch.workers) == 2, "another one is started")
    gateway.on_message(ONE, HELLO, 0)
    gateway.on_message(ONE, replace(OPEN, session=5), 0)
    assert gateway.load(1) == 1  # there is nobody else yet
    gateway.on_message(ONE, Cancel(5), 0)
    launch.workers[1].link.ready(VOCABULARY)
    wait_until(lambda: list(gateway.sessions) == [2], "it has left")
    fleet.close()


def alone(launch: Launch) -> tuple[Fleet, Gateway]:
    """A fleet of one worker, which serves."""
    fleet = Fleet(1, launch, PATIENCE)
    fleet.start()
    assert fleet.until_one_serves()
    gateway = Gateway(fleet, most_per_key=3)
    gateway.link = Devices()
    fleet.serve(gateway)
    return fleet, gateway


class TestMetrics:
    def test_are_of_all_by_place(self, fleet: Fleet, launch: Launch) -> None:
        gateway = Gateway(fleet, most_per_key=3)
        fleet.serve(gateway)
        metrics = GatewayMetrics(gateway, fleet, LinkCounters)
        launch.workers[0].end()
        wait_until(lambda: fleet.ends[0][1] == 1 and fleet.serving == 2, "another one has its place")
        told = Metrics(metrics.text().decode())
        assert [told.of("place", worker=place) for place in "01"] == [0, 1]
        assert (told["dragon_workers_serving"], told.of("dragon_worker_ends_total", why="ended")) == (2, 1)
        assert told["process_resident_memory_bytes"] > 0

    def test_one_that_does_not_answer_is_left_out(self, fleet: Fleet, launch: Launch) -> None:
        free = threading.Event()

        def metrics(place: int) -> bytes:
            if place == 1:
                free.wait(PATIENCE)
            return b"x 1\n"

        launch.metrics = metrics

        def others_told() -> bool:
            found = list(fleet.metrics(0.5))  # in which a busy machine may not get to the other one either
            assert 1 not in found
            return found == [0]

        wait_until(others_told, "the other one answers")
        free.set()
        wait_until(lambda: list(fleet.metrics(PATIENCE)) == [0, 1], "what came too late is no answer to the next")

    def test_one_that_ends_meanwhile_is_not_waited_for(self, fleet: Fleet, launch: Launch) -> None:
        begun, free = threading.Event(), threading.Event()

        def metrics(place: int) -> bytes:
            if place == 1:
                begun.set()
                free.wait(PATIENCE)
            return b"x 1\n"

        launch.metrics = metrics
        found: list[dict[int, bytes]] = []
        asking = threading.Thread(target=lambda: found.append(fleet.metrics(PATIENCE)))
        asking.start()
        assert begun.wait(PATIENCE)
        launch.workers[1].how = REASON
        asking.join(PATIENCE / 2)
        assert list(found[0]) == [0]
        free.set()


class TestKeys:
    """Over TCP anybody can knock."""

    def test_a_stranger_is_told_of_no_worker_and_says_nothing(self) -> None:
        keys = ChannelKeys.new()
        taken: list[int] = []
        gateway = Channel("tcp://127.0.0.1:*", lambda number, note: taken.append(number), keys=keys)
        gateway.start()
        gateway.open(1)
        own = KeyPair.new()
        lost: list[str] = []
        strangers = [
            self.worker(gateway.address, ChannelKeys(keys.gateway, own), lost),  # with a pair of its own
            self.worker(gateway.address, ChannelKeys(own.public, keys.worker), lost),  # looks for another gateway
            self.worker(gateway.address, None, lost),  # in the clear
        ]
        friend = self.worker(gateway.address, ChannelKeys(keys.gateway, keys.worker), lost)
        for channel in [*strangers, friend]:
            channel.send(Note(Kind.READY, value=1))
        wait_until(lambda: bool(taken), "the one with the right keys is heard")
        wait_until(lambda: len(lost) == len(strangers), "the others see that they are refused")
        assert taken == [1]
        for channel in [friend, *strangers, gateway]:
            channel.close()

    def test_a_worker_whose_connection_is_lost_ends(self) -> None:
        """Nothing goes on over another connection: messages that were on their way would be missing."""
        keys = ChannelKeys.new()
        gateway = Channel("tcp://127.0.0.1:*", lambda number, note: taken.append(number), keys=keys)
        taken: list[int] = []
        gateway.start()
        lost: list[str] = []
        worker = self.worker(gateway.address, keys, lost)
        worker.send(Note(Kind.ALIVE))
        wait_until(lambda: bool(taken), "it is connected")
        gateway.close()
        wait_until(lambda: lost == ["ConnectionError"], "it sees the end")
        worker.close()

    @staticmethod
    def worker(address: str, keys: ChannelKeys | None, lost: list[str]) -> Channel:
        channel = Channel(
            address,
            lambda number, note: None,
            name=1,
            keys=keys,
            died=lambda thread, error: lost.append(type(error).__name__),
        )
        channel.start()
        return channel


def test_a_gateway_does_without_what_only_workers_need() -> None:
    """It is small: what decodes and searches is not even imported."""
    program = (
        "import sys, cloud.daemon, cloud.gateway.fleet; print(*{'torch', 'faiss', 'transformers'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=python_environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ""
