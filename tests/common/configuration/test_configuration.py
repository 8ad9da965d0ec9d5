from __future__ import annotations

import os
import tomllib
from collections.abc import Callable
from pathlib import Path

import platformdirs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from cloud.settings import CloudSettings
from common.configuration.configuration import ConfigurationError, describe, load_settings, why_not_library
from common.configuration.settings import EMBEDDED_MODEL, EMBEDDED_TOKENIZER, Settings
from common.configuration.settings_file import set_in_file
from common.library.database import writer_lock
from common.library.library import Library
from common.library.store import DATABASE
from device.settings import DeviceSettings, TlsFiles
from tests.common.library.toy_embedder import ToyEmbedder

WriteFile = Callable[[str], Path]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any settings."""
    for name in os.environ:
        if name.startswith("DRAGON_"):
            monkeypatch.delenv(name)
    monkeypatch.setattr(platformdirs, "user_config_path", lambda name: tmp_path / "config" / name)
    monkeypatch.setattr(platformdirs, "user_data_path", lambda name: tmp_path / "state" / name)
    return tmp_path


@pytest.fixture
def file(tmp_path: Path) -> WriteFile:
    def write(text: str) -> Path:
        path = tmp_path / "settings.toml"
        path.write_text(text)
        return path

    return write


def refusal(kind: type[Settings], path: Path | None = None, **overrides: object) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load_settings(kind, path, overrides)
    text = str(caught.value)
    assert "\n" not in text
    return text


class TestSources:
    def test_defaults_run_out_of_the_box(self, home: Path) -> None:
        settings = load_settings(DeviceSettings)
        assert settings.library == home / "state" / "dragon" / "device" / "library"
        assert (settings.host, settings.port, settings.cloud) == ("127.0.0.1", 8600, "tcp://127.0.0.1:8601")
        assert Path(settings.model).is_file()
        assert load_settings(CloudSettings).data == home / "state" / "dragon" / "cloud"

    def test_flags_beat_the_environment_which_beats_the_file(
        self, file: WriteFile, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = file("port = 1\nentries = 1\ndocuments = 1\n")
        monkeypatch.setenv("DRAGON_DEVICE_PORT", "2")
        monkeypatch.setenv("DRAGON_DEVICE_ENTRIES", "2")
        monkeypatch.setenv("DRAGON_CLOUD_DOCUMENTS", "9")
        settings = load_settings(DeviceSettings, path, {"port": 3, "entries": None})
        assert (settings.port, settings.entries, settings.documents) == (3, 2, 1)

    def test_the_file_is_the_one_named_or_the_usual_one(
        self, file: WriteFile, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        usual = home / "config" / "dragon" / "device.toml"
        usual.parent.mkdir(parents=True)
        usual.write_text("port = 1")
        assert load_settings(DeviceSettings).port == 1
        assert load_settings(CloudSettings).max_sessions == 64
        other = home / "other.toml"
        other.write_text("port = 2")
        monkeypatch.setenv("DRAGON_CONFIG", str(other))
        assert load_settings(DeviceSettings).port == 2
        assert load_settings(DeviceSettings, file("port = 3")).port == 3

    def test_a_file_that_was_named_has_to_be_there(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert "missing.toml: can't be read: no such file" in refusal(DeviceSettings, home / "missing.toml")
        monkeypatch.setenv("DRAGON_CONFIG", str(home / "gone.toml"))
        assert "gone.toml: can't be read" in refusal(DeviceSettings)

    def test_one_that_can_not_be_looked_at_is_not_passed_over(
        self, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Else its setting of privacy would not count."""
        assert "can't be read: file name too long" in refusal(DeviceSettings, home / ("n" * 300))
        monkeypatch.setattr(platformdirs, "user_config_path", lambda name: home / ("n" * 300))
        assert "device.toml: can't be read: file name too long" in refusal(DeviceSettings)

    def test_constructing_reads_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DRAGON_DEVICE_PORT", "2")
        assert DeviceSettings().port == 8600

    def test_settings_do_not_change(self) -> None:
        with pytest.raises(ValidationError, match="frozen"):
            load_settings(DeviceSettings).port = 1

    def test_folders_in_a_file_are_relative_to_it(
        self, file: WriteFile, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (home / "elsewhere").mkdir()
        monkeypatch.chdir(home / "elsewhere")
        path = file(
            "data = 'state'\nlibrary = '~/books'\nmodel = './model'\nembedder = 'owner/name'\ndraft_model = './d'\n"
        )
        settings = load_settings(DeviceSettings, path)
        assert settings.data == home / "state"
        assert settings.keys == home / "state" / "keys"
        assert settings.library == Path("~/books").expanduser()
        assert (settings.model, settings.embedder) == (str(home / "model"), "owner/name")
        assert settings.draft_model == str(home / "d")
        assert load_settings(DeviceSettings, overrides={"data": "x"}).data == home / "elsewhere" / "x"

    def test_another_model_brings_its_own_tokenizer(self) -> None:
        assert load_settings(DeviceSettings, overrides={"model": "owner/name"}).tokenizer is None
        assert load_settings(DeviceSettings, overrides={"model": "embedded"}).tokenizer == str(EMBEDDED_TOKENIZER)

    def test_the_default_model_is_the_installed_package_s_else_the_embedded_one(
        self, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert load_settings(DeviceSettings).model.endswith(".gguf")
        monkeypatch.setattr("common.configuration.settings.MODEL_PACKAGE", "no_such_package")
        assert load_settings(DeviceSettings).model == str(EMBEDDED_MODEL)
        package = home / "weightless"
        package.mkdir()
        monkeypatch.syspath_prepend(home)
        monkeypatch.setattr("common.configuration.settings.MODEL_PACKAGE", package.name)
        assert load_settings(DeviceSettings).model == str(EMBEDDED_MODEL)
        (package / "__init__.py").write_text("raise RuntimeError('this code is never run')")
        (package / "some.gguf").touch()
        assert load_settings(DeviceSettings).model == str(package / "some.gguf")

    def test_none_unsets_what_is_optional(self, file: WriteFile) -> None:
        settings = load_settings(DeviceSettings, file("cloud = 'none'\nthreads = 'None'\nlog_level = 'info'"))
        assert (settings.cloud, settings.threads) == (None, None)
        assert "host = " in refusal(DeviceSettings, file("host = ''"))


FOLDERS = [
    (kind, key)
    for kind in (DeviceSettings, CloudSettings)
    for key, field in kind.model_fields.items()
    if field.annotation is Path
]


class TestFolders:
    """An empty path would be the working directory, whose files a starting daemon makes private."""

    def test_there_are_some(self) -> None:
        assert {key for _, key in FOLDERS} == {"data_dir", "data", "library", "keys", "local_keys", "models"}

    @pytest.mark.parametrize("value", ["", "none", "None", " "])
    @pytest.mark.parametrize("source", ["file", "variable", "flag"])
    @pytest.mark.parametrize(("kind", "key"), FOLDERS)
    def test_an_empty_one_is_none(
        self,
        kind: type[Settings],
        key: str,
        source: str,
        value: str,
        file: WriteFile,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        path, flag = None, None
        if source == "file":
            path = file(f'{key} = "{value}"')
        elif source == "flag":
            flag = value
        else:
            name = f"DRAGON_{kind.role.upper()}_{key.upper()}"
            monkeypatch.setenv(name, value)
            if not value:
                assert load_settings(kind).model_dump() == kind().model_dump()  # type: ignore[call-arg]
                return
        origin = {"file": str(path), "flag": f"--{key.replace('_', '-')}"}.get(source) or f"${name}"
        text = refusal(kind, path, **{key: flag})
        assert text == (
            f'{origin}: {key} = "{value}": this folder must not be empty: name a folder, or leave the setting out for'
            " the default"
        )

    def test_an_empty_variable_hides_no_other_source(self, file: WriteFile, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("DATA_DIR", "DEVICE_DATA_DIR", "DEVICE_LIBRARY"):
            monkeypatch.setenv(f"DRAGON_{name}", "")
        settings = load_settings(DeviceSettings, file("data_dir = '/far'\nlibrary = '/books'"))
        assert (settings.data, settings.library) == (Path("/far/device"), Path("/books"))

    def test_one_that_holds_other_things_is_no_library(self, file: WriteFile, home: Path) -> None:
        documents = home / "Documents"
        documents.mkdir()
        path = file("library = 'Documents'")
        load_settings(DeviceSettings, path)
        (documents / "letter.md").write_text("Dear Freya,")
        text = refusal(DeviceSettings, path)
        assert text.startswith(f'{path}: library = "{documents}": this folder has other files and no library; name')
        assert text in refusal(DeviceSettings, path, port=1)
        assert "--library: library = " in refusal(CloudSettings, None, library=str(documents))
        Library(documents, ToyEmbedder()).close()  # one that was used so with an earlier release
        assert load_settings(DeviceSettings, path).library == documents

    @pytest.mark.parametrize(
        ("names", "own"),
        [
            (("lost+found", "System Volume Information", ".DS_Store"), True),
            (("library.sqlite-wal", "library.sqlite.sha256"), True),
            (("index.faiss",), True),
            (("index.faiss", "index.pkl"), False),
            (("snapshots", "letter.md"), False),
        ],
    )
    def test_names_that_tell_a_library_from_other_folders(self, home: Path, names: tuple[str, ...], own: bool) -> None:
        folder = home / "library"
        folder.mkdir()
        for name in names:
            (folder / name).touch()
        assert (why_not_library(folder) is None) == own

    def test_what_a_new_library_is_like_is_known(self, home: Path) -> None:
        Library(home / "library", ToyEmbedder()).close()
        with writer_lock(home / "library"):
            assert why_not_library(home / "library") is None
        (home / "library" / DATABASE).unlink()
        assert why_not_library(home / "library") is None  # it is damaged, which is another thing

    def test_the_home_of_nobody(self, home: Path, file: WriteFile, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(home)
        assert load_settings(DeviceSettings, overrides={"data": "~nobody-at-all/x"}).data == home / "~nobody-at-all/x"
        assert load_settings(DeviceSettings, file("tls_key = '~x'\ntls_certificate = 'y'")).tls_key == home / "~x"


class TestErrors:
    def test_an_unknown_key_names_its_source_and_the_nearest_one(
        self, file: WriteFile, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = file("prot = 3")
        assert refusal(DeviceSettings, path) == f"{path}: there is no setting 'prot', did you mean 'port'?"
        assert refusal(CloudSettings, max_session=1).startswith("--max-session: there is no setting")
        monkeypatch.setenv("DRAGON_DEVICE_PROT", "3")
        assert refusal(DeviceSettings).startswith("$DRAGON_DEVICE_PROT: there is no setting 'prot', did you")
        assert load_settings(CloudSettings).max_sessions == 64

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("port", 65536),
            ("port", "eighty"),
            ("privacy", "some"),
            ("documents", 0),
            ("entries", 4097),
            ("run_ahead", 0),
            ("patience", float("nan")),
            ("patience", 0),
            ("scorer_scale", float("inf")),
            ("scorer_period", 0),
            ("chunk_tokens", 1),
            ("cloud", "10.0.0.1:8601"),
            ("cloud", "tcp://host:99999"),
            ("dtype", "float8"),
            ("document_format", "{title}"),
            ("query_format", "{question} {question}"),
            ("data", 3),
        ],
    )
    def test_a_wrong_value_is_shown_with_its_flag(self, key: str, value: object) -> None:
        text = refusal(DeviceSettings, None, **{key: value})
        assert text.startswith(f"--{key.replace('_', '-')}: {key} = ")
        assert "default factory" not in text
        assert ";" not in text

    def test_a_wrong_value_in_the_environment_is_shown_with_its_variable(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DRAGON_CLOUD_MAX_SESSIONS", "many")
        assert refusal(CloudSettings).startswith('$DRAGON_CLOUD_MAX_SESSIONS: max_sessions = "many": ')

    def test_a_mark_in_front_of_a_file_is_no_part_of_it(self, home: Path) -> None:
        path = home / "notepad.toml"
        path.write_bytes(b"\xef\xbb\xbfport = 7\r\n")
        assert load_settings(DeviceSettings, path).port == 7
        assert set_in_file(path, "port", 8)
        assert path.read_bytes() == b"port = 8\n"

    @pytest.mark.parametrize("text", ["port = ", "port = 1\nport = 2", b"port = '\xff'".decode("latin-1")])
    def test_a_file_that_is_not_toml(self, home: Path, text: str) -> None:
        path = home / "bad.toml"
        path.write_bytes(text.encode("latin-1"))
        assert refusal(DeviceSettings, path).startswith(f"{path}: is not ")


class TestOpenDoors:
    def test_https_needs_both_files(self) -> None:
        for one in ("tls_certificate", "tls_key"):
            assert "set tls_certificate and tls_key, or neither" in refusal(DeviceSettings, None, **{one: "x.pem"})
        settings = load_settings(DeviceSettings, overrides={"tls_certificate": "~/c.pem", "tls_key": "/k.pem"})
        assert settings.tls == TlsFiles(Path.home() / "c.pem", Path("/k.pem"))
        assert load_settings(DeviceSettings, overrides={"tls_key": "none"}).tls is None

    @pytest.mark.parametrize("address", ["tcp://*:8601", "tcp://0.0.0.0:8601", "tcp://[::]:8601", "tcp://eth0:1"])
    def test_a_plaintext_link_off_loopback_is_refused(self, address: str) -> None:
        assert "unencrypted" in refusal(CloudSettings, bind=address, curve="off")
        assert "unencrypted" in refusal(DeviceSettings, cloud=address, curve="off")
        for extra in ({"curve": "auto"}, {"curve": "off", "insecure": True}):
            load_settings(CloudSettings, overrides={"bind": address, **extra})
            load_settings(DeviceSettings, overrides={"cloud": address, **extra})

    @pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.9.1", "::1"])
    def test_loopback_is_open(self, host: str) -> None:
        load_settings(DeviceSettings, overrides={"host": host})
        address = f"tcp://[{host}]:1" if ":" in host else f"tcp://{host}:1"
        load_settings(CloudSettings, overrides={"bind": address, "curve": "off"})

    @pytest.mark.parametrize("placement", ["cloud", "greedy", "random", "mirrored"])
    def test_strict_privacy_keeps_aggregation_on_the_device(self, placement: str) -> None:
        assert "privacy = 'strict' forbids" in refusal(DeviceSettings, placement=placement)
        assert "privacy = 'secret' forbids" in refusal(DeviceSettings, placement=placement, privacy="secret")
        load_settings(DeviceSettings, overrides={"placement": placement, "privacy": "balanced"})

    def test_secret_draws_by_the_device_alone(self) -> None:
        assert "needs the race" in refusal(DeviceSettings, privacy="secret", sampler="paper")
        load_settings(DeviceSettings, overrides={"privacy": "secret"})

    def test_both_sides_aggregate_by_the_race_only(self) -> None:
        assert "needs the race" in refusal(DeviceSettings, privacy="balanced", placement="mirrored", sampler="paper")
        for placement, sampler in (("mirrored", "race"), ("greedy", "paper")):
            load_settings(DeviceSettings, overrides={"privacy": "balanced", "placement": placement, "sampler": sampler})


@pytest.mark.parametrize("name", ["auto", "embedded", "other/model"])
def test_another_model_is_named_as_the_setting_names_it(name: str) -> None:
    made = DeviceSettings(model="usual/model", tokenizer="its/own").of_model(name)
    wanted = DeviceSettings(model=name)
    assert (made.model, made.tokenizer) == (wanted.model, wanted.tokenizer)


class TestDescribe:
    def test_says_where_every_value_comes_from(self, file: WriteFile, monkeypatch: pytest.MonkeyPatch) -> None:
        path = file("port = 1")
        monkeypatch.setenv("DRAGON_DEVICE_ENTRIES", "2")
        lines = describe(load_settings(DeviceSettings, path, {"insecure": True})).splitlines()
        assert f"port = 1  # {path}" in lines
        assert "entries = 2  # $DRAGON_DEVICE_ENTRIES" in lines
        assert "insecure = true  # --insecure" in lines
        assert 'scorer = "auto"  # default' in lines
        assert len(lines) == len(DeviceSettings.model_fields)

    @given(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
        st.floats(1e-9, 1e9),
        st.none() | st.integers(1, 9),
    )
    def test_is_a_settings_file_with_the_same_meaning(self, text: str, patience: float, threads: int | None) -> None:
        overrides = {"query_format": text + "{question}", "patience": patience, "threads": threads}
        settings = load_settings(DeviceSettings, overrides=overrides)
        again = DeviceSettings(**tomllib.loads(describe(settings)))
        assert again.model_dump() == settings.model_dump()
