"""docs/ and the code say the same: settings, report, commands, endpoints, limits, messages, paths and examples."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import json
import math
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from signal import SIGTERM
from typing import Any

import click
import numpy as np
import pytest
import torch
import typer

from cloud.settings import CloudSettings
from common.answer.report import Report, SideReport
from common.configuration.settings import Settings, default_data_dir, default_model
from common.daemon.daemon import BAD_INPUT as NOT_STARTED
from common.library.readers.formats import CONVERTIBLE, READ
from common.methods.aggregate.machine.values import Decided
from common.methods.aggregate.samplers.race import RaceAggregation
from common.methods.catalog import METHODS
from common.process.stopping import KILLED
from common.process.vital import THREAD_DIED
from common.sampling.certificate import WHOLE, Certified, Contested, certify, eta_fixed
from common.sampling.noise import exponential
from common.sampling.race import RaceSampler
from device.cli.failures import ANSWER_FAILED, BAD_INPUT, NOT_REACHABLE
from device.cli.main import INTERRUPTED, app
from device.http.app import Api
from device.http.endpoints import ENDPOINTS
from device.http.fields import REFUSED
from device.http.options import HttpOptions
from device.http.page import PAGE
from device.http.payloads import report_json
from device.http.responses.schema import ResponsesBody
from device.http.schema import OPTIONS, ChatBody, CompletionBody
from device.settings import DeviceSettings

ROOT = Path(__file__).resolve().parent.parent
PATHS = [*(ROOT / name for name in ("README.md", "CHANGELOG.md", "SECURITY.md")), *sorted((ROOT / "docs").glob("*.md"))]
DOCUMENTS = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in PATHS}
OPERATIONS, HTTP, PRIVACY, ALGORITHM, LIBRARIES = (
    DOCUMENTS[f"docs/{name}.md"] for name in ("operations", "api", "privacy", "algorithm", "documents")
)
PACKAGES = ("proto", "common", "device", "cloud")


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")]


def table(document: str, heading: str) -> list[list[str]]:
    """The rows below the table heading that starts with `heading`; no cell may be missing."""
    lines = document.splitlines()
    (start,) = [number for number, line in enumerate(lines) if line.startswith(f"| {heading} |")]
    width, rows = len(cells(lines[start])), list[list[str]]()
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append(cells(line))
        assert len(rows[-1]) == width, line
    return rows


def section(document: str, heading: str) -> str:
    """The text below a heading, to the next one."""
    (found,) = re.findall(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)", document, re.M | re.S)
    return str(found)


def code(cell: str) -> list[str]:
    return re.findall(r"`([^`]*)`", cell)


class TestSettings:
    @staticmethod
    def written(settings: Settings, name: str) -> str:
        """A default as the table has it."""
        value = getattr(settings, name)
        if name == "data_dir":
            return "<user data>/dragon" if value == default_data_dir() else "?"
        if name == "data":
            return "<data_dir>/<role>" if value == settings.data_dir / settings.role else "?"
        if name in ("local_keys", "models"):
            return f"<data_dir>/{value.relative_to(settings.data_dir)}"
        if isinstance(value, Path):
            return f"<data>/{value.relative_to(settings.data)}"
        if name == "model" and value == default_model():
            return "auto"
        if isinstance(value, str):
            return json.dumps(value) if value != value.strip() else value
        return "none" if value is None else json.dumps(value)

    @pytest.mark.parametrize("kind", [DeviceSettings, CloudSettings])
    def test_every_one_is_there_with_its_default(self, kind: type[Settings]) -> None:
        documented = {
            code(name)[0]: code(default)[0]
            for name, default, role, meaning in table(OPERATIONS, "setting")
            if role in ("both", kind.role) and meaning
        }
        settings = kind()  # type: ignore[call-arg]  # its data folder has a default in either role
        assert documented == {name: self.written(settings, name) for name in kind.model_fields}

    def test_the_example_file_is_valid(self) -> None:
        (lines,) = re.findall(r"    # ~/.config/dragon/device.toml\n((?:    .+\n)+)", OPERATIONS)
        values = dict(line.strip().split(" = ") for line in lines.splitlines())
        assert DeviceSettings(**{name: json.loads(value) for name, value in values.items()})


class TestReport:
    @staticmethod
    def report() -> Report:
        side = SideReport()
        numbers = {field.name: 0 for field in dataclasses.fields(Report)}
        lists = {
            "degraded": (),
            "sources": (),
            "attribution": (),
            "accepted": (),
            "notes": (),
            "method": "speculative",
            "aggregation": "output",
            "sampler": "race",
            "placement": "device",
        }
        return Report(**{**numbers, **lists, "device": side, "cloud": side})  # type: ignore[arg-type]

    def test_every_field_is_there(self) -> None:
        sent = report_json(self.report(), [])
        assert sorted(code(row[0])[0] for row in table(HTTP, "field")) == sorted(sent)
        assert [code(row[0])[0] for row in table(HTTP, "field of a side")] == list(sent["device"])


class TestCommandLine:
    @staticmethod
    def commands() -> Iterator[tuple[str, click.Command]]:
        pending: list[tuple[str, Any]] = [("dragon", typer.main.get_command(app))]
        while pending:
            path, command = pending.pop()
            below = getattr(command, "commands", None)
            if below is None:
                yield path, command
            else:
                pending += [(f"{path} {name}", item) for name, item in below.items()]

    @staticmethod
    def parameters(command: click.Command) -> list[str]:
        """Names of arguments, and the longest spelling of each option."""
        shown = [parameter for parameter in command.params if parameter.name != "help"]
        return [str(item.name) if item.param_type_name == "argument" else max(item.opts, key=len) for item in shown]

    def test_every_command_is_there_with_its_options(self) -> None:
        everywhere = code(section(OPERATIONS, "Options of an answer"))
        documented = {
            code(row[0])[0]: code(row[1]) + everywhere * ("(#options-of-an-answer)" in row[1])
            for row in table(OPERATIONS, "command")
        }
        daemons = {"dragon device": ["--config"], "dragon cloud": ["--config"]}  # they parse their settings
        actual = {path: daemons.get(path) or self.parameters(command) for path, command in self.commands()}
        assert {path: sorted(names) for path, names in documented.items()} == {
            path: sorted(names) for path, names in actual.items()
        }

    def test_every_command_in_an_example_exists(self) -> None:
        known = {path for path, _ in self.commands()}
        groups = {path.rsplit(" ", 1)[0] for path in known}
        text = "\n".join(DOCUMENTS.values())
        pattern = r"(?:`|^    )(dragon) ([a-z][a-z-]*)( [a-z]+)?"
        used = {" ".join(words).strip() for words in re.findall(pattern, text, re.M)}
        found = {re.sub(r"\s+", " ", path) for path in used}
        wrong = {path for path in found if path not in known | groups and path.rsplit(" ", 1)[0] not in known}
        assert len(found) > 10
        assert not wrong

    def test_exit_codes(self) -> None:
        assert NOT_STARTED == BAD_INPUT
        documented = {int(row[0]) for row in table(OPERATIONS, "exit code")}
        assert documented == {0, ANSWER_FAILED, BAD_INPUT, NOT_REACHABLE, THREAD_DIED, INTERRUPTED, KILLED + SIGTERM}


class TestFormats:
    def test_every_one_is_there(self) -> None:
        documented = [suffix for row in table(LIBRARIES, "format") for suffix in code(row[0])]
        assert documented[-1] == ".txt" and "source code" in section(LIBRARIES, "Libraries")
        assert sorted(documented) == [f".{name}" for name in READ.removesuffix(", and source code").split()]

    def test_what_can_be_saved_as_something_else(self) -> None:
        (line,) = re.findall(r"\* \*\*Not read, but said\*\*: (.*)", LIBRARIES)
        assert code(line) == list(CONVERTIBLE)


class TestHttp:
    def test_every_endpoint_is_there(self) -> None:
        documented = {code(row[0])[0] for row in table(HTTP, "endpoint")}
        assert documented == {f"{endpoint.method} {endpoint.path}" for endpoint in ENDPOINTS}
        routes: Any = Api(HttpOptions()).application
        assert {route.path.replace(":path", "") for route in routes._app.routes} == {
            *(path for endpoint in ENDPOINTS for path in endpoint.paths),
            *PAGE,
        }

    def test_every_request_field_is_there(self) -> None:
        documented = [code(row[0])[0] for row in table(HTTP, "request field")]
        fields = {name for kind in (ChatBody, CompletionBody, ResponsesBody) for name in kind.model_fields}
        assert sorted(documented) == sorted(fields | OPTIONS)

    def test_every_method_is_there(self) -> None:
        (row,) = [row for row in table(HTTP, "request field") if code(row[0]) == ["method"]]
        leaving = {name for row in table(PRIVACY, "by method") for name in code(row[0])}
        told = re.findall(r"^\| `([a-z-]+)` \|", DOCUMENTS["docs/methods.md"], re.M)
        assert set(code(row[1])) == leaving == METHODS.keys() <= set(told)

    def test_every_refused_field_is_there(self) -> None:
        refused, *_ = table(HTTP, "fields")
        assert sorted(code(refused[0])) == sorted(REFUSED)

    def test_every_error_code_is_there(self) -> None:
        documented = {name for row in table(HTTP, "status") for name in code(row[1])}
        sources = "".join(path.read_text("utf-8") for path in (ROOT / "device" / "http").rglob("*.py"))
        given = set(re.findall(r'code="(\w+)"', sources)) | {"unknown_path", "method_not_allowed"}
        assert documented == given - {"refused"}  # of a status that no route gives


def test_limits_are_the_codes() -> None:
    rows = table(OPERATIONS, "what")
    for _, limit, place in rows:
        module, _, name = code(place)[0].rpartition(".")
        owner: Any
        try:
            owner = importlib.import_module(module)
        except ModuleNotFoundError:
            module, _, kind = module.rpartition(".")
            owner = getattr(importlib.import_module(module), kind)()
        assert json.loads(limit) == getattr(owner, name), place
    assert len(rows) > 10


@cache
def spoken() -> list[str]:
    """Every string constant of the packages, the fixed parts of f-strings included."""
    trees = [ast.parse(path.read_text("utf-8")) for name in PACKAGES for path in (ROOT / name).rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    return [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def test_messages_to_look_up_are_what_the_program_says() -> None:
    rows = table(OPERATIONS, "message")
    parts = [part.strip() for row in rows for part in code(row[0])[0].split("…") if len(part.strip()) > 2]
    missing = [part for part in parts if not any(part in text for text in spoken())]
    assert len(parts) > 20
    assert not missing


class TestReferences:
    @pytest.mark.parametrize("name", DOCUMENTS)
    def test_files_that_are_named_exist(self, name: str) -> None:
        named = {
            path
            for path in code(re.sub(r"```.*?```", "", DOCUMENTS[name], flags=re.S))
            if re.fullmatch(r"(proto|common|device|cloud|scripts|tests|docs)/[\w./-]*", path)
        }
        assert not {path for path in named if not (ROOT / path).exists()}

    def test_pages_that_the_code_names_exist(self) -> None:
        tracked = [ROOT / "Makefile", ROOT / "pyproject.toml", *(ROOT / ".github").rglob("*.*")]
        sources = [path for name in (*PACKAGES, "scripts", "tests") for path in (ROOT / name).rglob("*.py")]
        text = "\n".join(path.read_text("utf-8") for path in tracked + sources)
        named = set(re.findall(r"\b(docs/[\w-]+\.md)(?:#([\w-]+))?", text))
        assert len(named) > 3
        for page, anchor in named:
            assert (ROOT / page).is_file(), page
            assert not anchor or anchor in self.anchors((ROOT / page).read_text("utf-8")), f"{page}#{anchor}"

    @pytest.mark.parametrize("name", DOCUMENTS)
    def test_links_lead_somewhere(self, name: str) -> None:
        links = [link for link in re.findall(r"\]\(([^)\s]+)\)", DOCUMENTS[name]) if "://" not in link]
        for link in links:
            target, _, anchor = link.partition("#")
            path = (ROOT / name).parent / target if target else ROOT / name
            assert path.exists(), link
            assert not anchor or anchor in self.anchors(path.read_text("utf-8")), link

    @staticmethod
    def anchors(document: str) -> set[str]:
        """Anchors that GitHub makes of headings."""
        headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", document, flags=re.S), re.M)
        return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}

    def test_the_tests_that_are_named_are_there(self) -> None:
        named = {path for row in table(ALGORITHM, "property") for path in code(row[1])}
        assert len(named) > 10
        assert all((ROOT / path).is_file() for path in named)


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", ALGORITHM, re.DOTALL)


class TestNoiseExample:
    def test_values_are_the_codes(self) -> None:
        (block,) = blocks("noise")
        pattern = r"seed=(\d+) position=(\d+) id=(\d+) bits=([0-9a-f]{8}) E=([\d.]+)"
        values = [re.fullmatch(pattern, line) for line in block.strip().splitlines()]
        assert len(values) > 4
        for value in values:
            assert value
            seed, position, token = (int(number) for number in value.groups()[:3])
            (noise,) = exponential(seed, position, [token])
            assert f"{noise.view(np.uint32):08x}" == value[4]
            assert np.float32(value[5]) == noise

    def test_the_recipe_alone_gives_them(self) -> None:
        """The definition as it is written, with the constants as they are written, in exact integers."""
        constants = re.findall(r"0x[0-9A-F]{16}", ALGORITHM[ALGORITHM.index("mix(w):") :])
        first, second, golden, factor = (int(text, 16) for text in constants[:4])
        assert int(constants[4], 16) == golden
        root = int(constants[5], 16)
        (ln2,) = re.findall(r"ln u = e · ([\d.]+) \+ a", ALGORITHM)
        assert float(ln2) == math.log(2)  # its last digits are seldom seen in a float32

        def mix(word: int) -> int:
            word %= 2**64
            word = (word ^ (word >> 30)) * first % 2**64
            word = (word ^ (word >> 27)) * second % 2**64
            return word ^ (word >> 31)

        def noise(seed: int, t: int, i: int) -> np.float32:
            word = mix(mix(mix(seed + golden) + t * factor) + i * golden)
            u = (2 * (word >> 12) + 1) * 2.0**-53
            bits = int(np.float64(u).view(np.int64))
            e = (bits - root) >> 52
            z = float(np.int64(bits - (e << 52)).view(np.float64))
            s = (z - 1) / (z + 1)
            q = s * s
            a = q * (2 / 11)
            for k in (4, 3, 2, 1):
                a = (a + 2 / (2 * k + 1)) * q
            a = (a + 2.0) * s
            return np.float32(e * -float(ln2) - a)

        ids = [*range(2000), 2**24 - 1]
        for seed, position in ((0, 0), (2**64 - 1, 2**20 - 1), (42, 7)):
            told = exponential(seed, position, ids)
            assert [noise(seed, position, token).tobytes() for token in ids] == [value.tobytes() for value in told]


@pytest.mark.parametrize("block", blocks("certificate"))
def test_certificate_example(block: str) -> None:
    def words(start: str) -> str:
        (line,) = [line for line in block.splitlines() if line.startswith(start)]
        return line.removeprefix(start).strip()

    evidence = re.findall(r"evidences (-[\d.]+) \(device\) and (-[\d.]+) \(cloud\)", ALGORITHM)
    ((log_h_device, log_h_cloud),) = ((float(one), float(other)) for one, other in evidence)
    eta = eta_fixed(log_h_device, log_h_cloud)
    assert words("eta_device") == f"{eta} / {WHOLE}"
    mixtures = [torch.tensor(json.loads(words(f"{side} p"))) for side in ("device", "cloud")]
    sampler = RaceSampler(int(words("seed")), 1.0, 3, len(mixtures[0]))
    device, cloud = views = [sampler.draft(0, mixture) for mixture in mixtures]
    for side, view in zip(("device", "cloud"), views, strict=True):
        speeds = ", ".join(f"{token}: {speed:.4f}" for token, speed in view.speed_of.items())
        assert words(f"{side} list") == f"{{{speeds}}} threshold {view.threshold:.4f} draft {view.token}"
    weights = (eta / WHOLE, 1 - eta / WHOLE)
    bounds = []
    for token in sorted(device.speed_of | cloud.speed_of):
        pairs = list(zip(weights, views, strict=True))
        low = sum(weight * view.speed_of.get(token, 0.0) for weight, view in pairs)
        high = sum(weight * view.speed_of.get(token, view.threshold) for weight, view in pairs)
        bounds.append(f"token {token} from {low:.4f} to {high:.4f}")
    assert [line for line in block.splitlines() if line.startswith("token ")] == bounds
    assert words("unlisted") == f"{weights[0] * device.threshold + weights[1] * cloud.threshold:.4f}"
    outcome = certify(device, cloud, eta)
    whole = RaceSampler(int(words("seed")), 1.0, 8, 8)
    target = certify(whole.draft(0, mixtures[0]), whole.draft(0, mixtures[1]), eta)
    if isinstance(outcome, Contested):
        lists = f"device {list(outcome.device_ids)} cloud {list(outcome.cloud_ids)} deeper {outcome.deeper}"
        assert words("contested") == lists.lower()
        told = RaceAggregation(sampler, 8, exact=True)
        own = told.complete(device, 0, 0, told.supply(device, outcome.device_ids, 0))
        completed = told.complete(cloud, 0, 0, told.supply(cloud, outcome.cloud_ids, 0))
        decided = told.aggregate("device", 0, own, completed, (log_h_device, log_h_cloud))
        assert isinstance(decided, Decided)
        assert target == Certified(int(words("resolved"))) == Certified(decided.token)
    else:
        assert outcome == target == Certified(int(words("certified")))
