"""axe, which tells what of a page some people cannot use; `axe.LICENSE` is its licence."""

from __future__ import annotations

from pathlib import Path

AXE = (Path(__file__).parent / "axe.min.js").read_text()
_SERIOUS = """.violations
    .filter(each => ['serious', 'critical'].includes(each.impact))
    .map(each => each.id + ': ' + each.nodes.map(node => node.html.slice(0, 160)))"""
RUN_AXE = f"async () => (await axe.run(document, {{runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa']}})){_SERIOUS}"
"""Its serious findings in the page that is open, once AXE was evaluated there."""
RUN_CONTRAST = f"async () => (await axe.run(document, {{runOnly: {{type: 'rule', values: ['color-contrast']}}}})){_SERIOUS}"
"""Those that depend on the colours."""
