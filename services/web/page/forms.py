"""A form of the page: that it is of this page is looked at before its files are taken in, and how large they are before they are read."""

from __future__ import annotations

import hashlib
from contextlib import nullcontext
from pathlib import Path

from fastapi import Request
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect

from ..middleware import BODY_MOST
from ..parcel import MULTIPART, place
from ..problems import Refusal
from .shell import Shell

FIELDS_MOST = 1100
UPLOAD_MOST = 32 << 20
FILES_MOST = 50
FIELD_BYTES_MOST = 1 << 20


async def form_of(shell: Shell, request: Request) -> FormData:
    """Raises Refusal for a form that is not of this page."""
    kind = request.headers.get("content-type", "").partition(";")[0]
    if kind not in ("application/x-www-form-urlencoded", MULTIPART):
        raise Refusal(415, f"{kind or 'a body without a Content-Type'} is not taken here; this is a form's address")
    form = await (_multipart(shell, request) if kind == MULTIPART else request.form(max_files=0, max_fields=FIELDS_MOST))
    shell.check_token(form.get("token"))
    return form


async def _multipart(shell: Shell, request: Request) -> FormData:
    size = request.headers.get("content-length", "")
    is_small = size.isdecimal() and int(size) <= BODY_MOST  # what is typed, of which nothing comes to the disk
    stream = request.stream()
    parser = _Parser(
        request.headers, stream, max_files=FILES_MOST, max_fields=FIELDS_MOST, max_part_size=FIELD_BYTES_MOST
    )
    with nullcontext() if is_small else place():
        try:
            parser.shell = shell
            return await parser.parse()
        except _Foreign as foreign:
            async for _ in stream:
                pass  # a browser shows no answer before it has sent all
            raise foreign.refusal from None
        except MultiPartException as wrong:
            raise Refusal(400, f"the form cannot be read: {wrong.message}", "invalid-body") from None
        except ClientDisconnect:
            raise Refusal(400, "the body broke off", "invalid-body") from None


class _Foreign(MultiPartException):
    """No form of this page."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.detail)
        self.refusal = refusal


class _Parser(MultiPartParser):
    """Looks at the token, which stands first in our forms, before a file begins."""

    shell: Shell

    def on_headers_finished(self) -> None:
        super().on_headers_finished()
        if self._current_part.file is not None:
            try:
                self.shell.check_token(next((value for name, value in self.items if name == "token"), None))
            except Refusal as refusal:
                raise _Foreign(refusal) from None


async def uploads_of(form: FormData) -> tuple[dict[str, Path | bytes], dict[str, str]]:
    """What goes along: content by hash, and hash by name. Raises Refusal."""
    given = [each for each in form.getlist("file") if isinstance(each, UploadFile) and each.filename]
    if sum(each.size or 0 for each in given) > UPLOAD_MOST:
        raise Refusal(413, f"the files are larger than {UPLOAD_MOST} bytes together, the most that is taken here; use millrace submit")
    uploads: dict[str, Path | bytes] = {}
    files: dict[str, str] = {}
    for each in given:
        content = await each.read()
        sha256 = hashlib.sha256(content).hexdigest()
        uploads[sha256] = content
        files[str(each.filename).replace("\\", "/").rpartition("/")[2]] = sha256
    return uploads, files
