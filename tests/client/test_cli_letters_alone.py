"""`millrace dlq` over letters in memory: what comes between two of its questions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from deploy.cli.app import app, guarded
from deploy.cli.dlq import commands
from deploy.cli.dlq.shown import story
from millrace.client import Unavailable
from millrace.client.dead_letters import REPEATS, Letter, Original
from millrace.core.messages.events import DeadLetter, DeadLetterRedriven


def letter(number: int, at: int, to: int | None = None) -> Letter:
    """One of a record at an offset; sent again to another one."""
    told = DeadLetter(
        topic="client.commands", partition=0, offset=at, reason="not JSON", size_bytes=1, sha256="", head_base64="eA==", at_ms=1
    )
    sent = DeadLetterRedriven(letter=number, topic="client.commands", partition=0, offset=to, repeats=1, by="x", at_ms=2) if to else None
    return Letter(number, told, sent)


class Letters:
    """As `DeadLetters`; another letter is parked whenever somebody has read them."""

    def __init__(self, *known: Letter) -> None:
        self.known, self.purged = list(known), None

    def read(self, since_ms: int | None = None, first: int | None = None) -> list[Letter]:
        found = [each for each in self.known if each.number >= (first or 0)]
        self.known.append(letter(self.end(), 100))
        return found

    def end(self) -> int:
        return self.known[-1].number + 1

    def must_reach(self, number: int) -> None:
        assert number <= self.end()

    def purge(self, below: int) -> None:
        self.purged = below

    def original(self, one: Letter) -> Any:
        class Found:
            value, repeats = b"x", 0

        return Found()

    def redrive(self, one: Letter, original: Any) -> None:
        one.redriven = letter(one.number, 0, 50).redriven


@pytest.fixture
def letters(monkeypatch: pytest.MonkeyPatch) -> Letters:
    known = Letters(letter(0, 5), letter(1, 6))

    class Client:
        answers = 1

        def dead_letters(self) -> Letters:
            return known

        def check_dispatcher(self) -> None:
            self.answers -= 1
            if self.answers < 0:
                raise Unavailable("no answer")

    @contextmanager
    def connected(stack: str) -> Iterator[Client]:
        yield Client()

    monkeypatch.setattr(commands, "connected", connected)
    return known


@pytest.mark.parametrize("up_to", [["--all"], ["--before", "1d"]])
def test_what_is_parked_meanwhile_is_not_deleted(letters: Letters, up_to: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(lambda: app(["dlq", "purge", *up_to, "--yes"])) == 0
    assert letters.purged == 2
    assert capsys.readouterr().out == "deleted 2 letters below 2, 2 of them not sent again\n"


def test_a_cluster_that_goes_away_behind_a_redrive_does_not_hide_what_was_sent(
    letters: Letters, capsys: pytest.CaptureFixture[str]
) -> None:
    assert guarded(lambda: app(["dlq", "redrive", "0", "1", "--force", "--yes"])) == 3
    assert capsys.readouterr().err == "interrupted: sent 2 of 2; the same command goes on with the rest\nmillrace: no answer\n"


def test_the_story_of_a_letter_ends_also_where_the_topic_was_made_anew() -> None:
    """Offsets began again, so that each of two seems to have become of the other."""
    first, second = letter(1, 5, to=3), letter(2, 3, to=5)
    for each in (first, second):
        told = list(story([first, second], each))
        assert [line.split("letter ")[1][0] for line in told if "parked from" in line] == ["1", "2"]


def test_a_letter_that_comes_back_in_any_case_is_waited_for_and_no_other() -> None:
    known = Letters(letter(1, 5, to=100))
    [back] = commands._parked_again(known, 2, {100: True})  # type: ignore[arg-type]  # all of it that is asked
    assert (back.number, back.letter.offset) == (2, 100)
    assert commands._parked_again(Letters(letter(1, 5, to=100)), 2, {100: False}) == []  # type: ignore[arg-type]  # as above


def test_one_that_never_comes_back_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "BACK_S", 0.05)
    assert commands._parked_again(Letters(letter(1, 5, to=7)), 2, {7: True}) == []  # type: ignore[arg-type]  # as above


@pytest.mark.parametrize("written, repeats", [
    (b"2", 2), (b"", 0), (b"-1", 0), (b"9" * 5_000, 0), ("²".encode(), 0), (b"999999999", 999_999_999),
])  # fmt: skip
def test_what_a_stranger_writes_about_repeats_ends_no_redrive(written: bytes, repeats: int) -> None:
    """The headers of a parked record are those of whoever wrote it."""
    assert Original(b"x", None, ((REPEATS, written),), "here").repeats == repeats
