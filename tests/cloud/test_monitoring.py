"""docs/monitoring.md and the dashboard name what the daemons tell, all of it and nothing else."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from cloud.gateway.fleet import Fleet, GatewayMetrics, LocalLauncher
from cloud.gateway.gateway import Gateway
from common.transport.sending import LinkCounters
from device.http.metrics import HttpMetrics
from tests.cloud.town import Resident, Town
from tests.daemons.streaming import wait_until
from tests.support.metrics import Metrics
from tests.test_documents import DOCUMENTS, ROOT, code, table

PAGE = DOCUMENTS["docs/monitoring.md"]
NAME = re.compile(r"\b(?:dragon|process)_[a-z0-9_]+\b")
SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",)}


@pytest.fixture(scope="module")
def told(town: Town, device: Resident, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """Types of all metrics by name, of each daemon; the gateway's are those that a cloud of one process has not."""
    device.ask("Where is my dance class?", max_tokens=4)
    connection = device.engine.cloud.connection
    assert connection is not None
    wait_until(lambda: connection.peer.meter.rtt is not None, "the round trip is known")
    interface = bytes(HttpMetrics(lambda: 0).response(device.engine.metrics()).body)
    found = {"device": Metrics(interface.decode()), "cloud": Metrics(town.sessions.metrics.text().decode())}
    kinds = {side: metrics.kinds for side, metrics in found.items()}
    launcher = LocalLauncher({}, f"ipc://{tmp_path_factory.mktemp('socket') / 's'}", 1)
    fleet = Fleet(0, launcher, 1.0)
    fleet.start()
    own = Metrics(GatewayMetrics(Gateway(fleet, 1), fleet, LinkCounters).text().decode()).kinds
    fleet.close()
    return kinds | {
        "gateway": {
            name: kind for name, kind in own.items() if name.startswith("dragon_") and name not in kinds["cloud"]
        }
    }


@pytest.fixture(scope="module")
def samples(told: dict[str, dict[str, str]]) -> set[str]:
    """Names as queries have them."""
    kinds = told["device"] | told["cloud"] | told["gateway"]
    return {name + suffix for name, kind in kinds.items() for suffix in SUFFIXES[kind]}


def test_the_table_has_every_metric_with_its_type_and_its_daemons(told: dict[str, dict[str, str]]) -> None:
    documented = {
        (code(name)[0].removesuffix("_total"), kind, on) for name, kind, on, meaning in table(PAGE, "metric") if meaning
    }
    exposed = set()
    for name in told["device"].keys() | told["cloud"].keys() | told["gateway"].keys():
        sides = [side for side in told if name in told[side]]
        exposed.add((name, told[sides[0]][name], "both" if len(sides) == 2 else sides[0]))
    assert documented == exposed


def test_alerts_and_tables_name_metrics_that_there_are(samples: set[str], told: dict[str, dict[str, str]]) -> None:
    families = told["device"].keys() | told["cloud"].keys() | told["gateway"].keys()
    assert set(NAME.findall(PAGE)) - {"process_"} <= samples | families


class TestDashboard:
    @staticmethod
    def dashboard() -> dict[str, Any]:
        value: dict[str, Any] = json.loads((ROOT / "docs/monitoring/grafana.json").read_text("utf-8"))
        return value

    def test_it_asks_for_metrics_that_there_are(self, samples: set[str]) -> None:
        queries = [target["expr"] for panel in self.dashboard()["panels"] for target in panel["targets"]]
        asked = {name for query in queries for name in NAME.findall(query)}
        assert len(asked) > 20
        assert asked <= samples

    def test_it_shows_what_is_to_be_seen(self) -> None:
        titles = {panel["title"] for panel in self.dashboard()["panels"]}
        wanted = {
            "Requests",
            "Failures by kind",
            "Time to first token",
            "Between tokens",
            "Acceptance per side",
            "Rollbacks",
            "Bytes per token",
            "Round trip",
            "Degraded tokens",
            "KV memory",
        }
        assert wanted <= titles
        identities = [panel["id"] for panel in self.dashboard()["panels"]]
        assert len(identities) == len(set(identities))
