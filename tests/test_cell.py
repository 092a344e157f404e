"""One cell's row from its files: known power in every zone, the public cases, older folders, real files, damage."""

import gzip
import json
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lib import cell, cells, metrics, paths
from lib.files import TinymoeError
from tests import synthetic_cell
from tests.synthetic_cell import Spec

REAL = Path(__file__).resolve().parents[2] / "shared" / "aiperf"
NAN = float("nan")
SMALL = Spec(requests=4, gen=64, ttft_s=0.4)
POWER = ("prefill_power_W", "decode_power_W", "total_power_W", "prefill_J", "decode_J", "total_J", "output_tok_J")


def place(tmp_path: Path, spec: Spec, backend: str = "llama.cpp", model: str = "tiny") -> Path:
    return tmp_path / "run" / backend / model / f"gen{spec.gen}" / f"ctx{spec.ctx}"


@pytest.fixture
def folder(tmp_path):
    """A small whole cell of our sweep."""
    where = place(tmp_path, SMALL)
    synthetic_cell.write(where, SMALL)
    return where


def edit(folder: Path, change) -> None:
    """Rewrite the request file, each record through `change(number, record)`."""
    path = folder / "profile_export.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    for number, record in enumerate(records):
        change(number, record)
    path.write_text("".join(json.dumps(r) + "\n" for r in records))


def numbers(row: dict) -> dict:
    return {k: v for k, v in row.items() if isinstance(v, int | float) and v == v}


# --- truth ---


@pytest.mark.parametrize("ctx", [256, 512, 1024, 2048, 4096, 30720])
def test_known_power_comes_out_of_the_files_in_any_zone(tmp_path, ctx):
    for zone in ("+0530", "-0700") if ctx < 30720 else ("+0530",):
        spec = Spec(ctx=ctx, seed=ctx, zones=((-np.inf, zone),), warmup=1)
        where = place(tmp_path, spec)
        made = synthetic_cell.write(where, spec)
        row = cells.read_cell(where)
        assert row["prefill_power_W"] == pytest.approx(17.5, rel=0.01)
        assert row["decode_power_W"] == pytest.approx(13.0, rel=0.003)
        assert (row["state"], row["n"], row["n_warmup"], row["power_reason"]) == ("ok", 20, 1, "")
        ttft_ms = np.median((made.first_ns - made.start_ns)[1:]) / 1e6
        assert row["ttft_ms"] == pytest.approx(ttft_ms)
        assert row["prefill_J"] == pytest.approx(17.5 * ttft_ms / 1e3, rel=0.01)
        assert abs(row["conservation_pct"]) < 0.5
        assert abs(row["identity_pct"]) < row["identity_bound_pct"]
        assert row["peak_ram_MB"] == 3500000 / 1024


def test_few_short_requests_from_files(tmp_path):
    """Five requests of 120 ms prefill and 64 tokens: the fit leads and is within 2 %."""
    for seed in range(8):
        spec = Spec(requests=5, ttft_s=0.12, gen=64, seed=seed)
        where = place(tmp_path, spec)
        synthetic_cell.write(where, spec)
        row = cell.read_whole(where)[0]
        assert row["prefill_estimator"] == "fit"
        assert row["prefill_power_W"] == pytest.approx(17.5, rel=0.02)
        assert row["decode_power_W"] == pytest.approx(13.0, rel=0.003)
        assert row["n_prefill_samples"] < 10


def test_warm_up_requests_are_left_out_of_rates_and_power(tmp_path):
    spec = replace(SMALL, warmup=3, power_W=SMALL.power_W | {"warmup": 25.0})
    where = place(tmp_path, spec)
    synthetic_cell.write(where, spec)
    edit(where, lambda i, r: r["metrics"]["time_to_first_token"].update(value=9e3) if i < 3 else None)
    row, requests, samples = cell.read_whole(where)
    assert (row["n"], row["n_warmup"], len(requests)) == (4, 3, 7)
    assert row["ttft_ms"] == pytest.approx(400, rel=0.05)
    assert row["decode_power_W"] == pytest.approx(13.0, abs=0.03)
    assert row["total_power_W"] < 14
    assert (samples.loc[samples["power_W"] > 20, "phase"] == "outside").all()


