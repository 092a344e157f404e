"""SHA-256 of model files: read once, compared later."""

import os

import pytest

from lib import files, hashes
from lib.hashes import HashError

ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


@pytest.fixture
def heavy(tmp_path, monkeypatch):
    """A file that counts as heavy, and a list of the files that were read for their hash."""
    monkeypatch.setattr(hashes, "HEAVY_BYTES", 3)
    monkeypatch.setattr(hashes, "RECORD", tmp_path / "models.json")
    read = []
    real = files.sha256
    monkeypatch.setattr(files, "sha256", lambda path: read.append(path) or real(path))
    path = tmp_path / "m.gguf"
    path.write_bytes(b"abc")
    return path, read


def test_a_heavy_file_is_read_once(heavy):
    path, read = heavy
    assert [hashes.sha256(path) for _ in range(3)] == [ABC] * 3
    assert read == [path]
    assert files.read_json(hashes.RECORD)[str(path)] == {
        "size": 3, "mtime_ns": path.stat().st_mtime_ns, "sha256": ABC,
    }  # fmt: skip


def test_a_link_to_it_is_the_same_file(heavy, tmp_path):
    path, read = heavy
    (tmp_path / "link.gguf").symlink_to(path)
    hashes.sha256(path)
    assert hashes.sha256(tmp_path / "link.gguf") == ABC and len(read) == 1


def test_a_touched_file_is_read_again_and_is_the_same(heavy):
    path, read = heavy
    hashes.sha256(path)
    os.utime(path, ns=(1, 1))
    assert hashes.sha256(path) == ABC and len(read) == 2
    assert files.read_json(hashes.RECORD)[str(path)]["mtime_ns"] == 1


def test_a_changed_file_is_refused_and_its_record_kept(heavy):
    path, _ = heavy
    hashes.sha256(path)
    path.write_bytes(b"abcd")
    with pytest.raises(HashError, match=r"m\.gguf: SHA-256 is 88d4266fd4e6\.\.\., when it was recorded .* ba7816bf8"):
        hashes.sha256(path)
    assert files.read_json(hashes.RECORD)[str(path)]["sha256"] == ABC


def test_another_file_than_the_hub_s_is_refused_and_not_recorded(heavy):
    path, _ = heavy
    with pytest.raises(HashError, match=r"on the hub it is 000000000000\.\.\.; remove the file"):
        hashes.sha256(path, "0" * 64)
    assert not hashes.RECORD.exists()
    assert hashes.sha256(path, ABC) == ABC


def test_a_small_file_is_not_recorded(tmp_path, monkeypatch):
    monkeypatch.setattr(hashes, "RECORD", tmp_path / "models.json")
    (tmp_path / "config.json").write_bytes(b"abc")
    assert hashes.sha256(tmp_path / "config.json") == ABC
    assert not hashes.RECORD.exists()
