"""Checks of requests, whatever made them."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.answer.request import RequestError
from common.methods.aggregate.method import SpeculativeRequest
from device.engine import method_of
from device.settings import DeviceSettings
from proto.messages import LONGEST_QUESTION, Control


def test_a_question_has_a_bound_also_where_token_ids_stand_for_the_prompt(tmp_path: Path) -> None:
    """As text it goes to the cloud, which takes no longer one."""
    settings = DeviceSettings(data=tmp_path)
    longest = "я" * (LONGEST_QUESTION // 2)
    asked = SpeculativeRequest(question=longest, prompt="", controls=(Control(0, 5),))
    method_of(asked, settings)
    with pytest.raises(RequestError, match=f"The question is longer than {LONGEST_QUESTION} bytes"):
        method_of(asked.model_copy(update={"question": longest + "."}), settings)
