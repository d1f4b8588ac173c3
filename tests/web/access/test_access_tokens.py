"""The file of tokens: what it holds, what it never holds, and when a change of it counts."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from services.web.access import tokens
from services.web.access.rates import Rates, network
from services.web.access.tokens import BadTokens, TokenFile, create, read, revoke

T0 = 1_700_000_000_000


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "secrets" / "tokens.json"


def test_a_token_is_in_no_file(file: Path) -> None:
    token = create(file, "ci", "operator", 3600, T0)
    assert tokens.TOKEN.fullmatch(token)
    [kept] = read(file)
    assert (kept.name, kept.role, kept.created_ms, kept.expires_ms) == ("ci", "operator", T0, T0 + 3_600_000)
    for each in file.parent.iterdir():
        assert token not in each.read_text() and token[4:] not in each.read_text()
    assert file.stat().st_mode & 0o077 == 0, "others of the machine need not know who has a token"


def test_two_at_once_both_stay(file: Path) -> None:
    threads = [threading.Thread(target=create, args=(file, f"t{n}", "viewer", None, T0)) for n in range(20)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)
    assert len(read(file)) == 20
    assert [each.name for each in file.parent.iterdir() if each.name.startswith(".tokens.json.") and "lock" not in each.name] == []


def test_what_cannot_be_is_refused_in_words(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create(file, "ci", "viewer", None, T0)
    for name, message in (("ci", "there is a token ci already"), ("a b", "is no name of a token"), ("", "is no name of a token")):
        with pytest.raises(BadTokens, match=message):
            create(file, name, "viewer", None, T0)
    with pytest.raises(BadTokens, match="there is no token 'other'"):
        revoke(file, "other")
    monkeypatch.setattr(tokens, "TOKENS_MOST", 1)
    with pytest.raises(BadTokens, match="the most that a file has"):
        create(file, "more", "viewer", None, T0)
    assert [each.name for each in read(file)] == ["ci"]


@pytest.mark.parametrize(("text", "message"), [
    ("no json", "Invalid JSON"), ('{"tokens": [{"name": "a"}]}', "tokens.0.role"), ('{"token": []}', "Extra inputs"),
    (json.dumps({"tokens": [{"name": "a", "role": "root", "sha256": "0" * 64, "created_ms": 1}]}), "'viewer', 'operator' or 'admin'"),
    (json.dumps({"tokens": [{"name": "a", "role": "admin", "sha256": "mlr_abc", "created_ms": 1}]}), "pattern"),
    (json.dumps({"tokens": [{"name": "a", "role": "admin", "sha256": "0" * 64, "created_ms": 1}] * 2}), "has a twice"),
    (" " * (1 << 20) + "{}", "is larger than"),
])  # fmt: skip
def test_a_file_that_is_wrong_is_said_with_the_place(file: Path, text: str, message: str) -> None:
    file.parent.mkdir()
    file.write_text(text)
    with pytest.raises(BadTokens, match=message) as bad:
        read(file)
    assert str(file) in str(bad.value) and "mlr_abc" not in str(bad.value)


def test_a_change_counts_without_a_restart(file: Path) -> None:
    clock = SimpleNamespace(s=0.0, ms=T0)
    first = create(file, "a", "viewer", None, T0)
    kept = TokenFile(file, lambda: clock.s, lambda: clock.ms)
    found = kept.find(first)
    assert found is not None and found.name == "a"
    second = create(file, "b", "admin", 60, T0)
    clock.s += 2
    assert [each is not None for each in (kept.find(first), kept.find(second))] == [True, True]
    clock.ms += 60_000
    assert [each is not None for each in (kept.find(first), kept.find(second))] == [True, False], "its time is over"
    revoke(file, "a")
    clock.s += 2
    assert kept.find(first) is None


def test_while_the_file_is_wrong_or_away_no_token_is_taken(file: Path) -> None:
    clock = SimpleNamespace(s=0.0)
    token = create(file, "a", "viewer", None, T0)
    kept = TokenFile(file, lambda: clock.s, lambda: T0)
    text = file.read_text()
    for broken in ("{", None):
        file.write_text(broken) if broken else file.unlink()
        clock.s += 2
        assert kept.find(token) is None
        file.write_text(text)
        os.utime(file, ns=(int(clock.s), int(clock.s)))
        clock.s += 2
        assert kept.find(token) is not None, "it is right again"


def test_a_file_that_could_not_be_read_for_a_moment_is_read_again_and_said_once(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What hindered it may end without a change of the file: too many open files, a share that was away."""
    clock = SimpleNamespace(s=0.0)
    token = create(file, "a", "viewer", None, T0)
    kept = TokenFile(file, lambda: clock.s, lambda: T0)
    os.utime(file, ns=(1, 1))
    for reason in ("first", "first", "second"):
        with monkeypatch.context() as away:
            away.setattr(tokens, "open", refusing(reason), raising=False)
            clock.s += 2
            assert kept.find(token) is None
    clock.s += 2
    assert kept.find(token) is not None
    told = capsys.readouterr().out
    assert told.count("no token is taken") == 2 and "number=1" in told


def refusing(reason: str) -> Any:
    def refuse(*_: Any) -> Any:
        raise OSError(5, reason)

    return refuse


def test_a_change_of_who_may_read_it_counts(file: Path) -> None:
    create(file, "a", "viewer", None, T0)
    kept = TokenFile(file, lambda: 0.0, lambda: T0)
    mark, deadline = kept._stat(), time.monotonic() + 30
    while kept._stat() == mark:  # a kernel's clock of files goes in steps of milliseconds
        assert time.monotonic() < deadline
        file.chmod(0o640)


def test_what_is_no_token_is_none(file: Path) -> None:
    token = create(file, "a", "viewer", None, T0)
    kept = TokenFile(file)
    for wrong in ("", token[:-1], token + "A", token.lower() + "", token[4:], tokens.sha256_of(token), f" {token}", "é" * 47):
        assert wrong == token or kept.find(wrong) is None, wrong


def test_a_bucket_holds_five_seconds_and_fills_again() -> None:
    clock = SimpleNamespace(s=0.0)
    rates = Rates(2.0, lambda: clock.s)
    assert [rates.wait_s("a") for _ in range(10)] == [0.0] * 10
    assert rates.wait_s("a") == pytest.approx(0.5)
    assert rates.wait_s("b") == 0.0, "another client has its own"
    clock.s += 0.5
    assert rates.wait_s("a") == 0.0 and rates.wait_s("a") > 0
    assert Rates(None).wait_s("a") == 0.0


def test_there_are_no_more_buckets_than_that() -> None:
    rates = Rates(1.0, lambda: 0.0, most=10)
    for n in range(1000):
        rates.wait_s(str(n))
    assert len(rates._held) == 10


def test_the_addresses_of_one_customer_are_one_client() -> None:
    assert network("2001:db8:1:2:3::4") == network("2001:db8:1:2:ffff::1") == "2001:db8:1:2::/64"
    assert network("192.0.2.1") == network("::ffff:192.0.2.1") == "192.0.2.1"
    assert (network("fe80::1%eth0"), network("unix"), network("")) == ("fe80::/64", "unix", "")
