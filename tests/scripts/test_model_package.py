"""The wheel of the default language model, built as the documents say, out of what `model.lock` pins."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from email import message_from_bytes
from pathlib import Path
from zipfile import ZipFile

import pytest

from scripts.daemons import ROOT

FOLDER = ROOT / "scripts" / "model_package"
SHOW = "import json; from common.configuration.settings import default_model; print(json.dumps(default_model()))"

pytestmark = pytest.mark.walkthrough


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("made")
    command = (
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        made,
    )
    before = sorted(FOLDER.iterdir())
    subprocess.run([*command, FOLDER], check=True)
    assert sorted(FOLDER.iterdir()) == before, "nothing of 100 MB stays in the checkout"
    (built,) = made.iterdir()
    return built


def test_it_has_the_file_and_its_licence_and_requires_nothing(wheel: Path) -> None:
    with ZipFile(wheel) as packed:
        files = [name for name in packed.namelist() if ".dist-info/" not in name]
        (metadata,) = [name for name in packed.namelist() if name.endswith(".dist-info/METADATA")]
        described = message_from_bytes(packed.read(metadata))
    assert sorted(Path(name).suffix for name in files) == ["", ".gguf"]
    assert "dragon_smollm2/LICENSE" in files
    assert described["Name"] == "dragon-smollm2"
    assert described["Version"] in (ROOT / "model.lock").read_text()
    assert described.get_all("Requires-Dist") is None


def test_the_daemons_take_it(wheel: Path, tmp_path: Path) -> None:
    command = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", tmp_path)
    subprocess.run([*command, wheel], check=True)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))}
    shown = subprocess.run([sys.executable, "-c", SHOW], env=environment, check=True, capture_output=True, text=True)
    model = Path(json.loads(shown.stdout))
    assert model.parent == tmp_path / "dragon_smollm2" and model.suffix == ".gguf"


def test_no_package_of_this_environment_lacks_another() -> None:
    done = subprocess.run([sys.executable, "-m", "pip", "check"], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
