"""`dragon init`: the first settings of a machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal, get_args

import typer

from common.answer.request import Privacy
from common.process.files import expanded
from device.cli.failures import CommandFailed, bad_input
from proto.messages import Side

Kind = Literal["device", "cloud", "both"]


@dataclass(frozen=True, slots=True)
class SuggestedModel:
    """The setting `model`, with GB of memory and download."""

    title: str
    setting: str
    size: float
    licence: str


# Models with one tokenizer, by pair. `docs/models.md` has the same table.
PAIRS: Final[dict[str, dict[Side, SuggestedModel]]] = {
    "smollm2": {
        "device": SuggestedModel(
            "SmolLM2 360M",
            "HuggingFaceTB/SmolLM2-360M-Instruct-GGUF/smollm2-360m-instruct-q8_0.gguf",
            0.4,
            "Apache-2.0",
        ),
        "cloud": SuggestedModel(
            "SmolLM2 1.7B",
            "HuggingFaceTB/SmolLM2-1.7B-Instruct-GGUF/smollm2-1.7b-instruct-q4_k_m.gguf",
            1.1,
            "Apache-2.0",
        ),
    },
    "qwen2.5": {
        "device": SuggestedModel(
            "Qwen2.5 0.5B", "Qwen/Qwen2.5-0.5B-Instruct-GGUF/qwen2.5-0.5b-instruct-q4_k_m.gguf", 0.5, "Apache-2.0"
        ),
        "cloud": SuggestedModel(
            "Qwen2.5 1.5B", "Qwen/Qwen2.5-1.5B-Instruct-GGUF/qwen2.5-1.5b-instruct-q4_k_m.gguf", 1.1, "Apache-2.0"
        ),
    },
    "llama3": {
        "device": SuggestedModel(
            "Llama 3.2 1B", "bartowski/Llama-3.2-1B-Instruct-GGUF/Llama-3.2-1B-Instruct-Q4_K_M.gguf", 0.8, "Llama 3.2"
        ),
        "cloud": SuggestedModel(
            "Llama 3.2 3B", "bartowski/Llama-3.2-3B-Instruct-GGUF/Llama-3.2-3B-Instruct-Q4_K_M.gguf", 2.0, "Llama 3.2"
        ),
    },
    "qwen2.5-large": {
        "device": SuggestedModel(
            "Qwen2.5 1.5B", "Qwen/Qwen2.5-1.5B-Instruct-GGUF/qwen2.5-1.5b-instruct-q4_k_m.gguf", 1.1, "Apache-2.0"
        ),
        "cloud": SuggestedModel(
            "Qwen2.5 7B", "bartowski/Qwen2.5-7B-Instruct-GGUF/Qwen2.5-7B-Instruct-Q4_K_M.gguf", 4.7, "Apache-2.0"
        ),
    },
    "llama3-large": {
        "device": SuggestedModel(
            "Llama 3.2 3B", "bartowski/Llama-3.2-3B-Instruct-GGUF/Llama-3.2-3B-Instruct-Q4_K_M.gguf", 2.0, "Llama 3.2"
        ),
        "cloud": SuggestedModel(
            "Llama 3.1 8B",
            "bartowski/Meta-Llama-3.1-8B-Instruct-GGUF/Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf",
            4.9,
            "Llama 3.1",
        ),
    },
}
DEFAULT_MODELS: Final = "default"
_BESIDE: Final = 1.5  # GB of a daemon without its weights
_A_CORE: Final = 1.2  # GB of weights that a core multiplies in about .2 s, as fast as people read

MEETING: Final = "tcp://127.0.0.1:8601"  # of both on one machine
NO_DOCUMENTS: Final = "none"

RoleOption = Annotated[Kind | None, typer.Option("--role", help="Role of this machine [default: both]")]
Documents = Annotated[
    Path | None, typer.Option("--documents", help="Folder of the device's private documents, to add and watch")
]
CloudDocuments = Annotated[
    Path | None, typer.Option("--cloud-documents", help="Folder of the cloud's public documents, to add and watch")
]
AddressOption = Annotated[
    str | None, typer.Option("--address", help="Device: address of the cloud, or none. Cloud: address to listen on")
]
PrivacyOption = Annotated[Privacy | None, typer.Option("--privacy", help="Most data that may leave the device")]
Models = Annotated[
    str | None,
    typer.Option("--models", help=f"Pair of models: default, {', '.join(PAIRS)}; the first start downloads it"),
]
Yes = Annotated[bool, typer.Option("--yes", help="Ask nothing; use the defaults of missing options")]
Replace = Annotated[bool, typer.Option("--replace", help="Replace existing settings files")]


def init(
    role: RoleOption = None,
    documents: Documents = None,
    cloud_documents: CloudDocuments = None,
    address: AddressOption = None,
    privacy: PrivacyOption = None,
    models: Models = None,
    yes: Yes = False,
    replace: Replace = False,
) -> None:
    """Write this machine's first settings.

    Asks for missing options, shows the settings that it writes, adds the documents, and prints the next commands.
    """
    from common.configuration.configuration import ConfigurationError, settings_path
    from common.configuration.settings_file import settings_text, write_settings

    asking = _Asking(yes)
    kind: Kind = asking.value("role", role, "What is this machine: device, cloud or both?", "both", _one_of(Kind))  # type: ignore[assignment]
    roles: list[Side] = ["device", "cloud"] if kind == "both" else [kind]
    values = _values(asking, kind, address, privacy)
    pair = _pair(asking, roles, models)
    for each in roles if pair is not None else ():
        values[each]["model"] = PAIRS[str(pair)][each].setting
    folders = _folders(asking, roles, {"device": documents, "cloud": cloud_documents})
    files = {each: settings_path(each) for each in roles}
    for each in roles:
        print(f"# {files[each]}\n{settings_text(values[each])}")
    there = [str(path) for path in files.values() if os.path.exists(path)]
    if there and not replace:
        raise bad_input(f"nothing was written: {' and '.join(there)} would be replaced; pass --replace for that")
    if len({*files.values()}) < len(files):
        raise bad_input("$DRAGON_CONFIG names one file, and the two roles need one each; unset it")
    if asking.at_terminal and not typer.confirm("Write that?", default=True):
        raise bad_input("nothing was written")
    try:
        for each in roles:
            write_settings(files[each], settings_text(values[each]))
    except ConfigurationError as error:
        raise bad_input(str(error)) from None
    code = max([_add(each, folder) for each, folder in folders.items()], default=0)
    pulls = [f"dragon models pull {values[each]['model']}" for each in roles if "model" in values[each]]
    print("\n".join(["Next:", *(f"    {line}" for line in (*pulls, *_next(kind, values)))]))
    raise typer.Exit(code)


class _Asking:
    """Asks at a terminal for missing values, else uses defaults if `yes`."""

    def __init__(self, yes: bool) -> None:
        self._yes = yes
        self.at_terminal = not yes and sys.stdin.isatty()

    def value(self, flag: str, given: str | None, question: str, default: str, check: Callable[[str], None]) -> str:
        """Returns the value of `--flag`. Asks again after `check` raises `CommandFailed`."""
        while given is None and self.at_terminal:
            answer: str = typer.prompt(question, default=default).strip()
            try:
                check(answer)
            except CommandFailed as failure:
                print(failure.text)
            else:
                return answer
        if given is None and not self._yes:
            raise bad_input(f"standard input is not a terminal, so dragon can't ask: give --{flag}, or --yes")
        value = default if given is None else given
        check(value)
        return value

    def folder(self, flag: str, given: Path | None, question: str) -> Path | None:
        """Returns a folder of documents, None if neither given nor asked."""
        if given is None and not self.at_terminal:
            return None
        answer = self.value(flag, None if given is None else str(given), question, NO_DOCUMENTS, _folder)
        return None if answer == NO_DOCUMENTS else expanded(answer)


def _values(asking: _Asking, kind: Kind, address: str | None, privacy: Privacy | None) -> dict[Side, dict[str, object]]:
    device: dict[str, object] = {}
    cloud: dict[str, object] = {}
    if kind == "both":
        cloud["bind"] = device["cloud"] = asking.value("address", address or MEETING, "", MEETING, _loopback)
    elif kind == "device":
        question = "Where is the cloud (tcp://HOST:PORT, or none)?"
        device["cloud"] = asking.value("address", address, question, MEETING, _cloud_address)
    else:
        question = "Where does the cloud listen (tcp://ADDRESS:PORT; 0.0.0.0: on all addresses)?"
        cloud["bind"] = asking.value("address", address, question, MEETING, _bind)
    if kind != "cloud":
        question = "What may leave the device: strict, balanced or offline?"
        device["privacy"] = asking.value("privacy", privacy, question, "strict", _one_of(Privacy))
    elif privacy is not None:
        raise bad_input("--privacy is for a device: leave it out with --role cloud")
    return {"device": device, "cloud": cloud}


def _pair(asking: _Asking, roles: list[Side], given: str | None) -> str | None:
    """Returns the pair's name, None for both roles' default model."""
    if asking.at_terminal and given is None:
        print(f"Models ({DEFAULT_MODELS} is SmolLM2 135M, which shows how it works and is not one to rely on):")
        for name, pair in PAIRS.items():
            sizes = ", ".join(f"{each} {pair[each].title} {pair[each].size} GB" for each in roles)
            print(f"    {name:14} {sizes}; {pair[roles[-1]].licence}{_obstacle(name, roles) or ''}")
    question = f"Which models? This machine can run {proposal(roles)}"
    name = asking.value(
        "models", given or (None if asking.at_terminal else DEFAULT_MODELS), question, DEFAULT_MODELS, _models
    )
    return None if name == DEFAULT_MODELS else name


def proposal(roles: Sequence[Side]) -> str:
    """Returns the largest pair for memory and cores, else the default."""
    fitting = [name for name in PAIRS if not _obstacle(name, roles)]
    return fitting[-1] if fitting else DEFAULT_MODELS


def _obstacle(name: str, roles: Sequence[Side]) -> str:
    """A reason against a pair, after a semicolon; empty if none."""
    from common.process.machine import memory, usable_cores

    size = sum(PAIRS[name][role].size for role in roles)
    needed, total = size * 1.2 + _BESIDE * len(roles), memory().total / 1e9
    if needed > total * 0.8:
        return f"; needs {needed:.0f} GB of memory, this machine has {total:.0f}"
    if size > _A_CORE * usable_cores():
        return "; slow on this machine"
    return ""


def _models(name: str) -> None:
    if name != DEFAULT_MODELS and name not in PAIRS:
        raise bad_input(f"{name!r} is not one of {DEFAULT_MODELS}, {', '.join(PAIRS)}")


def _folders(asking: _Asking, roles: list[Side], given: dict[Side, Path | None]) -> dict[Side, Path]:
    found: dict[Side, Path] = {}
    for role, flag, kind in (("device", "documents", "private"), ("cloud", "cloud-documents", "public")):
        side: Side = role  # type: ignore[assignment]
        if side not in roles:
            if given[side] is not None:
                raise bad_input(f"--{flag} is for a {role}, and this machine is not one")
            continue
        question = f"Folder with {kind} documents for the {role} (none: later)?"
        folder = asking.folder(flag, given[side], question)
        if folder is not None:
            found[side] = folder
    return found


def _add(role: Side, folder: Path) -> int:
    """Adds the folder as `dragon library add --watch` does."""
    from common.process.machine import wait_passively
    from device.cli.settings import load_common

    wait_passively()
    from common.library import commands

    return commands.add_documents(load_common(role), [folder], watch=True)


def _next(kind: Kind, values: dict[Side, dict[str, object]]) -> list[str]:
    from common.transport.address import is_local_address, split_address

    ask = 'dragon ask "..."'
    alone = values.get("device", {}).get("privacy") == "offline"  # as with `cloud = "none"`
    if kind == "both" and not alone:
        return ["dragon up", ask, "dragon doctor       # if something is wrong"]
    if kind != "cloud":
        cloud = str(values["device"]["cloud"])
        far = not alone and cloud != "none" and not is_local_address(cloud)
        first = [f"dragon pair CODE    # which `dragon pair --role cloud --address {cloud}` prints on the cloud"]
        return [*(first if far else []), "dragon device", ask, "dragon doctor"]
    bind = str(values["cloud"]["bind"])
    first = [f"dragon pair --role cloud --address tcp://HOST:{split_address(bind)[1]}    # HOST: this machine's name"]
    return [*([] if is_local_address(bind) else first), "dragon cloud", "dragon doctor --role cloud"]


def _one_of(kind: object) -> Callable[[str], None]:
    words = get_args(kind)

    def check(word: str) -> None:
        if word not in words:
            raise bad_input(f"{word!r} is not one of {', '.join(words)}")

    return check


def _folder(path: str) -> None:
    if path != NO_DOCUMENTS and not os.path.exists(expanded(path)):
        raise bad_input(f"there is no {path}")


def _cloud_address(address: str) -> None:
    from common.transport.address import TransportError
    from common.transport.pairing import check_address

    try:
        if address != "none":
            check_address(address)
    except TransportError as error:
        raise bad_input(str(error)) from None


def _bind(address: str) -> None:
    import ipaddress

    from common.transport.address import TransportError, split_address

    try:
        host, port = split_address(address)
    except TransportError as error:
        raise bad_input(str(error)) from None
    try:
        ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        raise bad_input(f"{host} is not an address of this machine; 0.0.0.0 stands for all its addresses") from None
    if not port:
        raise bad_input("the cloud needs a port that devices know, for example 8601")


def _loopback(address: str) -> None:
    from common.transport.address import is_local_address

    _bind(address)
    if not is_local_address(address):
        raise bad_input(f"{address} is not a loopback address, which both daemons of one machine need; try {MEETING}")
