"""Resident memory of a server: series, drops between requests, where growth ends, which backend holds less."""

import numpy as np
import pandas as pd
import pytest
from whole_sweep import cells as whole

from lib import rss


@pytest.fixture
def cells():
    return whole()


def saw(drop_MB=150.0, count=4):
    """RSS every 50 ms over requests of 10 s a second apart; between them it falls by `drop_MB`."""
    at_s = np.arange(0, 11 * count, 0.05)
    level = 4500.0 - drop_MB * (at_s % 11 >= 10)
    memory = pd.DataFrame({"time_s": at_s, "at_ns": 1e18 + at_s * 1e9, "rss_MB": level})
    start_ns = [int(1e18) + k * 11_000_000_000 for k in range(count)]
    requests = pd.DataFrame({"start_ns": start_ns, "ttft_ms": 4000.0})
    return memory, requests.assign(end_ns=requests["start_ns"] + 10_000_000_000)


def test_a_series_is_read_with_its_times(tmp_path):
    (tmp_path / "rss.csv").write_text("time_ns,rss_kb\n1000000000,2048\n1050000000,4096\n")
    found = rss.series(tmp_path)
    assert found["time_s"].tolist() == [0.0, 0.05] and found["rss_MB"].tolist() == [2.0, 4.0]


def test_an_older_series_has_no_times_and_so_no_drops(tmp_path):
    (tmp_path / "rss.log").write_text("2048\n4096\n")
    found = rss.series(tmp_path)
    assert found["time_s"].tolist() == [0.0, rss.INTERVAL_S] and found["at_ns"].isna().all()
    assert np.isnan(rss.drop_MB(found, saw()[1]))
    assert rss.series(tmp_path / "none").empty


def test_why_there_is_no_memory(cells):
    none = cells.assign(peak_ram_MB=np.nan, memory_reason="no rss.csv")
    assert rss.why_missing(none) == "no rss.csv" and rss.why_missing(cells) == ""
    assert rss.why_missing(none.iloc[:0]) == "no cell was measured"


def test_drops_between_requests():
    assert rss.drop_MB(*saw(150.0)) == pytest.approx(150.0)
    assert rss.drop_MB(*saw(0.0)) == 0.0
    memory, requests = saw()
    assert np.isnan(rss.drop_MB(memory, requests.head(1))), "one request has no gap"
    growing = memory.assign(rss_MB=4000 + memory["time_s"])
    assert rss.drop_MB(growing, requests) == 0.0


def test_sawtooth_names_servers_by_backend():
    drops = pd.DataFrame(
        [("llama.cpp", "granite4-h-tiny", 180.0, 4700.0), ("llama.cpp", "lfm2.5-8b-a1b", 3.0, 5400.0),
         ("mlx-lm", "granite4-h-tiny", 0.0, 3700.0), ("mlx-lm", "lfm2.5-8b-a1b", np.nan, 4500.0)],
        columns=["backend", "model", "drop_MB", "peak_ram_MB"],
    )  # fmt: skip
    assert rss.sawtooth(drops) == [
        "Under llama.cpp, RSS falls between requests for granite4-h-tiny by 180 MB; lfm2.5-8b-a1b stays level.",
        "Under MLX-LM, granite4-h-tiny stays level.",
    ]
    assert rss.sawtooth(drops.iloc[:0]) == []


def test_growth_ends_where_all_longer_prompts_are_level(cells):
    table = rss.plateau(cells)
    assert len(table) == 9 and set(table["from_ctx"]) == {1024}
    assert rss.plateaus(cells)[1].startswith(
        "Under MLX-LM, peak RSS is within 2 % of its maximum from prompt 1024 on for every"
    )
    late = cells.assign(peak_ram_MB=np.where(cells["ctx"] == 30720, 9000.0, cells["peak_ram_MB"]))
    assert "only at the longest prompt for every model" in rss.plateaus(late)[0]
    assert "at every prompt length for every model" in rss.plateaus(cells.assign(peak_ram_MB=5.0))[0]
    early_peak = cells.assign(peak_ram_MB=np.where(cells["ctx"] == 256, 9000.0, cells["peak_ram_MB"]))
    assert rss.plateau(early_peak)["from_ctx"].isna().all()
    said = rss.plateaus(early_peak)[1]
    assert "at prompt 256, but not from any longer one on, for every model" in said
    assert rss.plateaus(cells[cells["ctx"] == 256]) == []
    shorter = cells[~((cells["model"] == "gemma4-e4b") & (cells["ctx"] < 1024))]
    assert rss.plateaus(shorter)[0].count("gemma4-e4b") == 1, "level from its own first length on"
    one = cells.assign(peak_ram_MB=np.where(cells["model"] == "gemma4-e2b", 5.0, cells["peak_ram_MB"]))
    assert "at every prompt length for gemma4-e2b; from prompt 1024 on for lfm2.5-8b-a1b," in rss.plateaus(one)[0]


def test_which_backend_holds_less(cells):
    said = rss.lower_backend(cells, 30720, 1024)
    assert said.startswith(
        "MLX-LM's peak RSS is below llama.cpp's in all 53 cells that both have. At prompt 30720, gen"
    )
    assert "by 20.0 %: lfm2.5-8b-a1b 1992 against 2490 MB" in said
    turned = cells.assign(peak_ram_MB=np.where(cells["backend"] == "mlx-lm", 9000.0, 4000.0))
    assert rss.lower_backend(turned, 30720, 1024).startswith("llama.cpp's peak RSS is below MLX-LM's in all 53 cells")
    same = rss.lower_backend(cells.assign(peak_ram_MB=1.0), 30720, 1024)
    assert same == "Peak RSS is the same under both backends in all 53 cells that both have."
    assert rss.lower_backend(cells[cells["backend"] == "mlx-lm"], 30720, 1024) == ""


def test_headroom_is_said_of_a_known_machine_only(cells):
    said = rss.headroom(cells, 16 * 2**30)
    assert "is 3780 MB, smallthinker-4b-a0.6b under llama.cpp at prompt 1024, gen 256" in said
    assert said.endswith("it leaves 12.3 of the machine's 16 GB to everything else.")
    assert rss.headroom(cells, None).endswith("gen 256.")
    assert rss.headroom(cells.assign(peak_ram_MB=np.nan), 16 * 2**30) == ""
