"""Finding a model's files."""

import pytest

from lib import models, store, tiny
from lib.files import TinymoeError


def test_locate_makes_a_tiny_model(tmp_path):
    path = store.locate(models.get("tiny-gemma4-e2b"), tiny.GGUF_BACKEND, 4096, tmp_path)
    assert path.is_file() and path.parent == tmp_path / "models"


def test_locate_names_the_command_that_fetches_a_full_model(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    model = models.get("trinity-nano")
    with pytest.raises(TinymoeError, match=r"hf download arcee-ai/\S+-GGUF --include '\*Q4_K_M.gguf'$"):
        store.locate(model, "llama.cpp", 4096, tmp_path)
    with pytest.raises(TinymoeError, match=r"hf download mlx-community/\S+-4bit$"):
        store.locate(model, "mlx-lm", 4096, tmp_path)


def test_locate_finds_a_downloaded_file(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    repo = tmp_path / "models--arcee-ai--Trinity-Nano-Preview-GGUF"
    snapshot = repo / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text("0" * 40)
    wanted = snapshot / "Trinity-Nano-Preview-Q4_K_M.gguf"
    wanted.touch()
    assert store.locate(models.get("trinity-nano"), "llama.cpp", 4096, tmp_path) == wanted


def test_locate_says_that_no_conversion_is_published(tmp_path):
    with pytest.raises(TinymoeError, match="smallthinker-4b-a0.6b: no conversion for mlx-lm is published"):
        store.locate(models.get("smallthinker-4b-a0.6b"), "mlx-lm", 4096, tmp_path)
