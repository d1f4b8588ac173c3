"""The journal that a TaskManager writes of its inbox: how it is replayed, cut into parts, and deleted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from deploy.cli.replay import app
from millrace.core.fold import ScopeState
from services.replay.replaying import At, Folder, NotTheSame, open_file
from tests.task_manager.of_shell import SCOPE, World, connected, with_attempt


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def replay(file: Path) -> ScopeState:
    """The state at the end of a part."""
    source = open_file(file)
    folder = Folder(source, next(iter(source.facts.scopes)), lambda *_: None)
    folder.to(At())
    return folder.folded


def shown(file: Path) -> Result:
    """What the command says of it."""
    return CliRunner().invoke(app, ["state", SCOPE, "--file", str(file), "--json"])


def test_a_journal_replays_to_the_same_words(world: World) -> None:
    shell, _, _ = with_attempt(world)
    shell.journal.close()
    (file,) = (world.folder / "journal").iterdir()
    assert file.name == f"{shell.incarnation}.0.jsonl" and file.stat().st_mode & 0o777 == 0o600
    folded = replay(file)
    assert (folded.digest, folded.state, folded.peers) == (
        shell.folded.digest, shell.folded.state, shell.folded.peers
    )  # fmt: skip
    told = json.loads(shown(file).stdout)
    assert (told["offset"], told["state"]["digest"]) == (folded.next_offset - 1, folded.digest)


def test_a_long_journal_is_cut_into_parts_that_replay_alone(world: World) -> None:
    shell, rm, jm = connected(world, part_bytes=20_000)
    world.go(shell, rm, jm, times=1500)
    shell.journal.close()
    parts = sorted((world.folder / "journal").iterdir(), key=lambda path: int(path.name.split(".")[1]))
    assert len(parts) == 2 and int(parts[0].name.split(".")[1]) >= 1
    assert replay(parts[-1]).digest == shell.folded.digest


def test_old_journals_go(world: World) -> None:
    incarnations = []
    for _ in range(5):
        shell = world.shell()
        shell.begin()
        shell.journal.close()
        incarnations.append(shell.incarnation)
    kept = sorted(int(path.name.split(".")[0]) for path in (world.folder / "journal").iterdir())
    assert kept == incarnations[-3:]


def test_a_journal_that_was_cut_by_a_kill_replays_to_its_last_record(world: World) -> None:
    shell, _, _ = with_attempt(world)
    shell.journal.close()
    (file,) = (world.folder / "journal").iterdir()
    text = file.read_text()
    whole = replay(file).next_offset
    file.write_text(text[:-10])
    assert replay(file).next_offset == whole - 1


def test_a_journal_whose_words_differ_is_told(world: World) -> None:
    shell, _, _ = with_attempt(world)
    shell.journal.close()
    (file,) = (world.folder / "journal").iterdir()
    file.write_text(file.read_text().replace('"host":"h"', '"host":"x"'))
    with pytest.raises(NotTheSame):
        replay(file)
    told = shown(file)
    assert told.exit_code == 1 and "replay verify tells where" in told.stderr
    file.write_text("{}\n")
    assert shown(file).exit_code == 2 and "is no journal of a TaskManager" in shown(file).stderr
    assert shown(file.with_name("none.jsonl")).exit_code == 2


def test_a_journal_that_cannot_be_written_costs_the_journal_alone(world: World) -> None:
    (world.folder / "journal").write_text("a file where a folder is needed")
    shell, rm, jm = connected(world)
    world.go(shell, rm, jm, times=6)
    assert shell.over is None and rm.heard("TaskManagerHeartbeat")
