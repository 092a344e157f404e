"""Fetching from a hub that is a stand-in on loopback: what is fetched, what is not, and one line for each mishap."""

import pytest
from huggingface_hub import constants

from lib import download, hashes, models, store
from lib.download import DownloadError, Wanted
from lib.hashes import HashError
from tests.fake_hub import COMMIT, FakeHub

GGUF = "arcee-ai/Trinity-Nano-Preview-GGUF"
MLX = "mlx-community/Trinity-Nano-Preview-4bit"
WEIGHTS = bytes(range(256)) * 20
REPOS = {
    GGUF: {
        "README.md": b"read me",
        "T-Q4_K_M.gguf": WEIGHTS,
        "T-UD-Q4_K_M.gguf": b"u" * 4000,
        "T-Q8_0.gguf": b"q" * 9000,
    },
    MLX: {"README.md": b"x", "config.json": b"{}", "model.safetensors": b"s" * 3000, "modeling.py": b"evil()"},
}
TOKEN = "hf_secretsecret"


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub with two repositories, and an empty cache of this machine; a token is set."""
    with FakeHub({name: dict(found) for name, found in REPOS.items()}) as fake:
        _use(monkeypatch, fake.url)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setattr(hashes, "RECORD", tmp_path / "models.json")
        monkeypatch.setattr(hashes, "HEAVY_BYTES", 1000)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield fake


def _use(monkeypatch, url):
    monkeypatch.setattr(constants, "ENDPOINT", url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", url + "/{repo_id}/resolve/{revision}/{filename}")


def wanted(backend="llama.cpp", name="trinity-nano"):
    return store.weights(models.get(name), backend)


def fetched(fake):
    """Names of the files whose bodies were asked for."""
    return [path.rsplit("/", 1)[1] for method, path in fake.asked if method == "GET" and "/resolve/" in path]


def test_only_the_wanted_gguf_file_is_fetched_and_its_hash_recorded(hub, tmp_path):
    one = wanted()
    assert download.local(one) is None
    listed = download.ask(one)
    assert list(listed) == ["T-Q4_K_M.gguf"] and listed["T-Q4_K_M.gguf"].size == 5120
    assert download.missing_bytes(one, listed) == 5120
    path = download.fetch(one, listed)
    assert path.read_bytes() == WEIGHTS and path.parent.name == COMMIT
    assert fetched(hub) == ["T-Q4_K_M.gguf"]
    assert download.local(one) == path and download.missing_bytes(one, listed) == 0
    (record,) = hashes.read_optional(hashes.RECORD).values()
    assert record["size"] == 5120 and record["sha256"] == listed["T-Q4_K_M.gguf"].sha256


def test_of_an_mlx_repository_code_and_readme_stay_away(hub):
    one = wanted("mlx-lm")
    folder = download.fetch(one, download.ask(one))
    assert sorted(p.name for p in folder.iterdir()) == ["config.json", "model.safetensors"]
    assert download.local(one) == folder


def test_once_there_the_network_is_not_asked(hub, monkeypatch):
    one = wanted()
    path = download.fetch(one, download.ask(one))
    before = len(hub.asked)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert download.local(one) == path
    assert len(hub.asked) == before


def test_an_mlx_folder_without_its_weights_is_not_whole(hub):
    one = wanted("mlx-lm")
    folder = download.fetch(one, download.ask(one))
    (folder / "model.safetensors").unlink()
    assert download.local(one) is None


def test_an_interrupted_fetch_goes_on_where_it_stopped(hub, monkeypatch):
    one = wanted()
    listed = download.ask(one)
    hub.cut_after = 2000
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 500)

    def interrupted(seconds):
        raise KeyboardInterrupt

    with monkeypatch.context() as at_first, pytest.raises(KeyboardInterrupt):
        at_first.setattr("huggingface_hub.file_download.time.sleep", interrupted)
        download.fetch(one, listed)
    assert download.local(one) is None and download.missing_bytes(one, listed) == 3120
    path = download.fetch(one, listed)
    assert path.read_bytes() == WEIGHTS and download.missing_bytes(one, listed) == 0
    ranges = [h.get("range") for (m, p), h in zip(hub.asked, hub.headers, strict=True) if m == "GET" and "resolve" in p]
    assert ranges == [None, "bytes=2000-"]
    assert [p.name for p in path.resolve().parent.iterdir()] == [path.resolve().name], "no part is left"


def test_another_file_than_the_hub_listed_is_refused(hub):
    hub.wrong_hash = True
    one = wanted()
    listed = download.ask(one)
    with pytest.raises(HashError, match="on the hub it is 000000000000"):
        download.fetch(one, listed)
    assert download.local(one) is None and download.missing_bytes(one, listed) == 5120


@pytest.mark.parametrize(
    ("answer", "said", "down"),
    [
        (404, r": no such repository, or one that needs a token; correct lib/models\.py$", False),
        ("gated", r": gated; accept its terms on its page, then give your token with .* HF_TOKEN$", False),
        (403, r": the hub refuses \(403\); give a valid token", False),
        (429, r": the hub answers 429; try again later$", False),
        (500, r": the hub at http://127\.0\.0\.1:\d+ cannot be reached \(it answers 500\); see to the network", True),
        ({"README.md": b""}, r": the repository has no file \*Q4_K_M\.gguf; see lib/models\.py$", False),
    ],
)  # fmt: skip
def test_a_mishap_is_one_line_without_the_token(hub, answer, said, down):
    hub.repos[GGUF] = answer
    with pytest.raises(DownloadError, match=said) as e:
        download.ask(wanted())
    assert str(e.value).startswith(f"trinity-nano (GGUF, {GGUF})") and "\n" not in str(e.value)
    assert e.value.hub_is_down == down
    assert any(h.get("authorization") == f"Bearer {TOKEN}" for h in hub.headers), "the token goes to the hub"
    assert TOKEN not in str(e.value) and e.value.__cause__ is None


@pytest.mark.parametrize("step", ["ask", "fetch"])
def test_a_hub_that_is_not_there(hub, monkeypatch, step):
    listed = {"config.json": download.File(2, None)}
    _use(monkeypatch, "http://127.0.0.1:9")
    with pytest.raises(DownloadError, match=r"http://127\.0\.0\.1:9 cannot be reached \(ConnectError\)") as e:
        download.ask(wanted()) if step == "ask" else download.fetch(wanted(), listed)
    assert e.value.hub_is_down and "\n" not in str(e.value)


def test_offline_by_wish(hub, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(DownloadError, match="is not on this machine, and HF_HUB_OFFLINE is set; unset it") as e:
        download.ask(wanted())
    assert e.value.hub_is_down


def test_a_name_that_nobody_verified_says_so():
    assert str(wanted("mlx-lm")).endswith("a repository name that the published benchmark does not state)")
    assert "not state" not in str(wanted())


def test_the_shortest_name_is_the_plain_file():
    one = Wanted("m", "GGUF", "o/r", ("*Q4_K_M.gguf",), True)
    assert one.choose(["a-UD-Q4_K_M.gguf", "a-Q4_K_M.gguf", "a-Q8_0.gguf"]) == ["a-Q4_K_M.gguf"]
    assert one.choose(["a-Q8_0.gguf"]) == []
