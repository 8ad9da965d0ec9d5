"""Facts about a side of this machine, as far as `dragon doctor` judges them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from proto.messages import Side


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """The file in which settings are looked for, and the reason if they can't be read."""

    path: str
    there: bool
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Package:
    """A package (or Python itself) that is needed; `installed` is None where it is missing."""

    name: str
    wanted: str  # versions as pyproject.toml has them, e.g. >=1.2
    installed: str | None
    fits: bool


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys for the link. `peers` may connect, or are connected to."""

    kind: Literal["none", "plain", "shared", "exchanged"]  # none: there is no link
    address: str
    loopback: bool
    problem: str | None = None
    fingerprint: str = ""
    peers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Access:
    """Access to the device's HTTP interface at `host`, for holders of the API keys that are called `names`."""

    host: str
    loopback: bool
    insecure: bool
    names: tuple[str, ...] = ()
    problem: str | None = None  # of the file of keys


@dataclass(frozen=True, slots=True)
class Https:
    """The certificate of the device's HTTP interface; `days` until it expires. Without `file` there is none."""

    loopback: bool
    file: str | None = None
    names: tuple[str, ...] = ()
    days: int = 0
    problem: str | None = None  # the files can't be used
    complaints: tuple[str, ...] = ()  # they can, but


@dataclass(frozen=True, slots=True)
class Port:
    """The address at which the daemon listens, and the state of its port now."""

    address: str
    # locked: a device daemon that wants another key; unproven: one over https that is not this machine's own; silent:
    # a program that takes connections and does not answer, as a daemon that hangs or is suspended
    state: Literal["free", "daemon", "starting", "locked", "unproven", "silent", "taken", "unusable"]
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Reach:
    """The way to the cloud: whether its name is known, and its port takes connections."""

    address: str
    loopback: bool
    resolved: bool
    connected: bool
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Model:
    """A model or a tokenizer that a setting names. `size` has the bytes of its weights; 0 where they are not known."""

    setting: str
    name: str
    state: Literal["there", "importable", "remote", "wrong"]  # importable: a .gguf file; remote: to be downloaded
    size: int = 0
    problem: str = ""
    memory: int | None = None  # bytes that it may take, where that is less than all of it


@dataclass(frozen=True, slots=True)
class LibraryState:
    """A side's library, and the embedding model that is configured. Identities are None where they are not known."""

    folder: str
    there: bool
    problem: str | None = None
    documents: int = 0
    chunks: int = 0
    skipped: int = 0
    embedded_with: str | None = None
    embedder: str | None = None
    embedder_problem: str | None = None


@dataclass(frozen=True, slots=True)
class Machine:
    """Room on this machine, in bytes; `disk` is that of the data folder."""

    memory: int
    data: str
    disk: int
    kv: int  # most that keys and values of running answers may take
    gpu: bool  # whether weights may lie in a GPU's memory instead
    processes: int = 1  # that have the models: a cloud's workers; 0 where these are on other machines


@dataclass(frozen=True, slots=True)
class Facts:
    """All of them. Those behind `year` are None where the settings can't be read, or the side has no such thing."""

    role: Side
    settings: SettingsFile | None  # None: of a daemon that runs, from inside it
    packages: tuple[Package, ...]
    year: int
    keys: Keys | None = None
    access: Access | None = None
    https: Https | None = None
    port: Port | None = None
    status: dict[str, Any] | None = None  # a device daemon's
    reach: Reach | None = None
    models: tuple[Model, ...] = ()
    library: LibraryState | None = None
    machine: Machine | None = None
    start: tuple[tuple[str, float], ...] = ()  # stages of the last start, and their seconds
