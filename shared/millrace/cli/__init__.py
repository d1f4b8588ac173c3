"""The command line: `millrace`. Modules are imported when a command needs them, so that help comes at once."""

from __future__ import annotations


def main() -> None:
    """The program's entry point."""
    from .app import run

    run()
