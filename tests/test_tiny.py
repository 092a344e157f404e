"""Tiny models: the same bytes each time, the parameters promised, one tokenizer for both servers."""

import json
import subprocess
import sys

import gguf
import numpy as np
import pytest
import tokenizers
from safetensors.numpy import load_file

from lib import models, tiny
from lib.files import sha256
from lib.paths import CACHE, ROOT
from lib.tiny import mlx, tokenizer, weights
from lib.tiny.shapes import SHAPES

GGUF, MLX = tiny.GGUF_BACKEND, tiny.MLX_BACKEND
every = pytest.mark.parametrize("model", models.TINY, ids=lambda m: m.name)


@pytest.fixture(scope="module")
def fast(tmp_path_factory):
    """The tokenizer as MLX-LM loads it."""
    folder = tmp_path_factory.mktemp("tokenizer")
    tokenizer.write(folder, 1024)
    return tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))


def test_tokenizer_size_and_specials(fast):
    tok = tokenizer.build()
    assert len(tok.tokens) == len(set(tok.tokens)) == fast.get_vocab_size() == 1216
    assert tok.tokens[tok.plain :] == tokenizer.SPECIALS
    assert [fast.token_to_id(t) for t in tokenizer.SPECIALS] == [1212, 1213, 1214, 1215]


@pytest.mark.parametrize("text", ["a river", "It's 3.14 \n\n tokens?", "Ünïcödé 漢字 🙂", "  two  blanks ", ""])
def test_tokenizer_round_trip(fast, text):
    assert fast.decode(fast.encode(text).ids) == text


def test_short_words_are_one_token_each(fast):
    words = [w for w in tokenizer.TEXT.split() if len(w) <= 3]
    assert len(words) > 100 and "I" in words
    for word in ("so", "us", *words):
        assert len(fast.encode(f" {word}").ids) == 1, word


def test_what_may_be_sampled_is_printable_ascii(fast):
    tok = tokenizer.build()
    allowed = set(range(len(tok.tokens))) - set(tok.banned)
    assert len(allowed) == 1051
    for i in allowed:
        assert fast.decode([i], skip_special_tokens=False).isascii()
        assert fast.decode([i], skip_special_tokens=False).isprintable()
    assert tok.id(tokenizer.EOS) in tok.banned


def test_gguf_is_the_same_on_every_machine(tmp_path):
    first = tiny.ensure(models.get("tiny-granite4-h"), GGUF, tmp_path / "a")
    second = tiny.ensure(models.get("tiny-granite4-h"), GGUF, tmp_path / "b")
    assert sha256(first) == sha256(second)
    assert sha256(first) == "144772981b426629b84410b6d64a2883f785f86369898b8763884ecfa2d6d69a"


@every
def test_gguf_holds_the_parameters_promised(model):
    reader = gguf.GGUFReader(tiny.ensure(model, GGUF, CACHE))
    sizes = [int(t.n_elements) for t in reader.tensors if t.name != "rope_freqs.weight"]
    assert sum(sizes) == round(model.total_B * 1e9)
    assert reader.get_field("general.architecture").contents() == model.architecture
    assert reader.get_field(f"{model.architecture}.context_length").contents() == tiny.CTX


@every
def test_mlx_holds_the_parameters_promised(model):
    path = tiny.ensure(model, MLX, CACHE)
    tensors = load_file(path / "model.safetensors")
    per_element = {name: 8 if t.dtype == np.uint32 else 1 for name, t in tensors.items()}
    sizes = [t.size * per_element[n] for n, t in tensors.items() if not n.endswith((".scales", ".biases"))]
    assert sum(sizes) == round(model.total_B * 1e9)
    assert {t.dtype.name for t in tensors.values()} == {"uint32", "float32"}


