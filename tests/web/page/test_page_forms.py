"""Forms with files: of another page nothing is taken in, and what is too large is not read into memory."""

from __future__ import annotations

from tempfile import SpooledTemporaryFile
from typing import Any

import pytest
from starlette.datastructures import UploadFile
from starlette.testclient import TestClient

from services.web import parcel
from services.web.page import forms

from .test_page import token

GRAPH = "name: n\nvertices: {one: {sql: SELECT 1 AS a}}\n"
LARGE = b"x" * (2 << 20)


@pytest.fixture
def taken_in(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes that came into a file."""
    taken: list[int] = []
    write = SpooledTemporaryFile.write

    def counted(self: Any, data: bytes) -> int:
        taken.append(len(data))
        return write(self, data)

    monkeypatch.setattr(SpooledTemporaryFile, "write", counted)
    return taken


@pytest.mark.parametrize("given", [{"token": "of before"}, {}])
def test_of_a_form_of_another_page_no_file_is_taken_in(web: TestClient, taken_in: list[int], given: dict[str, str]) -> None:
    answer = web.post("/page/submit", data={**given, "graph": GRAPH}, files={"file": ("a.py", LARGE)})
    assert (answer.status_code, answer.json()["type"], taken_in) == (403, "urn:millrace:foreign-form", [])


def test_large_forms_are_counted_with_submissions(web: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"token": token(web), "graph": GRAPH}
    monkeypatch.setattr(parcel, "_under_way", parcel.PARCELS_MOST)
    answer = web.post("/page/submit", data=given, files={"file": ("a.py", LARGE)})
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
    checked = web.post("/page/submit", data={**given, "check": "yes"}, files={"file": ("a.py", b"x = 1\n")})
    assert checked.status_code == 200, "what is typed is small, and does not wait for what others upload"


def test_files_that_are_too_large_are_not_read(web: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forms, "UPLOAD_MOST", len(LARGE) - 1)
    monkeypatch.setattr(UploadFile, "read", lambda *given: pytest.fail("it was read"))
    answer = web.post("/page/submit", data={"token": token(web), "graph": GRAPH}, files={"file": ("a.py", LARGE)})
    assert answer.status_code == 413
    assert parcel._under_way == 0


def test_a_form_that_is_none_is_refused(web: TestClient) -> None:
    for body in (b"", b"--x", b"nothing"):
        answer = web.post("/page/submit", content=body, headers={"Content-Type": "multipart/form-data; boundary=x"})
        assert answer.status_code in (400, 403), answer.text
