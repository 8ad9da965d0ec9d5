"""A process that runs models imports no compiler, solver or the like; and can import each of them afterwards."""

from __future__ import annotations

import subprocess
import sys

LEFT_OUT = ("torch._dynamo", "torch.distributed.tensor", "sklearn", "scipy.optimize", "scipy.sparse")

PROGRAM = f"""
import sys
from common.engine.model.imports import importing_models
with importing_models():
    from common.daemon.side import SideRuntime
    from sentence_transformers import SentenceTransformer
from common.configuration.settings import EMBEDDED_MODEL, EMBEDDED_TOKENIZER
from common.engine.model.decoder import Decoder
from common.library.embedder import SentenceTransformerEmbedder
Decoder.load(str(EMBEDDED_MODEL), tokenizer=str(EMBEDDED_TOKENIZER), torch_device="cpu", threads=1).close()
SentenceTransformerEmbedder().encode(["text"])
print([name for name in {LEFT_OUT} if name in sys.modules])
import sklearn.metrics, scipy.sparse, torch
assert sklearn.metrics.pairwise_distances([[0.0]], [[1.0]]).item() == 1.0
assert scipy.sparse.coo_matrix([[1.0]]).nnz == 1
assert torch._dynamo.is_compiling() is False
"""


def test_models_are_loaded_without_them() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
