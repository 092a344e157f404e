import json

import pytest

from lib import files, paths


def test_a_write_is_whole_or_not_there(tmp_path):
    target = tmp_path / "new" / "cell.json"
    files.write_json(target, {"state": "ok"})
    assert json.loads(target.read_text()) == {"state": "ok"}
    with pytest.raises(ValueError):
        files.write_json(target, {"value": float("nan")})
    assert json.loads(target.read_text()) == {"state": "ok"}
    assert [p.name for p in target.parent.iterdir()] == ["cell.json"], "a draft was left behind"


def test_damaged_json_names_the_file(tmp_path):
    path = tmp_path / "cell.json"
    path.write_text('{"state": "o')
    with pytest.raises(files.TinymoeError, match="cell.json: not JSON"):
        files.read_json(path)


def test_digest_ignores_the_order_of_keys():
    assert files.digest({"a": 1, "b": [2]}) == files.digest({"b": [2], "a": 1})
    assert files.digest({"a": 1}) != files.digest({"a": 2})


def test_sha256_of_known_bytes(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"abc")
    assert files.sha256(path) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_free_space_of_a_folder_that_is_not_there_yet(tmp_path):
    assert files.free_MB(tmp_path / "a" / "b") == pytest.approx(files.free_MB(tmp_path), rel=0.01)


@pytest.mark.parametrize("name", ["../up", "a/b", "", ".hidden", "-x", "a b", "a\nb", "<b>", "a" + chr(0)])
def test_names_that_could_leave_the_project_are_refused(name):
    with pytest.raises(files.TinymoeError, match="cannot be a folder name"):
        paths.run_folder(name)


def test_folders_of_a_run():
    folder = paths.cell_folder(paths.run_folder("quick"), "llama.cpp", "tiny-trinity", 128, 32)
    assert paths.relative(folder) == "runs/quick/llama.cpp/tiny-trinity/gen32/ctx128"
