import pytest

from lib import join


def test_banner_says_what_is_not_measured():
    assert "No manifest" in join.banner({})
    power = {"basis": "modelled", "note": "power = 1 W"}
    said = join.banner({"power": power, "plan": {"models": ["tiny-trinity"]}, "synthetic": True})
    for words in ("Synthetic run", "Power is modelled, not measured:", "Tiny random-weight models"):
        assert words in said
    assert "modelled" not in join.banner({"power": {"basis": "measured"}, "plan": {"models": ["trinity-nano"]}})


def test_images_come_from_the_figures_folder_only(tmp_path):
    with pytest.raises(join.JoinError, match="is not under figures"):
        join._embedded("![x](../../../etc/passwd)", tmp_path)
