import numpy as np
import pandas as pd
import pytest

from lib import prose


def cells(**columns):
    return pd.DataFrame({"backend": "llama.cpp", "gen": 32, **columns})


def test_leads_names_winner_runner_up_and_margin():
    frame = cells(model=["a", "b", "c"], output_tok_s=[50.0, 60.0, np.nan])
    said = prose.leads(frame, "output_tok_s", "here")
    assert (
        said
        == "Output rate: b under llama.cpp leads here with 60.00 tok/s, 20.0 % above a under llama.cpp (50.00 tok/s). "
        "1 model without a value is not compared."
    )
    assert "a under llama.cpp leads" in prose.leads(
        frame.assign(output_tok_s=[70.0, 60.0, 1.0]), "output_tok_s", "here"
    )


def test_less_is_better_where_it_is():
    assert prose.leads(cells(model=["a", "b"], ttft_ms=[5.0, 9.0]), "ttft_ms", "here").startswith("TTFT p50: a under")


def test_nothing_is_said_without_two_values():
    assert prose.leads(cells(model=["a", "b"], output_tok_s=[1.0, np.nan]), "output_tok_s", "here") == ""
    assert prose.leader(cells(model=["a"], output_tok_s=[np.nan]), "output_tok_s") is None
    assert prose.trend(cells(model=["a"], ctx=[1], output_tok_s=[1.0]), "output_tok_s") == ""


@pytest.mark.parametrize(
    ("values", "said"),
    [([3, 2, 1], "1 falls at every step"), ([1, 2, 3], "1 rises at every step"), ([1, 3, 2], "1 goes up and down")],
)
def test_trend_changes_with_the_data(values, said):
    frame = cells(model="a", ctx=[1, 2, 3], output_tok_s=np.array(values, float))
    assert prose.trend(frame, "output_tok_s") == f"Output rate with prompt length: of 1 line, {said}."


def test_lists():
    assert prose.listed([]) == "" and prose.listed(["a"]) == "a" and prose.listed("abc") == "a, b and c"
    assert prose.plural(1, "cell") == "1 cell" and prose.plural(0, "cell") == "0 cells"
