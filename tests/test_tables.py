import numpy as np
import pandas as pd

from lib import tables


def test_units_alignment_decimals_and_dashes():
    frame = pd.DataFrame({
        "backend": ["mlx-lm", "llama.cpp"], "model": ["a", "b"], "output_tok_s": [12.346, np.nan], "n": [5, 20],
        "reason": [None, ""],
    })  # fmt: skip
    assert tables.markdown(frame).splitlines() == [
        "| Backend | Model | Output rate (tok/s) | n | Reason |",
        "| --- | --- | ---: | ---: | --- |",
        "| MLX-LM | a | 12.35 | 5 | – |",
        "| llama.cpp | b | – | 20 | – |",
    ]


def test_text_from_outside_is_harmless():
    frame = pd.DataFrame({"model": ["<script>alert(1)</script> | [x](javascript:1) `a`\nb"]})
    cell = tables.markdown(frame).splitlines()[2]
    assert "<script" not in cell and "&lt;script&gt;" in cell
    assert cell.count("|") == 2, "a bar in the text would open a new cell"
    assert "[x]" not in cell and "`" not in cell


def test_numbers():
    assert tables.number(float("nan")) == tables.DASH
    assert tables.number(3.14159, 3) == "3.142"
