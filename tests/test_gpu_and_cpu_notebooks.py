"""Notebooks 14, 15, 16 and 30 on a run with GPU and CPU clusters, which the fixture lacks, and without them."""

import re
import shutil

import in_process
import pytest
import synthetic_cell

from lib import cells, paths

NAMES = ("14-gpu", "15-cpu", "16-memory", "30-appendix")
ODD = re.compile(r"\bnan\b|\bNaN\b|\bNone\b|\binf\b|<NA>|dtype")


def make(run, backends=("llama.cpp", "mlx-lm"), lengths=(256, 1024), requests=3, log=lambda text: text):
    """A run of one model with known clocks: GPU 1470 MHz in prefill and 1550 in decode, P-cluster 4000 MHz."""
    start_s = 1_783_000_000
    for backend in backends:
        for ctx in (512, *lengths):  # the first that runs is the warm-up cell
            folder = paths.run_folder(run) / backend / "granite4-h-tiny" / "gen256" / f"ctx{ctx}"
            spec = synthetic_cell.Spec(ctx=ctx, gen=256, requests=requests, start_s=start_s, seed=ctx)
            synthetic_cell.write(folder, spec, first_of_life=ctx == 512)
            path = folder / "powermetrics.log"
            path.write_text(log(path.read_text()))
            start_s += 1000
    cells.update(paths.run_folder(run))


def said(run):
    return {
        name: in_process.text(in_process.execute(paths.NOTEBOOKS / f"{name}.ipynb", run, draw=False)) for name in NAMES
    }


@pytest.fixture(scope="module")
def whole():
    run = "test-gpu-and-cpu"
    for root in (paths.RUNS, paths.FIGURES):
        shutil.rmtree(root / run, ignore_errors=True)
    make(run)
    yield said(run)
    for root in (paths.RUNS, paths.FIGURES):
        shutil.rmtree(root / run, ignore_errors=True)


def test_every_figure_is_drawn_with_words_for_what_it_shows(whole):
    text = "\n".join(whole.values())
    assert not ODD.search(text), ODD.search(text)
    assert "not available" not in text
    images = re.findall(r"!\[([^\]]+)\]\(\S+/(fig-[^)]+)\.svg\)", text)
    assert [stem for _, stem in images] == [
        "fig-09", "fig-09b", "fig-09c", "fig-09d", "fig-10", "fig-10b", "fig-10c", "fig-10d", "fig-10e", "fig-11",
        "fig-11b", "fig-a.1", "fig-b.1", "fig-i.2a", "fig-i.2b", "fig-i.2c", "fig-i.2d",
    ]  # fmt: skip
    assert all(re.search(r"\d", alt) or stem == "fig-11b" for alt, stem in images), "numbers of this run"


def test_the_gpus_numbers_are_those_put_in(whole):
    text = whole["14-gpu"]
    assert "and +80 MHz at prompt 1024" in text
    assert "The highest clock of any sample is 1550 MHz" in text
    assert "The cell is granite4-h-tiny under llama.cpp, prompt 1024, gen 256." in text
    # 17.5 W at 1470 MHz and 13 W at 1550 MHz
    assert "A GPU cycle goes with 11.9 nJ in prefill and 8.4 nJ in decode" in text


def test_the_clusters_numbers_are_those_put_in(whole):
    text = whole["15-cpu"]
    assert "E-cluster residency is 20.0 %: in no cell below 5 %." in text
    assert "The mean P-cluster clock is 4000 MHz over 4 cells, a spread of 0.0 %" in text
    assert "no sample of any run is more than 5 % away from its run's median" in text


def test_a_log_without_these_sections_says_so_in_each_place(scratch_run):
    make(scratch_run, ("llama.cpp",), (256,), 1, lambda text: re.sub(r"(GPU HW|GPU idle|[EP]-Cluster).*\n", "", text))
    found = said(scratch_run)
    assert found["14-gpu"].count("not available") == 4 + 3
    assert found["15-cpu"].count("not available") == 5 + 2
    assert "![" in found["16-memory"] and "![" in found["30-appendix"]
    assert not ODD.search("\n".join(found.values()))
