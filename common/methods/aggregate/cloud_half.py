"""Aggregation of two drafts per token, on the cloud."""

from __future__ import annotations

import time

from common.answer.request import read_own_options
from common.daemon.prompt_rows import PromptRows
from common.methods.aggregate.cloud_answer import CloudAnswer
from common.methods.aggregate.request import SpeculativeRequest
from common.methods.interface import CloudContext
from proto.fields import Side
from proto.messages import Draft, Fetch, Message, Open, Resolve, Resolved, Sync, Target


class AggregateCloud(CloudAnswer):
    """Implements `CloudHalf`."""

    def __init__(self, request: Open | Fetch, context: CloudContext) -> None:
        """Raises `ValueError` for a request that can't be served."""
        if not isinstance(request, Open):
            raise ValueError("Aggregation is opened by Open.")
        both: frozenset[Side] = frozenset({"device", "cloud"})
        super().__init__(request, context, both if request.sources == "both" else frozenset({"cloud"}))
        if request.sources == "both" and request.run_ahead > 1 and request.sampler == "race":
            wanted = read_own_options(SpeculativeRequest, request).branches
            self.branches = min(context.side.settings.branches, wanted)

    def receive(self, message: Message) -> None:
        if not isinstance(message, Draft | Target | Resolve | Resolved | Sync):
            return
        self.heard = time.monotonic()
        if isinstance(message, Draft):
            self.context.estimates.remote_decoded(message.decode_time / 1e6)
        self.answer.receive(message)

    def retrieved(self, retrieved: PromptRows) -> None:
        super().retrieved(retrieved)
        if retrieved.prompt.absent and self.request.sources == "both":
            self.answer.end()  # the device decides alone, so there is nothing to read
