"""The class-data archive of Spark that all stacks of a checkout share: with it the JVM of a slot starts in half of the time."""

from __future__ import annotations

from pathlib import Path

from deploy.local.downloads import cache_folder


def class_data_folder() -> Path:
    return cache_folder() / "class-data"


if __name__ == "__main__":
    from services.task_manager.slot.host.archive import make_now

    make_now(str(class_data_folder()), print)
