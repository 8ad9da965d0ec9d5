"""`dragon data`: the data of this user's daemons on this machine, and its removal."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from device.cli.failures import bad_input
from device.cli.settings import load_cloud, load_common, load_device
from proto.messages import Side

if TYPE_CHECKING:
    from common.configuration.settings import Settings

Owner = Literal["device", "cloud", "both"]  # both: used by daemons of both roles

BOTH: Final = "both"

app = typer.Typer(help="The data that dragon keeps on this machine.", rich_markup_mode=None, no_args_is_help=False)

OfRole = Annotated[Owner, typer.Option("--role", help="Role whose data to use; both: all data, shared data too")]


@dataclass(frozen=True, slots=True)
class DataFolder:
    """A folder that daemons write to."""

    role: Owner
    content: str
    folder: Path
    ours: bool  # within the data folder, not elsewhere


@app.command("show")
def show_folders() -> None:
    """Show every folder, with its size."""
    from common.configuration.configuration import settings_path
    from device.doctor.checks import in_bytes

    for kept in _kept():
        size = in_bytes(size_of(kept.folder)) if _is_there(kept.folder) else "nothing yet"
        print(f"{kept.role:<6}  {kept.content:<27}  {size:>11}  {kept.folder}")
    for role in ("device", "cloud"):
        path = settings_path(role)
        print(f"{role:<6}  {'settings':<27}  {'there' if _is_there(path) else 'none':>11}  {path}")


@app.command("remove")
def remove_data(
    role: OfRole = "device", yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation")] = False
) -> None:
    """Remove the data of a role's daemon.

    Settings and the original documents stay. Data that both roles use stays, too, unless --role is both.

    Uploaded files are removed: they are only in the data folder.
    """
    from device.doctor.checks import in_bytes

    wanted = [kept for kept in _kept() if role in (BOTH, kept.role) and _is_there(kept.folder)]
    ours = [kept for kept in wanted if kept.ours]
    with _stopped(("device", "cloud") if role == BOTH else (role,)):
        for kept in wanted:
            if not kept.ours:
                by = "link" if kept.folder.is_symlink() else "setting"
                print(f"stays: {kept.folder} ({kept.content}): a {by} names this folder, and it may have other files")
        if not ours:
            print("there is nothing to remove" if role == BOTH else f"the {role} has nothing to remove")
            return
        for kept in ours:
            print(f"{in_bytes(size_of(kept.folder)):>8}  {kept.folder}")
        if not yes:
            _confirm()
        try:
            for kept in ours:
                shutil.rmtree(kept.folder)
        except OSError as error:
            raise bad_input(
                f"{error.filename or kept.folder}: can't be removed: {(error.strerror or str(error)).lower()}"
            ) from None
    for settings in _settings().values():
        for parent in (settings.data, settings.data_dir):
            with suppress(OSError):  # not empty, or gone
                parent.rmdir()
    rest = "settings files stay" if role == BOTH else f"shared data of the {role} stays"
    print(f"removed; {rest}: `dragon data show` lists it")


def size_of(folder: Path) -> int:
    """Returns the files' bytes. Files that change meanwhile may count."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_size
    return total


def _is_there(path: Path) -> bool:
    """Raises `CommandFailed` if `path` can't be examined."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise bad_input(f"{path}: can't be read: {(error.strerror or str(error)).lower()}") from None
    return True


def _kept() -> list[DataFolder]:
    found: dict[str, DataFolder] = {}  # by real path
    for role, settings in _settings().items():
        shared = (settings.local_keys, settings.models, settings.caches)
        for content, folder in settings.kept.items():
            within = folder.is_relative_to(settings.data_dir) or folder.is_relative_to(settings.data)
            ours = within and not os.path.islink(folder)
            place = os.path.realpath(folder)
            owner: Owner = BOTH if folder in shared or place in found else role
            found[place] = DataFolder(owner, content, folder, ours)
    return sorted(found.values(), key=lambda kept: ("device", "cloud", BOTH).index(kept.role))


def _settings() -> dict[Side, Settings]:
    return {"device": load_device(), "cloud": load_common("cloud")}


def _confirm() -> None:
    """Raises `CommandFailed` if not confirmed."""
    if not sys.stdin.isatty():
        raise bad_input("standard input is not a terminal, so dragon can't ask: give --yes to remove that")
    if not typer.confirm("Remove these folders for good?", default=False):
        raise bad_input("nothing was removed")


@contextmanager
def _stopped(roles: Collection[Side]) -> Iterator[None]:
    """Keeps daemons of these roles from running or starting during the block.

    Raises `CommandFailed` if one uses its data folder, answering or not, or if one answers at the usual port: it
    uses the shared folders.
    """
    for role in roles:
        _check_port(role)
    with ExitStack() as stack:
        for settings in _settings().values():
            if settings.role in roles and _is_there(settings.data):
                _lock(settings, stack)
        yield


def _check_port(role: Side) -> None:
    from device.cli.doctor import ports

    if role == "device":
        port, _ = ports.probe_device_port(load_device())
    else:
        port = ports.probe_cloud_port(load_cloud().bind)
    if port.state in ("daemon", "starting", "locked"):
        raise bad_input(f"the {role} daemon runs at {port.address}; stop it first")


def _lock(settings: Settings, stack: ExitStack) -> None:
    from common.process.lifetime import LockHeld, sole_process

    try:
        stack.enter_context(sole_process(settings.lock))
        stack.callback(settings.lock.unlink, missing_ok=True)
        stack.callback(settings.starting.unlink, missing_ok=True)
    except LockHeld:
        raise bad_input(f"the {settings.role} daemon runs, and uses {settings.data}; stop it first") from None
    except OSError as error:  # nor could a daemon lock it
        reason = (error.strerror or str(error)).lower()
        print(f"dragon: {settings.lock} can't be locked ({reason}): a running daemon is not noticed", file=sys.stderr)
