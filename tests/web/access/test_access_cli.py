"""`millrace token`: what is printed, and what never is."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from deploy.cli.app import app, guarded
from services.web.access.tokens import TokenFile, sha256_of


def millrace(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["millrace", "token", *arguments])
    return guarded(app)


def test_a_token_is_printed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "tokens.json"
    assert millrace(monkeypatch, "create", "ci", "--role", "operator", "--days", "90", "--file", str(file)) == 0
    out, err = capsys.readouterr()
    token = out.strip()
    assert len(out.splitlines()) == 1 and token not in err and "the only time" in err
    found = TokenFile(file).find(token)
    assert found is not None and (found.name, found.role) == ("ci", "operator")
    monkeypatch.setenv("MILLRACE_ACCESS__TOKENS", str(file))
    assert millrace(monkeypatch, "list") == 0
    shown = capsys.readouterr().out
    assert "ci" in shown and "operator" in shown
    assert millrace(monkeypatch, "list", "--json") == 0
    raw = capsys.readouterr().out
    assert [each["name"] for each in json.loads(raw)] == ["ci"]
    assert not [each for each in (token, sha256_of(token)) if each in shown + raw]
    assert millrace(monkeypatch, "revoke", "ci") == 0
    assert TokenFile(file).find(token) is None


@pytest.mark.parametrize(("arguments", "message"), [
    (("create", "ci", "--role", "root"), "'root' is no role; there are viewer, operator, admin"),
    (("create", "a b", "--role", "viewer"), "is no name of a token"),
    (("revoke", "nobody"), "there is no token 'nobody'"),
    (("list",), "cannot be read: No such file"),
])  # fmt: skip
def test_what_is_wrong_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert millrace(monkeypatch, *arguments, "--file", str(tmp_path / "tokens.json")) == 2
    assert message in capsys.readouterr().err
