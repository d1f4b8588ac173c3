"""axe, which tells what of a page some people cannot use; `axe.LICENSE` is its licence."""

from __future__ import annotations

from pathlib import Path

AXE = (Path(__file__).parent / "axe.min.js").read_text()
RUN_AXE = """async () => (await axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa']})).violations
    .filter(each => ['serious', 'critical'].includes(each.impact))
    .map(each => each.id + ': ' + each.nodes.map(node => node.html.slice(0, 160)))"""
"""Its serious findings in the page that is open, once AXE was evaluated there."""
