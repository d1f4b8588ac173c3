"""What was measured as bars: an SVG, and a page around it that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from .targets import Ratio
from .turns import Figure

WIDTH, LABELS, NUMBERS = 960, 360, 110
LINE, BAR, GAP = 20, 14, 18
OURS, OTHERS, FIRM = "#c2410c", "#64748b", "#0f172a"
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 940px; margin: 2em auto; padding: 0 1em; color: #0f172a }
table { border-collapse: collapse; margin: 1em 0 } td, th { text-align: left; padding: 2px 14px 2px 0; vertical-align: top }
.missed { color: #b91c1c; font-weight: 600 } .reached { color: #15803d }
"""


def seconds(value: float) -> str:
    return f"{value:.2f} s" if value < 10 else f"{value:,.1f} s"


def svg(figures: Sequence[Figure], note: str = "") -> str:
    """One block of bars for each figure; the longest bar of a block fills the width."""
    parts, top = [], GAP
    for figure in (each for each in figures if each.bars):
        parts.append(_text(0, top + 4, figure.what, weight="600"))
        top += LINE
        longest = max(bar.median for bar in figure.bars) or 1.0
        for bar in figure.bars:
            length = max((WIDTH - LABELS - NUMBERS) * bar.median / longest, 1)
            color = OURS if bar.name.startswith("millrace") else OTHERS
            parts.append(_text(LABELS - 8, top + BAR - 3, bar.label, anchor="end"))
            parts.append(f'<rect x="{LABELS}" y="{top}" width="{length:.1f}" height="{BAR}" fill="{color}"/>')
            parts.append(_text(LABELS + length + 6, top + BAR - 3, seconds(bar.median)))
            top += LINE
        top += GAP
    if note:
        parts.append(_text(0, top, note, size=11))
        top += LINE
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" width="{WIDTH}" height="{top}"'
    background = f'<rect width="{WIDTH}" height="{top}" fill="#ffffff"/>'
    return "\n".join([f'{head} font-family="system-ui, sans-serif">', background, *parts, "</svg>"]) + "\n"


def _text(x: float, y: float, words: str, weight: str = "400", anchor: str = "start", size: int = 13) -> str:
    shape = f'font-size="{size}" font-weight="{weight}" text-anchor="{anchor}" fill="{FIRM}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {shape}>{escape(words)}</text>'


def note(facts: dict[str, Any]) -> str:
    return f"Medians; {facts['cores']} cores, {facts['memory_mb'] >> 10} GB; {facts['date'][:10]}"


def page(figures: Sequence[Figure], found: Sequence[Ratio], facts: dict[str, Any], versions: dict[str, str]) -> str:
    """The whole result: bars, targets, who was left out and why, the machine."""
    targets = [
        [each.figure, each.ours, each.peer, "" if each.ratio is None else f"{each.ratio:.2f} x", f"{each.most:.2f} x", each.verdict]
        for each in found
    ]
    left = [[figure.name, each.label, each.reason] for figure in figures for each in figure.left_out]
    machine = [[name, str(value)] for name, value in {**facts, **versions}.items()]
    return "\n".join([
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Millrace beside its peers</title>',
        f"<style>{STYLE}</style></head><body><h1>Millrace beside its peers</h1>",
        "<p>By turns, in one run, on one machine; medians. Shorter is better.</p>",
        svg(figures),
        "<h2>Targets</h2>",
        _table(["work", "Millrace", "beside", "ratio", "at most", ""], targets),
        "<h2>Left out</h2>",
        _table(["work", "who", "reason"], left),
        "<h2>Machine and versions</h2>",
        _table(["", ""], machine),
        "</body></html>\n",
    ])  # fmt: skip


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def cell(value: str) -> str:
        kind = f' class="{value}"' if value in ("reached", "missed") else ""
        return f"<td{kind}>{escape(value)}</td>"

    lines = ["<tr>" + "".join(f"<th>{escape(each)}</th>" for each in head) + "</tr>"]
    lines += ["<tr>" + "".join(map(cell, row)) + "</tr>" for row in rows]
    return "<table>\n" + "\n".join(lines) + "\n</table>"
