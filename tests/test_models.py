"""The table of models."""

import pytest

from lib import models
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
