"""Files of one repository from the Hugging Face hub into the usual cache of this machine, each fetched once.

Whatever goes wrong is one line that names the repository. Neither a token nor a request's headers are in it: the
words of the hub's own errors are never repeated.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import huggingface_hub as hub
from huggingface_hub import constants, errors
from huggingface_hub.utils import build_hf_headers

from lib import hashes
from lib.files import TinymoeError

TIMEOUT_S = 20.0


class DownloadError(TinymoeError):
    """A repository that cannot be had. `hub_is_down`: no other can either."""

    def __init__(self, message: str, hub_is_down: bool = False):
        super().__init__(message)
        self.hub_is_down = hub_is_down


@dataclass(frozen=True)
class Wanted:
    """What one server needs of one model's repository.

    what: GGUF, MLX or tokenizer. patterns: names of files that are wanted. single: only one file is, the one with the
    shortest name that matches. verified: False where the published benchmark does not state the repository.
    """

    model: str
    what: str
    repo: str
    patterns: tuple[str, ...]
    single: bool
    verified: bool = True

    def __str__(self) -> str:
        doubt = "" if self.verified else ", a repository name that the published benchmark does not state"
        return f"{self.model} ({self.what}, {self.repo}{doubt})"

    def choose(self, names: list[str]) -> list[str]:
        """Those of a repository's files that are wanted, sorted."""
        found = sorted(n for n in names if any(fnmatch(n, p) for p in self.patterns))
        return sorted(found, key=len)[:1] if self.single else found


@dataclass(frozen=True)
class File:
    """A file on the hub: `size` in bytes; `sha256` None for a small one, which the hub does not hash."""

    size: int
    sha256: str | None


def local(wanted: Wanted) -> Path | None:
    """The wanted file, or the folder of the wanted files, in the Hugging Face cache; None if it is not whole there.

    Nothing is asked of the network.
    """
    try:
        folder = Path(hub.snapshot_download(wanted.repo, local_files_only=True, allow_patterns=list(wanted.patterns)))
    except errors.IncompleteSnapshotError as e:  # a single file out of several that match is whole all the same
        folder = Path(e.snapshot_path)
        if not wanted.single:
            return None
    except (errors.LocalEntryNotFoundError, errors.RevisionResolutionError):
        return None
    names = wanted.choose([str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()])
    if wanted.single:
        return folder / names[0] if names else None
    return folder if any(n.endswith(".safetensors") for n in names) else None


def ask(wanted: Wanted) -> dict[str, File]:
    """The wanted files of the repository as the hub lists them, by name. DownloadError if there is none."""
    try:
        info = hub.HfApi().model_info(wanted.repo, files_metadata=True, timeout=TIMEOUT_S)
    except Exception as e:
        raise _error(wanted, e) from None
    sizes = {s.rfilename: File(s.size or 0, s.lfs.sha256 if s.lfs else None) for s in info.siblings or []}
    names = wanted.choose(list(sizes))
    if not names:
        raise DownloadError(f"{wanted}: the repository has no file {' or '.join(wanted.patterns)}; see lib/models.py")
    return {name: sizes[name] for name in names}


def missing_bytes(wanted: Wanted, listed: dict[str, File]) -> int:
    """Bytes still to fetch: what is listed, less whole files in the cache and what an interrupted fetch has left."""
    return sum(f.size - _bytes_here(wanted, name, f) for name, f in listed.items())


def _bytes_here(wanted: Wanted, name: str, file: File) -> int:
    if isinstance(hub.try_to_load_from_cache(wanted.repo, name), str):
        return file.size
    if file.sha256 is None:
        return 0
    blob = _blob(wanted, file.sha256)
    return file.size if blob.exists() else _size(_part(blob))


def _blob(wanted: Wanted, sha256: str) -> Path:
    """Where the Hugging Face cache keeps a large file: under its hash."""
    return Path(constants.HF_HUB_CACHE) / f"models--{wanted.repo.replace('/', '--')}" / "blobs" / sha256


