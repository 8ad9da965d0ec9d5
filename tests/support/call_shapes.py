"""The shapes in which models write calls of tools, as tests have them."""

from __future__ import annotations

from common.processors.calls import CallShape

TAGS = CallShape(
    opening=("<tool_call>\n",),
    arguments="arguments",
    closing=("\n</tool_call>",),
    between=("\n</tool_call>\n<tool_call>\n",),
)
BARE = CallShape(opening=(), arguments="parameters", closing=())


def listed(marker: int) -> CallShape:
    """Calls in a list behind the token `marker`."""
    return CallShape(opening=(marker, " ["), arguments="arguments", closing=("]",), between=(", ",))
