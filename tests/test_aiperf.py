"""aiperf's files: ours hold its definitions, its own are read, and damage costs no more than it must.

fixtures/aiperf/requests.jsonl has the form of aiperf 0.13's own file with round numbers: a warm-up, four
successful requests (out of order; one with a client's count of 11 tokens against the server's 16, one
without usage), a timeout and an HTTP 500.
"""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib import aiperf
from lib.stream import Exchange

THEIRS = Path(__file__).parent / "fixtures" / "aiperf" / "requests.jsonl"
REAL = Path(__file__).parents[2] / "shared" / "aiperf"
S = 1_000_000_000
MS = 1_000_000
START = 1_790_000_000_000_000_000


def exchange(index=0, phase="profiling", ttft_ms=250, itl_ms=8, tokens=16, **changes):
    """A request with one token a chunk; 265 tokens of prompt for 256 of content."""
    start = START + index * 10 * S
    chunks = tuple(start + (ttft_ms + i * itl_ms) * MS for i in range(tokens))
    x = Exchange(
        index=index, phase=phase, start_ns=start, ack_ns=start + 3 * MS, first_token_ns=chunks[0],
        first_visible_ns=chunks[0], last_token_ns=chunks[-1], end_ns=chunks[-1] + MS, chunk_ns=chunks,
        prompt_tokens=265, completion_tokens=tokens, cached_tokens=0, finish_reason="length", model="m",
        prompt_sha256="ab" * 32, target_isl=256, target_osl=tokens, request_id="id", connection_reused=True,
        monotonic_start_ns=5, monotonic_end_ns=5 + 2 * S, wall_end_ns=start + 2 * S,
    )  # fmt: skip
    return replace(x, **changes)


FAILED = {"error": {"type": "timeout", "message": "no end before the deadline"}, "completion_tokens": None}


@pytest.fixture
def written(tmp_path):
    """Write exchanges and read them back."""

    def frame(*exchanges):
        path = tmp_path / "profile_export.jsonl"
        path.unlink(missing_ok=True)
        for x in exchanges:
            aiperf.append_record(path, x)
        return aiperf.read_requests(path)

    return frame


def metric(x, tag):
    return aiperf.record(x)["metrics"].get(tag, {}).get("value")


# Definitions


def test_metrics_of_a_request_by_hand():
    metrics = {k: v["value"] for k, v in aiperf.record(exchange())["metrics"].items()}
    assert metrics.pop("inter_chunk_latency") == [8] * 15
    assert metrics == pytest.approx({
        "request_latency": 370, "time_to_first_token": 250, "time_to_first_output_token": 250,
        "time_to_second_token": 8, "inter_token_latency": 8, "decode_duration": 120,
        "output_token_throughput_per_user": 125, "e2e_output_token_throughput": 16 / 0.37,
        "prefill_throughput_per_user": 265 / 0.25, "input_sequence_length": 265, "output_sequence_length": 16,
        "output_token_count": 16, "reasoning_token_count": 0, "osl_mismatch_diff_pct": 0,
        "usage_prompt_tokens": 265, "usage_completion_tokens": 16, "usage_total_tokens": 281,
        "http_req_connection_reused": 1,
    })  # fmt: skip


def test_metadata_has_aiperfs_names():
    assert aiperf.record(exchange(index=3))["metadata"] == {
        "session_num": 3, "x_request_id": "id", "conversation_id": "session_000003", "turn_index": 0,
        "request_start_ns": START + 30 * S, "request_ack_ns": START + 30 * S + 3 * MS,
        "request_end_ns": START + 30 * S + 371 * MS, "benchmark_phase": "profiling", "profiling_index": 0,
        "phase_name": "profiling", "phase_kind": "profiling", "was_cancelled": False,
    }  # fmt: skip
    assert "profiling_index" not in aiperf.record(exchange(phase="warmup"))["metadata"]


def test_every_key_that_we_share_with_aiperf_has_its_unit():
    theirs, _ = aiperf.read_records(THEIRS)
    ours = aiperf.record(exchange())["metrics"]
    for tag, entry in theirs[1]["metrics"].items():
        assert tag not in ours or ours[tag]["unit"] == entry["unit"]


def test_chunks_are_not_tokens():
    x = exchange(tokens=16, itl_ms=32, completion_tokens=64, target_osl=64)
    assert metric(x, "inter_token_latency") == pytest.approx(15 * 32 / 63)
    assert len(metric(x, "inter_chunk_latency")) == 15


