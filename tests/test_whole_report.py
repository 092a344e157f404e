"""The whole report, from every notebook: of the fixture, and of runs that lack what the fixture has."""

import json
import re
import shutil

import browser
import in_process
import pytest

from lib import join, paths, references, registry, report

FIXTURE = paths.RUNS / "fixture"
SECTIONS = [
    "Executive summary", "1 Test set-up and methodology", "2 Results", "3 Analysis", "4 Backend comparison",
    "5 Conclusion", "Appendix A", "Appendix B", "Appendix I", "How power was measured",
]  # fmt: skip
UNHEARD_OF = re.compile(r"\bnan\b|\bNaN\b|\bNone\b|\bNaT\b|\binf\b|<NA>|Series\(|dtype")


def copy(run, cells):
    """A run with some cells of the fixture, servers and manifest with them."""
    target = paths.run_folder(run)
    for cell in cells:
        server = "/".join(cell.split("/")[:2])
        shutil.copytree(FIXTURE / cell, target / cell)
        if (FIXTURE / server / "server.json").exists():
            shutil.copy(FIXTURE / server / "server.json", target / server / "server.json")
    shutil.copy(FIXTURE / "manifest.json", target / "manifest.json")
    return target


def edit(path, change):
    facts = json.loads(path.read_text())
    change(facts)
    path.write_text(json.dumps(facts))


def without_power(target):
    """What a plan with `power: none` leaves."""
    for path in [target / "manifest.json", *target.glob("*/*/gen*/ctx*/cell.json")]:
        edit(path, lambda facts: facts.update(power={"kind": "none", "basis": "none", "scope": "none", "rails": ""}))
    for log in target.rglob("powermetrics.log"):
        log.unlink()


def one_request(target):
    for path in target.rglob("profile_export.jsonl"):
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(lines[:2]))
    for path in target.rglob("cell.json"):
        edit(path, lambda facts: facts["counts"].update(planned=1, sent=1, ok=1))


CELLS = ["gen16/ctx32", "gen16/ctx128", "gen48/ctx32", "gen48/ctx128"]
ONE_MODEL = [f"{b}/tiny-trinity/{c}" for b in ("llama.cpp", "mlx-lm") for c in CELLS]
ONE_BACKEND = [f"mlx-lm/{m}/{c}" for m in ("tiny-trinity", "tiny-granite4-h") for c in CELLS]
RUNS = {
    "one model": (ONE_MODEL, None),
    "one backend, no power": (ONE_BACKEND, without_power),
    "one cell": (["mlx-lm/tiny-trinity/gen48/ctx128"], None),
    "one request": (ONE_BACKEND[:4], one_request),
    "nothing usable": (["mlx-lm/tiny-smallthinker/gen16/ctx32"], None),
}


def check(text):
    """What holds of any report: each item once, shown or missing with a reason; sections in order; no holes."""
    anchors = re.findall(r'<a id="((?:fig|table)-[^"]+)"></a>', text)
    assert sorted(anchors) == sorted(item.id for item in (*registry.FIGURES, *registry.TABLES))
    for item in (*registry.FIGURES, *registry.TABLES):
        block = text.split(f'<a id="{item.id}"></a>')[1].split("<a id=")[0]
        assert f"**{item.name}.**" in block
        assert re.search(r"!\[[^\]]+\]\(|^\| |\*not available: .+\.\*|^\*.+\.\*$", block, re.MULTILINE), item.id
        assert f"(#{item.id})" in text, f"nothing mentions {item.name}"
    places = [text.index(f"{words}", text.index("## Executive")) for words in (f"# {s}" for s in SECTIONS)]
    assert places == sorted(places)
    body = text[text.index("## Executive") :]
    assert not UNHEARD_OF.search(body), body[UNHEARD_OF.search(body).start() - 200 :][:400]
    assert "  " not in re.sub(r"(?m)^ *- |^\|.*$", "", body), "a sentence has a hole"


@pytest.fixture(scope="module")
def fixture_report(tmp_path_factory):
    """Text of the fixture's report, and its folder."""
    run = "test-whole-fixture"
    copy(run, [c.parent.relative_to(FIXTURE).as_posix() for c in FIXTURE.glob("*/*/gen*/ctx*/cell.json")])
    yield in_process.build(run), paths.REPORTS / run
    for root in (paths.RUNS, paths.REPORTS, paths.FIGURES):
        shutil.rmtree(root / run, ignore_errors=True)