# --- A1: the response header is not the first token ---


def test_early_and_late_headers_give_the_same_split(tmp_path):
    power_W = {"prefill": 18.0, "decode": 12.0, "between": 6.0, "warmup": 15.0}
    rows = []
    for ack_s in (0.800, 0.008):
        spec = Spec(requests=6, gen=64, ttft_s=0.8, spread=0.0, power_W=power_W, ack_s=ack_s)
        where = place(tmp_path, spec)
        synthetic_cell.write(where, spec)
        rows.append(numbers(cell.read_whole(where)[0]))
        rows[-1]["note"] = cell.read_whole(where)[0]["ack_note"]
    late, early = rows
    assert late["ack_to_first_token_ms"] == pytest.approx(0, abs=1e-3)
    assert early["ack_to_first_token_ms"] == pytest.approx(792, abs=1e-3)
    assert late["note"] == ""
    assert early["note"].startswith("headers came 792 ms before the first token")
    apart = {k for k in late if late[k] != early[k]}
    assert apart == {"ack_to_first_token_ms", "note"}
    assert early["prefill_power_W"] == pytest.approx(18.0, abs=0.03)
    assert early["decode_power_W"] == pytest.approx(12.0, abs=0.03)


# --- A2: zones, daylight saving ---


@pytest.fixture
def zone():
    """Sets the machine's own zone; put back afterwards."""
    before = os.environ.get("TZ")

    def set_to(name: str | None) -> None:
        os.environ.pop("TZ", None)
        if name:
            os.environ["TZ"] = name
        time.tzset()

    yield set_to
    set_to(before)


@pytest.mark.parametrize("log_zone", ["+0530", "-0700"])
def test_the_zone_of_the_analysing_machine_changes_nothing(tmp_path, zone, log_zone):
    spec = replace(SMALL, zones=((-np.inf, log_zone),))
    where = place(tmp_path, spec)
    synthetic_cell.write(where, spec)
    rows = []
    for name in ("UTC", "Asia/Kolkata", "America/New_York"):
        zone(name)
        rows.append(numbers(cell.read_whole(where)[0]))
    assert rows[0] == rows[1] == rows[2]
    assert rows[0]["decode_power_W"] == pytest.approx(13.0, abs=0.03)


def test_a_log_that_passes_the_end_of_summer_time(tmp_path, zone):
    """+0200 becomes +0100 in the middle of the third request: nothing is lost, doubled or moved by an hour."""
    began_s = 1_792_890_000.0
    rows = {}
    for name, zones in (("one", ((-np.inf, "+0200"),)), ("two", ((-np.inf, "+0200"), (began_s + 4.0, "+0100")))):
        spec = replace(SMALL, start_s=began_s, zones=zones)
        where = place(tmp_path, spec, model=name)
        synthetic_cell.write(where, spec)
        zone("Europe/Berlin")
        row, _, samples = cell.read_whole(where)
        assert (np.diff(samples["time_s"]) > 0).all()
        assert (row["state"], row["power_reason"]) == ("ok", "")
        rows[name] = numbers(row)
    assert rows["one"] == rows["two"]


def test_a_log_of_another_hour_is_refused_and_no_fallback(tmp_path):
    where = place(tmp_path, SMALL)
    synthetic_cell.write(where, SMALL)
    other = synthetic_cell.make(replace(SMALL, start_s=1_780_000_000.0))
    (where / "powermetrics.log").write_text(synthetic_cell.log_text(other))
    row = cell.read_whole(where)[0]
    assert (row["state"], row["phase_source"]) == ("ok", "timestamps")
    assert row["power_reason"] == "the power log covers 0 % of the requests' time"
    assert all(np.isnan(row[name]) for name in POWER)
    assert row["output_tok_s"] == pytest.approx(80, rel=0.02)