def test_one_token_has_no_itl(written):
    x = exchange(tokens=1)
    assert metric(x, "inter_token_latency") is None and metric(x, "output_token_throughput_per_user") is None
    assert metric(x, "request_latency") == metric(x, "time_to_first_token") == 250
    assert math.isnan(written(x)["itl_ms"][0])


def test_all_tokens_in_one_read_have_no_rate():
    assert metric(exchange(itl_ms=0), "inter_token_latency") == 0
    assert metric(exchange(itl_ms=0), "output_token_throughput_per_user") is None


def test_reasoning_counts_once(written):
    x = exchange(reasoning_tokens=12, reasoning_chunks=12, first_visible_ns=START + 346 * MS)
    assert (metric(x, "output_sequence_length"), metric(x, "output_token_count")) == (16, 4)
    row = written(x).iloc[0]
    assert (row.osl, row.reasoning_tokens, row.ttft_ms, row.ttfv_ms, row.itl_ms) == (16, 12, 250, 346, 8)


def test_only_reasoning_has_every_metric_but_the_first_visible_token(written):
    row = written(exchange(reasoning_chunks=16, first_visible_ns=None)).iloc[0]
    assert row.error is None and math.isnan(row.ttfv_ms)
    assert (row.ttft_ms, row.rl_ms, row.itl_ms, row.output_tok_s_per_user, row.osl) == (250, 370, 8, 125, 16)


def test_without_usage_the_chunks_count_and_say_so(written):
    frame = written(exchange(prompt_tokens=None, completion_tokens=None), exchange(index=1))
    assert frame["token_source"].tolist() == ["chunks", "usage"]
    assert (frame.isl[0], frame.osl[0]) == (256, 16)
    assert "usage_completion_tokens" not in aiperf.record(exchange(completion_tokens=None))["metrics"]
    assert frame.attrs["notes"][0].startswith("1 of 2 requests without the server's token count")


def test_header_and_first_token_are_two_things(written):
    early, late = exchange(ack_ns=START + 8 * MS), exchange(index=1, ack_ns=START + 10 * S + 250 * MS)
    frame = written(early, late)
    assert frame.ttft_ms.tolist() == [250, 250]
    assert (frame.ack_ns - frame.start_ns).tolist() == [8 * MS, 250 * MS]


def test_both_counts_of_the_prompt_are_kept(written):
    frame = written(*(exchange(index=i, prompt_tokens=n) for i, n in enumerate((281, 268, 291))))
    assert frame.isl.tolist() == [281, 268, 291]
    assert frame.isl_client.tolist() == [256, 256, 256]
    assert frame.prefill_tok_s_per_user.tolist() == pytest.approx([281 / 0.25, 268 / 0.25, 291 / 0.25])


def test_a_cut_prompt_shows(written):
    row = written(exchange(prompt_tokens=2050, target_isl=16384)).iloc[0]
    assert (row.isl, row.isl_client) == (2050, 16384)


def test_sleep_shows(written):
    row = written(exchange(wall_end_ns=START + 665 * S, monotonic_end_ns=5 + 5 * S)).iloc[0]
    assert (row.wall_s, row.monotonic_s) == (665, 5)


def test_a_failed_request_keeps_its_row_without_metrics(written):
    frame = written(exchange(), exchange(index=1, **FAILED))
    row = frame.iloc[1]
    assert row.error == "timeout: no end before the deadline" and row.censored
    assert frame.loc[1, ["ttft_ms", "ttfv_ms", "rl_ms", "itl_ms", "isl", "osl"]].isna().all()
    assert row.token_source is None
    line = aiperf.record(exchange(**FAILED))
    assert line["metrics"] == {"error_isl": {"value": 256, "unit": "tokens"}}
    assert line["tinymoe"]["chunks"] == 16  # what had come is not lost
    assert not frame.censored[0]


def test_server_timings_are_json_even_where_they_are_not_finite():
    line = aiperf.record(exchange(server_timings={"per_second": math.inf, "deep": {"x": [1, math.nan]}}))
    assert line["tinymoe"]["server_timings"] == {"per_second": None, "deep": {"x": [1, None]}}
    json.dumps(line, allow_nan=False)


