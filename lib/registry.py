"""Every figure and table of the report: id, number, caption, alternative text and the notebook that makes it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lib.files import TinymoeError


@dataclass(frozen=True)
class Item:
    """A figure or table. `alt` is what a figure shows in general; the notebook adds what is seen in this run."""

    kind: str
    number: str
    notebook: str
    caption: str
    alt: str = ""

    @property
    def id(self) -> str:
        """Anchor in Markdown and HTML: fig-9b, table-10b, table-s.1."""
        return f"{'fig' if self.kind == 'figure' else 'table'}-{self.number.lower()}"

    @property
    def name(self) -> str:
        """As a sentence calls it: Figure 9b."""
        return f"{self.kind.capitalize()} {self.number}"

    @property
    def stem(self) -> str:
        """File name without ending; numbers have two digits so that files sort as the report does."""
        return "fig-" + re.sub(r"^\d+", lambda digits: digits[0].zfill(2), self.number.lower())


def _figure(number: str, notebook: str, caption: str, alt: str) -> Item:
    return Item("figure", number, notebook, caption, alt)


def _table(number: str, notebook: str, caption: str) -> Item:
    return Item("table", number, notebook, caption)


_LINES = "one row of panels for each generation length, llama.cpp solid and MLX-LM dashed"
_BARS = "one bar for each model and backend, llama.cpp plain and MLX-LM hatched"
_CELLS = f"{_BARS}, its value and the cell it comes from beside it"

FIGURES = (
    _figure("1", "10-throughput", "Output and prefill rate against prompt length", f"Lines of output and prefill tokens per second against prompt length, {_LINES}"),
    _figure("2", "10-throughput", "Best output and prefill rate of each model over its cells", f"Bars of the best rates, {_CELLS}"),
    _figure("3", "11-energy", "Output, prefill and total tokens per joule against prompt length", f"Lines of tokens per joule against prompt length, {_LINES}"),
    _figure("4", "11-energy", "Best output, prefill and total tokens per joule of each model", f"Bars of the best efficiencies, {_CELLS}"),
    _figure("5", "12-latency", "Time to first token, inter-token latency and request latency (medians) against prompt length", f"Lines of three latencies against prompt length, {_LINES}"),
    _figure("6", "12-latency", "Shortest time to first token, inter-token latency and request latency of each model", f"Bars of the shortest latencies, {_CELLS}"),
    _figure("7", "13-power", "Total, prefill and decode power against prompt length; the band is the spread of prefill power over generation lengths", f"Lines of power against prompt length, {_LINES}"),
    _figure("8", "13-power", "Lowest total, prefill and decode power of each model", f"Bars of the lowest powers, {_CELLS}"),
    _figure("9", "14-gpu", "GPU clock and residency against power, one segment from prefill to decode for each cell", "Segments from prefill to decode in the plane of power against GPU clock and residency, a row of panels for each backend"),
    _figure("9b", "14-gpu", "Distribution of the active GPU clock by phase and prompt length", "Split violins of the GPU clock, one for each prompt length, llama.cpp left and MLX-LM right; a row of panels for each generation length, a column for each phase"),
    _figure("9c", "14-gpu", "GPU residency by phase against prompt length", f"Lines of GPU residency in prefill and decode against prompt length, {_LINES}"),
    _figure("9d", "14-gpu", "GPU clock and residency over the first four requests of one cell", "Traces of GPU clock and residency over time with prefill and decode shaded and their means dashed"),
    _figure("10", "15-cpu", "E- and P-cluster residency against prompt length", f"Lines of CPU cluster residency against prompt length, {_LINES}"),
    _figure("10b", "15-cpu", "P-cluster clock against prompt length", f"Lines of the P-cluster clock against prompt length, {_LINES}"),
    _figure("10c", "15-cpu", "E- and P-cluster residency at the canonical cell", f"Bars of cluster residency, {_BARS}"),
    _figure("10d", "15-cpu", "P-cluster clock at the canonical cell", f"Bars of the P-cluster clock, {_BARS}"),
    _figure("10e", "15-cpu", "P-cluster clock over the canonical cell's run", "Lines of the median P-cluster clock over time with a band from its lowest to its highest sample, a panel for each backend"),
    _figure("11", "16-memory", "Peak RSS against prompt length", f"Lines of peak resident memory against prompt length, {_LINES}"),
    _figure("11b", "16-memory", "RSS of the server over the canonical cell's run", "Lines of resident memory over time, a panel for each backend"),
    _figure("12", "20-analysis", "Output rate kept at the longest prompt, in percent of the shortest", f"Bars of retention, {_BARS}"),
    _figure("13", "20-analysis", "Energy of a request split into prefill and decode", "Stacked bars of prefill and decode shares of energy"),
    _figure("14", "20-analysis", "Decode energy per output token at the canonical cell", f"Bars of millijoules per output token, {_BARS}"),
    _figure("A.1", "30-appendix", "Prefill and decode power by prompt length, each model and generation length", "Grid of bars of prefill and decode power, a row of panels for each model, a column for each generation length, MLX-LM hatched"),
    _figure("B.1", "30-appendix", "Request latency p50, p90 and p99 at the canonical cell", f"Bars of request latency with marks at p90 and p99, {_BARS}, and the same percentiles in percent above the median"),
    _figure("I.2a", "30-appendix", "Output tokens per joule by generation length: medians over the prompt lengths that every generation length has", "Grouped bars of output tokens per joule, a panel for each backend, a group for each model, a bar for each generation length"),
    _figure("I.2b", "30-appendix", "Largest RSS of each model over its cells", f"Bars of peak memory, {_CELLS}"),
    _figure("I.2c", "30-appendix", "OSL mismatch, every cell, llama.cpp", "Heat map of the difference between generated and asked tokens in percent, a panel for each generation length, a row for each model, a column for each prompt length"),
    _figure("I.2d", "30-appendix", "OSL mismatch, every cell, MLX-LM", "Heat map of the difference between generated and asked tokens in percent, a panel for each generation length, a row for each model, a column for each prompt length"),
)  # fmt: skip

TABLES = (
    _table("S.1", "00-setup", "Cells measured, by backend and model"),
    _table("S.2", "01-collect", "Cells without a result, and why"),
    _table("S.3", "01-collect", "What the observer cost: CPU seconds per second of load"),
    _table("S.4", "02-cells", "Phase-power sampling: how each cell's prefill and decode power was found"),
    _table("S.5", "02-cells", "Data-quality flags"),
    _table("1", "10-throughput", "Throughput and efficiency at the canonical cell, llama.cpp"),
    _table("2", "10-throughput", "Throughput and efficiency at the canonical cell, MLX-LM"),
    _table("3", "00-setup", "Hardware"),
    _table("4", "00-setup", "Software and launch details"),
    _table("5", "00-setup", "Models under test"),
    _table("5b", "00-setup", "MACs per token by component, from each model's configuration"),
    _table("6", "10-throughput", "Medians over all cells: throughput"),
    _table("7", "11-energy", "Medians over all cells: energy efficiency (warm-up cells left out)"),
    _table("8", "12-latency", "Medians over all cells: latency"),
    _table("9", "13-power", "Power and thermal summary: medians over all cells (warm-up cells left out)"),
    _table("10", "14-gpu", "GPU at the canonical cell by phase, llama.cpp"),
    _table("10b", "14-gpu", "GPU at the canonical cell by phase, MLX-LM"),
    _table("10c", "14-gpu", "Energy per GPU cycle by phase"),
    _table("11", "15-cpu", "CPU cluster residency at the canonical cell, llama.cpp"),
    _table("11b", "15-cpu", "CPU cluster residency at the canonical cell, MLX-LM"),
    _table("12", "16-memory", "Medians over all cells: peak RSS"),
    _table("13", "20-analysis", "The fastest model at the shortest and the longest prompt: rate, decode power, efficiency"),
    _table("13b", "20-analysis", "Fastest cell and most efficient cell of each model"),
    _table("14", "20-analysis", "Context-length retention"),
    _table("15", "20-analysis", "Best total tokens per joule of each model, llama.cpp"),
    _table("16", "20-analysis", "Best total tokens per joule of each model, MLX-LM"),
    _table("17", "21-backends", "Head to head at the canonical cell"),
    _table("17b", "21-backends", "MLX-LM over llama.cpp, every cell that both have"),
    _table("18", "21-backends", "Recommended backend and model by use case"),
    _table("18b", "21-backends", "Output length against target"),
    _table("F.1", "30-appendix", "Full results, every cell"),
    _table("I.1", "00-setup", "Raw inputs of the metrics"),
    _table("I.2", "31-methods", "Every metric: formula, unit, source"),
)

_BY_ID = {item.id: item for item in (*FIGURES, *TABLES)}


def get(item_id: str) -> Item:
    """The item with this id, for example fig-9b. TinymoeError if there is none."""
    try:
        return _BY_ID[item_id]
    except KeyError:
        raise TinymoeError(f"no figure or table {item_id!r} in lib/registry.py") from None
