"""Where a model's files are on this machine: tiny ones are made on demand, others are fetched when asked.

    python -m lib.store --plan mac-mini-m4 [--only PART]

fetches what a plan needs. Exit codes: 0 everything is here; 1 the hub cannot be reached, the disk is too small, or
some models could not be had (one line each; the others are here); 130 interrupted (the same command goes on).
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from huggingface_hub import constants

from lib import command, download, tiny
from lib.download import DownloadError, File, Wanted
from lib.files import TinymoeError, free_MB
from lib.models import GGUF_BACKENDS, Model, get
from lib.paths import CACHE, relative
from lib.plan import load, selected

# Room that is left on the disk beside what is fetched, in MB (10^6 bytes).
SPARE_MB = 2000.0
# What a server reads of an MLX checkpoint; no code of the repository is among it.
MLX_FILES = ("*.safetensors", "*.json", "*.jinja", "*.model", "*.tiktoken", "*.txt")
TOKENIZER = "tokenizer.json"


class StoreError(TinymoeError):
    """A model that is not on this machine. `unsupported`: there is none for this backend, so no use in trying again."""

    def __init__(self, message: str, unsupported: bool = False):
        super().__init__(message)
        self.unsupported = unsupported


def locate(model: Model, backend: str, ctx_size: int, cache: Path = CACHE) -> Path:
    """Where the files of `model` for `backend` are: a GGUF file, or a folder for the MLX servers.

    A tiny model is made now if `cache` lacks it, for at least ctx_size tokens. A full one must have been fetched: these
    are gigabytes, so nothing is fetched unasked, and the network is never asked. Its place is a link in `cache/models`
    to the usual Hugging Face cache, so that artifacts name no folder outside the project.
    StoreError with the command that fetches it if it is not there.
    """
    if model.tiny:
        made_for = tiny.GGUF_BACKEND if backend in GGUF_BACKENDS else tiny.MLX_BACKEND
        return tiny.ensure(model, made_for, cache, max(ctx_size, tiny.CTX))
    wanted = weights(model, backend)
    return _linked(_present(wanted, backend), cache / "models" / _link_name(wanted))


def tokenizer(model: Model, ctx_size: int = tiny.CTX, cache: Path = CACHE) -> Path:
    """tokenizer.json of `model`, for a server that counts no tokens itself. StoreError if it is not on this machine."""
    if model.tiny:
        return tiny.ensure(model, tiny.MLX_BACKEND, cache, max(ctx_size, tiny.CTX)) / TOKENIZER
    return _present(_tokenizer(model), "ollama")


def weights(model: Model, backend: str) -> Wanted:
    """What `backend` loads of a full model. StoreError, unsupported, if nobody has published it."""
    field = "gguf_repo" if backend in GGUF_BACKENDS else "mlx_repo"
    repo, verified = getattr(model, field), field not in model.unverified
    if not repo:
        raise StoreError(f"{model.name}: no conversion for {backend} is published", unsupported=True)
    if field == "gguf_repo":
        return Wanted(model.name, "GGUF", repo, (model.gguf_file,), True, verified)
    return Wanted(model.name, "MLX", repo, MLX_FILES, False, verified)


def _tokenizer(model: Model) -> Wanted:
    """The tokenizer of the MLX conversion where there is one: the original repositories are partly gated."""
    repo, field = (model.mlx_repo, "mlx_repo") if model.mlx_repo else (model.tokenizer_repo, "tokenizer_repo")
    return Wanted(model.name, "tokenizer", repo, (TOKENIZER,), True, field not in model.unverified)


def _present(wanted: Wanted, backend: str) -> Path:
    found = download.local(wanted)
    if found is None:
        doubt = "" if wanted.verified else f" ({wanted.repo}: a name that the published benchmark does not state)"
        raise StoreError(
            f"{wanted.model}: its {wanted.what} files are not on this machine{doubt}; fetch them with 'make models', "
            f"or python -m lib.store --plan <plan> --only {wanted.model}"
        )
    return found


def _link_name(wanted: Wanted) -> str:
    return f"{wanted.model}.gguf" if wanted.single else f"{wanted.model}-4bit"


def _linked(target: Path, link: Path) -> Path:
    """`link`, which leads to `target` from now on."""
    if not (link.is_symlink() and Path(os.readlink(link)) == target):
        link.parent.mkdir(parents=True, exist_ok=True)
        draft = link.with_name(f".{link.name}.{os.getpid()}.tmp")
        draft.unlink(missing_ok=True)
        draft.symlink_to(target)
        draft.replace(link)
    return link


def source(path: Path) -> str:
    """Repository, commit and file of a model that `locate` found, "org/name@commit/file"; "" for one made here."""
    parts = Path(os.readlink(path)).parts if path.is_symlink() else ()
    for n, part in enumerate(parts):
        if part.startswith("models--"):
            repo = part.removeprefix("models--").replace("--", "/", 1)
            return "/".join([f"{repo}@{parts[n + 2]}", *parts[n + 3 :]])
    return ""


def needs(pairs: list[tuple[str, str]]) -> tuple[list[Wanted], list[str]]:
    """What (backend, model name) pairs need from the hub, each once, and a line for each that nobody has published."""
    wanted, unpublished = [], []
    for backend, name in pairs:
        if (model := get(name)).tiny:
            continue
        try:
            wanted.append(weights(model, backend))
        except StoreError as e:
            unpublished.append(str(e))
        if backend == "ollama":
            wanted.append(_tokenizer(model))
    return list(dict.fromkeys(wanted)), unpublished


def fetch(wanted: list[Wanted]) -> int:
    """Fetch what is not here yet, telling each step in a line. Exit code: 1 if some could not be had.

    The sizes are asked first, so that a disk that is too small is known before the first byte. DownloadError if the
    hub cannot be reached, StoreError if the disk is too small.
    """
    missing = [one for one in wanted if download.local(one) is None]
    for one in wanted:
        if one not in missing:
            print(f"models: {one} is here")
    listings, failed = _listings(missing)
    _check_space(listings)
    for one, listed in listings.items():
        print(f"models: fetching {one}: {_GB(sum(f.size for f in listed.values()))}", flush=True)
        try:
            path = download.fetch(one, listed)
        except TinymoeError as e:
            if getattr(e, "hub_is_down", False):
                raise
            failed.append(str(e))
        else:
            print(f"models: {one.model} ({one.what}) is here, its SHA-256 as on the hub: {path.name}")
    for line in failed:
        print(f"models: {line}", file=sys.stderr)
    return 1 if failed else 0


def _listings(missing: list[Wanted]) -> tuple[dict[Wanted, dict[str, File]], list[str]]:
    """The hub's list of files of each, and a line for each that it does not give."""
    listings, failed = {}, []
    for one in missing:
        try:
            listings[one] = download.ask(one)
        except DownloadError as e:
            if e.hub_is_down:
                raise
            failed.append(str(e))
    return listings, failed


