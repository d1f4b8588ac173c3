"""`python -m tests.docs` rewrites what in the documents is made from the code; `... release` keeps the contract of this version."""

from __future__ import annotations

import sys

from .compatibility import release
from .generate import ROOT, documents, stale

if sys.argv[1:] == ["release"]:
    print(f"wrote {release().relative_to(ROOT)}")
for path, text in documents().items():
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        print(f"wrote {path.relative_to(ROOT)}")
for path in stale():
    path.unlink()
    print(f"deleted {path.relative_to(ROOT)}")
