"""An import of a GGUF file whose weights are converted says how much of it is done."""

from __future__ import annotations

from pathlib import Path

from common.engine.model.gguf import imported
from common.process.lifetime import Startup
from tests.common.engine.model.gguf_file import write_gguf


def test_its_progress_is_the_share_of_bytes(tmp_path: Path) -> None:
    """The share only grows, until all of them are converted. Before and after there is none."""
    told: list[tuple[str, float | None]] = []

    class Told(Startup):
        def at(self, work: str, share: float | None = None) -> None:
            told.append((work, share))

    write_gguf(tmp_path / "Tiny.gguf")
    imported(tmp_path / "Tiny.gguf", tmp_path / "progress", Told(), converted=True)
    (begun, nothing), *converted, (writing, after) = told
    assert (begun, writing) == ("converting the model (first start only)", "writing the imported model")
    assert nothing is None and after is None
    shares = [share for work, share in converted if work == begun and share is not None]
    assert len(shares) == len(converted) > 4
    assert shares == sorted(shares) and 0.0 < shares[0] < 0.5 and shares[-1] == 1.0
