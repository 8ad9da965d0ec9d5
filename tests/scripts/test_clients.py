"""The trial of clients: where they are installed, in which version, and that one that hangs has failed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import pytest

from scripts.clients import __main__ as clients
from scripts.daemons import ROOT


class Answering:
    """Stands for a pair of daemons."""

    url = "http://127.0.0.1:1"

    def __init__(self, *_: object, **__: object) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def complete(self, question: str) -> Mapping[str, Any]:
        return {"choices": [{"message": {"content": "At Delthcine House."}}]}


def test_a_relative_folder_is_taken_from_where_the_command_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client runs in that folder, from where the same name means another one."""
    monkeypatch.chdir(tmp_path)
    places = list[Path]()

    def noted(result: bool | None) -> Callable[..., bool | None]:
        def note(*arguments: object) -> bool | None:
            places.extend(each for each in arguments[:2] if isinstance(each, Path) and each.name == "build")
            return result

        return note

    monkeypatch.setattr(clients, "install", noted(None))
    monkeypatch.setattr(clients, "fill_library", noted(None))
    monkeypatch.setattr(clients, "Pair", Answering)
    monkeypatch.setattr(clients, "tried", noted(True))
    assert clients.main(["openai", "--environment", "build"]) == 0
    assert places == [tmp_path / "build"] * 2


def test_a_client_that_hangs_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(clients, "PATIENCE", 0.1)
    monkeypatch.setattr(clients, "command", lambda *_: ["sleep", "60"])
    assert not clients.tried("openai", tmp_path, Answering.url, "")
    assert capsys.readouterr().out == "openai\n  failed, no end within 0.1 s\n"


def test_the_javascript_client_has_the_version_that_was_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = (ROOT / "docs" / "clients.md").read_text("utf-8")
    assert f"| openai, JavaScript | {clients.NODE_VERSION} |" in table
    npm, log, manifest = (tmp_path / name for name in ("npm", "log", "node_modules/openai/package.json"))
    npm.write_text(f'#!/bin/sh\necho "$@" >> {log}\n')
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    manifest.parent.mkdir(parents=True)
    manifest.write_text(json.dumps({"version": clients.NODE_VERSION}))
    clients.install_node(tmp_path)
    assert not log.exists(), "it is there"
    manifest.write_text(json.dumps({"version": "6.0.0"}))
    clients.install_node(tmp_path)
    manifest.unlink()
    clients.install_node(tmp_path)
    assert [line.split()[-1] for line in log.read_text().splitlines()] == [f"openai@{clients.NODE_VERSION}"] * 2
