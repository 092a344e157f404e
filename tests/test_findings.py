"""What is said of a run changes with its data: each finding on small frames whose answer is known."""

import numpy as np
import pandas as pd
import pytest

from lib import findings, prose

LLAMA, MLX = findings.PAIR


def line(model, values, backend=LLAMA, gen=64, name="output_tok_s", ctxs=(256, 4096, 30720), **more):
    """One line of cells: a value at each prompt length."""
    return pd.DataFrame(
        {"backend": backend, "model": model, "gen": gen, "ctx": ctxs[: len(values)], name: values, **more}
    )


def cells(*lines):
    return pd.concat(lines, ignore_index=True)


SMALL = line("smallthinker-4b-a0.6b", [126.42, 90.0, 55.04])
LARGE = line("lfm2.5-8b-a1b", [83.0, 80.0, 63.73])


# --- retention ---


def test_retention_is_long_over_short_at_the_longest_generation():
    kept = findings.retention(cells(SMALL, LARGE, line("granite4-h-tiny", [50.0, 49.0, 45.0], gen=32)))
    assert list(kept["model"]) == ["lfm2.5-8b-a1b", "smallthinker-4b-a0.6b"], "the shorter generation has no row"
    assert kept["retention_pct"].round(1).tolist() == [76.8, 43.5]
    assert (kept["short_ctx"] == 256).all() and (kept["long_ctx"] == 30720).all()


def test_retention_of_a_line_without_an_end_has_no_row():
    kept = findings.retention(cells(SMALL, line("lfm2.5-8b-a1b", [83.0, 80.0])))
    assert list(kept["model"]) == ["smallthinker-4b-a0.6b"]
    assert findings.retention(line("a", [1.0])).empty and findings.retention(SMALL.head(0)).empty


# --- crossovers ---


def test_a_crossing_is_found_between_the_lengths_where_the_lead_changes():
    found = findings.crossovers(cells(SMALL, LARGE), "output_tok_s")
    assert len(found) == 1
    row = found.iloc[0]
    assert (row["overtaking"], row["overtaken"]) == ("lfm2.5-8b-a1b", "smallthinker-4b-a0.6b")
    assert (row["low_ctx"], row["high_ctx"]) == (4096, 30720)
    assert row["low_gap_pct"] == pytest.approx(-11.11, abs=0.01) and row["high_gap_pct"] == pytest.approx(
        15.79, abs=0.01
    )


def test_lengths_where_two_models_are_close_are_passed_over():
    close = cells(line("a", [100.0, 81.0, 60.0]), line("b", [90.0, 80.0, 70.0]))
    row = findings.crossovers(close, "output_tok_s").iloc[0]
    assert (row["overtaking"], row["low_ctx"], row["high_ctx"]) == ("b", 256, 30720)
    within = cells(line("a", [100.0, 100.0, 100.0]), line("b", [101.0, 100.0, 99.0]))
    assert findings.crossovers(within, "output_tok_s").empty, "less than two per cent is no lead"


def test_where_less_is_better_the_one_that_gets_smaller_overtakes():
    found = findings.crossovers(
        cells(line("a", [10.0, 20.0], name="ttft_ms"), line("b", [20.0, 10.0], name="ttft_ms")), "ttft_ms"
    )
    assert list(found["overtaking"]) == ["b"]


def test_a_lead_whose_intervals_overlap_is_none():
    frame = cells(SMALL, LARGE)
    wide = frame.assign(output_tok_s_low=frame["output_tok_s"] - 30, output_tok_s_high=frame["output_tok_s"] + 30)
    assert findings.crossovers(wide, "output_tok_s").empty
    narrow = frame.assign(output_tok_s_low=frame["output_tok_s"] - 1, output_tok_s_high=frame["output_tok_s"] + 1)
    assert len(findings.crossovers(narrow, "output_tok_s")) == 1
    at = wide[wide["ctx"] == 30720]
    assert prose.leads(at, "output_tok_s", "here").endswith("; their 95 % intervals overlap, so this may be chance.")
    assert "chance" not in prose.leads(narrow[narrow["ctx"] == 30720], "output_tok_s", "here")


def test_intervals_of_cells_come_from_their_requests():
    sent = pd.DataFrame({
        "backend": LLAMA, "model": "smallthinker-4b-a0.6b", "ctx": 256, "gen": 64, "phase": "profiling", "error": None,
        "x": [100.0, 110.0, 120.0, 130.0, 140.0],
    })  # fmt: skip
    found = findings.with_intervals(SMALL, sent, {"output_tok_s": "x"}).set_index("ctx")
    assert 100 <= found.at[256, "output_tok_s_low"] < 120 < found.at[256, "output_tok_s_high"] <= 140
    assert np.isnan(found.at[4096, "output_tok_s_low"]), "no request, no interval"


