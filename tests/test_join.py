import pytest

from lib import join


def test_headings_get_anchors_and_contents():
    blocks = [join._anchored("## 2 Results\n\ntext"), join._anchored("### 2.1 Throughput")]
    assert blocks[0].startswith('<a id="sec-2-results"></a>\n\n## 2 Results')
    assert join._contents(blocks).splitlines()[2:] == [
        "- [2 Results](#sec-2-results)",
        "  - [2.1 Throughput](#sec-2-1-throughput)",
    ]


def test_a_reference_that_leads_nowhere_is_an_error():
    join.check_references(['<a id="fig-1"></a>', "see [Figure 1](#fig-1) and [a page](https://example.org)"])
    with pytest.raises(join.JoinError, match=r"link \[Figure 2\]\(#fig-2\) leads nowhere"):
        join.check_references(['<a id="fig-1"></a>', "see [Figure 2](#fig-2)"])
    with pytest.raises(join.JoinError, match="anchor 'fig-1' is defined twice"):
        join.check_references(['<a id="fig-1"></a>', '<a id="fig-1"></a>'])


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
