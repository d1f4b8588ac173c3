"""The whole command line: the commands about jobs, and those that need more than the client library.

Modules are imported when a command needs them, so that help comes at once."""

from __future__ import annotations


def main() -> None:
    """The program's entry point."""
    try:
        from .app import run
    except KeyboardInterrupt:  # so early that nothing was begun
        raise SystemExit(130) from None
    run()
