"""What a sink's attempts have staged on a real folder, and how it is published."""

from __future__ import annotations

from pathlib import Path

from millrace.core.messages.effects import PublishSink
from services.task_manager.slot.attempt.exchange_files import STAGED


def leads() -> None:
    """Whoever publishes leads still."""


def stage(folder: Path, text: str, *more: str) -> str:
    """As an attempt does, each text in a file of its own."""
    folder.mkdir(parents=True)
    for number, each in enumerate((text, *more)):
        (folder / f"part-{number}.parquet").write_text(each)
    (folder / "_SUCCESS").write_text("")
    (folder / f"{STAGED}{1 + len(more)}").touch()
    return str(folder)


def sink(path: Path, staged: list[str], mode: str = "overwrite", name: str = "1.2-out", life: str = "1") -> PublishSink:
    return PublishSink(job="j", vertex="out", path=str(path), mode=mode, staged=staged, name=name, life=life)


def contents(path: Path) -> list[str]:
    return sorted(file.read_text() for file in path.rglob("*") if file.is_file() and not file.name.startswith("."))