@every
def test_mlx_config_says_what_it_is(model):
    config = json.loads((tiny.ensure(model, MLX, CACHE) / "config.json").read_text())
    kinds = {
        "lfm2moe": "lfm2_moe", "afmoe": "afmoe", "smallthinker": "smallthinker",
        "granitehybrid": "granitemoehybrid", "gemma4": "gemma4",
    }  # fmt: skip
    assert config["model_type"] == kinds[model.architecture]
    assert config["quantization"] == {"group_size": 64, "bits": 4}
    ends = config["eos_token_id"]
    assert (1214 in ends and len(ends) > 40) if model.name == "tiny-granite4-h" else ends == 1214


def test_mlx_quantisation_is_mlx_s_own():
    mx = pytest.importorskip("mlx.core")
    value = weights._uniform(1, "w", (3, 8, 128), 1.0)
    value[0, 0] = 0  # a row of zeros has no scale
    packed = mlx._quantised("w", value)
    w, scales, biases = (mx.array(packed[f"w.{part}"]) for part in ("weight", "scales", "biases"))
    back = np.array(mx.dequantize(w, scales, biases, group_size=64, bits=4))
    step = np.repeat(packed["w.scales"], 64, axis=-1)
    assert np.all(np.abs(back - value) <= step / 2 + 1e-6)
    assert not back[0, 0].any()


@every
def test_no_block_writes_to_the_constant_channel(model):
    for weight in weights.make(SHAPES[model.name]):
        part = weight.name.rpartition(".")[2]
        if part.startswith(("attn_output", "ffn_down", "ssm_out", "out_proj", "proj")):
            assert not weight.value[..., 0, :].any(), weight.name
        if part in ("attn_norm", "ffn_norm", "post_attention_norm", "post_ffw_norm", "post_norm"):
            assert weight.value[0] == 0, weight.name


def test_eos_prone_variant_differs_and_lies_beside(tmp_path):
    model = models.get("tiny-gemma4-e2b")
    usual, prone = (tiny.ensure(model, GGUF, tmp_path, eos_prone=prone) for prone in (False, True))
    assert usual.name.startswith("tiny-gemma4-e2b-") and prone.name.startswith("tiny-gemma4-e2b-eos-")
    assert sha256(usual) != sha256(prone)


def test_ensure_keeps_what_is_there(tmp_path):
    model = models.get("tiny-gemma4-e2b")
    for backend in (GGUF, MLX):
        path = tiny.ensure(model, backend, tmp_path)
        made_ns = path.stat().st_mtime_ns
        assert tiny.ensure(model, backend, tmp_path) == path
        assert path.stat().st_mtime_ns == made_ns
    assert not [p for p in (tmp_path / "models").iterdir() if p.name.startswith(".")]


def test_a_change_of_the_generator_makes_new_models(tmp_path, monkeypatch):
    model = models.get("tiny-gemma4-e2b")
    before = tiny.ensure(model, GGUF, tmp_path)
    monkeypatch.setattr(tiny, "_stamp", lambda ctx: "changed")
    after = tiny.ensure(model, GGUF, tmp_path)
    assert after != before and after.is_file()


def test_nothing_remains_of_a_model_that_could_not_be_made(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("lib.tiny.gguf.write", fail)
    with pytest.raises(OSError, match="disk full"):
        tiny.ensure(models.get("tiny-gemma4-e2b"), GGUF, tmp_path)
    assert not list((tmp_path / "models").iterdir())


def test_only_tiny_models_and_known_backends(tmp_path):
    with pytest.raises(tiny.TinyError, match="trinity-nano is not a tiny model"):
        tiny.ensure(models.get("trinity-nano"), GGUF, tmp_path)
    with pytest.raises(tiny.TinyError, match="no tiny model for 'ollama'"):
        tiny.ensure(models.get("tiny-trinity"), "ollama", tmp_path)


def test_making_models_does_not_load_mlx(tmp_path):
    code = (
        "import sys, pathlib; from lib import models, tiny;"
        "m = models.get('tiny-gemma4-e2b'); c = pathlib.Path(sys.argv[1]);"
        "tiny.ensure(m, 'llama.cpp', c); tiny.ensure(m, 'mlx-lm', c);"
        "sys.exit(any(n.partition('.')[0] in ('mlx', 'mlx_lm', 'transformers') for n in sys.modules))"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, check=True)
