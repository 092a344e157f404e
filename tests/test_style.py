from lib import models, style


def test_a_tiny_model_looks_like_the_one_it_stands_for():
    for model in models.MODELS:
        if model.tiny:
            assert style.colour(model.name) == style.colour(model.base)
            assert style.marker(model.name) == style.marker(model.base)


def test_models_are_told_apart_by_colour_and_by_marker():
    full = [m.name for m in models.MODELS if not m.tiny]
    assert len({style.colour(m) for m in full}) == len(full) == 6
    assert len({style.marker(m) for m in full}) == len(full)


def test_backends_are_told_apart_by_line_and_hatch():
    assert style.line("llama.cpp") == "-" and style.line("mlx-lm") == "--"
    assert len({style.hatch(b) for b in style.BACKENDS}) == len(style.BACKENDS)


def test_order_is_the_tables_and_strangers_come_last():
    assert style.in_order(["zebra", "gemma4-e2b", "lfm2.5-8b-a1b"]) == ["lfm2.5-8b-a1b", "gemma4-e2b", "zebra"]
    assert style.backends_in_order(["vllm", "mlx-lm", "llama.cpp"]) == ["llama.cpp", "mlx-lm", "vllm"]
    assert style.label("zebra") == "zebra"
