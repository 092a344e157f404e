"""From executed notebooks to report.md and report.html: one text in the published order, with contents and a banner."""

from __future__ import annotations

import base64
import html
import os
import re
from pathlib import Path
from urllib.parse import unquote

import nbformat
from nbconvert import HTMLExporter, MarkdownExporter

from lib import references
from lib.files import TinymoeError, write_atomic
from lib.paths import FIGURES, NOTEBOOKS, ROOT
from lib.references import LINK

# Notebook and the tag of the cells wanted from it; no tag: every cell that belongs to no tagged part.
ORDER = (
    ("90-report", "summary"), ("00-setup", ""), ("01-collect", ""), ("10-throughput", ""), ("11-energy", ""),
    ("12-latency", ""), ("13-power", ""), ("14-gpu", ""), ("15-cpu", ""), ("16-memory", ""), ("20-analysis", ""),
    ("21-backends", ""), ("90-report", "conclusion"), ("30-appendix", ""), ("02-cells", ""), ("30-appendix", "full"),
    ("31-methods", ""),
)  # fmt: skip
PARTS = {tag for _, tag in ORDER if tag}
SKIP = "report-skip"
_SVG_SIZE = re.compile(r'<svg [^>]*?width="([\d.]+)pt" height="([\d.]+)pt"')
_IMAGE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")


class JoinError(TinymoeError):
    """An image in a notebook that is not one of the run's figures."""


def write(run: str, folder: Path, ready: dict[Path, Path], missing: list[str], manifest: dict) -> None:
    """Write report.md and report.html of `run` into `folder` from executed notebooks (source -> executed copy).

    Raises references.LinkError if a reference to a figure, table or section has no target in a complete report.
    """
    blocks = [
        title(run),
        banner(manifest),
        *(f"> Notebook {name} failed; its part is missing here." for name in missing),
    ]
    by_name = {source.stem: path for source, path in ready.items()}
    body = [b for name, tag in ORDER if name in by_name for b in _blocks(by_name[name], tag)]
    body = references.backlinks([references.anchored(b) for b in body])
    blocks += [references.contents(body), *body]
    if not missing:
        references.check(blocks)
    text = [_moved(b, folder) for b in blocks if b]
    write_atomic(folder / "report.md", _markdown(text))
    write_atomic(folder / "report.html", _html(run, [_embedded(t, folder) for t in text]))


def title(run: str) -> str:
    """First line of the report."""
    return f"# tinymoe: report of run {run}"


def banner(manifest: dict) -> str:
    """What a reader must know before any number: modelled power, synthetic data. Empty for a run measured whole."""
    if not manifest:
        return "> **No manifest.** The run does not say on what machine and with what meter it was measured."
    lines = []
    if manifest.get("synthetic"):
        lines.append(
            "> **Synthetic run.** No server and no meter ran: every number here comes from a model of the machine."
        )
    if manifest.get("imported"):
        lines.append(
            "> **Imported.** The artifacts come from earlier scripts, which recorded neither machine nor settings."
        )
    if any(name.startswith("tiny-") for name in manifest.get("plan", {}).get("models", [])):
        lines.append(
            "> **Tiny random-weight models.** Real servers ran them; the rates say nothing about the models they are "
            "named after."
        )
    power = manifest.get("power") or {}
    if power.get("basis") == "modelled":
        lines.append(
            f"> **Power is modelled, not measured:** {power['note']}. Every watt and joule follows from that model."
        )
    return "\n>\n".join(lines)


def _blocks(path: Path, tag: str) -> list[str]:
    """Markdown of the wanted cells: the text of Markdown cells and the Markdown outputs of code cells."""
    wanted = []
    for cell in nbformat.read(path, as_version=4).cells:
        tags = set(cell.metadata.get("tags", []))
        if SKIP in tags or (tag not in tags if tag else tags & PARTS):
            continue
        wanted += [cell.source] if cell.cell_type == "markdown" else _outputs(cell)
    return wanted


def _outputs(cell: nbformat.NotebookNode) -> list[str]:
    found = [out.get("data", {}).get("text/markdown") for out in cell.get("outputs", [])]
    return [text if isinstance(text, str) else "".join(text) for text in found if text]


def _moved(block: str, folder: Path) -> str:
    """Relative links of the notebooks' folder as seen from the report's folder."""

    def move(match: re.Match) -> str:
        if "://" in match[2] or match[2].startswith("#"):
            return match[0]
        target = Path(os.path.relpath((NOTEBOOKS / unquote(match[2])).resolve(), folder))
        return match[0].replace(f"({match[2]})", f"({target.as_posix()})")

    return LINK.sub(move, _IMAGE.sub(move, block))


def _embedded(block: str, folder: Path) -> str:
    """Images as data in the text, and no links to files beside the report: the HTML file stands alone."""

    def embed(match: re.Match) -> str:
        path = (folder / match[2]).resolve()
        if not path.is_relative_to(FIGURES):
            raise JoinError(f"report: image {match[2]} is not under {FIGURES.relative_to(ROOT)}")
        kind = "svg+xml" if path.suffix == ".svg" else "png"
        data = base64.b64encode(path.read_bytes()).decode()
        # Lazy, with the size known beforehand: the page opens at once, and nothing moves while figures come in.
        look = f'{_size(path)} loading="lazy" decoding="async"'
        return f'<img alt="{html.escape(html.unescape(match[1]))}" {look} src="data:image/{kind};base64,{data}">'

    block = re.sub(r" \[Data\]\([^)]+\)", "", block)
    return _IMAGE.sub(embed, block)


def _size(path: Path) -> str:
    """Width and height of a figure in CSS pixels, as attributes; nothing for a picture that does not say them."""
    found = _SVG_SIZE.search(path.read_text(encoding="utf-8")[:2000]) if path.suffix == ".svg" else None
    if not found:
        return ""
    width, height = (round(float(points) * 96 / 72) for points in found.groups())
    return f'width="{width}" height="{height}"'


def _notebook(run: str, blocks: list[str]) -> nbformat.NotebookNode:
    cells = [nbformat.v4.new_markdown_cell(b, id=f"part-{n}") for n, b in enumerate(blocks)]
    return nbformat.v4.new_notebook(cells=cells, metadata={"title": f"tinymoe: {run}"})


def _markdown(blocks: list[str]) -> str:
    return MarkdownExporter().from_notebook_node(_notebook("", blocks))[0].strip() + "\n"


def _html(run: str, blocks: list[str]) -> str:
    exporter = HTMLExporter(
        template_name="tinymoe", extra_template_basedirs=[str(ROOT / "lib" / "template")], embed_images=False
    )  # fmt: skip
    return exporter.from_notebook_node(_notebook(run, blocks))[0]
