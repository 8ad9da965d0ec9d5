from __future__ import annotations

import json
import socket
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from common.library.embedder import SentenceTransformerEmbedder, unit_vectors
from common.library.errors import EmbedderError
from common.library.library import Library
from tests.common.scoring.tiny_encoders import make_bi_encoder
from tests.support.json_files import change

TEXTS = ["a", "The spare key is under the blue flower pot.", "word " * 300, "Ein Fahrrad"]


def model_folder(folder: Path, **files: str) -> Path:
    (folder / "1_Pooling").mkdir(parents=True)
    content = {"modules.json": "[]", "config.json": '{"model_type": "bert", "hidden_size": 8}'} | files
    for name, text in content.items():
        (folder / name).write_text(text)
    (folder / "model.safetensors").write_bytes(b"weights")
    (folder / "1_Pooling" / "config.json").write_text("{}")
    return folder


class TestEncode:
    def test_a_vector_depends_on_its_text_alone(self, embedder: SentenceTransformerEmbedder) -> None:
        together = embedder.encode(TEXTS)
        alone = np.concatenate([embedder.encode([text]) for text in TEXTS])
        assert together.dtype == np.float32
        assert together.tobytes() == alone.tobytes()

    def test_vectors_have_length_1(self, embedder: SentenceTransformerEmbedder) -> None:
        np.testing.assert_allclose(np.linalg.norm(embedder.encode(TEXTS), axis=1), 1.0, atol=1e-6)

    def test_the_bundled_model_loads_without_network(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*arguments: object) -> None:
            raise AssertionError(f"network: {arguments}")

        monkeypatch.delenv("HF_HUB_OFFLINE")
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        monkeypatch.setattr(socket.socket, "connect", refuse)
        monkeypatch.setattr(socket, "getaddrinfo", refuse)
        assert SentenceTransformerEmbedder(torch_device="cpu").encode(["x"]).shape == (1, 384)


class TestInstructions:
    """Models are trained to read words of their own before a question, others before a document, or none."""

    @pytest.fixture
    def instructed(self, tmp_path: Path) -> SentenceTransformerEmbedder:
        folder = make_bi_encoder(tmp_path / "bi")
        change(folder / "config_sentence_transformers.json", prompts={"query": "what is ", "document": "rabbit "})
        return SentenceTransformerEmbedder(str(folder))

    def test_stand_before_questions_and_documents(
        self, instructed: SentenceTransformerEmbedder, tmp_path: Path
    ) -> None:
        plain = SentenceTransformerEmbedder(str(make_bi_encoder(tmp_path / "plain")))
        assert np.array_equal(instructed.encode_queries(["my dance"]), plain.encode(["what is my dance"]))
        assert np.array_equal(instructed.encode(["my dance"]), plain.encode(["rabbit my dance"]))
        assert np.array_equal(plain.encode_queries(["my dance"]), plain.encode(["my dance"]))

    def test_of_a_library(self, instructed: SentenceTransformerEmbedder, tmp_path: Path) -> None:
        with Library(tmp_path / "library", instructed, kind="dense") as library:
            (tmp_path / "note.txt").write_text("my dance class")
            library.add(tmp_path / "note.txt")
            (hit,) = library.search("best game", 1)
            (passage,) = library.passages("note.txt", "best game")
        stored, asked = instructed.encode(["my dance class"])[0], instructed.encode_queries(["best game"])[0]
        assert hit.similarity == pytest.approx(float(stored @ asked), abs=1e-5)
        assert passage.similarity == pytest.approx(float(stored @ asked), abs=1e-5)


class TestIdentity:
    def test_is_the_contents_and_not_the_folders(self, tmp_path: Path) -> None:
        one = SentenceTransformerEmbedder(str(model_folder(tmp_path / "one")))
        two = SentenceTransformerEmbedder(str(model_folder(tmp_path / "two", **{"README.md": "words"})))
        assert one.identity == two.identity
        assert one.identity.startswith("bert-8:")

    @pytest.mark.parametrize("name", ["model.safetensors", "config.json", "1_Pooling/config.json", "vocab.txt"])
    def test_changes_with_every_file_that_changes_vectors(self, tmp_path: Path, name: str) -> None:
        before = SentenceTransformerEmbedder(str(model_folder(tmp_path / "one"))).identity
        changed = model_folder(tmp_path / "two")
        with (changed / name).open("a") as file:
            file.write(" ")
        assert SentenceTransformerEmbedder(str(changed)).identity != before


class TestRefusals:
    def test_a_model_that_is_nowhere(self) -> None:
        with pytest.raises(EmbedderError, match="'nobody/nothing' is neither a folder here nor available"):
            _ = SentenceTransformerEmbedder("nobody/nothing").identity

    def test_a_folder_without_a_model(self, tmp_path: Path) -> None:
        with pytest.raises(EmbedderError, match=r"modules\.json is missing"):
            _ = SentenceTransformerEmbedder(str(tmp_path)).identity

    def test_code_that_comes_with_a_model_is_not_run(self, tmp_path: Path) -> None:
        marker = tmp_path / "ran"
        modules = json.dumps([{"idx": 0, "name": "0", "path": "", "type": "evil.Evil"}])
        code = f"open({str(marker)!r}, 'w')\nclass Evil: pass"
        folder = model_folder(tmp_path / "model", **{"modules.json": modules, "evil.py": code})
        with pytest.raises(EmbedderError, match="can't be loaded"):
            SentenceTransformerEmbedder(str(folder)).encode(["x"])
        assert not marker.exists()

    @pytest.mark.parametrize(
        "vectors",
        [
            np.full((1, 4), 0.5, np.float64),
            np.full((1, 4), 0.6, np.float32),
            np.full((1, 4), np.nan, np.float32),
            np.full((2, 4), 0.5, np.float32),
            np.full(4, 0.5, np.float32),
        ],
    )
    def test_an_embedder_that_breaks_its_promise(self, vectors: NDArray[np.float32]) -> None:
        class Broken:
            identity = "broken"

            def encode(self, texts: list[str]) -> NDArray[np.float32]:
                return vectors

            encode_queries = encode

        for queries in (False, True):
            with pytest.raises(EmbedderError, match="broken gave"):
                unit_vectors(Broken(), ["x"], queries)
