"""Mistakes of users: one line says what is wrong, where and what to do, with the right exit code."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import httpx
import pytest

from scripts.daemons import PATIENTLY, Daemon, Pair, dragon, free_port
from scripts.netlab.faulty_proxy import FaultyProxy
from tests.daemons.streaming import complete_together, wait_until
from tests.daemons.wordy_model import SCORER, make_wordy_model

QUESTION = "Where is my dance class?"
TOKENS = 8
CLOUD_LIMITS: dict[str, object] = {"max_query_bytes": 200, "max_tokens": 64}
NOBODY = 9  # a port where nothing listens


class Town:
    """A device that starts without a cloud, and clouds it can be connected to, by their peculiarity."""

    def __init__(self, data: Path, proxy: FaultyProxy) -> None:
        self.data = data
        self.proxy = proxy
        model: dict[str, object] = {"model": make_wordy_model(data / "model"), "scorer": SCORER}
        other = {"model": make_wordy_model(data / "other-model", words=300), "scorer_scale": 3.0}
        peculiarities = {"strange": model | other, "fitting": model | CLOUD_LIMITS}
        self.pair = Pair(data, model | {"patience": 0.5}, between=int(proxy.address.rpartition(":")[2]))
        self.ports = {name: free_port() for name in peculiarities}
        self.clouds = {
            name: Daemon("cloud", data, self._own(name) | flags, data / f"{name}.log")
            for name, flags in peculiarities.items()
        }

    def __enter__(self) -> Town:
        try:
            for daemon in self._daemons():
                daemon.start()
            for daemon in self._daemons():
                daemon.wait_for(f"{daemon.role} ready")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        for daemon in self._daemons():
            daemon.stop()

    def connect(self, cloud: str) -> None:
        """Connect the device to the cloud of that name, or to none when there is no such cloud."""
        self.proxy.set_target(self.ports.get(cloud, NOBODY))
        self.proxy.cut()

    def answer(self, question: str = QUESTION, tokens: int = TOKENS, **fields: Any) -> dict[str, Any]:
        """The report of an answer, which must be whole."""
        report: dict[str, Any] = self.pair.complete(question, max_tokens=tokens, **fields)["dragon"]
        assert report["tokens"] == tokens
        return report

    def together(self) -> dict[str, Any]:
        """The report of a whole answer in which the cloud takes part."""
        report: dict[str, Any] = complete_together(self.pair, QUESTION, max_tokens=TOKENS)["dragon"]
        assert report["tokens"] == TOKENS
        return report

    def ask(self, *arguments: str) -> CompletedProcess[str]:
        """`dragon ask` at the device."""
        return dragon("ask", *arguments, "--url", self.pair.url, data=self.data)

    def _own(self, cloud: str) -> dict[str, object]:
        """Settings by which it has an address and a data folder of its own, and the library that commands fill."""
        bind, library = f"tcp://127.0.0.1:{self.ports[cloud]}", self.data / "cloud" / "library"
        return {"threads": 1, "bind": bind, "data": self.data / cloud, "library": library}

    def _daemons(self) -> tuple[Daemon, ...]:
        return self.pair.device, *self.clouds.values()


@pytest.fixture(scope="module")
def town(fresh_data: Callable[[], Path]) -> Iterator[Town]:
    data = fresh_data()
    shutil.rmtree(data / "cloud")
    with FaultyProxy(NOBODY) as proxy, Town(data, proxy) as town:
        yield town


def sentence(done: CompletedProcess[str], exit_code: int) -> str:
    """The one line that a command failed with, behind what it says that it does."""
    assert (done.returncode, done.stdout) == (exit_code, ""), done
    *before, last = done.stderr.splitlines(keepends=True)
    assert all(" INFO " in line for line in before), done.stderr
    assert last.endswith("\n")
    return last


# --- starting a daemon; what can't be started at all is started all at once


@pytest.fixture(scope="module")
def failed_starts(town: Town, tmp_path_factory: pytest.TempPathFactory) -> dict[str, CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("starts")
    settings = folder / "device.toml"
    settings.write_text('colour = "blue"\n')
    commands = {
        "device model": ("device", f"--model={folder / 'nothing'}"),
        "cloud model": ("cloud", f"--model={folder / 'nothing'}"),
        "device flag": ("device", "--prot=1"),
        "cloud flag": ("cloud", "--bnid=tcp://127.0.0.1:1"),
        "key": ("device", f"--config={settings}"),
        "privacy": ("device", "--placement=cloud"),
        "open": ("cloud", "--bind=tcp://0.0.0.0:8601", "--curve=off"),
    }
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        done = pool.map(lambda each: dragon(*commands[each], data=folder / each, timeout=100), commands)
        return dict(zip(commands, done, strict=True))


@pytest.mark.timeout(300)  # several daemons try to start at once
@pytest.mark.parametrize(
    ("start", "said"),
    [
        ("device model", ("dragon device: ", "/nothing", "no such folder")),
        ("cloud model", ("dragon cloud: ", "/nothing", "no such folder")),
        ("device flag", ("--prot", "did you mean --port?")),
        ("cloud flag", ("--bnid", "did you mean --bind?")),
        ("key", ("device.toml", "'colour'", "no setting")),
        ("privacy", ("placement = 'cloud'", "privacy = 'strict'", "set privacy = 'balanced'")),
        ("open", ("bind = 'tcp://0.0.0.0:8601'", "set curve = 'auto'")),
    ],
)
def test_a_daemon_that_cannot_start(
    failed_starts: dict[str, CompletedProcess[str]], start: str, said: tuple[str, ...]
) -> None:
    line = sentence(failed_starts[start], 2)
    assert all(part in line for part in said)


# --- asking


LONG_WORDS = "kettle " * 2500  # more bytes than a question may have
MANY_WORDS = "kettle " * 2000  # more tokens than the model's context


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((" \n",), "the question is empty"),
        ((LONG_WORDS,), "The question is longer than 16384 bytes"),
        ((MANY_WORDS,), "tokens and the answer up to 128; the model's context holds 2,048"),
        (("q", "--max-tokens", "0"), "'max_tokens': Input should be greater than or equal to 1"),
        (("q", "--documents", "99"), "'documents': Input should be less than or equal to 64"),
        (("q", "--temperature", "3"), "'temperature': must be from 0 to 2"),
        (("q", "--temperature", "nan"), "--temperature must be a finite number, not nan"),
        (("q", "--placement", "cloud"), "'strict' allows placement 'device' only"),
        (("q", "--privacy", "balanced"), "a request can't loosen it"),
        (("q", "--sampler", "paper", "--placement", "mirrored"), "'mirrored' needs the race sampler"),
        (("q", "--colour", "blue"), "--colour"),
    ],
)
def test_a_question_that_cannot_be_asked(town: Town, arguments: tuple[str, ...], said: str) -> None:
    assert said in sentence(town.ask(*arguments), 2)


@pytest.mark.parametrize(
    ("question", "said"), [("", "empty"), (" \n", "empty"), (LONG_WORDS, "longer"), (MANY_WORDS, "context holds 2,048")]
)
def test_the_same_over_http(town: Town, question: str, said: str) -> None:
    body = {"model": "dragon", "messages": [{"role": "user", "content": question}]}
    response = httpx.post(f"{town.pair.url}/v1/chat/completions", json=body, **PATIENTLY)
    assert response.status_code == 400
    assert said in response.json()["error"]["message"]


def test_nobody_to_ask(town: Town) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    line = sentence(dragon("ask", QUESTION, "--url", url, data=town.data), 3)
    assert url in line
    assert "`dragon up`" in line


# --- the cloud; each of these tests connects the device to the one that it needs


class TestCloud:
    def test_not_there(self, town: Town) -> None:
        """The device answers alone and says so; it connects when there is a cloud."""
        town.connect("nobody")
        wait_until(lambda: town.pair.status()["cloud"]["state"] in ("away", "connecting"), "the cloud is away")
        report = town.answer()
        assert report["degraded"] == list(range(TOKENS))
        assert len(report["notes"]) == 1
        why = "The cloud did not take part: "
        assert report["notes"][0].startswith(why)
        assert why in sentence(town.ask(QUESTION, "--sources", "cloud"), 1)
        body = {"model": "dragon", "sources": "cloud", "messages": [{"role": "user", "content": QUESTION}]}
        response = httpx.post(f"{town.pair.url}/v1/chat/completions", json=body, **PATIENTLY)
        assert response.status_code == 503
        assert response.json()["error"]["message"].startswith(why)
        town.connect("fitting")
        town.pair.wait_for_cloud("connected")
        town.together()

    def test_that_does_not_fit(self, town: Town) -> None:
        """It is refused with what differs and what to do, and gets to hear of no question."""
        reasons = ("the tokenizers differ (", "the scorers differ (device: static:20.0; cloud: static:3.0)")
        town.connect("strange")
        wait_until(lambda: town.pair.status()["cloud"]["state"] == "refused", "the cloud is refused")
        status = dragon("status", "--url", town.pair.url, data=town.data)
        assert status.returncode == 0
        assert "refused (tcp://" in status.stdout
        report = town.answer(tokens=40)
        assert report["degraded"] == list(range(40))
        assert report["sent_bytes"] == 0
        (note,) = report["notes"]
        assert note.startswith("The cloud did not take part: ")
        for said in (*reasons, "Configure the same on both sides."):
            assert said in status.stdout
            assert said in note

    @pytest.mark.parametrize(
        ("question", "tokens", "said"),
        [
            ("kettle " * 40, TOKENS, "longer than the 200 bytes that this cloud allows"),
            (QUESTION, 65, "max_tokens is 65; this cloud allows up to 64"),
        ],
    )
    def test_that_allows_less(self, town: Town, question: str, tokens: int, said: str) -> None:
        town.connect("fitting")
        town.pair.wait_for_cloud("connected")

        def told_why() -> bool:
            """On a busy machine the device may have gone on already, of which it says so, or be connecting again."""
            report = town.answer(question, tokens)
            assert report["degraded"] == list(range(tokens))
            assert report["notes"]
            told = (said, "in time", "can't be reached", "was away for")
            assert all(any(each in note for each in told) for note in report["notes"])
            return said in report["notes"][-1]

        wait_until(told_why, "the cloud's reason is told")


# --- the libraries; the daemons notice every change


def sides(town: Town) -> set[str]:
    """Sides whose documents took part in an answer of both. A side without any drafts nothing, and has no share."""
    report = town.together()
    assert report["notes"] == []
    found = {source["side"] for source in report["sources"]}
    drafted = {side for side in ("device", "cloud") if report[side]["drafted"]}
    assert drafted == (found or {"device"})
    if found:
        assert all(0.98 < sum(row) < 1.02 for row in report["attribution"]), report["attribution"]
    return found


class TestLibraries:
    def test_missing_and_empty_ones_and_bad_documents(self, town: Town, tmp_path: Path) -> None:
        town.connect("fitting")
        town.pair.wait_for_cloud("connected")
        assert sides(town) == {"device"}  # the cloud's never existed
        removed = dragon("library", "remove", "--all", data=town.data)
        assert removed.returncode == 0, removed.stderr
        assert sides(town) == set()

        (tmp_path / "binary.md").write_bytes(bytes(range(256)))
        (tmp_path / "noise.txt").write_bytes(bytes(range(128, 256)) * 4)
        os.mkfifo(tmp_path / "pipe.md")
        (tmp_path / "forbidden.md").write_text("Nobody may read this.")
        (tmp_path / "forbidden.md").chmod(0)
        (tmp_path / "good.md").write_text("Delthcine House opens at 12 pm.")
        added = dragon("library", "add", "--role", "cloud", str(tmp_path), data=town.data)
        assert (added.returncode, added.stdout) == (1, "")
        assert "skipped binary.md: it is not text: it contains NUL bytes\n" in added.stderr
        assert "skipped noise.txt: it is not text" in added.stderr
        assert "skipped pipe.md: it is not an ordinary file\n" in added.stderr
        if os.geteuid() != 0:  # whom nothing is forbidden
            assert "skipped forbidden.md: it can't be read: permission denied\n" in added.stderr
        assert sides(town) == {"cloud"}

    @pytest.mark.parametrize(
        ("path", "said"), [("nothing", "is not a folder or a file"), ("binary.exe", "its type is not supported")]
    )
    def test_what_cannot_be_added_at_all(self, town: Town, tmp_path: Path, path: str, said: str) -> None:
        (tmp_path / "binary.exe").write_bytes(b"MZ")
        line = sentence(dragon("library", "add", str(tmp_path / path), data=town.data), 2)
        assert line.startswith("dragon: ")
        assert str(tmp_path / path) in line
        assert said in line
