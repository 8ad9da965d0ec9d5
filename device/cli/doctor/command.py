"""`dragon doctor`: what is wrong with this machine's side, and what to do about it."""

from __future__ import annotations

import typer

from device.cli import options
from device.cli.settings import File, Role


def doctor(as_json: options.AsJson = False, role: Role = "device", file: File = None) -> None:
    """Find what is wrong on this machine, and say what to do.

    Checks settings, keys, ports, models, library, memory, disk, packages and the link to the cloud. It changes nothing.
    The exit code is 1 if something is wrong.
    """
    from dataclasses import asdict

    from device.cli.doctor.diagnosis import diagnose
    from device.cli.render import as_json_text, as_one_line

    found = list(diagnose(role, file))
    if as_json:
        print(as_json_text({"role": role, "findings": [asdict(each) for each in found]}))
    else:
        for each in found:
            print(f"{each.level:<5}  {each.topic:<9} {as_one_line(each.text)}")
            if each.remedy:
                print(f"{'':<16} → {each.remedy}")
    if any(each.level == "wrong" for each in found):
        raise typer.Exit(1)