def test_append_to_an_open_file_reaches_the_disk_at_once(tmp_path):
    path = tmp_path / "profile_export.jsonl"
    with path.open("a") as f:
        aiperf.append_record(f, exchange())
        assert len(aiperf.read_requests(path)) == 1
        aiperf.append_record(f, exchange(index=1))
        assert len(aiperf.read_requests(path)) == 2


# The summary


def test_summary_is_over_successful_requests_of_the_profiling_phase():
    ttfts = [240, 250, 260, 300]
    measured = [exchange(index=i, ttft_ms=t) for i, t in enumerate(ttfts)]
    s = aiperf.summary([exchange(phase="warmup", ttft_ms=900), *measured, exchange(index=4, **FAILED)])
    ttft = s["time_to_first_token"]
    assert ttft["unit"] == "ms" and ttft["count"] == 4
    assert ttft["p50"] == 255 and ttft["p90"] == pytest.approx(np.percentile(ttfts, 90))
    assert ttft["std"] == pytest.approx(np.std(ttfts)) and ttft["sum"] == sum(ttfts)
    assert (ttft["min"], ttft["max"], ttft["avg"]) == (240, 300, 262.5)
    assert list(ttft) == ["unit", "avg", "p1", "p5", "p10", "p25", "p50", "p75", "p90", "p95", "p99",
                          "min", "max", "std", "count", "sum"]  # fmt: skip
    assert s["inter_chunk_latency"]["count"] == 4 * 15
    assert s["warmup_metrics"]["time_to_first_token"]["avg"] == 900


def test_summary_counts_and_rates():
    s = aiperf.summary([exchange(), exchange(index=1), exchange(index=2, **FAILED)])
    scalars = {k: v["avg"] for k, v in s.items() if isinstance(v, dict) and set(v) == {"unit", "avg"}}
    assert scalars.pop("benchmark_duration") == pytest.approx(20.371)
    assert scalars == pytest.approx({
        "request_count": 2, "completed_request_count": 3, "error_request_count": 1,
        "request_error_rate": 100 / 3, "request_throughput": 2 / 20.371,
        "input_token_throughput": 530 / 20.371, "output_token_throughput": 32 / 20.371,
        "total_token_throughput": 562 / 20.371, "total_isl": 530, "total_osl": 32, "total_output_tokens": 32,
        "total_reasoning_tokens": 0, "total_usage_prompt_tokens": 530, "total_usage_completion_tokens": 32,
        "total_usage_total_tokens": 562, "total_error_isl": 256,
    })  # fmt: skip
    assert s["error_summary"] == [{"error_details": FAILED["error"], "count": 1}]
    assert s["tinymoe"]["token_source"] == {"usage": 2, "chunks": 1}
    assert s["tinymoe"]["censored_request_count"] == 1


def test_summary_of_failures_alone_and_of_nothing():
    s = aiperf.summary([exchange(**FAILED)])
    assert s["request_count"]["avg"] == 0 and s["request_error_rate"]["avg"] == 100
    assert "time_to_first_token" not in s
    assert aiperf.summary([])["completed_request_count"]["avg"] == 0
    json.dumps(s, allow_nan=False)


def test_summary_from_the_file_is_that_from_memory(tmp_path):
    path = tmp_path / "profile_export.jsonl"
    exchanges = [exchange(index=i, ttft_ms=250 + i) for i in range(5)]
    for x in exchanges:
        aiperf.append_record(path, x)
    assert aiperf.summary(aiperf.read_records(path)[0]) == aiperf.summary(exchanges)


# Reading aiperf's own


def test_rows_are_in_order_of_start_with_the_warm_up_marked():
    frame = aiperf.read_requests(THEIRS)
    assert list(frame.columns) == list(aiperf.COLUMNS)
    assert frame["index"].tolist() == [0, 0, 1, 2, 3, 4, 5]
    assert frame.phase.tolist() == ["warmup"] + ["profiling"] * 6
    assert frame.ttft_ms.tolist()[:5] == [400, 250, 240, 260, 255]
    assert frame.start_ns.diff().iloc[1:].gt(0).all()
    assert frame.start_ns[0] == START and str(frame.start_ns.dtype) == "int64"
    assert str(frame.ack_ns.dtype) == "Int64" and frame.ack_ns.isna().tolist() == [False] * 5 + [True] * 2


