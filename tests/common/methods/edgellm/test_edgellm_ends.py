"""Method `edgellm`: what is shown before it is final, and how answers end that are cancelled or fail."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import termios
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from common.answer.request import AnswerFailed
from common.configuration.configuration import ConfigurationError
from common.engine.model.errors import ModelError
from device.http.options import HttpOptions
from device.http.server import HttpServer
from device.interface import Finished, Provisional, TokenEvent
from tests.common.engine.model.tiny_models import byte_level_tokenizer, make_model
from tests.common.methods.edgellm.edge_device import (
    ENDLESS,
    QUESTIONS,
    EdgeDevice,
    alone,
    device,
    large,
    streamed,
    streaming,
    told,
)

__all__ = ["device", "large", "streamed"]  # fixtures


class TestProvisionalText:
    def test_it_is_replaced_by_what_is_final(self, device: EdgeDevice) -> None:
        events = list(device.begin(provisional=True, logit_bias=ENDLESS))
        shown = [event.text for event in events if isinstance(event, Provisional)]
        tokens, last = told(events)
        assert tokens == device.tokens(logit_bias=ENDLESS)
        assert any(text and text in last.text for text in shown)
        assert not any(isinstance(event, Provisional) for event in device.begin())

    def test_over_http(self, device: EdgeDevice) -> None:
        body: dict[str, Any] = {
            "messages": [{"role": "user", "content": QUESTIONS[0]}],
            "method": "edgellm",
            "sources": "device",
            "seed": 20,
            "stream": True,
        }
        with HttpServer(HttpOptions(port=0)).serve(device.engine) as server:
            asked, plain = (
                chunks(f"{server.url}/v1/chat/completions", body | more) for more in ({"provisional": True}, {})
            )
        drafts = [chunk for chunk in asked if "provisional" in (chunk.get("dragon") or {})]
        assert drafts
        assert all(chunk["choices"][0]["delta"] == {} for chunk in drafts)
        assert not any("provisional" in (chunk.get("dragon") or {}) for chunk in plain)
        assert content(asked) == content(plain)

    def test_on_a_terminal_and_in_a_pipe(self, device: EdgeDevice) -> None:
        options = ["--method", "edgellm", "--sources", "device", "--seed", "20", "--provisional"]
        with HttpServer(HttpOptions(port=0)).serve(device.engine) as server:
            command = [sys.executable, "-m", "device.cli.main", "ask", QUESTIONS[0], *options, "--url", server.url]
            piped = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
            shown = on_terminal(command)
        assert "\x1b" not in piped
        assert "\x1b[2m" in shown
        assert re.sub(r"\x1b\[2m.*?\x1b\[22m(\x1b\[\d+D\x1b\[K)", "", shown) == piped.replace("\n", "\r\n")


def on_terminal(command: Sequence[str]) -> str:
    """Output of a command on a terminal of 200 columns."""
    ours, its = pty.openpty()
    termios.tcsetwinsize(its, (24, 200))
    with subprocess.Popen(command, stdout=its, stderr=subprocess.PIPE, env=os.environ | {"TERM": "xterm"}) as process:
        os.close(its)
        written = b""
        with suppress(OSError):  # a terminal whose other end is closed
            while part := os.read(ours, 4096):
                written += part
        os.close(ours)
        process.communicate(timeout=60)
    assert process.returncode == 0
    return written.decode()


def chunks(url: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    lines = httpx.post(url, json=body, timeout=60, trust_env=False).text.splitlines()
    return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]


def content(stream: Sequence[dict[str, Any]]) -> str:
    return "".join(choice["delta"].get("content") or "" for chunk in stream for choice in chunk["choices"])


class TestFailures:
    def test_cancelled_in_the_middle(self, streamed: EdgeDevice) -> None:
        generation = streamed.begin(logit_bias=ENDLESS, max_tokens=100)
        events = iter(generation)
        while not isinstance(next(events), TokenEvent):
            pass
        generation.cancel()
        *_, last = events
        assert isinstance(last, Finished)
        assert last.reason == "cancelled"
        assert streamed.tokens() == alone(streamed)

    def test_cancelled_at_any_time(self, streamed: EdgeDevice) -> None:
        for tenths in range(6):
            generation = streamed.begin(logit_bias=ENDLESS, max_tokens=100)
            timer = threading.Timer(tenths / 20, generation.cancel)
            timer.start()
            _, last = told(list(generation))
            timer.join()
            assert last.reason in ("cancelled", "length")
        assert streamed.tokens() == alone(streamed)

    def test_a_damaged_file_ends_the_answer_and_nothing_else(self, large: Path, tmp_path: Path) -> None:
        target = tmp_path / "target"
        target.mkdir()
        for file in large.iterdir():
            (target / file.name).write_bytes(file.read_bytes())
        last = max(target.glob("*.safetensors"))
        whole = last.read_bytes()
        middle = len(whole) // 2
        other = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
        with streaming(tmp_path, target) as device:
            expected = device.tokens()
            for damage, told in (
                (lambda: os.truncate(last, len(whole) // 8), "became shorter"),
                (lambda: last.write_bytes(other), "has changed since it was loaded"),
            ):
                damage()
                with pytest.raises(AnswerFailed, match=rf"can't be used any more: .*{told}.*\.$"):
                    for _ in range(3):  # layers that were read ahead are good
                        device.tokens(logit_bias=ENDLESS)
                assert alone(device) == expected
                last.write_bytes(whole)
                assert device.tokens() == expected

    def test_a_budget_that_is_too_small(self, large: Path, tmp_path: Path) -> None:
        with pytest.raises(ModelError, match=r"budget of 1048576 bytes is too small, the smallest is \d+") as caught:
            streaming(tmp_path / "one", large, memory_budget=2**20)
        smallest = int(str(caught.value).partition("smallest is ")[2].partition(":")[0])
        with streaming(tmp_path / "two", large, memory_budget=smallest) as device:
            assert device.tokens() == alone(device)

    def test_another_tokenizer(self, tmp_path: Path) -> None:
        own, other = make_model("llama", tmp_path / "own"), make_model("llama", tmp_path / "other")
        byte_level_tokenizer(320).save_pretrained(other)
        with pytest.raises(ConfigurationError, match="have different tokenizers"):
            EdgeDevice(tmp_path, model=str(own), tokenizer=None, draft_model=None, local_target=str(other))
