"""Commands that work from this machine's settings, and the flags of the daemons."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import types
from pathlib import Path
from typing import Any

import pytest
import zmq

from cloud.gateway.fleet import settings_of_worker
from cloud.settings import CloudSettings
from common.configuration.configuration import load_settings
from common.configuration.flags import FlagError, flags_help, parse_flags
from common.configuration.settings import Settings
from common.process import machine as neighbours
from common.transport.keys import key_of, key_text
from device.cli.settings import load_common, load_device
from device.settings import DeviceSettings
from tests.device.cli.conftest import ROOT, Dragon, closed_port
from tests.device.conftest import Serve

KEY = "a7" * 25 + "ea"


class TestFlags:
    def test_values_switches_and_the_file(self) -> None:
        file, given = parse_flags(
            DeviceSettings,
            ["--port", "5", "--cloud=none", "--insecure", "--config", "x.toml", "--max-tokens", "-1"],
        )
        assert file == Path("x.toml")
        assert given == {"port": "5", "cloud": "none", "insecure": True, "max_tokens": "-1"}

    def test_a_switch_may_have_its_value_behind_it(self) -> None:
        for given in (["--end-repetition", "false"], ["--end-repetition=false"]):
            _, values = parse_flags(DeviceSettings, [*given, "--insecure", "--read-ahead", "true"])
            assert values == {"end_repetition": "false", "insecure": True, "read_ahead": "true"}

    @pytest.mark.parametrize(
        ("arguments", "text"),
        [
            (["--prot", "5"], "did you mean --port?"),
            (["--zzz", "5"], "there is no setting --zzz"),
            (["--port"], "--port needs a value"),
            (["5"], "not a flag"),
            (["-p", "5"], "not a flag"),
        ],
    )
    def test_mistakes(self, arguments: list[str], text: str) -> None:
        with pytest.raises(FlagError, match=text.replace("?", r"\?")):
            parse_flags(DeviceSettings, arguments)

    @pytest.mark.parametrize("kind", [DeviceSettings, CloudSettings])
    def test_help_says_what_every_setting_means(self, kind: type[Settings]) -> None:
        text = flags_help(kind)
        for name, field in kind.model_fields.items():
            assert field.description and field.description[0].isalnum(), name
            assert f"  --{name.replace('_', '-')}" in text
            assert field.description.removesuffix(".") in " ".join(text.split())
        assert "  --curve auto|off\n      auto: encrypt" in text
        assert "auto: SmolLM2 where its package is installed [default: auto]" in " ".join(text.split())


class TestDevice:
    @pytest.fixture
    def started(self, monkeypatch: pytest.MonkeyPatch) -> list[DeviceSettings]:
        """Settings that `device.daemon.run_device` is called with."""
        calls: list[DeviceSettings] = []
        daemon: Any = types.ModuleType("device.daemon")
        daemon.run_device = lambda settings, listening: calls.append(settings)
        monkeypatch.setitem(sys.modules, "device.daemon", daemon)
        return calls

    def test_flags_are_on_top_of_file_and_environment(
        self, dragon: Dragon, started: list[DeviceSettings], tmp_path: Path
    ) -> None:
        file = tmp_path / "mine.toml"
        file.write_text("port = 1\ndocuments = 2\npatience = 3.0\n")
        done = dragon(
            "device", "--config", str(file), "--port", "9", "--cloud=none",
            DRAGON_DEVICE_PORT="8", DRAGON_DEVICE_DOCUMENTS="7",
        )  # fmt: skip
        assert done.returncode == 0
        assert [(s.port, s.documents, s.patience, s.cloud) for s in started] == [(9, 7, 3.0, None)]

    def test_a_file_that_a_variable_names_is_said_to_be_both_roles(self, dragon: Dragon, tmp_path: Path) -> None:
        (tmp_path / "mine.toml").write_text("privacy = 'offline'\n")
        done = dragon("models", "list", DRAGON_CONFIG=str(tmp_path / "mine.toml"))
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert done.stderr.endswith("($DRAGON_CONFIG names this file for both roles)\n")

    def test_bad_settings_are_one_line(self, dragon: Dragon, started: list[DeviceSettings]) -> None:
        for arguments in (["--port", "x"], ["--prot", "1"], ["--tls-key", "key.pem"]):
            done = dragon("device", *arguments)
            assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert not started

    @pytest.mark.parametrize("given", ["", "none", "."])
    def test_a_folder_of_other_things_is_no_library(
        self, dragon: Dragon, started: list[DeviceSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
    ) -> None:
        """Nor is the working directory one by mistake: neither a daemon nor a command touches what lies there."""
        here = tmp_path / "checkout"
        here.mkdir()
        (here / "letter.md").write_text("Dear Freya,")
        (here / "letter.md").chmod(0o644)
        here.chmod(0o755)
        monkeypatch.chdir(here)
        (tmp_path / "device.toml").write_text(f"library = {str(here if given == '.' else given)!r}")
        for arguments, environment in (
            (["device", f"--library={given}"], {}),
            (["device", "--config", str(tmp_path / "device.toml")], {}),
            (["library", "status"], {"DRAGON_CONFIG": str(tmp_path / "device.toml")}),
            (["library", "add", "letter.md"], {"DRAGON_DEVICE_LIBRARY": given or "None"}),
        ):
            done = dragon(*arguments, **environment)
            assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done
            assert "library = " in done.stderr
        assert not started and list(here.iterdir()) == [here / "letter.md"]
        assert (here.stat().st_mode & 0o777, (here / "letter.md").stat().st_mode & 0o777) == (0o755, 0o644)

    def test_help(self, dragon: Dragon, started: list[DeviceSettings]) -> None:
        assert "--emulate-decode-ms" in dragon("device", "--help").stdout
        assert not started


class TestConfig:
    def test_device(self, dragon: Dragon) -> None:
        done = dragon("config", DRAGON_DEVICE_PORT="1234")
        values = tomllib.loads(done.stdout)
        assert values["port"] == 1234

    def test_cloud(self, dragon: Dragon) -> None:
        done = dragon("config", "--role", "cloud", DRAGON_CLOUD_BIND="tcp://127.0.0.1:77")
        assert tomllib.loads(done.stdout)["bind"] == "tcp://127.0.0.1:77"

    @pytest.mark.parametrize("role", ["device", "cloud"])
    def test_a_bad_file_is_one_line(self, dragon: Dragon, tmp_path: Path, role: str) -> None:
        file = tmp_path / "bad.toml"
        file.write_text("prot = 1\n")
        done = dragon("config", "--role", role, "--config", str(file))
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert str(file) in done.stderr
        assert "prot" in done.stderr

    def test_a_package_in_the_working_directory_is_not_taken_for_the_cloud(self, tmp_path: Path) -> None:
        """In an installation, where the commands find the packages of this project first."""
        site, here = tmp_path / "site" / "dragon_runtime", tmp_path / "here"
        shutil.copytree(ROOT / "scripts" / "package", site)
        for folder in ("proto", "common", "device", "cloud"):
            (site / folder).symlink_to(ROOT / folder)
        (here / "cloud").mkdir(parents=True)
        for name in ("__init__.py", "settings.py"):
            (here / "cloud" / name).write_text("raise SystemExit('hijacked')")
        command = [sys.executable, "-m", "dragon_runtime", "config", "--role", "cloud"]
        environment = os.environ | {"PYTHONPATH": str(site.parent), "XDG_CONFIG_HOME": str(tmp_path)}
        done = subprocess.run(command, cwd=here, env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode, "bind = " in done.stdout) == (0, True), done


class TestFindingTheDaemon:
    def test_the_settings_say_where_it_is(self, dragon: Dragon, serve: Serve) -> None:
        port = serve().url.rpartition(":")[2]
        assert dragon("ask", "q", DRAGON_DEVICE_PORT=port).stdout == "q\n"

    def test_the_address_that_is_printed_for_other_clients_is_one(self, dragon: Dragon, serve: Serve) -> None:
        url = serve().url
        for given in (f"{url}/v1", f"{url}/v1/", f"{url}/", url.removeprefix("http://") + "/v1"):
            assert dragon("ask", "q", "--url", given).stdout == "q\n"

    def test_where_it_can_not_be_known(self, dragon: Dragon) -> None:
        for arguments, environment, text in (
            (["--url", ""], {}, "--url is empty: give the device daemon's address"),
            (["--url", " "], {}, "--url is empty"),
            ([], {"DRAGON_DEVICE_PORT": "0"}, "port = 0 lets the device daemon take any free port: give the address"),
        ):
            done = dragon("status", *arguments, **environment)
            assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
            assert text in done.stderr

    @pytest.mark.parametrize(("host", "name"), [("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("::1", "[::1]")])
    def test_a_daemon_that_listens_everywhere_is_here(self, dragon: Dragon, host: str, name: str) -> None:
        port = str(closed_port())
        done = dragon("status", DRAGON_DEVICE_HOST=host, DRAGON_DEVICE_PORT=port)
        assert done.stderr.startswith(f"dragon: no device daemon answers at http://{name}:{port};")


class TestKeys:
    def test_new_show_trust_revoke(self, dragon: Dragon) -> None:
        assert dragon("keys", "show").returncode == 2
        made = dragon("keys", "new").stdout
        assert dragon("keys", "show").stdout == made
        assert dragon("keys", "new").returncode == 2
        assert dragon("keys", "new", "--replace").stdout != made
        assert dragon("keys", "trust", "cloud", KEY).returncode == 0
        assert f"trusted     cloud  {KEY}  " in dragon("keys", "show").stdout
        renamed = dragon("keys", "trust", "other", KEY)
        assert (renamed.returncode, "trusted as cloud already" in renamed.stderr) == (2, True)
        done = dragon("keys", "trust", "other", KEY, "--replace")
        renamed_line, trusted = done.stdout.splitlines()
        assert renamed_line == "renamed     cloud, which is other now" and trusted.startswith("trusted     other  ")
        assert "a device talks to the peer cloud only" in done.stderr
        assert dragon("keys", "trust", "cloud", key_text(zmq.curve_keypair()[0].decode())).returncode == 0
        forgotten, renamed_line, _ = sorted(dragon("keys", "trust", "cloud", KEY, "--replace").stdout.splitlines())
        assert forgotten.startswith("forgotten   cloud  ") and renamed_line == "renamed     other, which is cloud now"
        assert dragon("keys", "revoke", "cloud").stdout.startswith("revoked     cloud  ")
        assert KEY not in dragon("keys", "show").stdout

    def test_a_peer_is_revoked_by_its_name_alone(self, dragon: Dragon) -> None:
        """The role is needed where both trust somebody of that name."""
        for role in ("device", "cloud"):
            dragon("keys", "new", "--role", role)
            assert dragon("keys", "trust", "cloud", KEY, "--role", role).returncode == 0
        ambiguous = dragon("keys", "revoke", "cloud")
        assert (ambiguous.returncode, ambiguous.stdout, ambiguous.stderr.count("\n")) == (2, "", 1)
        assert "add --role device or --role cloud" in ambiguous.stderr
        assert dragon("keys", "trust", "laptop", KEY, "--role", "cloud", "--replace").returncode == 0
        assert dragon("keys", "revoke", "laptop").stdout.startswith("revoked     laptop  ")
        assert dragon("keys", "revoke", "cloud").stdout.startswith("revoked     cloud  ")
        unknown = dragon("keys", "revoke", "laptop")
        assert (unknown.returncode, "No key is trusted as laptop; `dragon keys show`" in unknown.stderr) == (2, True)

    @pytest.mark.parametrize(
        ("environment", "text"),
        [
            ({}, "From its next start on, this user's devices on this machine can connect"),
            (
                {"DRAGON_CLOUD_BIND": "tcp://0.0.0.0:8601"},
                "The cloud now refuses all devices. `dragon pair --role cloud` adds",
            ),
            ({"DRAGON_CLOUD_CURVE": "off"}, "everybody who reaches it can still connect"),
        ],
    )
    def test_the_last_device_that_goes_is_told(self, dragon: Dragon, environment: dict[str, str], text: str) -> None:
        dragon("keys", "new", "--role", "cloud")
        for name in ("laptop", "phone"):
            key = key_text(zmq.curve_keypair()[0].decode())
            assert dragon("keys", "trust", name, key, "--role", "cloud").returncode == 0
        assert dragon("keys", "revoke", "laptop", **environment).stderr == ""
        last = dragon("keys", "revoke", "phone", **environment)
        assert last.stderr.startswith("The cloud no longer trusts any device. ") and text in last.stderr

    def test_a_device_that_trusts_no_cloud_any_more_is_told(self, dragon: Dragon) -> None:
        dragon("keys", "new")
        dragon("keys", "trust", "cloud", KEY)
        assert "The device no longer trusts any cloud." in dragon("keys", "revoke", "cloud").stderr

    def test_roles_have_keys_of_their_own(self, dragon: Dragon) -> None:
        assert dragon("keys", "new", "--role", "cloud").returncode == 0
        assert dragon("keys", "show").returncode == 2

    def test_what_is_no_key_is_refused_in_one_line(self, dragon: Dragon) -> None:
        dragon("keys", "new")
        done = dragon("keys", "trust", "cloud", "--nonsense")
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)

    def test_the_example_key_is_one(self) -> None:
        assert key_text(key_of(KEY)) == KEY


class TestLibrary:
    def test_commands_get_the_roles_settings(
        self, dragon: Dragon, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        from common.library import commands

        calls: list[tuple[Any, ...]] = []
        for name in (
            "add_documents",
            "print_documents",
            "prefill_library",
            "remove_documents",
            "search_documents",
            "print_status",
        ):

            def record(settings: Any, *rest: Any, name: str = name) -> int:
                calls.append((name, settings.library.parent.name, settings.chunk_tokens, *rest))
                return 1

            monkeypatch.setattr(commands, name, record)
        assert dragon("library", "add", "x", "y", DRAGON_DEVICE_CHUNK_TOKENS="64").returncode == 1
        dragon("library", "add", "x", "--rebuild", "--watch", "--role", "cloud")
        dragon("library", "list", "--role", "cloud", DRAGON_CLOUD_CHUNK_TOKENS="32")
        dragon("library", "prefill", "--role", "cloud", DRAGON_CLOUD_DOCUMENT_STORE_BYTES="7")
        dragon("library", "remove", "a.txt")
        dragon("library", "remove", "--all")
        dragon("library", "remove", "a.txt", "--role", "cloud")
        uploads = load_device().uploads
        dragon("library", "search", "what", "-k", "3")
        dragon("library", "status", "--role", "cloud")
        assert calls == [
            ("add_documents", "device", 64, [Path("x"), Path("y")], False, False, None, None),
            ("add_documents", "cloud", 128, [Path("x")], True, True, None, None),
            ("print_documents", "cloud", 32),
            ("prefill_library", "cloud", 128),
            ("remove_documents", "device", 128, ["a.txt"], False, uploads),
            ("remove_documents", "device", 128, [], True, uploads),
            ("remove_documents", "cloud", 128, ["a.txt"], False, None),
            ("search_documents", "device", 128, "what", 3),
            ("print_status", "cloud", 128),
        ]


@pytest.mark.parametrize("bind", ["tcp://127.0.0.1:77", "tcp://0.0.0.0:77"])
def test_commands_compute_with_the_threads_of_the_cloud(monkeypatch: pytest.MonkeyPatch, bind: str) -> None:
    """Keys, values and profiles are those of a number of threads: others would be of no use to the daemon."""
    monkeypatch.setenv("DRAGON_CLOUD_BIND", bind)
    monkeypatch.setattr(neighbours, "usable_cores", lambda: 24)
    alone = load_settings(CloudSettings)
    assert (load_common("cloud").shares_machine, load_common("cloud").threads) == (alone.shares_machine, None)
    monkeypatch.setenv("DRAGON_CLOUD_WORKERS", "3")
    several = settings_of_worker(load_settings(CloudSettings))
    assert load_common("cloud").threads == several["threads"] == (4 if alone.shares_machine else 8)
    monkeypatch.setenv("DRAGON_CLOUD_THREADS", "5")
    assert load_common("cloud").threads == 5
