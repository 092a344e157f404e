from lib.counts import of_all


def test_of_all():
    assert of_all(152, 152, "cell") == "all 152 cells"
    assert of_all(151, 152, "cell") == "151 of 152 cells"
    assert of_all(0, 152, "cell") == "none of 152 cells"
    assert of_all(1, 1, "cell") == "the one cell" and of_all(0, 1, "cell") == "not the one cell"
