"""What a job's modules import from beside them goes with the job."""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from millrace.edge import imports
from millrace.edge.graph_file import Loaded, load_graph, load_script
from millrace.edge.imports import imported

GRAPH = "name: job\nvertices:\n  a: {sql: SELECT 1 AS x}\n  b: {python: 'TARGET', inputs: {a: forward}}\n"


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def modules(loaded: Loaded) -> dict[str, str]:
    return {module["name"]: module["kind"] for module in loaded.raw.get("modules", ())}


def test_a_helper_that_a_step_imports_goes_with_the_job(tmp_path: Path) -> None:
    write(tmp_path, {
        "job.yaml": GRAPH.replace("TARGET", "steps:f"),
        "steps.py": "import os, helper\ndef f(a):\n    from lib.text import clean\n    return a\n",
        "helper.py": "try:\n    import deeper\nexcept ImportError:\n    pass\nimport steps, pandas, json\n",
        "deeper.py": "from . import nothing\n",
        "json.py": "a file that is called like one of Python's own library",
        "lib/text.py": "from lib import other\nimport beside\ndef clean(x): ...\n",
        "lib/words/list.txt": "a\n",
        "lib/__pycache__/text.pyc": "",
        "beside.py": "",
        "unused.py": "",
    })  # fmt: skip
    loaded = load_graph(tmp_path / "job.yaml")
    assert loaded.errors == []
    assert modules(loaded) == dict.fromkeys(("steps.py", "helper.py", "deeper.py", "beside.py", "lib.zip"), "py")
    assert {module["sha256"] for module in loaded.raw["modules"]} == loaded.uploads.keys()
    packed = next(content for content in loaded.uploads.values() if isinstance(content, bytes))
    assert zipfile.ZipFile(io.BytesIO(packed)).namelist() == ["lib/", "lib/text.py", "lib/words/", "lib/words/list.txt"]
    assert load_graph(tmp_path / "job.yaml").raw == loaded.raw, "a repeat is the same job"


def test_a_function_of_a_package_beside_the_graph_needs_no_zip(tmp_path: Path) -> None:
    files = {"lib/__init__.py": "", "lib/steps.py": "import helper\n", "helper.py": ""}
    write(tmp_path, {"job.yaml": GRAPH.replace("TARGET", "lib.steps:f"), **files})
    loaded = load_graph(tmp_path / "job.yaml")
    assert (loaded.rendered(), modules(loaded)) == ([], {"lib.zip": "py", "helper.py": "py"})


def test_what_lies_beside_a_script_goes_with_it(tmp_path: Path) -> None:
    files = {"helper.py": "", "lib/__init__.py": "VALUE = 3\n", "given.py": "import late\n", "late.py": ""}
    write(tmp_path, {"etl.py": "import helper, lib, etl\n", **files})
    loaded = load_script(tmp_path / "etl.py", py_files=[tmp_path / "given.py"])
    assert loaded.rendered() == []
    assert modules(loaded) == {"etl.py": "file", "given.py": "py", "helper.py": "py", "late.py": "py", "lib.zip": "py"}


def test_a_packed_folder_can_be_imported_with_and_without_an_init(tmp_path: Path) -> None:
    write(tmp_path, {"main.py": "import one.a, two.b\n", "one/__init__.py": "", "one/a.py": "", "two/b.py": ""})
    for name, content in imported([tmp_path / "main.py"], tmp_path).packed.items():
        (tmp_path / "zips").mkdir(exist_ok=True)
        (tmp_path / "zips" / name).write_bytes(content)
    code = "import sys; sys.path[:0] = sys.argv[1:]; import one.a, two.b; print(two.b.__file__)"
    zips = [str(path) for path in sorted((tmp_path / "zips").iterdir())]
    done = subprocess.run([sys.executable, "-c", code, *zips], capture_output=True, text=True, cwd="/", check=True)
    assert done.stdout.strip() == f"{tmp_path}/zips/two.zip/two/b.py"


def test_a_folder_that_is_too_large_is_told_and_not_taken_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports, "FILES_MOST", 2)
    write(tmp_path, {"etl.py": "import lib\n", "lib/a.py": "", "lib/b.py": "", "lib/c.py": ""})
    loaded = load_script(tmp_path / "etl.py")
    assert modules(loaded) == {"etl.py": "file"}
    (only,) = loaded.problems
    assert only.warning and only.message.startswith("lib is imported, and too large to go along (")
