import re

import pytest

from lib import registry
from lib.files import TinymoeError
from lib.join import ORDER
from lib.paths import NOTEBOOKS


def test_all_figures_and_tables_of_the_design():
    numbers = [f.number for f in registry.FIGURES]
    assert len(numbers) == len(set(numbers)) == 28
    assert len({t.number for t in registry.TABLES}) == len(registry.TABLES) >= 25
    assert all(f.caption and f.alt for f in registry.FIGURES)
    assert all(t.caption for t in registry.TABLES)


def test_ids_names_and_file_stems():
    assert registry.get("fig-9b").name == "Figure 9b"
    assert [registry.get(i).stem for i in ("fig-1", "fig-9b", "fig-10b", "fig-a.1", "fig-i.2a")] == [
        "fig-01", "fig-09b", "fig-10b", "fig-a.1", "fig-i.2a",
    ]  # fmt: skip
    assert registry.get("table-s.1").name == "Table S.1"
    with pytest.raises(TinymoeError, match="no figure or table 'fig-99'"):
        registry.get("fig-99")


def test_items_belong_to_notebooks_of_the_report():
    known = {name for name, _ in ORDER}
    assert {i.notebook for i in (*registry.FIGURES, *registry.TABLES)} <= known


def test_notebooks_show_only_registered_items_and_their_own():
    for path in NOTEBOOKS.glob("[0-9]*.ipynb"):
        shown = set(re.findall(r'(?:show|missing)\((?:run, )?\\"((?:fig|table)-[^\\"]+)\\"', path.read_text()))
        for item_id in shown:
            assert registry.get(item_id).notebook == path.stem, f"{item_id} is shown by {path.stem}"