def _part(blob: Path) -> Path:
    """What has come so far of a large file. Not huggingface_hub's own name for one: it throws its parts away."""
    return blob.with_name(f"{blob.name}.part")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def fetch(wanted: Wanted, listed: dict[str, File]) -> Path:
    """Fetch what is missing, going on where an interrupted fetch stopped, and record the SHA-256 of every file.

    Returns what `local` does. DownloadError if a file does not come, HashError if another one came than was listed.
    """
    try:
        for name, file in listed.items():
            if file.sha256:
                _fetch_large(wanted, name, file)
        folder = Path(hub.snapshot_download(wanted.repo, allow_patterns=list(listed)))
    except TinymoeError:
        raise
    except Exception as e:
        raise _error(wanted, e) from None
    for name, file in listed.items():
        if not (folder / name).is_file():
            raise DownloadError(f"{wanted}: {name} did not come; the same command goes on from here")
        hashes.sha256(folder / name, file.sha256)
    return folder / next(iter(listed)) if wanted.single else folder


def _fetch_large(wanted: Wanted, name: str, file: File) -> None:
    """Put a large file into the cache, where huggingface_hub then finds it.

    It would fetch the file itself, but keep nothing of it when it is interrupted, which is hours for some.
    """
    from huggingface_hub.file_download import http_get  # here: it brings progress bars that a sweep has no use for

    blob = _blob(wanted, file.sha256)
    if blob.exists():
        return
    part = _part(blob)
    part.parent.mkdir(parents=True, exist_ok=True)
    with part.open("ab") as out:
        http_get(
            hub.hf_hub_url(wanted.repo, name), out, resume_size=out.tell(), headers=build_hf_headers(),
            expected_size=file.size, displayed_filename=name,
        )  # fmt: skip
    part.replace(blob)
    try:
        hashes.sha256(blob, file.sha256)
    except hashes.HashError:
        blob.unlink()
        raise


def _error(wanted: Wanted, e: Exception) -> Exception:
    """One line for what the hub or the way to it did; anything else, such as a full disk, as it is."""
    down = _is_down(e)
    if isinstance(e, errors.OfflineModeIsEnabled) or (constants.HF_HUB_OFFLINE and down):
        return DownloadError(
            f"{wanted} is not on this machine, and HF_HUB_OFFLINE is set; unset it, then 'make models'", True
        )
    if isinstance(e, errors.GatedRepoError):
        return DownloadError(
            f"{wanted}: gated; accept its terms on its page, then give your token with 'hf auth login' or HF_TOKEN"
        )
    if isinstance(e, errors.RepositoryNotFoundError):
        return DownloadError(f"{wanted}: no such repository, or one that needs a token; correct lib/models.py")
    if isinstance(e, errors.EntryNotFoundError | errors.RevisionNotFoundError) and not down:
        return DownloadError(f"{wanted}: the file is not in the repository; correct lib/models.py")
    if isinstance(e, errors.HfHubHTTPError) and not down:
        status = e.response.status_code
        if status in (401, 403):
            return DownloadError(f"{wanted}: the hub refuses ({status}); give a valid token with 'hf auth login'")
        return DownloadError(f"{wanted}: the hub answers {status}; try again later")
    if down:
        return DownloadError(
            f"{wanted}: the hub at {constants.ENDPOINT} cannot be reached ({_kind(e)}); see to the network, then "
            "'make models' goes on, or copy the models into the Hugging Face cache from a machine that has them", True,
        )  # fmt: skip
    return e


def _is_down(e: Exception) -> bool:
    """Whether the way to the hub failed, and not the request: no answer, or 5xx, which huggingface_hub may wrap."""
    if isinstance(e, errors.HfHubHTTPError):
        return e.response.status_code >= 500
    if isinstance(e, errors.LocalEntryNotFoundError):
        return True
    return isinstance(e, errors.HTTPError | ConnectionError | TimeoutError)


def _kind(e: Exception) -> str:
    """What failed, in a word; of a wrapped error, what is inside."""
    for fault in (e, e.__cause__):
        if isinstance(fault, errors.HfHubHTTPError):
            return f"it answers {fault.response.status_code}"
    return type(e.__cause__ or e).__name__
