"""The suite `gateway`: what it makes of round trips. How long anything takes is not tested."""

from __future__ import annotations

from scripts.bench.gateway import messages_table
from tests.scripts.bench.published import heads


def test_what_a_message_takes_more_is_half_of_the_medians_difference() -> None:
    """There and back it passes the gateway twice; of the slowest ones a difference of percentiles tells nothing."""
    ways = {"direct": [400.0] * 100, "gateway": [700.0] * 98 + [1000.0] * 2}
    table = messages_table([ways] * 3)
    assert table.heads == heads("gateway", "Gateway, a message")
    assert [row[1:] for row in table.rows] == [
        ["400 (400-400)", "400 (400-400)", "0 (0-0)"],
        ["700 (700-700)", "1000 (1000-1000)", "150 (150-150)"],
    ]
