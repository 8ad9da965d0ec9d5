"""A device daemon's refusals and warnings about its HTTP interface, before it loads a model."""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import pytest

from cloud import daemon as cloud_daemon
from cloud.settings import CloudSettings
from common.configuration.configuration import ConfigurationError
from common.daemon.start import stay_alone
from common.process.lifetime import ServiceManager
from device import daemon
from device.access.api_keys import ApiKeyError, ApiKeyFiles
from device.access.tls import TlsError
from device.settings import DeviceSettings, TlsFiles
from tests.device.access.certificates import tls_files


class Loading(Exception):
    """The daemon would listen now, and load a model then."""


@pytest.fixture(autouse=True)
def _no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*_: object) -> None:
        raise Loading

    monkeypatch.setattr(daemon, "_listening", load)


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    return tls_files(tmp_path, "device.example")


def start(tmp_path: Path, **values: Any) -> None:
    settings = DeviceSettings(**({"data": tmp_path / "data", "cloud": None} | values))
    with ExitStack() as stack:
        daemon._serve(settings, stack, ServiceManager())


def with_tls(files: TlsFiles) -> dict[str, Any]:
    return {"tls_certificate": files.certificate, "tls_key": files.key}


def test_clients_can_connect_before_anything_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []

    def load() -> None:
        told.append("imports")
        raise Loading

    monkeypatch.setattr(daemon, "_listening", lambda *_: nullcontext())
    monkeypatch.setattr(daemon, "importing_models", load)
    settings = DeviceSettings(data=tmp_path / "data", cloud=None)
    with ExitStack() as stack, pytest.raises(Loading):
        daemon._serve(settings, stack, ServiceManager(), lambda: told.append("listens"))
    assert told == ["listens", "imports"]


class TestRefusals:
    def test_a_bind_off_loopback_without_keys(self, tmp_path: Path) -> None:
        for host in ("0.0.0.0", "::", "192.168.1.5", "example.org", "127.0.0.1.example.org"):
            with pytest.raises(ValueError, match="make a key with `dragon api-keys create NAME`"):
                start(tmp_path, host=host)
        with pytest.raises(Loading):
            start(tmp_path, host="0.0.0.0", insecure=True)
        ApiKeyFiles(tmp_path / "data" / "keys").create("laptop")
        with pytest.raises(Loading):
            start(tmp_path, host="0.0.0.0")

    def test_damaged_keys_on_loopback_too(self, tmp_path: Path) -> None:
        keys = ApiKeyFiles(tmp_path / "data" / "keys")
        keys.create("laptop")
        keys.path.write_text("{")
        for more in ({}, {"host": "0.0.0.0"}, {"host": "0.0.0.0", "insecure": True}):
            with pytest.raises(ApiKeyError, match="delete that file"):
                start(tmp_path, **more)

    def test_files_for_https_that_can_not_be_used(self, files: TlsFiles, tmp_path: Path) -> None:
        other = tls_files(tmp_path / "other", "device.example")
        with pytest.raises(TlsError, match="is not the key of"):
            start(tmp_path, tls_certificate=files.certificate, tls_key=other.key)
        files.key.unlink()
        with pytest.raises(TlsError, match="can't be read: no such file"):
            start(tmp_path, **with_tls(files))


class TestOnlyOne:
    def test_another_device_at_the_data_folder_takes_nothing_from_the_first(self, tmp_path: Path) -> None:
        first = DeviceSettings(data=tmp_path / "data")
        key = ApiKeyFiles(first.keys).renew_local()
        with ExitStack() as stack:
            stay_alone(first, stack)
            with pytest.raises(
                ConfigurationError, match="is in use by another device daemon; stop that daemon, or set a"
            ):
                start(tmp_path, port=0)
            assert ApiKeyFiles(first.keys).local() == key
            with pytest.raises(Loading):
                start(tmp_path, data=tmp_path / "other")
        with pytest.raises(Loading):  # as soon as it has ended
            start(tmp_path)

    def test_its_cloud_may_share_the_folder(self, tmp_path: Path) -> None:
        cloud = CloudSettings(data=tmp_path / "data", bind="tcp://127.0.0.1:1", metrics="x.example:1")
        with ExitStack() as stack:
            stay_alone(cloud, stack)
            with pytest.raises(Loading):
                start(tmp_path)
            with pytest.raises(ConfigurationError, match="another cloud daemon"), ExitStack() as other:
                cloud_daemon._serve(cloud, other, ServiceManager())

    def test_where_nothing_can_be_locked(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        (tmp_path / "data" / "device.lock").mkdir(parents=True)
        with pytest.raises(Loading):
            start(tmp_path)
        assert "can't be locked (is a directory): a second daemon would not be noticed" in caplog.text


class TestWarnings:
    def told(self, caplog: pytest.LogCaptureFixture, tmp_path: Path, **values: Any) -> list[str]:
        caplog.clear()
        with pytest.raises(Loading):
            start(tmp_path, **values)
        return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]

    def test_what_travels_in_the_clear_is_told_once(
        self, caplog: pytest.LogCaptureFixture, files: TlsFiles, tmp_path: Path
    ) -> None:
        (text,) = self.told(caplog, tmp_path, host="0.0.0.0", insecure=True)
        assert "others can read keys, questions and answers" in text
        assert not self.told(caplog, tmp_path)
        assert not self.told(caplog, tmp_path, host="0.0.0.0", insecure=True, **with_tls(files))

    def test_an_expired_certificate_and_a_key_that_others_can_read(
        self, caplog: pytest.LogCaptureFixture, tmp_path: Path
    ) -> None:
        files = tls_files(tmp_path, "device.example", days=(-9, -2))
        files.key.chmod(0o644)
        expired, readable = self.told(caplog, tmp_path, **with_tls(files))
        assert "expired on" in expired and "chmod 600" in readable