def test_medians_are_compared_over_the_cells_that_all_have():
    frame = cells(line("a", [10.0, 20.0, 90.0]), line("b", [12.0, 22.0]))
    medians, count = findings.shared_medians(frame, "output_tok_s", LLAMA)
    assert count == 2 and medians.to_dict() == {"a": 15.0, "b": 17.0}
    said = prose.of_medians(frame, ["output_tok_s"], LLAMA)
    assert said.endswith("Output rate: b first (17.00 tok/s, 2 cells).")
    close = prose.of_medians(cells(line("a", [100.0]), line("b", [101.0])), ["output_tok_s"], LLAMA)
    assert close.endswith("Output rate: b and a within 2 %.")
    assert prose.of_medians(line("a", [1.0]), ["output_tok_s"], LLAMA) == ""


def test_a_line_without_an_end_is_no_trend():
    frame = cells(line("a", [3.0, 2.0, 1.0]), line("b", [2.0, 1.0]))
    assert prose.trend(frame, "output_tok_s") == (
        "Output rate with prompt length: of 1 line, 1 falls at every step. 1 line without every length is not counted."
    )
    assert list(findings.peaks(frame, "output_tok_s")["model"]) == ["a"]


def test_the_sentence_of_the_ranking_follows_the_data():
    def said(frame):
        leaders, crossed = findings.leaders(frame, "output_tok_s"), findings.crossovers(frame, "output_tok_s")
        return prose.by_context(frame, leaders, crossed, LLAMA)

    text = said(cells(SMALL, LARGE))
    assert "smallthinker-4b-a0.6b leads at 256 with 126.42 tok/s and keeps 43.5 % of that at 30720" in text
    assert text.endswith("lfm2.5-8b-a1b leads with 63.73 tok/s.")
    always = said(cells(SMALL.assign(output_tok_s=SMALL["output_tok_s"] * 2), LARGE))
    assert always == "Under llama.cpp at gen 64, smallthinker-4b-a0.6b is the fastest model at every prompt length."
    narrow = said(cells(line("a", [100.0, 90.0, 80.0]), line("b", [90.0, 85.0, 80.5])))
    assert "neither clearly gives way" in narrow
    assert said(SMALL) == "" and said(cells(SMALL.head(1), LARGE.head(1))) == ""


# --- along a line ---


def test_peaks_inside_and_at_the_ends():
    found = findings.peaks(cells(line("a", [1.0, 3.0, 2.0]), line("b", [3.0, 2.0, 1.0])), "output_tok_s")
    assert found.set_index("model")["inside"].to_dict() == {"a": True, "b": False}
    assert found.set_index("model").loc["a", ["best_ctx", "worst_ctx"]].tolist() == [4096, 256]
    assert findings.peaks(line("a", [1.0, 2.0]), "output_tok_s").empty
    said = prose.peaking(found, "output_tok_s")
    assert (
        said
        == "Output rate: 1 line of 2 is best inside the sweep, at a prompt of 4096 tokens; 1 is worst at 256 tokens."
    )


def test_spread_over_generation_lengths():
    frame = cells(line("a", [100.0], gen=32), line("a", [101.0], gen=64), line("b", [5.0], gen=32))
    found = findings.gen_spread_pct(frame, "output_tok_s")
    assert found["model"].tolist() == ["a"] and found["spread_pct"].iloc[0] == pytest.approx(100 / 100.5)


# --- backends ---


def both(*ratios, model="granite4-h-tiny", gen=64):
    return cells(line(model, [50.0] * len(ratios), gen=gen), line(model, [50.0 * r for r in ratios], MLX, gen=gen))


def test_only_shared_cells_are_compared():
    frame = cells(both(1.4, 1.3), line("smallthinker-4b-a0.6b", [120.0]))
    head = findings.head_to_head(frame, "output_tok_s")
    assert head["ratio"].tolist() == pytest.approx([1.4, 1.3]) and findings.shared(frame) == ["granite4-h-tiny"]
    assert findings.head_to_head(SMALL, "output_tok_s").empty


def test_wins_and_the_sentence_change_with_the_data():
    frame = cells(both(1.4, 1.3), both(0.9, 1.1, 0.8, model="trinity-nano"))
    table = findings.wins(findings.head_to_head(frame, "output_tok_s"), "output_tok_s")
    assert table.set_index("model")[MLX].to_dict() == {"trinity-nano": 1, "granite4-h-tiny": 2}
    assert findings.winners(table) == {LLAMA, MLX}
    said = prose.verdict(table, "output_tok_s")
    assert "trinity-nano is ahead under llama.cpp in 2 of 3" in said
    assert "granite4-h-tiny is ahead under MLX-LM in all of 2" in said
    assert findings.winners(findings.wins(findings.head_to_head(both(1.4), "output_tok_s"), "output_tok_s")) == {MLX}
    low = findings.wins(findings.head_to_head(both(0.9).rename(columns={"output_tok_s": "rl_ms"}), "rl_ms"), "rl_ms")
    assert low[MLX].tolist() == [1], "less latency wins"


