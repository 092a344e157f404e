"""Finding a model's files, and fetching those that a plan needs."""

from pathlib import Path

import pytest
from huggingface_hub import constants

from lib import download, hashes, models, store
from lib.download import DownloadError, File
from lib.files import TinymoeError
from lib.paths import PLANS
from lib.store import StoreError

COMMIT = "0" * 40


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty Hugging Face cache."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(hashes, "RECORD", tmp_path / "models.json")
    return tmp_path / "hub"


def put(cache, repo, *names):
    """Files of a repository as huggingface_hub leaves them; the folder they are in."""
    folder = cache / f"models--{repo.replace('/', '--')}"
    snapshot = folder / "snapshots" / COMMIT
    snapshot.mkdir(parents=True, exist_ok=True)
    (folder / "refs").mkdir(exist_ok=True)
    (folder / "refs" / "main").write_text(COMMIT)
    for name in names:
        (snapshot / name).touch()
    return snapshot


@pytest.fixture
def hub(monkeypatch):
    """A hub of functions: `answers` by repository, an error or the files; what was fetched is put into the cache."""
    answers, fetched = {}, []

    def ask(wanted):
        answer = answers.get(wanted.repo, {})
        if isinstance(answer, Exception):
            raise answer
        return answer or {"model.gguf": File(4_000_000_000, None)}

    monkeypatch.setattr(download, "ask", ask)
    monkeypatch.setattr(download, "fetch", lambda wanted, listed: fetched.append(wanted.repo) or Path("model.gguf"))
    monkeypatch.setattr(store, "free_MB", lambda _: 1e6)
    return answers, fetched


@pytest.mark.parametrize("backend", ["llama.cpp", "ollama"])
def test_locate_makes_a_tiny_model(tmp_path, backend):
    path = store.locate(models.get("tiny-gemma4-e2b"), backend, 4096, tmp_path)
    assert path.is_file() and path.parent == tmp_path / "models" and store.source(path) == ""


def test_a_tiny_model_has_a_tokenizer():
    assert store.tokenizer(models.get("tiny-gemma4-e2b")).name == "tokenizer.json"


def test_locate_names_the_command_that_fetches_a_full_model(cache, tmp_path):
    model = models.get("trinity-nano")
    with pytest.raises(TinymoeError, match=r"^trinity-nano: its GGUF files .* --plan <plan> --only trinity-nano$") as e:
        store.locate(model, "llama.cpp", 4096, tmp_path)
    assert "does not state" not in str(e.value)
    with pytest.raises(TinymoeError, match=r"MLX files are not on this machine \(mlx-community/\S+-4bit: a name that"):
        store.locate(model, "mlx-lm", 4096, tmp_path)
    assert not (tmp_path / "models").exists()


def test_locate_links_to_a_downloaded_file(cache, tmp_path):
    wanted = put(cache, "arcee-ai/Trinity-Nano-Preview-GGUF", "T-Q4_K_M.gguf", "T-Q8_0.gguf") / "T-Q4_K_M.gguf"
    for _ in range(2):
        path = store.locate(models.get("trinity-nano"), "llama.cpp", 4096, tmp_path)
        assert path == tmp_path / "models" / "trinity-nano.gguf" and path.resolve() == wanted
        assert store.source(path) == f"arcee-ai/Trinity-Nano-Preview-GGUF@{COMMIT}/T-Q4_K_M.gguf"


def test_locate_links_to_a_downloaded_folder(cache, tmp_path):
    folder = put(cache, "mlx-community/Trinity-Nano-Preview-4bit", "config.json", "model.safetensors")
    path = store.locate(models.get("trinity-nano"), "mlx-lm", 4096, tmp_path)
    assert path == tmp_path / "models" / "trinity-nano-4bit" and path.resolve() == folder
    assert (path / "config.json").is_file()
    assert store.source(path) == f"mlx-community/Trinity-Nano-Preview-4bit@{COMMIT}"


def test_a_link_follows_the_file_to_another_snapshot(cache, tmp_path):
    put(cache, "arcee-ai/Trinity-Nano-Preview-GGUF", "T-Q4_K_M.gguf")
    link = tmp_path / "models" / "trinity-nano.gguf"
    link.parent.mkdir()
    link.symlink_to(tmp_path / "gone.gguf")
    assert store.locate(models.get("trinity-nano"), "llama.cpp", 4096, tmp_path).is_file()


