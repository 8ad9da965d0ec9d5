"""docs/ and the code say the same: settings, report, commands, endpoints, limits, messages, paths and examples."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from signal import SIGTERM
from typing import Any

import click
import pytest
import typer

from cloud.settings import CloudSettings
from common.answer.report import Report, SentBytes, SideReport
from common.configuration.settings import Settings, default_data_dir, default_model
from common.daemon.start import BAD_INPUT as NOT_STARTED
from common.library.readers.formats import CONVERTIBLE, READ
from common.methods.catalog import METHODS
from common.process.lifetime import KILLED
from common.process.threads import THREAD_DIED
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
from tests.support import english, program

ROOT = Path(__file__).resolve().parent.parent
PATHS = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
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
            "sent": SentBytes(),
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

    def test_a_role_that_is_not_given_is_the_device(self) -> None:
        """But for the commands that the sentence names."""
        (sentence,) = re.findall(r"`--role` is `device` unless given[^.]*\.", OPERATIONS)
        others = {
            path
            for path, command in self.commands()
            for parameter in command.params
            if "--role" in parameter.opts and parameter.default != "device"
        }
        assert others == {path for path in code(sentence) if path.startswith("dragon ")}

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

    def test_defaults_are_the_methods(self) -> None:
        """A default that is one word or number is that of every method with the field, unless the cell names it."""
        wrong, compared = [], 0
        for name, _, cell in table(HTTP, "request field"):
            usual, _, rest = cell.partition(";")
            if not re.fullmatch(r"`[^`]+`|[\d.]+", usual):
                continue  # what is left out is told in words
            others = re.findall(r"[\w.-]+", rest)
            for method in METHODS.values():
                known = method.request.model_fields.get(code(name)[0])
                if known is None or known.default is None:
                    continue
                compared += 1
                told = [] if method.name in others else [usual.strip("`")]
                if not told or "methods that verify" in rest:
                    told += others
                default = known.default if isinstance(known.default, str) else json.dumps(known.default)
                if default.removesuffix(".0") not in told:
                    wrong.append((code(name)[0], method.name, default))
        assert compared > 50
        assert not wrong

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
    rows = [*table(OPERATIONS, "what"), *table(LIBRARIES, "what")]
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


class TestEnglish:
    """Limits of words, of the length of sentences and of habits, which may only fall: tests/english.json.

    They are for each document, and for what each room of the program says.
    """

    def test_nothing_is_above_its_limits(self) -> None:
        now, limits = english.everything(), english.limits()
        assert now.keys() == limits.keys(), "python -m tests.support.english --lower"
        worse = {name: english.worse(measured, limits[name]) for name, measured in now.items()}
        assert not {name: names for name, names in worse.items() if names}

    def test_limits_are_what_is_reached(self) -> None:
        """A document or room that got better lowers its limits, so that it stays so. A few words are free."""
        now, limits = english.everything(), english.limits()
        assert english.lowered(now, limits) == limits, "python -m tests.support.english --lower"
        assert english.lowered({"new": english.English(51, 9.1, 2, 3)}, {}) == {"new": english.English(100, 9.5, 2, 3)}

    def test_what_is_counted(self) -> None:
        text = """# A heading that nobody counts as a sentence, however long

The device sends a question. Those that wait are told of it, but for one.

    code that no one reads as prose, behind a fence

* It holds `a b c` so long
    as needed; some 160 bytes.

| name | meaning |
|---|---|
| `one` | The cloud retrieves and reads the documents of the question |

```
behind, told, in vain
```
"""
        assert english.sentences(text) == [
            "The device sends a question.",
            "Those that wait are told of it, but for one.",
            "It holds code so long as needed; some 160 bytes.",
            "The cloud retrieves and reads the documents of the question",
        ]
        measured = english.measured(text)
        assert (measured.sentence, measured.long) == (8.8, 0)
        assert english.measured("| a | `b` 2 |\n|---|---|\n").words == 3
        found = {name.split(",")[0] for name, count in english.habits(text).items() if count}
        assert found == {
            "told",
            "but for",
            "as long as",
            "those that",
            "holds",
            "some 160",
            "who or what as a sentence's first word",
        }

    def test_what_the_program_says_is_found(self) -> None:
        """Errors with their placeholders, texts of the page, help of commands and of settings."""
        said = program.said()
        assert any(text.startswith("no device daemon answers at x; start one with") for text in said["device"])
        assert "The answer broke off: the connection was closed." in said["page"]
        assert any(text.startswith("Answer one question.") for text in said["help"])
        assert "Longest chunk, in tokens of the embedding model." in said["help"]
        assert not any("Entry point of" in text for text in said["device"])

    def test_long_sentences_of_the_program_are_counted(self) -> None:
        long = "word " * 13
        assert english.long_said([f"{long}; {long}.", f"{long}`dragon ask` {long}x"]) == [f"{long}code {long}x"]

    def test_long_sentences_are_counted(self) -> None:
        assert english.measured("A " + "word " * 30 + "ends.").long == 1
        assert english.measured("A " + "word " * 20 + "ends. " + "A " + "word " * 20 + "ends.").long == 0
