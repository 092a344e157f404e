import pytest

from lib import references


def test_headings_get_anchors_and_contents():
    blocks = [references.anchored("## 2 Results\n\ntext"), references.anchored("### 2.1 Throughput")]
    assert blocks[0].startswith('<a id="sec-2-results"></a>\n\n## 2 Results')
    assert references.contents(blocks).splitlines()[2:] == [
        "- [2 Results](#sec-2-results)",
        "  - [2.1 Throughput](#sec-2-1-throughput)",
    ]


def test_a_reference_that_leads_nowhere_is_an_error():
    references.check(['<a id="fig-1"></a>', "see [Figure 1](#fig-1) and [a page](https://example.org)"])
    with pytest.raises(references.LinkError, match=r"link \[Figure 2\]\(#fig-2\) leads nowhere"):
        references.check(['<a id="fig-1"></a>', "see [Figure 2](#fig-2)"])
    with pytest.raises(references.LinkError, match="anchor 'fig-1' is defined twice"):
        references.check(['<a id="fig-1"></a>', '<a id="fig-1"></a>'])


def test_contents_list_figures_and_tables_to_unfold():
    text = references.contents(['<a id="fig-1"></a>', '<a id="table-10b"></a>', "## Two"])
    assert "<summary>1 figure</summary>" in text and "[Table 10b](#table-10b) " in text


def test_a_figure_links_back_to_each_section_that_mentions_it():
    blocks = [
        references.anchored("## Executive summary\n\nsee [Figure 1](#fig-1)"),
        references.anchored("### 2.1 Throughput\n\n[Figure 1](#fig-1) and again [Figure 1](#fig-1)"),
        '<a id="fig-1"></a>\n\n![x](a.svg)\n\n**Figure 1.** Rates. [Data](a.csv)',
        '<a id="table-1"></a>\n\n**Table 1.** Not mentioned',
    ]
    *_, figure, table = references.backlinks(blocks)
    links = "[Executive summary](#sec-executive-summary), [2.1](#sec-2-1-throughput)"
    assert figure.endswith(f"**Figure 1.** Rates. [Data](a.csv) (Used in {links}.)")
    assert table == blocks[-1]
    references.check([*blocks[:2], figure])


@pytest.mark.parametrize(
    ("heading", "short"),
    [("2.1 Throughput", "2.1"), ("5 Conclusion", "5"), ("Appendix I.2: More", "Appendix I.2"), ("C.1 Flags", "C.1")],
)
def test_short_names_of_sections(heading, short):
    assert references._short(heading) == short
