"""`python -m common.library.readers.conversion PROGRAM FOLDER TARGET`: LibreOffice converts old office files.

It runs with a profile of its own, without macros and links to other documents, without network where the system allows
that, and within limits.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from common.library.readers.content import Unreadable
from common.library.readers.formats import OLD_OFFICE, converter
from common.process.child import allow_seconds, limit
from common.process.machine import child_command, python_environment

SECONDS: Final = 120.0
_MEMORY: Final = 4 * 2**30  # bytes of address space
_MOST_BYTES: Final = 100_000_000  # of a file that it writes
_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000  # of <linux/sched.h>
_NOWHERE: Final = "http://127.0.0.1:9"  # a proxy that answers nobody
_OPTIONS: Final = {
    "/org.openoffice.Office.Common/Security/Scripting": (
        ("DisableMacrosExecution", "true"),
        ("MacroSecurityLevel", "3"),
        ("DisableActiveContent", "true"),
    ),
    "/org.openoffice.Office.Writer/Content/Update": (("Link", "0"),),
    "/org.openoffice.Office.Calc/Content/Update": (("Link", "2"),),
}


def converted(suffix: str, content: bytes, seconds: float = SECONDS) -> bytes:
    """A document of an old format in the present one. Raises `Unreadable`."""
    with TemporaryDirectory(prefix="dragon-", ignore_cleanup_errors=True) as folder:
        target = OLD_OFFICE[suffix]
        Path(folder, f"document{suffix}").write_bytes(content)
        process = subprocess.Popen(
            child_command("common.library.readers.conversion", converter(), folder, target),
            env=python_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Unreadable(f"LibreOffice takes longer than {seconds:g} s to read it") from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        try:
            return Path(folder, f"document.{target}").read_bytes()
        except OSError:
            raise Unreadable(f"LibreOffice can't read it: it is damaged, or no {suffix[1:]} file") from None


def main() -> None:
    """Becomes LibreOffice; arguments: its path, the folder with the document, the target's suffix."""
    program, folder, target = sys.argv[1:]
    (document,) = Path(folder).glob("document.*")
    profile = Path(folder, "profile")
    (profile / "user").mkdir(parents=True)
    (profile / "user/registrymodifications.xcu").write_text(_settings())
    limit(_MEMORY, file_bytes=_MOST_BYTES)
    allow_seconds(int(SECONDS))
    with suppress(OSError):
        _leave_network()
    environment = {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8", "HOME": folder, "TMPDIR": folder}
    environment |= dict.fromkeys(("http_proxy", "https_proxy", "ftp_proxy"), _NOWHERE)
    os.execve(program, [program, *_arguments(profile, folder, target, document)], environment)


def _arguments(profile: Path, folder: str, target: str, document: Path) -> list[str]:
    switches = ("--headless", "--invisible", "--norestore", "--nolockcheck", "--nodefault", "--nofirststartwizard")
    return [
        f"-env:UserInstallation={profile.as_uri()}",
        *switches,
        "--convert-to",
        target,
        "--outdir",
        folder,
        str(document),
    ]


def _settings() -> str:
    items = (
        f'<item oor:path="{path}"><prop oor:name="{name}" oor:op="fuse"><value>{value}</value></prop></item>'
        for path, values in _OPTIONS.items()
        for name, value in values
    )
    head = '<?xml version="1.0" encoding="UTF-8"?>\n<oor:items xmlns:oor="http://openoffice.org/2001/registry">'
    return f"{head}{''.join(items)}</oor:items>\n"


def _leave_network() -> None:
    """Enters a network namespace of its own, as the same user. Raises `OSError` where the system forbids that."""
    if not sys.platform.startswith("linux"):
        return
    user, group = os.getuid(), os.getgid()
    if ctypes.CDLL(None, use_errno=True).unshare(_NEW_USER | _NEW_NETWORK):
        raise OSError(ctypes.get_errno(), "unshare")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


if __name__ == "__main__":
    main()