# --- A3: the prompt was cut ---


@pytest.mark.parametrize(
    ("isl", "osl", "words"),
    [(2050, 64, "saw 2050 of 16384"), (8194, 64, "saw 8194 of 16384"), (16340, 44, "end at 16384 tokens")],
)
def test_a_cut_prompt_is_invalid(tmp_path, isl, osl, words):
    spec = replace(SMALL, ctx=16384)
    where = place(tmp_path, spec)
    synthetic_cell.write(where, spec)

    def cut(_, record):
        record["metrics"]["usage_prompt_tokens"]["value"] = isl
        record["metrics"]["usage_completion_tokens"]["value"] = osl

    edit(where, cut)
    row = cell.read_whole(where)[0]
    assert row["state"] == "invalid"
    assert row["reason"].startswith("truncated: ")
    assert words in row["reason"]
    assert all(np.isnan(row[m.name]) for m in metrics.ALL)


# --- A4, A5, A7: reasoning, templates, chunks ---


def test_reasoning_tokens_count_once_and_ttft_is_that_of_any_channel(folder):
    def reason(_, record):
        record["metrics"]["usage_reasoning_tokens"] = {"value": 50, "unit": "tokens"}
        record["metrics"]["time_to_first_output_token"]["value"] += 600.0

    before = cell.read_whole(folder)[0]
    edit(folder, reason)
    row = cell.read_whole(folder)[0]
    assert (row["osl"], row["reasoning_tokens"]) == (64, 50)
    assert row["ttfv_ms"] - row["ttft_ms"] == pytest.approx(600, abs=1)
    for name in ("ttft_ms", "output_tok_s", "output_tok_J", "prefill_power_W", "p50_decode_s", "total_tok_J"):
        assert row[name] == before[name]


def test_only_reasoning_until_the_limit_leaves_no_visible_token_and_no_other_gap(folder):
    def reason(_, record):
        record["metrics"]["usage_reasoning_tokens"] = {"value": 64, "unit": "tokens"}
        del record["metrics"]["time_to_first_output_token"]

    edit(folder, reason)
    row = cell.read_whole(folder)[0]
    assert np.isnan(row["ttfv_ms"])
    assert (row["state"], row["osl"]) == ("ok", 64)
    assert all(row[name] == row[name] for name in (*POWER, "output_tok_s", "itl_ms"))


@pytest.mark.parametrize(("server", "overhead"), [(281, 25), (268, 12), (291, 35)])
def test_the_template_s_tokens_are_shown_and_rates_follow_the_server(folder, server, overhead):
    edit(folder, lambda _, r: r["metrics"]["usage_prompt_tokens"].update(value=server))
    row = cell.read_whole(folder)[0]
    assert (row["isl"], row["isl_client"], row["template_tokens"]) == (server, 256, overhead)
    assert row["prefill_tok_s"] == pytest.approx(1000 * server / row["ttft_ms"], rel=0.02)
    assert row["prefill_tok_J"] == pytest.approx(server / row["prefill_J"])


def test_chunks_are_not_tokens(folder):
    """64 tokens in 16 chunks: aiperf's own count says 16, usage says 64, and 64 it is."""
    before = cell.read_whole(folder)[0]

    def chunked(_, record):
        record["metrics"]["output_sequence_length"]["value"] = 16
        record["metrics"]["inter_token_latency"]["value"] *= 63 / 15
        record["metrics"]["output_token_throughput_per_user"]["value"] *= 15 / 63

    edit(folder, chunked)
    row = cell.read_whole(folder)[0]
    assert (row["osl"], row["osl_client"], row["token_source"]) == (64, 16, "usage")
    for name in ("itl_ms", "output_tok_s", "output_tok_J", "osl_mismatch_pct"):
        assert row[name] == pytest.approx(before[name])


