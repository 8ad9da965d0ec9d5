"""Both halves: those of an answer from one side's documents, but for what is read."""

from __future__ import annotations

from dataclasses import replace

from common.answer.report import MethodReport
from common.daemon.prompt_rows import PromptRows
from common.daemon.scope import Scope
from common.methods.aggregate.cloud_half import AggregateCloud
from common.methods.aggregate.device_half import AggregateDevice
from common.methods.interface import CloudContext, DeviceContext
from common.methods.passages.long_context.reading import read_whole
from proto.messages import Closed, Fetch, Open


class LongContextDevice(AggregateDevice):
    """Implements `DeviceHalf`."""

    def __init__(self, context: DeviceContext, document: str) -> None:
        super().__init__(context)
        self._document = document

    def retrieve(self, request: Open) -> PromptRows:
        return read_whole(self._context.side, self._document, request, self._context.scope).rows

    def report(self, closed: Closed | None) -> MethodReport:
        """The report, without shares where the cloud has none to tell of the document: all of it is one row."""
        part = super().report(closed)
        return replace(part, attribution=(), unattributed=0) if closed is not None and part.unattributed else part


class LongContextCloud(AggregateCloud):
    """Implements `CloudHalf`."""

    def __init__(self, request: Open | Fetch, context: CloudContext, document: str) -> None:
        super().__init__(request, context)
        self._document = document

    def retrieve(self, request: Open) -> PromptRows:
        return read_whole(self.context.side, self._document, request, Scope(request.only)).rows