def test_locate_says_that_no_conversion_is_published(tmp_path):
    with pytest.raises(StoreError, match="smallthinker-4b-a0.6b: no conversion for mlx-lm is published") as e:
        store.locate(models.get("smallthinker-4b-a0.6b"), "mlx-lm", 4096, tmp_path)
    assert e.value.unsupported


def test_the_tokenizer_of_a_full_model_is_that_of_its_open_conversion(cache):
    snapshot = put(cache, "mlx-community/gemma-4-e2b-it-4bit", "tokenizer.json")
    assert store.tokenizer(models.get("gemma4-e2b")) == snapshot / "tokenizer.json"
    with pytest.raises(StoreError, match="tokenizer files are not on this machine"):
        store.tokenizer(models.get("smallthinker-4b-a0.6b"))


def test_what_a_plan_needs_is_listed_once():
    wanted, unpublished = store.needs([
        ("llama.cpp", "trinity-nano"), ("ollama", "trinity-nano"), ("mlx-lm", "trinity-nano"),
        ("mlx-lm", "smallthinker-4b-a0.6b"), ("llama.cpp", "tiny-trinity"),
    ])  # fmt: skip
    assert [(w.what, w.verified) for w in wanted] == [("GGUF", True), ("tokenizer", False), ("MLX", False)]
    assert unpublished == ["smallthinker-4b-a0.6b: no conversion for mlx-lm is published"]


def test_make_models_fetches_what_is_missing(cache, hub, capsys):
    put(cache, "arcee-ai/Trinity-Nano-Preview-GGUF", "T-Q4_K_M.gguf")
    assert store.main(["--plan", "mac-mini-m4", "--only", "trinity"]) == 0
    assert hub[1] == ["mlx-community/Trinity-Nano-Preview-4bit"]
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "models: trinity-nano (GGUF, arcee-ai/Trinity-Nano-Preview-GGUF) is here"
    assert "a repository name that the published benchmark does not state): 4.0 GB" in said[1]
    assert said[-1] == "models: plan mac-mini-m4: 2 downloads"


def test_the_whole_plan(cache, hub, capsys):
    assert store.main(["--plan", "mac-mini-m4"]) == 0
    assert len(hub[1]) == 11
    assert "smallthinker-4b-a0.6b: no conversion for mlx-lm is published; its cells keep" in capsys.readouterr().out


def test_one_that_cannot_be_had_does_not_stop_the_others(cache, hub, capsys):
    hub[0]["arcee-ai/Trinity-Nano-Preview-GGUF"] = DownloadError("no such repository")
    assert store.main(["--plan", "mac-mini-m4", "--only", "trinity"]) == 1
    said = capsys.readouterr()
    assert hub[1] == ["mlx-community/Trinity-Nano-Preview-4bit"]
    assert said.err == "models: no such repository\n" and said.out.endswith("2 downloads, some of them not here\n")


def test_a_hub_that_cannot_be_reached_ends_it_in_one_line(cache, hub, capsys):
    hub[0]["LiquidAI/LFM2.5-8B-A1B-GGUF"] = DownloadError("the hub cannot be reached", hub_is_down=True)
    assert store.main(["--plan", "mac-mini-m4"]) == 1
    assert capsys.readouterr().err == "models: the hub cannot be reached\n" and hub[1] == []


def test_a_disk_that_is_too_small_is_known_before_the_first_byte(cache, hub, monkeypatch, capsys):
    monkeypatch.setattr(store, "free_MB", lambda _: 9000.0)
    assert store.main(["--plan", "mac-mini-m4", "--only", "trinity"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("models: 8.0 GB to fetch and 2.0 GB to spare, but 9.0 GB free where ")
    assert said.count("\n") == 1 and hub[1] == []


@pytest.mark.parametrize("plan", [p.stem for p in PLANS.glob("*.yaml") if p.stem != "mac-mini-m4"])
def test_plans_without_full_models_need_no_hub(cache, hub, plan, capsys):
    assert store.main(["--plan", plan]) == 0
    assert capsys.readouterr().out == f"models: plan {plan}: nothing to fetch\n" and hub[1] == []