def test_the_fixture_s_report_is_whole(fixture_report):
    text, _ = fixture_report
    check(text)
    assert "Model type smallthinker not supported" in text
    assert re.search(r"tiny-granite4-h under MLX-LM ended [\d.]+ % short of the length asked", text)
    assert text.count("this meter has no GPU rail") >= 4


def test_every_notebook_of_the_order_is_there_and_in_the_report():
    assert {name for name, _ in join.ORDER} == {p.stem for p in report.notebooks()}


def test_each_item_is_in_the_notebook_that_the_registry_names():
    for source in report.notebooks():
        shown = set(re.findall(r"\"((?:fig|table)-[^\"]+)\"", source.read_text().replace('\\"', '"')))
        expected = {item.id for item in (*registry.FIGURES, *registry.TABLES) if item.notebook == source.stem}
        assert shown == expected, source.stem


@pytest.mark.parametrize("kind", RUNS)
def test_a_run_that_lacks_something_has_a_whole_report(kind, scratch_run):
    cells, change = RUNS[kind]
    target = copy(scratch_run, cells)
    if change:
        change(target)
    text = in_process.build(scratch_run, draw=False)
    check(text)
    reasons = set(re.findall(r"\*not available: (.+?)\.\*", text))
    if kind == "one backend, no power":
        assert "power was not sampled (power: none)" in reasons
        assert any("no model has usable cells under both" in reason for reason in reasons)
    if kind == "one cell":
        assert "the run has one prompt length" in text


def test_the_page_has_the_same_parts_and_stands_alone(fixture_report):
    text, folder = fixture_report
    page = (folder / "report.html").read_text()
    for external in re.findall(r'(?:src|href)="([^"]+)"', page):
        assert external.startswith(("#", "data:image/svg+xml;base64,")), external[:80]
    assert not re.search(r"@import|url\(http|<script", page)
    assert len(re.findall("<img ", page)) == len(re.findall(r"!\[", text)) > 15
    assert all(re.search(r'alt="[^"]{40,}', tag) for tag in re.findall(r"<img[^>]*>", page))
    links = set(re.findall(r'href="#([^"]+)"', page))
    assert links <= set(re.findall(r'id="([^"]+)"', page))
    assert str(paths.ROOT) not in page + text


def test_the_contents_name_every_section(fixture_report):
    text, _ = fixture_report
    contents = text.split("## Contents")[1].split("<details>")[0]
    headings = re.findall(r"(?m)^#{2,3} (.+)$", text.split("</details>")[-1])
    assert re.findall(r"\[(.+?)\]\(#sec-", contents) == headings
    assert len({references.slug(h) for h in headings}) == len(headings)


# --- in a browser ---

needs_browser = pytest.mark.skipif(not browser.program(), reason="no chromium on the PATH (Debian's package chromium)")


@needs_browser
def test_the_page_in_a_browser(fixture_report):
    _, folder = fixture_report
    with browser.Browser() as page:
        for width in (1280, 390):
            page.open((folder / "report.html").as_uri(), width)
            assert page.complaints() == [] and page.fetched() == []
            assert page.run("document.documentElement.scrollWidth") <= width, f"overflows at {width} px"
            assert page.run("document.images.length") > 15
            load = "Promise.all([...document.images].map(i => (i.loading = 'eager', i.decode()))).then(() => 1)"
            assert page.run(load) == 1, "every figure can be drawn"
            broken = "[...document.images].filter(i => !(i.complete && i.naturalWidth)).map(i => i.alt)"
            assert page.run(broken) == []


@needs_browser
def test_figures_keep_their_light_ground_in_dark_mode(fixture_report):
    _, folder = fixture_report
    with browser.Browser() as page:
        page.open((folder / "report.html").as_uri(), dark=True)
        assert page.run("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
        assert page.run("document.images.length") > 15
        grounds = "[...new Set([...document.images].map(i => getComputedStyle(i).backgroundColor))]"
        assert page.run(grounds) == ["rgb(255, 255, 255)"]
