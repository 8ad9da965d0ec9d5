"""Failures of a command: one line for the user and an exit code."""

from __future__ import annotations

ANSWER_FAILED = 1
BAD_INPUT = 2
NOT_REACHABLE = 3


class CommandFailed(Exception):
    """Ends the command. `text` is printed after `dragon: ` on stderr."""

    def __init__(self, text: str, exit_code: int) -> None:
        super().__init__(text)
        self.text = text
        self.exit_code = exit_code


class DaemonStarting(CommandFailed):
    """The daemon can't answer yet; `text` describes its start's current step."""

    def __init__(self, text: str) -> None:
        super().__init__(text, ANSWER_FAILED)


class ConversationTooLong(CommandFailed):
    """The model's context can't hold the conversation; `text` has both numbers."""

    def __init__(self, text: str) -> None:
        super().__init__(text, BAD_INPUT)


class DaemonSilent(CommandFailed):
    """The daemon takes connections without answering."""

    def __init__(self) -> None:
        super().__init__("the device daemon stopped answering", ANSWER_FAILED)


def bad_input(text: str) -> CommandFailed:
    """Returns the failure for wrong input, settings or files."""
    return CommandFailed(text, BAD_INPUT)


def unfinished_answer(text: str) -> CommandFailed:
    """Returns the failure of a request that the daemon could not finish."""
    return CommandFailed(text, ANSWER_FAILED)


def not_reachable(url: str) -> CommandFailed:
    return CommandFailed(f"no device daemon answers at {url}; start one with `dragon up`", NOT_REACHABLE)