def test_the_interval_of_a_ratio_covers_it():
    rng = np.random.default_rng(1)
    sent = pd.concat([
        pd.DataFrame({
            "backend": b, "model": "granite4-h-tiny", "ctx": 256, "gen": 64, "phase": "profiling", "error": None,
            "x": level + rng.normal(0, 1, 20),
        })
        for b, level in ((LLAMA, 50.0), (MLX, 70.0))
    ])  # fmt: skip
    found = findings.ratio_intervals(sent, findings.head_to_head(both(1.4), "output_tok_s"), "x").iloc[0]
    assert 1.3 < found["low"] < 1.4 < found["high"] < 1.5
    one = findings.ratio_intervals(
        sent.groupby("backend").head(1), findings.head_to_head(both(1.4), "output_tok_s"), "x"
    )
    assert one[["low", "high"]].isna().all(axis=None)


# --- recommendations ---


def sweep(ctxs=(256, 30720), **models):
    """Cells of some prompt lengths; all that is compared is each model's one number. gen is 64."""
    same = ("output_tok_s", "ttft_ms", "itl_ms", "prefill_J", "mJ_per_output_tok", "peak_ram_MB")
    rows = [line(name, [v] * len(ctxs), ctxs=ctxs, **dict.fromkeys(same[1:], v)) for name, v in models.items()]
    return cells(*rows)


def pick(frame, case):
    found = findings.recommendations(frame)
    return found[found["use_case"] == case].iloc[0]


def test_the_best_is_recommended_with_runner_up_and_margin():
    frame = sweep(a=100.0, b=80.0, c=50.0)
    speed = pick(frame, "Short prompts, speed")
    assert (speed["model"], speed["next_model"], speed["score"]) == ("a", "b", pytest.approx(100))
    assert speed["margin_pct"] == pytest.approx(25) and speed["cells"] == 1
    energy = pick(frame, "Energy or battery")
    assert (energy["model"], energy["margin_pct"]) == ("c", pytest.approx(37.5))
    assert pick(sweep(a=10.0), "Smallest memory")["next_model"] == ""


def test_answers_that_ended_early_are_compared_at_the_length_asked():
    asked = findings.of_the_length_asked(sweep(a=100.0))
    assert asked["asked_s"].tolist() == pytest.approx([(100 + 63 * 100) / 1000] * 2)
    assert asked["asked_J"].tolist() == pytest.approx([100 + 64 * 0.1] * 2)
    early = sweep(a=100.0, b=101.0).assign(rl_ms=100.0, total_J=[100.0, 100.0, 1.0, 1.0])
    assert pick(early, "Energy or battery")["model"] == "a", (
        "b's short answers took 1 J, and are no cheaper by the token"
    )
    assert pick(early, "Short prompts, whole answer soonest")["model"] == "a"


def test_a_candidate_left_out_that_wins_where_it_can_be_compared_contests():
    frame = sweep(ctxs=(256, 4096, 30720), a=10.0, b=5.0)
    lacking = (frame["model"] == "b") & (frame["ctx"] > 256)
    found = pick(frame.assign(prefill_J=frame["prefill_J"].mask(lacking)), "Energy or battery")
    assert found["model"] == "a" and found["contested_by"] == found["left_out"] == [(LLAMA, "b")]
    worse = frame.assign(prefill_J=frame["prefill_J"].where(frame["model"] == "a", 20.0).mask(lacking))
    assert pick(worse, "Energy or battery")["contested_by"] == []


def test_without_a_metric_there_is_no_recommendation():
    frame = sweep(a=100.0).assign(prefill_J=np.nan)
    assert "Energy or battery" not in set(findings.recommendations(frame)["use_case"])


# --- others ---


def test_why_the_most_efficient_is():
    def said(rate, power):
        frame = pd.DataFrame({
            "backend": LLAMA, "model": ["a", "b"], "output_tok_s": rate, "decode_power_W": power,
            "output_tok_J": np.divide(rate, power),
        })  # fmt: skip
        return prose.why_efficient(frame, "here")

    cooler = said([61.08, 63.73], [13.04, 14.01])
    assert "a under llama.cpp is more efficient than b here because it draws less power in decode (13.04 W" in cooler
    assert "because it is faster (70.00 tok/s against 60.00 tok/s) and draws less" in said([70.0, 60.0], [10.0, 11.0])
    assert said([70.0, np.nan], [10.0, 11.0]) == ""


def test_slowdown_needs_six_requests_and_compares_thirds():
    sent = pd.DataFrame({
        "backend": LLAMA, "model": "a", "ctx": 256, "gen": 64, "phase": "profiling", "error": None,
        "start_ns": range(6), "itl_ms": [10.0, 10.0, 11.0, 11.0, 12.0, 12.0],
    })  # fmt: skip
    assert findings.slowdown_pct(sent)["slowdown_pct"].tolist() == pytest.approx([20.0])
    assert findings.slowdown_pct(sent.head(5)).empty


def test_what_an_output_token_costs():
    frame = pd.DataFrame({"output_tok_J": [5.0, np.nan], "prefill_tok_J": [50.0, 40.0]})
    assert findings.cost_ratio(frame).tolist() == [10.0]