def _check_space(listings: dict[Wanted, dict[str, File]]) -> None:
    need_MB = sum(download.missing_bytes(one, listed) for one, listed in listings.items()) / 1e6
    folder = Path(constants.HF_HUB_CACHE)
    have_MB = free_MB(folder)
    if need_MB and have_MB < need_MB + SPARE_MB:
        raise StoreError(
            f"{_GB(need_MB * 1e6)} to fetch and {_GB(SPARE_MB * 1e6)} to spare, but {_GB(have_MB * 1e6)} free where "
            f"{relative(folder)} is; make room, set HF_HOME to a larger disk, or fetch a part with ONLY=<model>"
        )


def _GB(n_bytes: float) -> str:
    return f"{n_bytes / 1e9:.1f} GB" if n_bytes >= 5e7 else f"{n_bytes / 1e6:.1f} MB"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Fetch the models that a plan needs.")
    parser.add_argument("--plan", default="quick", help="name of a plan in runs/plans, or a YAML file")
    parser.add_argument("--only", default="", help="part of a backend's or model's name")
    args = parser.parse_args(argv)
    return command.run("models", lambda: _run(args))


def _run(args: argparse.Namespace) -> int:
    plan = load(args.plan)
    pairs = list(dict.fromkeys((c.backend, c.model) for c in selected(plan, args.only)))
    wanted, unpublished = ([], []) if plan.synthetic else needs(pairs)
    for line in unpublished:
        print(f"models: {line}; its cells keep that as their reason")
    code = fetch(wanted)
    what = f"{len(wanted)} downloads" if wanted else "nothing to fetch"
    print(f"models: plan {plan.name}: {what}{', some of them not here' if code else ''}")
    return code


if __name__ == "__main__":
    sys.exit(main())