def test_the_servers_count_is_the_truth():
    frame = aiperf.read_requests(THEIRS).set_index("index").query("phase == 'profiling'")
    assert frame.isl.tolist()[:4] == [261, 261, 261, 256]
    assert frame.isl_client.tolist()[:4] == [256] * 4
    assert frame.osl.tolist()[:4] == [16] * 4
    assert frame.osl_client.tolist()[:4] == [16, 16, 11, 16]
    assert frame.itl_ms.tolist()[:4] == pytest.approx([8, 10, 8, 8])  # aiperf had 12 for the third
    assert frame.output_tok_s_per_user.tolist()[:4] == pytest.approx([125, 100, 125, 125])
    assert frame.prefill_tok_s_per_user[0] == pytest.approx(261 / 0.25)
    assert frame.token_source.tolist() == ["usage", "usage", "usage", "client", None, None]
    assert frame.target_osl.tolist()[:4] == [16] * 4
    assert frame.cached_tokens.isna().all()  # aiperf does not keep it: unknown, not 0


def test_their_failures_keep_their_rows():
    frame = aiperf.read_requests(THEIRS)
    assert frame.error.tolist()[:5] == [None] * 5
    assert frame.error[5] == "TimeoutError: TimeoutError()"
    assert frame.error[6] == 'Internal Server Error: {"error": {"message": "no luck", "code": 500}}'
    assert frame.censored.tolist() == [False] * 5 + [True, False]
    assert frame.loc[5:, ["ttft_ms", "rl_ms", "isl", "osl"]].isna().all(axis=None)
    assert frame.attrs["notes"] == [
        "1 of 5 requests without the server's token count: counts are the client's; "
        "aiperf also takes an error inside a stream for the end of the answer"
    ]


def test_their_two_clocks_part_when_the_machine_slept(tmp_path):
    line = json.loads(THEIRS.read_text().splitlines()[1])
    line["metadata"]["request_end_ns"] = line["metadata"]["request_start_ns"] + 665 * S
    path = tmp_path / "profile_export.jsonl"
    path.write_text(json.dumps(line))
    row = aiperf.read_requests(path).iloc[0]
    assert row.wall_s == 665 and row.monotonic_s == pytest.approx(0.371)


def test_a_cancelled_request_is_not_a_result(tmp_path):
    line = json.loads(THEIRS.read_text().splitlines()[1])
    line["metadata"]["was_cancelled"] = True
    (tmp_path / "x.jsonl").write_text(json.dumps(line))
    row = aiperf.read_requests(tmp_path / "x.jsonl").iloc[0]
    assert row.error.startswith("cancelled") and math.isnan(row.ttft_ms)


@pytest.mark.skipif(not REAL.exists(), reason="aiperf's real outputs are not beside the repository")
@pytest.mark.parametrize("name", ["ok/", "warmup/", "errors/f_500.", "errors/f_drop.", "errors/f_timeout.",
                                  "errors/f_zero.", "errors/f_errsse."])  # fmt: skip
def test_our_summary_of_aiperfs_requests_is_aiperfs(name):
    records, notes = aiperf.read_records(Path(f"{REAL}/{name}profile_export.jsonl"))
    ours = aiperf.summary(records)
    theirs = aiperf.read_summary(Path(f"{REAL}/{name}profile_export_aiperf.json"))
    assert notes == []
    rates = {f"{what}_throughput" for what in ("request", "input_token", "output_token", "total_token")}
    spans = rates | {"benchmark_duration"}  # aiperf's begin and end with its credits
    shared = ours.keys() & theirs.keys() - spans
    shared = {tag for tag in shared if isinstance(ours[tag], dict) and "unit" in ours[tag]}
    assert len(shared) > 25
    for tag in shared:
        assert ours[tag].pop("unit") == theirs[tag].pop("unit")
        assert ours[tag] == pytest.approx(theirs[tag], rel=1e-6), tag


# Damage


