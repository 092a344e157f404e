"""The table of models."""

import pytest

from lib import models, tiny
from lib.files import TinymoeError
from lib.tiny import shapes, weights


def test_order_and_names():
    assert [m.name for m in models.FULL] == [
        "lfm2.5-8b-a1b", "trinity-nano", "smallthinker-4b-a0.6b", "granite4-h-tiny", "gemma4-e2b", "gemma4-e4b",
    ]  # fmt: skip
    assert [m.base for m in models.TINY] == [m.name for m in models.FULL]
    assert [m.architecture for m in models.TINY] == [m.architecture for m in models.FULL]
    assert all(m.tiny for m in models.TINY) and not any(m.tiny or m.base for m in models.FULL)


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("granite4-h-tiny", "granite4-h-tiny (7B=1B)"),
        ("lfm2.5-8b-a1b", "lfm2.5-8b-a1b (8.3B=1.5B)"),
        ("smallthinker-4b-a0.6b", "smallthinker-4b-a0.6b (4B=0.6B)"),
        ("tiny-trinity", "tiny-trinity (1.9M=1M)"),
    ],
)
def test_label(name, label):
    assert models.label(name) == label


@pytest.mark.parametrize("model", models.TINY, ids=lambda m: m.name)
def test_parameters_of_tiny_models_are_those_made(model):
    total, active = weights.count(weights.make(shapes.SHAPES[model.name]))
    assert (round(model.total_B * 1e9), round(model.active_B * 1e9)) == (total, active)


def test_dense_models_use_all_but_their_per_layer_embeddings():
    for model in models.TINY:
        assert (model.kind == models.DENSE) == (shapes.SHAPES[model.name].experts == 0)


def test_unverified_fields_exist():
    for model in models.MODELS:
        for field in model.unverified:
            assert getattr(model, field)


def test_unknown_name_lists_the_known_ones():
    with pytest.raises(TinymoeError, match=r"'gpt-9' is not in lib/models.py; known: lfm2.5-8b-a1b, .*e4b$"):
        models.get("gpt-9")


def test_locate_makes_a_tiny_model(tmp_path):
    path = models.locate(models.get("tiny-gemma4-e2b"), tiny.GGUF_BACKEND, tmp_path, 4096)
    assert path.is_file() and path.parent == tmp_path / "models"


def test_locate_names_the_command_that_fetches_a_full_model(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    model = models.get("trinity-nano")
    with pytest.raises(TinymoeError, match=r"hf download arcee-ai/\S+-GGUF --include '\*Q4_K_M.gguf'$"):
        models.locate(model, "llama.cpp", tmp_path, 4096)
    with pytest.raises(TinymoeError, match=r"hf download mlx-community/\S+-4bit$"):
        models.locate(model, "mlx-lm", tmp_path, 4096)


def test_locate_finds_a_downloaded_file(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    repo = tmp_path / "models--arcee-ai--Trinity-Nano-Preview-GGUF"
    snapshot = repo / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text("0" * 40)
    wanted = snapshot / "Trinity-Nano-Preview-Q4_K_M.gguf"
    wanted.touch()
    assert models.locate(models.get("trinity-nano"), "llama.cpp", tmp_path, 4096) == wanted


def test_locate_says_that_no_conversion_is_published(tmp_path):
    with pytest.raises(TinymoeError, match="smallthinker-4b-a0.6b: no conversion for mlx-lm is published"):
        models.locate(models.get("smallthinker-4b-a0.6b"), "mlx-lm", tmp_path, 4096)
