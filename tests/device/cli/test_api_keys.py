"""`dragon api-keys`, and how commands find a key and whom they trust."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer

from device.access.admission import ApiKeyGate
from device.access.api_keys import ApiKeyFiles, today
from device.cli.main import app
from tests.device.access.certificates import authority, tls_files
from tests.device.cli.conftest import Dragon
from tests.device.conftest import Serve


@pytest.fixture
def own(tmp_path: Path) -> ApiKeyFiles:
    """The keys of this machine's device."""
    return ApiKeyFiles(tmp_path / "dragon" / "device" / "keys")


class TestCommands:
    def test_create_list_revoke(self, dragon: Dragon, own: ApiKeyFiles) -> None:
        assert "There are no API keys" in dragon("api-keys", "list").stderr
        made = dragon("api-keys", "create", "laptop")
        key = made.stdout.strip()
        assert made.returncode == 0 and key.startswith("dragon-") and "\n" not in key
        assert "From now on" in made.stderr
        assert dragon("api-keys", "create", "a.page").stderr == ""
        assert ApiKeyGate(own).admitted(key.encode())
        listed = dragon("api-keys", "list").stdout
        assert listed == f"laptop  created {today()}\na.page  created {today()}\n"
        assert dragon("api-keys", "revoke", "laptop").stdout == "revoked laptop\n"
        assert not ApiKeyGate(own).admitted(key.encode())
        assert "until it is restarted" in dragon("api-keys", "revoke", "a.page").stderr

    def test_refusals_are_one_line(self, dragon: Dragon, own: ApiKeyFiles) -> None:
        dragon("api-keys", "create", "laptop")
        for arguments in (["create", "laptop"], ["create", "../x"], ["create"], ["revoke", "x"], ["revoke"], []):
            done = dragon("api-keys", *arguments)
            assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done
        own.path.write_text("{")
        for arguments in (["create", "x"], ["revoke", "laptop"], ["list"]):
            done = dragon("api-keys", *arguments)
            assert (done.returncode, done.stderr.count("\n")) == (2, 1)
            assert "are damaged: delete that file" in done.stderr

    def test_the_pages_address(self, dragon: Dragon, own: ApiKeyFiles, tmp_path: Path) -> None:
        printed = dragon("api-keys", "create", "page", "--page", DRAGON_DEVICE_PORT="1234").stdout
        address, _, key = printed.strip().partition("/#key=")
        assert address == "http://127.0.0.1:1234" and ApiKeyGate(own).admitted(key.encode())
        for number, (names, shown) in enumerate(
            ((("*.example", "device.example"), "device.example"), (("::1",), "[::1]"), ((), "127.0.0.1"))
        ):
            files = tls_files(tmp_path / str(number), *names)
            done = dragon(
                *("api-keys", "create", f"page{number}", "--page"),
                DRAGON_DEVICE_TLS_CERTIFICATE=str(files.certificate),
                DRAGON_DEVICE_TLS_KEY=str(files.key),
            )
            assert done.stdout.startswith(f"https://{shown}:8600/#key=dragon-")

    def test_nothing_is_made_where_the_address_is_not_known(self, dragon: Dragon, own: ApiKeyFiles) -> None:
        gone = {"DRAGON_DEVICE_TLS_CERTIFICATE": "/gone.pem", "DRAGON_DEVICE_TLS_KEY": "/gone.pem"}
        assert dragon("api-keys", "create", "page", "--page", **gone).returncode == 2
        assert not own.all()

    def test_a_daemon_that_runs_takes_both_at_once(self, dragon: Dragon, serve: Serve, own: ApiKeyFiles) -> None:
        url = serve(admission=ApiKeyGate(own)).url
        assert dragon("ask", "q", "--url", url).returncode == 0
        key = dragon("api-keys", "create", "laptop").stdout.strip()
        assert dragon("ask", "q", "--url", url).returncode == 2
        assert dragon("ask", "q", "--url", url, DRAGON_API_KEY=key).stdout == "q\n"
        dragon("api-keys", "revoke", "laptop")
        assert dragon("ask", "q", "--url", url, DRAGON_API_KEY=key).returncode == 2


