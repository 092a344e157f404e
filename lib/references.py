"""Cross-references of the report: anchors of headings, the contents, links from an item to where it is mentioned."""

from __future__ import annotations

import re

from lib import registry
from lib.files import TinymoeError

LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^(#{1,3}) (.+)$", re.MULTILINE)
_ANCHOR = re.compile(r'<a id="([^"]+)"></a>')
_ITEM = re.compile(r"(fig|table)-.+")


class LinkError(TinymoeError):
    """A reference in a notebook that leads nowhere, or an anchor that is there twice."""


def slug(heading: str) -> str:
    """Anchor of a heading: sec- and its words."""
    return "sec-" + re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-")


def anchored(block: str) -> str:
    """The block with an anchor before each heading."""
    return _HEADING.sub(lambda m: f'<a id="{slug(m[2])}"></a>\n\n{m[1]} {m[2]}', block)


def contents(blocks: list[str]) -> str:
    """Contents of the report from its anchored blocks: sections, then figures and tables to unfold."""
    lines = [
        f"{'  ' * (len(m[1]) - 2)}- [{m[2]}](#{slug(m[2])})"
        for block in blocks for m in _HEADING.finditer(block) if len(m[1]) > 1
    ]  # fmt: skip
    items = [registry.get(anchor) for block in blocks for anchor in _ANCHOR.findall(block) if _ITEM.fullmatch(anchor)]
    lists = [_folded(kind, [i for i in items if i.kind == kind]) for kind in ("figure", "table")]
    return "\n\n".join(["## Contents", "\n".join(lines), *(text for text in lists if text)])


def _folded(kind: str, items: list[registry.Item]) -> str:
    if not items:
        return ""
    lines = "\n".join(f"- [{item.name}](#{item.id}) {item.caption}" for item in items)
    plural = "s" if len(items) > 1 else ""
    return f"<details><summary>{len(items)} {kind}{plural}</summary>\n\n{lines}\n\n</details>"


def backlinks(blocks: list[str]) -> list[str]:
    """The anchored blocks with, after each figure's and table's caption, links to the sections that mention it."""
    used = _used(blocks)
    return [_with_backlink(block, used) for block in blocks]


def _used(blocks: list[str]) -> dict[str, list[str]]:
    """Headings of the sections that mention each figure and table, in order."""
    used: dict[str, list[str]] = {}
    heading = ""
    for block in blocks:
        for piece in re.split(r"(?m)^(?=#{1,3} )", block):
            if found := _HEADING.match(piece):
                heading = found[2]
            for _, link in LINK.findall(piece):
                if _ITEM.fullmatch(link.removeprefix("#")) and heading not in used.setdefault(link[1:], []):
                    used[link[1:]].append(heading)
    return used


def _with_backlink(block: str, used: dict[str, list[str]]) -> str:
    for anchor in _ANCHOR.findall(block):
        if _ITEM.fullmatch(anchor) and anchor in used:
            links = ", ".join(f"[{_short(heading)}](#{slug(heading)})" for heading in used[anchor])
            name = re.escape(registry.get(anchor).name)
            block = re.sub(rf"(?m)^(\*\*{name}\.\*\*.*)$", rf"\1 (Used in {links}.)", block, count=1)
    return block


def _short(heading: str) -> str:
    """The number of a heading, or its words if it has none."""
    found = re.match(r"(\d+(\.\d+)*|[A-Z]\.\d+)(?= )|Appendix [A-Z](\.\d+)?", heading)
    return found[0] if found else heading


def check(blocks: list[str]) -> None:
    """Every #anchor that a link names must exist, and once only. LinkError names the first that does not."""
    anchors = [a for block in blocks for a in _ANCHOR.findall(block)]
    twice = {a for a in anchors if anchors.count(a) > 1}
    if twice:
        raise LinkError(f"report: anchor {min(twice)!r} is defined twice; each figure, table and heading appears once")
    for block in blocks:
        for text, link in LINK.findall(block):
            if link.startswith("#") and link[1:] not in anchors:
                raise LinkError(f"report: link [{text}]({link}) leads nowhere; correct it in the notebook")