def test_a_bad_line_in_the_middle_is_named(tmp_path):
    lines = THEIRS.read_bytes().splitlines(keepends=True)
    bad = [b"\x00\x00\x00\n", b"[1]\n", b'{"metadata": {"request_start_ns": "x"}}\n', b"\xff{}\n"]
    path = tmp_path / "profile_export.jsonl"
    path.write_bytes(b"".join([lines[0], *bad, *lines[1:], b"\n"]))
    frame = aiperf.read_requests(path)
    assert len(frame) == len(lines)
    assert frame.attrs["notes"][:4] == [
        "line 2 left out: not JSON",
        "line 3 left out: no metadata",
        "line 4 left out: no request_start_ns",
        "line 5 left out: not JSON",
    ]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_file_cut_at_any_byte_loses_the_cut_line_and_says_so(tmp_path_factory, data):
    whole = THEIRS.read_bytes()
    end = data.draw(st.integers(0, len(whole)))
    path = tmp_path_factory.mktemp("cut") / "profile_export.jsonl"
    path.write_bytes(whole[:end])
    frame = aiperf.read_requests(path)
    complete = whole[:end].count(b"\n")
    rest = whole[:end].rpartition(b"\n")[2]
    kept = whole[end : end + 1] == b"\n" and bool(rest)  # only the newline was cut
    assert len(frame) == complete + kept
    cut = [note for note in frame.attrs["notes"] if note.startswith("cut last line dropped")]
    assert len(cut) == bool(rest and not kept)
    if len(frame):
        assert frame.start_ns.is_monotonic_increasing


TAGS = ["usage_completion_tokens", "output_sequence_length", "request_latency", "time_to_first_token",
        "osl_mismatch_diff_pct", "inter_token_latency"]  # fmt: skip
values = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.just([1])
own_values = st.dictionaries(st.sampled_from(["token_source", "wall_s", "target_osl", "censored"]), values)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from(TAGS), values), values | own_values, values, values)
def test_odd_values_are_missing_values(tmp_path_factory, metrics, own, error, number):
    record = {
        "metadata": {"request_start_ns": 1, "request_end_ns": 2, "session_num": number},
        "metrics": {tag: {"value": v} for tag, v in metrics.items()}, "tinymoe": own, "error": error,
    }  # fmt: skip
    path = tmp_path_factory.mktemp("odd") / "profile_export.jsonl"
    path.write_text(json.dumps(record))
    frame = aiperf.read_requests(path)
    assert len(frame) == 1
    assert {c: str(t) for c, t in frame.dtypes.items()} == aiperf.COLUMNS


def test_an_empty_file_has_no_rows_but_all_columns(tmp_path):
    path = tmp_path / "profile_export.jsonl"
    path.write_bytes(b"")
    frame = aiperf.read_requests(path)
    assert frame.empty and list(frame.columns) == list(aiperf.COLUMNS)
    assert frame.attrs["notes"] == ["no request in the file"]


def test_files_that_are_not_there_or_not_theirs(tmp_path):
    with pytest.raises(aiperf.AiperfError, match="No such file"):
        aiperf.read_requests(tmp_path / "profile_export.jsonl")
    with pytest.raises(aiperf.AiperfError, match="Is a directory"):
        aiperf.read_requests(tmp_path)
    summary = tmp_path / "profile_export_aiperf.json"
    with pytest.raises(aiperf.AiperfError, match="No such file"):
        aiperf.read_summary(summary)
    for content, problem in (("{", "not JSON"), ("[1]", "not a JSON object")):
        summary.write_text(content)
        with pytest.raises(aiperf.AiperfError, match=problem) as caught:
            aiperf.read_summary(summary)
        assert "\n" not in str(caught.value)
    summary.write_text('{"schema_version": "1.4"}')
    assert aiperf.read_summary(summary) == {"schema_version": "1.4"}


def test_an_answer_read_all_at_once_has_no_token_times(tmp_path):
    """What a client that could not keep up leaves: gaps of nothing, and a first token seen with the last."""
    cell = Path(__file__).parents[1] / "runs" / "fixture" / "llama.cpp" / "tiny-trinity" / "gen16" / "ctx32"
    lines = [json.loads(line) for line in (cell / "profile_export.jsonl").read_text().splitlines()]
    gaps = lines[1]["metrics"]["inter_chunk_latency"]["value"]
    lines[1]["metrics"]["inter_chunk_latency"]["value"] = [0.0] * len(gaps)
    path = tmp_path / "profile_export.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    frame = aiperf.read_requests(path)
    late, others = frame.iloc[1], frame.drop(1)
    assert late[["ttft_ms", "itl_ms", "output_tok_s_per_user", "prefill_tok_s_per_user"]].isna().all()
    assert late["rl_ms"] == lines[1]["metrics"]["request_latency"]["value"] and late["osl"] == 16
    assert others["itl_ms"].notna().all()
    assert frame.attrs["notes"] == ["1 of 6 answers came all at once: no time of their tokens is known"]
