"""Ports for daemons: nobody else takes one between the moment that it is found free and the daemon's start."""

from __future__ import annotations

import socket

import pytest

from scripts.daemons import FIRST_PORT, KERNELS, PORTS, free_port, own_ports

USUAL = "32768\t60999\n"  # as Linux says it


def test_workers_have_ranges_of_their_own_that_the_kernel_gives_to_nobody() -> None:
    ranges = [own_ports(f"gw{number}", USUAL) for number in range(24)]
    assert all(len(each) == PORTS for each in ranges)
    assert len({port for each in ranges for port in each}) == len(ranges) * PORTS
    assert max(each.stop for each in ranges) <= 32768


@pytest.mark.parametrize(
    ("worker", "kernels"),
    [
        ("", USUAL),  # outside of a test run, or in one of a single process
        ("master", USUAL),
        ("gw0", ""),  # the kernel does not tell
        ("gw0", "1024 65535"),
        ("gw0", f"1024 {FIRST_PORT}"),
        ("gw30", USUAL),  # more workers than there is room for
        ("gw91", "1024 2000"),
        ("gw95", USUAL),
    ],
)
def test_any_port_where_there_is_no_such_range(worker: str, kernels: str) -> None:
    assert not own_ports(worker, kernels)


def test_ranges_may_be_above_the_kernels() -> None:
    assert own_ports("gw0", f"1024 {FIRST_PORT - 1}") == range(FIRST_PORT, FIRST_PORT + PORTS)


class TestFreePort:
    @pytest.fixture(autouse=True)
    def worker(self, monkeypatch: pytest.MonkeyPatch) -> range:
        monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw23")
        own = own_ports("gw23", KERNELS.read_text() if KERNELS.exists() else "")
        if not own:
            pytest.skip("this kernel leaves no ports for the workers of a test run")
        return own

    def test_is_another_one_each_time(self, worker: range) -> None:
        found = [free_port() for _ in range(20)]
        assert set(found) <= set(worker)
        assert len(set(found)) == len(found)

    def test_is_none_that_is_taken(self, worker: range, monkeypatch: pytest.MonkeyPatch) -> None:
        first, second = free_port(), free_port()
        monkeypatch.setattr("scripts.daemons.own_ports", lambda worker, kernels: range(first, second + 1))
        with socket.create_server(("127.0.0.1", first)):
            found = {free_port() for _ in range(4)}
        assert found <= {*range(first + 1, second + 1)}

    def test_is_any_one_when_all_are_taken(self, worker: range, monkeypatch: pytest.MonkeyPatch) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            monkeypatch.setattr("scripts.daemons.own_ports", lambda worker, kernels: range(port, port + 1))
            assert free_port() not in (0, port)

    def test_is_any_one_outside_of_a_test_run(self, worker: range, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("PYTEST_XDIST_WORKER")
        assert free_port() not in worker
