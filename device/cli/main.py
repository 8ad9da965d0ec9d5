"""Entry point of `dragon`. Commands import slow modules themselves."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Annotated

INTERRUPTED = 130

try:
    import typer
    from typer.exceptions import Abort, TyperException

    from common.process.files import keep_private
    from common.process.machine import open_closed_streams
    from device.cli import (
        api_keys,
        ask,
        chat,
        data,
        init,
        keys,
        library,
        models,
        options,
        pair,
        profile,
        service,
        settings,
        status,
        trace,
        up,
    )
    from device.cli.doctor import command as doctor
    from device.cli.failures import ANSWER_FAILED, BAD_INPUT, CommandFailed
    from device.cli.render import as_one_line
except KeyboardInterrupt:  # the imports take a second
    raise SystemExit(INTERRUPTED) from None

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # of printing to a file
PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True}

app = typer.Typer(
    name="dragon",
    cls=options.CommandGroup,
    help="Answers from this device's private documents and the cloud's public ones.",
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
# In the order of the help.
app.command("init")(init.init)
app.command("up")(up.up)
app.command("ask", cls=options.Asking)(ask.ask)
app.command("chat", cls=options.Asking)(chat.chat)
app.add_typer(library.app, name="library")
app.command("status")(status.show_status)
app.command("doctor")(doctor.doctor)
app.command("pair")(pair.pair)
app.command("device", context_settings=PASS_ON, add_help_option=False)(up.device)
app.command("cloud", context_settings=PASS_ON, add_help_option=False)(up.cloud)
app.add_typer(service.app, name="service")
app.add_typer(data.app, name="data")
app.add_typer(models.app, name="models")
app.add_typer(keys.app, name="keys")
app.add_typer(api_keys.app, name="api-keys")
app.command("config")(settings.config)
app.command("trace", cls=options.Asking)(trace.trace)
app.command("profile")(profile.profile)


@app.command("help")
def _help(
    context: typer.Context,
    command: Annotated[list[str] | None, typer.Argument(help="A command, e.g. library add")] = None,
) -> None:
    """Explain a command, or list all of them."""
    whole = context.find_root()
    whole.command.main([*(command or []), "--help"], prog_name=whole.info_name, standalone_mode=False)


@app.callback(invoke_without_command=True)
def _no_command(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", "-V", help="Print release and commit.")] = False,
) -> None:
    if version:
        from common.process.version import describe_version

        print(f"dragon {describe_version()}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(BAD_INPUT)


def main() -> None:
    """Runs one command and exits.

    Exit codes: 0 done, 1 the answer failed, 2 bad input, 3 no daemon, 130 interrupted.
    """
    open_closed_streams()
    keep_private()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # the encoding may lack characters
            stream.reconfigure(errors="backslashreplace")
    # Read at the import of the hub's library.
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    sys.exit(run_command(sys.argv[1:]))


def run_command(arguments: list[str]) -> int:
    """Returns the exit code. A failure is one line on stderr."""
    try:
        code = _carried_out(arguments)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # e.g. `dragon ask ... | head`
        _drop_output()
        return ANSWER_FAILED
    except OSError as error:
        if error.filename is not None or error.errno not in NO_ROOM:
            raise
        what = "something can't be written"
        try:
            sys.stdout.flush()
        except OSError:
            what = "standard output can't be written"
        _drop_output()
        return _failed(f"{what}: {os.strerror(error.errno).lower()}", ANSWER_FAILED)


def _carried_out(arguments: list[str]) -> int:
    """Raises `OSError` if the output can't be written."""
    if (garbled := next((each for each in arguments if not options.is_text(each)), None)) is not None:
        return _failed(
            f"{garbled!a} is not text in this terminal's encoding: set it to UTF-8 (LC_ALL=C.UTF-8)", BAD_INPUT
        )
    try:
        return app(arguments, prog_name="dragon", standalone_mode=False) or 0
    except CommandFailed as failure:
        return _failed(failure.text, failure.exit_code)
    except TyperException as error:
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "dragon"
        return _failed(f"{error.format_message().rstrip('.')} (see `{command} --help`)", BAD_INPUT)
    except (Abort, KeyboardInterrupt):
        return INTERRUPTED


def _drop_output() -> None:
    """Discards remaining output, which Python would retry at the exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _failed(text: str, exit_code: int) -> int:
    print(f"dragon: {as_one_line(text)}", file=sys.stderr)
    return exit_code


if __name__ == "__main__":
    main()
