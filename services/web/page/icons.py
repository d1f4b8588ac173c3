"""The icons: paths on a ground of 16 by 16. `f` is filled with the colour of the text, `hole` is drawn in that of the ground."""

from __future__ import annotations

from markupsafe import Markup

_OCTAGON = '<path class="f" d="M5.2 1.4h5.6l3.8 3.8v5.6l-3.8 3.8H5.2l-3.8-3.8V5.2z"/>'
_PLATES = '<rect x="2.2" y="2.6" width="11.6" height="4.4" rx="1.2"/><rect x="2.2" y="9" width="11.6" height="4.4" rx="1.2"/>'
_WHEEL = '<circle cx="8" cy="6.6" r="3.9"/><circle class="f" cx="8" cy="6.6" r="1.1"/>'
_PADDLES = "M8 .9v1.8M8 10.5v1.8M2.3 6.6h1.8M11.9 6.6h1.8M4 2.6l1.2 1.2M10.8 9.4 12 10.6M12 2.6l-1.2 1.2M5.2 9.4 4 10.6"
_WATER = "M.9 14.2c1.2 0 1.2-1 2.4-1s1.2 1 2.4 1 1.2-1 2.3-1 1.2 1 2.4 1 1.2-1 2.4-1 1.2 1 2.3 1"
_SUN = "M8 1.4v1.4M8 13.2v1.4M1.4 8h1.4M13.2 8h1.4M3.3 3.3l1 1M11.7 11.7l1 1M12.7 3.3l-1 1M4.3 11.7l-1 1"
_GLASS = (
    "M4.2 2.2h7.6M4.2 13.8h7.6M5.2 2.2v2.3c0 1.9 2.8 2.2 2.8 3.5s-2.8 1.6-2.8 3.5v2.3"
    "M10.8 2.2v2.3C10.8 6.4 8 6.7 8 8s2.8 1.6 2.8 3.5v2.3"
)
_BEHIND = "M10.6 5.2V3.8c0-.8-.6-1.4-1.4-1.4H3.8c-.8 0-1.4.6-1.4 1.4v5.6c0 .8.6 1.4 1.4 1.4h1.4"
PATHS: dict[str, str] = {
    "logo": f'{_WHEEL}<path d="{_PADDLES}"/><path class="water" d="{_WATER}"/>',
    "overview": '<path d="M2.5 2.5h4.4v5.4H2.5zM9.1 2.5h4.4v3H9.1zM9.1 8.1h4.4v5.4H9.1zM2.5 10.5h4.4v3H2.5z"/>',
    "jobs": '<path d="M5.5 4h8M5.5 8h8M5.5 12h8"/><path d="M2.4 4h.1M2.4 8h.1M2.4 12h.1" stroke-width="2"/>',
    "queue": '<path d="M2.5 4h11M2.5 8h7M2.5 12h4"/><circle cx="12" cy="11" r="2.6"/>',
    "schedules": '<rect x="2.2" y="3.2" width="11.6" height="10.6" rx="1.4"/><path d="M2.2 6.6h11.6M5.4 1.8v2.6M10.6 1.8v2.6"/>',
    "submit": '<path d="M8 10.6V2.6M4.8 5.6 8 2.4l3.2 3.2M2.6 10.4v1.8c0 .8.6 1.4 1.4 1.4h8c.8 0 1.4-.6 1.4-1.4v-1.8"/>',
    "taskmanagers": f'{_PLATES}<path d="M4.8 4.8h.1M4.8 11.2h.1" stroke-width="2"/>',
    "services": '<rect x="2.4" y="2.4" width="4.8" height="4.8" rx="1"/><rect x="8.8" y="8.8" width="4.8" height="4.8" rx="1"/>'
    '<path d="M7.2 4.8h2.6c.8 0 1.4.6 1.4 1.4v2.6M4.8 7.2v2.6c0 .8.6 1.4 1.4 1.4h2.6"/>',
    "leaders": '<path d="M3.2 14V2.4M3.2 3h8.9l-2 2.9 2 2.9H3.2"/>',
    "letters": '<rect x="1.9" y="3.2" width="12.2" height="9.6" rx="1.4"/><path d="m2.3 4 5.7 4.6L13.7 4"/>',
    "more": '<path d="M3.4 8h.1M8 8h.1M12.6 8h.1" stroke-width="2.2"/>',
    "system": '<rect x="2" y="2.8" width="12" height="8.4" rx="1.2"/><path d="M5.6 13.4h4.8"/>',
    "light": f'<circle cx="8" cy="8" r="2.8"/><path d="{_SUN}"/>',
    "dark": '<path d="M13.2 9.6A5.6 5.6 0 0 1 6.4 2.8a5.6 5.6 0 1 0 6.8 6.8z"/>',
    "find": '<circle cx="7" cy="7" r="4.4"/><path d="m10.4 10.4 3.2 3.2"/>',
    "init": '<circle cx="8" cy="8" r="5.6" stroke-dasharray="2.2 2.2"/><circle class="f" cx="8" cy="8" r="1.8"/>',
    "created": '<circle cx="8" cy="8" r="5.6" stroke-dasharray="2.2 2.2"/>',
    "waiting": f'<path d="{_GLASS}"/>',
    "running": '<circle cx="8" cy="8" r="5.9" opacity=".3"/><path class="spin" d="M8 2.1a5.9 5.9 0 0 1 5.9 5.9"/>'
    '<path class="f" d="M6.6 5.5v5l4-2.5z"/>',
    "again": '<path d="M13.4 8A5.4 5.4 0 1 1 11.6 4"/><path d="M11.9 1.6v2.8H9.1"/>',
    "warn": '<path d="M8 2.2 14.2 13H1.8z"/><path d="M8 6.4v3M8 11.1v.1"/>',
    "cancelling": '<rect x="2.6" y="2.6" width="10.8" height="10.8" rx="2" stroke-dasharray="2.4 2"/><path d="M5.5 8h5"/>',
    "done": '<circle cx="8" cy="8" r="5.9"/><path d="m5.4 8.2 1.8 1.8 3.5-3.8"/>',
    "failed": f'{_OCTAGON}<path class="hole" d="m5.8 5.8 4.4 4.4m0-4.4-4.4 4.4"/>',
    "canceled": '<rect x="2.6" y="2.6" width="10.8" height="10.8" rx="2"/><path d="M5.5 8h5"/>',
    "clock": '<circle cx="8" cy="8" r="5.9"/><path d="M8 4.8V8l2.2 1.5"/>',
    "deploying": '<circle cx="8" cy="8" r="5.9" opacity=".45"/><path d="M8 4.6v6.2M5.6 8.6 8 11l2.4-2.4"/>',
    "lost": '<path d="M2 8h3.2M10.8 8H14M6.5 5.2l-1-1.6M9.5 5.2l1-1.6M6.5 10.8l-1 1.6M9.5 10.8l1 1.6"/>',
    "right": '<path d="M2.6 8h10M9.2 4.6 12.6 8l-3.4 3.4"/>',
    "copy": f'<rect x="5.4" y="5.4" width="8" height="8.2" rx="1.4"/><path d="{_BEHIND}"/>',
    "plug": '<path d="M6 2v3.4M10 2v3.4M4 5.4h8v2.2a4 4 0 0 1-8 0zM8 11.6V14"/>',
    "cross": '<path d="m4 4 8 8m0-8-8 8"/>',
    "pen": '<path d="m9.8 3.4 2.8 2.8-6.8 6.8H3v-2.8z"/>',
    "terminal": '<rect x="1.9" y="2.8" width="12.2" height="10.4" rx="1.4"/><path d="m4.6 6.2 2 1.8-2 1.8M8.4 10h3"/>',
    "info": '<circle cx="8" cy="8" r="5.9"/><path d="M8 7.4v3.4M8 5.1v.1"/>',
    "stop": '<rect x="3.6" y="3.6" width="8.8" height="8.8" rx="1.4"/>',
    "plus": '<path d="M8 3v10M3 8h10"/>',
    "down": '<path d="m4.4 6.2 3.6 3.6 3.6-3.6"/>',
    "up": '<path d="m4.4 9.8 3.6-3.6 3.6 3.6"/>',
}


def icon(name: str) -> Markup:
    """The icon as SVG, for the eye alone: what it means stands beside it."""
    return Markup(f'<svg class="i" viewBox="0 0 16 16" aria-hidden="true">{PATHS[name]}</svg>')  # no text from elsewhere