# --- A8: the machine slept ---


def test_a_request_of_665_s_by_the_wall_clock_and_5_by_the_other(folder):
    def sleep(number, record):
        if number == 2:
            record["metadata"]["request_end_ns"] = record["metadata"]["request_start_ns"] + 665 * 10**9
            record["metrics"]["request_latency"]["value"] = 5000.0

    edit(folder, sleep)
    row = cell.read_whole(folder)[0]
    assert row["state"] == "invalid"
    assert "request 3 took 665.0 s by the wall clock and 5.0 s by the monotonic one" in row["reason"]
    assert all(np.isnan(row[name]) for name in (*POWER, "output_tok_s", "decode_power_integral_W"))


@pytest.mark.parametrize(
    ("elapsed_ms", "jump_s", "words"), [(660000.0, 660.0, "lasted 660.0 s"), (207.0, 26.0, "lost 2")]
)
def test_a_power_log_with_sleep_in_it(tmp_path, elapsed_ms, jump_s, words):
    """The headers after a sample in the second request lie later; the sample says it lasted as long, or does not."""
    made = synthetic_cell.make(SMALL)
    at = int(np.searchsorted(made.sample_end_s, made.first_ns[1] / 1e9)) + 3
    later = np.where(np.arange(len(made.elapsed_ms)) >= at, jump_s, 0.0)
    elapsed = np.where(np.arange(len(made.elapsed_ms)) == at, elapsed_ms, made.elapsed_ms)
    where = place(tmp_path, SMALL)
    synthetic_cell.write(where, SMALL)
    # The requests after it move along, each as long as before by either clock: only the log tells.
    slept = replace(made, sample_end_s=made.sample_end_s + later, elapsed_ms=elapsed)
    (where / "powermetrics.log").write_text(synthetic_cell.log_text(slept))

    def move(number, record):
        for key in ("request_start_ns", "request_ack_ns", "request_end_ns"):
            record["metadata"][key] += int(jump_s * 1e9) if number >= 2 else 0

    edit(where, move)
    row = cell.read_whole(where)[0]
    assert row["state"] == "invalid"
    assert words in row["reason"]
    assert all(np.isnan(row[m.name]) for m in metrics.ALL)


# --- older folders ---


def test_a_folder_of_the_earlier_scripts(tmp_path):
    spec = replace(SMALL, seed=4)
    where = place(tmp_path, spec, backend="llamacpp", model="m")
    synthetic_cell.write(where, spec, kind="older")
    with gzip.open(where / "powermetrics.log.gz", "wt") as packed:
        packed.write((where / "powermetrics.log").read_text())
    (where / "powermetrics.log").unlink()
    row = cell.read_whole(where)[0]
    assert (row["backend"], row["model"], row["ctx"], row["gen"]) == ("llama.cpp", "m", 256, 64)
    assert (row["power_source"], row["power_basis"], row["power_scope"]) == ("powermetrics", "measured", "package")
    assert row["peak_ram_MB"] == 3500000 / 1024
    assert row["decode_power_W"] == pytest.approx(13.0, abs=0.03)
    assert (row["warmup"], row["says_warmup"]) == (False, False)


