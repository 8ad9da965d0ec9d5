"""A document that is read ahead, as a job of the engine. For the engine's thread."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from common.answer.values import Drawn
from common.engine.kv.claims import Claim, Part
from common.engine.kv.layout import DocumentStates
from common.engine.kv.memory import Need, Rows
from common.engine.model.decoder import Decoder
from common.engine.sampling import Sample
from common.engine.sequences import Feed


class DocumentJob:
    """A document whose keys and values are wanted by themselves."""

    def __init__(
        self,
        document: Sequence[int],
        peer: Hashable,
        done: Callable[[DocumentStates], None],
        failed: Callable[[Exception], None],
        over: Callable[[], bool],
    ) -> None:
        """`done` or `failed` is called on the engine's thread, unless it is `over` before."""
        self.peer = peer
        self._document = tuple(document)
        self._part: Part | None = None  # of KV memory
        self._rows: Rows | None = None
        self._decoder: Decoder | None = None
        self._finished = False
        self._done = done
        self._failed = failed
        self._over = over

    @property
    def over(self) -> bool:
        return self._finished or self._over()

    @property
    def running(self) -> bool:
        return False

    @property
    def useless(self) -> bool:
        return self._over()

    def feeds(self, decoder: Decoder, wake: Callable[[], None]) -> Sequence[Feed]:
        self._decoder = decoder
        if self._rows is None:
            if self._part is None:
                states = decoder.known_document(self._document)
                if states is not None:
                    self._finish(states)
                    return ()
                decoder.check_ids(self._document)
                self._part = Claim([Need(decoder.memory, 1, len(self._document))]).parts[0]
            self._rows = self._part.rows(wake)
            if self._rows is None:
                return ()
        return [Feed(self._rows, self._document[self._rows.fed :])]

    def fed(self, feed: Feed, tokens: int) -> None:
        if self._decoder is None or feed.rows.fed < len(self._document):
            return
        states = feed.rows.states(0)
        self._decoder.keep_document(self._document, states)
        self._finish(states)

    @property
    def context(self) -> int:
        return 0 if self._rows is None else self._rows.context

    def samples(self) -> Sequence[Sample]:
        return ()  # no logits are asked for

    def drawn(self, drawn: Sequence[Drawn], seconds: float, step: bool) -> None:
        """Never called: nothing is drawn."""

    def gave_up(self, started: int) -> None:
        pass

    def fail(self, error: Exception) -> None:
        self._finished = True
        self._failed(error)

    def close(self) -> None:
        self._rows = None
        if self._part is not None:
            self._part.leave()
            self._part = None

    def _finish(self, states: DocumentStates) -> None:
        self._finished = True
        self._done(states)