class TestGivingAKey:
    def test_by_a_file_or_the_environment(self, dragon: Dragon, serve: Serve, tmp_path: Path) -> None:
        url = serve("right").url
        file = tmp_path / "key"
        file.write_text("right\n")
        assert dragon("ask", "q", "--url", url, "--api-key-file", str(file)).stdout == "q\n"
        assert dragon("ask", "q", "--url", url, "--api-key-file", str(file), DRAGON_API_KEY="wrong").returncode == 0
        assert dragon("status", "--url", url, DRAGON_API_KEY=" right\n").returncode == 0
        assert dragon("ask", "q", "--url", url).returncode == 2

    @pytest.mark.parametrize(
        "given", ["one two", "one\ntwo", "sésame", "x" * 5000], ids=["words", "lines", "letter", "long"]
    )
    def test_a_variable_that_holds_none(self, dragon: Dragon, given: str) -> None:
        done = dragon("ask", "q", "--url", "127.0.0.1:1", DRAGON_API_KEY=given)
        line = "dragon: $DRAGON_API_KEY must have one API key and nothing else\n"
        assert (done.returncode, done.stderr) == (2, line)

    @pytest.mark.parametrize("content", [b"", b"one two", b"one\ntwo", b"\xff", b"x" * 5000], ids=ascii)
    def test_a_file_that_holds_none(self, dragon: Dragon, tmp_path: Path, content: bytes) -> None:
        file = tmp_path / "key"
        file.write_bytes(content)
        done = dragon("ask", "q", "--api-key-file", str(file))
        assert (done.returncode, "must have one API key" in done.stderr) == (2, True)
        assert content.decode("latin-1") not in done.stderr or not content
        assert "can't be read" in dragon("ask", "q", "--api-key-file", str(tmp_path / "gone")).stderr

    def test_no_command_takes_one_as_an_argument(self) -> None:
        """Every user of a machine sees the arguments of its processes."""
        pending: list[Any] = [typer.main.get_command(app)]
        seen = 0
        while pending:
            command = pending.pop()
            pending += getattr(command, "commands", {}).values()
            seen += 1
            assert not {"--api-key", "--key"} & {option for item in command.params for option in item.opts}
        assert seen > 20


class TestFindingTheDaemon:
    def test_this_users_daemon_needs_no_key(self, dragon: Dragon, serve: Serve, own: ApiKeyFiles) -> None:
        port = serve(admission=ApiKeyGate(own)).url.rpartition(":")[2]
        own.create("laptop")
        for arguments in (["ask", "q"], ["status"], ["chat"]):
            assert dragon(*arguments, DRAGON_DEVICE_PORT=port).returncode == 0

    def test_its_key_is_sent_nowhere_else(self, dragon: Dragon, serve: Serve, own: ApiKeyFiles) -> None:
        url = serve(admission=ApiKeyGate(own)).url
        own.create("laptop")
        assert dragon("ask", "q", "--url", url).returncode == 2


class TestHttps:
    def test_a_self_signed_certificate(self, dragon: Dragon, serve: Serve, tmp_path: Path) -> None:
        files = tls_files(tmp_path / "tls", "127.0.0.1")
        url = serve("right", tls=files).url
        asking = ["--url", url], {"DRAGON_API_KEY": "right"}
        for arguments in (["ask", "q"], ["status"], ["chat"], ["trace", "q"]):
            refused = dragon(*arguments, *asking[0], **asking[1])
            assert refused.returncode == 2 and "is not trusted: self-signed" in refused.stderr, refused
            assert refused.stderr.count("\n") == 1
        authority_file = str(files.certificate)
        for arguments in (["ask", "q"], ["status"], ["chat"]):
            assert dragon(*arguments, *asking[0], "--ca", authority_file, **asking[1]).returncode == 0
            assert dragon(*arguments, *asking[0], DRAGON_CA=authority_file, **asking[1]).returncode == 0

    def test_the_name_counts(self, dragon: Dragon, serve: Serve, tmp_path: Path) -> None:
        issuer = authority(tmp_path)
        url = serve(tls=tls_files(tmp_path / "tls", "device.example", issuer=issuer)).url
        done = dragon("status", "--url", url, "--ca", str(issuer.file))
        assert done.returncode == 2 and "mismatch" in done.stderr

    def test_this_machines_daemon_needs_no_option(self, dragon: Dragon, serve: Serve, tmp_path: Path) -> None:
        issuer = authority(tmp_path)
        files = tls_files(tmp_path / "tls", "device.example", issuer=issuer)
        others = tls_files(tmp_path / "others", "device.example", issuer=issuer)
        port = serve(tls=files).url.rpartition(":")[2]

        def ask(certificate: Path) -> int:
            return dragon(
                *("ask", "q"),
                DRAGON_DEVICE_PORT=port,
                DRAGON_DEVICE_TLS_CERTIFICATE=str(certificate),
                DRAGON_DEVICE_TLS_KEY=str(files.key),
            ).returncode

        assert ask(files.certificate) == 0
        assert ask(others.certificate) == 2

    def test_a_daemon_in_the_clear(self, dragon: Dragon, serve: Serve) -> None:
        done = dragon("status", "--url", serve().url.replace("http", "https"))
        assert done.returncode == 2 and "begin with http://?" in done.stderr

    def test_a_daemon_that_wants_https(self, dragon: Dragon, serve: Serve, tmp_path: Path) -> None:
        url = serve(tls=tls_files(tmp_path / "tls", "127.0.0.1")).url
        done = dragon("status", "--url", url.replace("https", "http"))
        assert done.returncode == 1 and "begin with https://?" in done.stderr

    @pytest.mark.parametrize("content", ["", "nothing"])
    def test_an_authority_that_is_none(self, dragon: Dragon, tmp_path: Path, content: str) -> None:
        file = tmp_path / "ca.pem"
        file.write_text(content)
        for path in (file, tmp_path / "gone"):
            done = dragon("status", "--url", "https://127.0.0.1:1", "--ca", str(path))
            assert (done.returncode, done.stderr.count("\n")) == (2, 1)