def test_a_relative_folder(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert cells.read_cell(".")["backend"] == "llama.cpp"


def test_the_first_cell_of_a_server_is_void_for_power_only(tmp_path):
    where = place(tmp_path, SMALL)
    synthetic_cell.write(where, SMALL, first_of_life=True)
    row = cell.read_whole(where)[0]
    assert (row["warmup"], row["power_reason"]) == (True, cell.VOID)
    assert all(np.isnan(row[m.name]) for m in metrics.ALL if m.from_power)
    assert all(np.isnan(row[name]) for name in metrics.ALSO_FROM_POWER)
    for name in ("output_tok_s", "ttft_ms", "peak_ram_MB", "itl_p99_ms"):
        assert row[name] == row[name]
    assert row["decode_power_median_W"] == pytest.approx(13.0, abs=0.03)
    assert "decode_power_median_W" not in metrics.BY_NAME


def test_without_request_times_the_timeline_is_used_and_said(tmp_path):
    spec = Spec(requests=8, gen=128, ttft_s=1.0, spread=0.0, lead_s=9.0)
    where = place(tmp_path, spec)
    synthetic_cell.write(where, spec)
    whole = cell.read_whole(where)[0]
    (where / "profile_export.jsonl").unlink()
    row = cell.read_whole(where)[0]
    assert (row["state"], row["phase_source"], row["n"]) == ("ok", "timeline", 8)
    assert "profile_export.jsonl" in row["request_note"]
    assert row["decode_power_W"] == pytest.approx(13.0, rel=0.01)
    assert row["prefill_power_W"] == pytest.approx(17.5, rel=0.02)
    assert row["output_tok_s"] == pytest.approx(whole["output_tok_s"], rel=1e-6)
    assert row["p50_decode_s"] == pytest.approx(whole["p50_decode_s"], rel=2e-3)
    assert row["isl"] == whole["isl"]


# --- aiperf's own files ---


def real(tmp_path: Path, name: str, ctx: int = 256, gen: int = 64) -> Path:
    where = tmp_path / "run" / "ollama" / "m" / f"gen{gen}" / f"ctx{ctx}"
    where.mkdir(parents=True)
    for ending in ("profile_export.jsonl", "profile_export_aiperf.json"):
        source = REAL / f"{name}{ending}"
        if source.exists():
            shutil.copyfile(source, where / ending)
    return where


needs_real = pytest.mark.skipif(not REAL.exists(), reason="aiperf's own files are not beside this folder")


@needs_real
def test_real_requests_agree_with_the_real_summary(tmp_path):
    where = real(tmp_path, "ok/")
    row = cell.read_whole(where)[0]
    summary = json.loads((where / "profile_export_aiperf.json").read_text())
    assert (row["state"], row["n"], row["isl"], row["osl"]) == ("ok", 5, 261, 64)
    for name, tag in (("ttft", "time_to_first_token"), ("rl", "request_latency"), ("itl", "inter_token_latency")):
        assert row[f"{name}_ms"] == pytest.approx(summary[tag]["p50"])
        assert row[f"{name}_p99_ms"] == pytest.approx(summary[tag]["p99"])
    assert row["output_tok_s"] == pytest.approx(summary["output_token_throughput_per_user"]["p50"])
    assert row["power_reason"] == "no powermetrics.log"
    assert row["memory_reason"] == "no rss.csv"


@needs_real
def test_real_warm_up_records_are_excluded(tmp_path):
    where = real(tmp_path, "warmup/", gen=32)
    row = cell.read_whole(where)[0]
    summary = json.loads((where / "profile_export_aiperf.json").read_text())
    assert (row["n"], row["n_warmup"], row["osl"]) == (5, 2, 32)
    assert row["ttft_ms"] == pytest.approx(summary["time_to_first_token"]["p50"])
    assert row["rl_p90_ms"] == pytest.approx(summary["request_latency"]["p90"])


@needs_real
@pytest.mark.parametrize("name", ["f_all500", "f_refused"])
def test_real_files_where_every_request_failed(tmp_path, name):
    row = cell.read_whole(real(tmp_path, f"errors/{name}."))[0]
    assert (row["state"], row["n"], row["n_failed"]) == ("failed", 0, 5)
    assert row["reason"].startswith("all 5 requests failed; the first: ")
    assert np.isnan(row["output_tok_s"])


@needs_real
@pytest.mark.parametrize("name", ["f_500", "f_drop", "f_timeout", "f_zero", "f_errsse"])
def test_real_files_where_some_requests_failed(tmp_path, name):
    row = cell.read_whole(real(tmp_path, f"errors/{name}."))[0]
    assert row["n"] + row["n_failed"] == 5
    assert row["n"] > 0
    assert row["state"] == "ok", row["reason"]
    assert row["ttft_ms"] > 0


# --- damage ---


def test_a_folder_without_a_cell_is_one_line(tmp_path):
    where = place(tmp_path, SMALL)
    where.mkdir(parents=True)
    for text in (None, "rss.csv"):
        if text:
            (where / text).write_text("time_ns,rss_kb\n")
        with pytest.raises(TinymoeError, match="no cell here") as caught:
            cells.read_cell(where)
        assert "\n" not in str(caught.value)
    nowhere = tmp_path / "elsewhere"
    nowhere.mkdir()
    (nowhere / "profile_export.jsonl").write_text("")
    with pytest.raises(TinymoeError, match="no cell here"):
        cells.read_cell(nowhere)


@pytest.mark.parametrize("text", ["", '{"backend": "llama', "[]", "null", "{}", '{"state": "fine"}', "\0\0\0"])
def test_a_damaged_cell_json(folder, text):
    (folder / "cell.json").write_text(text)
    row = cell.read_whole(folder)[0]
    assert row["state"] == "invalid"
    assert row["reason"].startswith("cell.json is damaged: ")
    assert (row["backend"], row["ctx"], row["gen"]) == ("llama.cpp", 256, 64)
    assert np.isnan(row["output_tok_s"])


def test_cell_json_cut_at_every_byte(folder):
    whole = (folder / "cell.json").read_bytes()
    for name in ("powermetrics.log", "profile_export.jsonl"):
        (folder / name).unlink()
    for length in range(0, len(whole) - 1, 7):
        (folder / "cell.json").write_bytes(whole[:length])
        assert cell.read_whole(folder)[0]["state"] == "invalid"


def test_cell_json_with_values_of_other_kinds(folder):
    facts = json.loads((folder / "cell.json").read_text())
    for key in ("observer", "power", "counts", "settled_ns", "reason"):
        (folder / "cell.json").write_text(json.dumps(facts | {key: [1]}))
        assert cell.read_whole(folder)[0]["state"] == "ok"


def test_a_request_file_cut_in_a_line(folder):
    path = folder / "profile_export.jsonl"
    text = path.read_text()
    path.write_text(text[: len(text) * 5 // 8])
    row = cell.read_whole(folder)[0]
    assert (row["state"], row["n"]) == ("ok", 2)
    assert "cut last line" in row["request_note"]
    assert "2 of 4 requests in profile_export.jsonl" in row["request_note"]
    assert row["decode_power_W"] == pytest.approx(13.0, abs=0.05)


def test_an_empty_request_file_falls_back_to_the_summary_and_says_so(folder):
    (folder / "profile_export.jsonl").write_text("")
    row = cell.read_whole(folder)[0]
    assert (row["phase_source"], row["n"]) == ("timeline", 4)
    assert "no request in the file" in row["request_note"]


def test_neither_requests_nor_summary(folder):
    (folder / "profile_export.jsonl").unlink()
    (folder / "profile_export_aiperf.json").write_text("{")
    row = cell.read_whole(folder)[0]
    assert row["state"] == "failed"
    assert row["reason"].startswith("no requests: ")
    assert np.isnan(row["decode_power_W"])


def test_a_summary_of_other_kinds(folder):
    (folder / "profile_export.jsonl").unlink()
    (folder / "profile_export_aiperf.json").write_text('{"request_count": {"avg": "x"}, "request_latency": [1]}')
    assert cell.read_whole(folder)[0]["state"] == "failed"


@pytest.mark.parametrize("content", ["", "\0" * 100, "Machine model: Mac16,10\n", "*** Sampled system activity (Fri"])
def test_a_power_log_without_samples(folder, content):
    (folder / "powermetrics.log").write_text(content)
    row = cell.read_whole(folder)[0]
    assert (row["state"], row["power_reason"]) == ("ok", "the power log has no sample")
    assert all(np.isnan(row[name]) for name in POWER)
    assert row["output_tok_s"] == pytest.approx(80, rel=0.02)


def test_a_power_log_that_is_a_folder(folder):
    (folder / "powermetrics.log").unlink()
    (folder / "powermetrics.log").mkdir()
    row = cell.read_whole(folder)[0]
    assert row["state"] == "ok"
    assert "powermetrics.log" in row["power_reason"]


def test_one_request(tmp_path):
    spec = replace(SMALL, requests=1, ttft_s=1.2)
    where = place(tmp_path, spec)
    synthetic_cell.write(where, spec)
    row = cell.read_whole(where)[0]
    assert (row["n"], row["state"]) == (1, "ok")
    assert row["ttft_ms"] == row["ttft_p99_ms"]
    assert row["prefill_power_W"] == pytest.approx(17.5, abs=0.1)


def test_one_token_has_no_itl_and_no_decode(tmp_path):
    spec = replace(SMALL, gen=1, tail_s=0.0)
    where = place(tmp_path, spec)
    synthetic_cell.write(where, spec)
    row = cell.read_whole(where)[0]
    assert (row["state"], row["osl"]) == ("ok", 1)
    for name in ("itl_ms", "output_tok_s", "decode_power_W", "output_tok_J", "identity_pct"):
        assert np.isnan(row[name])
    assert row["power_reason"] == "no decode power: 0 ms of decode under power samples"
    assert row["prefill_power_W"] == pytest.approx(17.5, abs=0.1)


@pytest.mark.parametrize(("content", "reason"), [(None, "no rss.csv"), ("", "rss.csv has no sample"),
                                                 ("time_ns,rss_kb\n1,x\n2\n", "rss.csv has no sample")])  # fmt: skip
def test_missing_memory(folder, content, reason):
    (folder / "rss.csv").unlink()
    if content is not None:
        (folder / "rss.csv").write_text(content)
    row = cell.read_whole(folder)[0]
    assert np.isnan(row["peak_ram_MB"])
    assert row["memory_reason"] == reason


def test_a_damaged_manifest_does_not_pass_for_measured_power(tmp_path):
    where = place(tmp_path, SMALL, backend="mlx", model="m")
    synthetic_cell.write(where, SMALL, kind="older")
    (tmp_path / "run" / "manifest.json").write_text("{")
    row = cell.read_whole(where)[0]
    assert (row["backend"], row["power_source"], row["power_basis"]) == ("mlx-lm", "unknown", "unknown")


@pytest.mark.parametrize("state", ["failed", "invalid"])
def test_a_cell_settled_as_unusable_keeps_its_reason_and_has_no_values(tmp_path, state):
    where = place(tmp_path, SMALL)
    synthetic_cell.write(where, SMALL, state=state, reason="the server died in request 3 of 5")
    row = cell.read_whole(where)[0]
    assert (row["state"], row["reason"]) == (state, "the server died in request 3 of 5")
    assert row["power_reason"] == row["reason"]
    assert all(np.isnan(row[m.name]) for m in metrics.ALL)
    assert not [k for k, v in row.items() if k.endswith(("_W", "_J")) and v == v]


def test_a_cell_whose_answers_all_came_at_once_is_read_and_has_no_power(tmp_path):
    source = paths.RUNS / "fixture" / "llama.cpp" / "tiny-trinity"
    target = tmp_path / "run" / "llama.cpp" / "tiny-trinity" / "gen48" / "ctx128"
    shutil.copytree(source / "gen48" / "ctx128", target)
    path = target / "profile_export.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        gaps = line["metrics"]["inter_chunk_latency"]
        gaps["value"] = [0.0] * len(gaps["value"])
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    row = cells.read_cell(target)
    assert row["state"] == "ok" and np.isnan(row["ttft_ms"]) and np.isnan(row["output_tok_s"])
    assert row["power_reason"] == "no request times to place the power samples by"
