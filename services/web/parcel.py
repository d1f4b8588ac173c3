"""What a submission brings, whatever its form: a graph as JSON or YAML, alone or with files, or a script with the fields of spark-submit.

It is put into a folder of its own and loaded as the command line loads it. So both find the same mistakes, each with its line.
"""

from __future__ import annotations

import hashlib
import secrets
import shutil
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, TypeVar

from fastapi import Request
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect

from millrace.core.jobgraph.parse import Refused, parse_json
from millrace.core.jobgraph.problems import Problem, did_you_mean
from millrace.core.messages.client import Problem as ClusterProblem
from millrace.edge.graph_file import Loaded, load_graph, load_script
from millrace.edge.requests import GRAPH_BYTES_MOST

from .problems import Mistake, Refusal

JSON, YAML, MULTIPART = "application/json", ("application/yaml", "application/x-yaml", "text/yaml"), "multipart/form-data"
FILES_MOST, FIELDS_MOST, FIELD_BYTES_MOST = 100, 400, 64 << 10
PARCELS_MOST = 8
"""Multipart bodies that are read at once: each may take its whole size on disk, twice for a moment."""
LOADED_MOST = 2
"""Graphs that are read at once: a text of GRAPH_BYTES_MOST may take a core for seconds."""
T = TypeVar("T")
GROUPS = ("py_files", "files", "jars", "archives")
TEXTS = ("parameter", "parallelism", "resource", "env", "master", "name", "conf", "args", "packages")
PAIRS = ("parameter", "parallelism", "resource", "env", "conf")
OF_SCRIPTS = (*GROUPS, "name", "conf", "args", "packages")
CONTENT: dict[str, Any] = {
    JSON: {"schema": {"type": "object", "description": "A job graph, as in a graph's file."}},
    YAML[0]: {"schema": {"type": "string", "description": "The same as YAML."}},
    MULTIPART: {"schema": {
        "type": "object",
        "description": "A graph with its modules, or a script with the fields of spark-submit: one of `graph` and `script`. "
        "Fields that may be repeated are lists.",
        "properties": {
            "graph": {"type": "string", "format": "binary", "description": "The graph's file, YAML or JSON."},
            "modules": {"type": "array", "items": {"type": "string", "format": "binary"}, "description": "Files beside the graph."},
            "parameter": {"type": "array", "items": {"type": "string"}, "description": "NAME=VALUE for the graph's ${NAME}."},
            "parallelism": {"type": "array", "items": {"type": "string"}, "description": "VERTEX=N, before the graph's own."},
            "resource": {
                "type": "array", "items": {"type": "string"},
                "description": "NAME=N, what each slot must have: memory_mb, cores, or what TaskManagers name; before the graph's own.",
            },
            "script": {"type": "string", "format": "binary", "description": "A PySpark script."},
            **{group: {"type": "array", "items": {"type": "string", "format": "binary"}} for group in GROUPS},
            "name": {"type": "string"},
            "conf": {"type": "array", "items": {"type": "string"}, "description": "KEY=VALUE"},
            "args": {"type": "array", "items": {"type": "string"}, "description": "The script's arguments, one each."},
            "packages": {"type": "string", "description": "GROUP:ARTIFACT:VERSION,..."},
            "master": {"type": "string", "description": "spark://HOST:PORT"},
            "env": {"type": "array", "items": {"type": "string"}, "description": "NAME=VALUE for the job's Python; in no message."},
        },
    }},
}  # fmt: skip
"""The bodies that are taken, for the description."""

Load = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Does something that blocks, elsewhere."""

_prefix = "millrace-web-"
_under_way = 0
_loading = threading.Semaphore(LOADED_MOST)


@dataclass
class Parcel:
    """The files and fields of a request, in a folder. `close` it."""

    folder: Path
    texts: dict[str, list[str]] = field(default_factory=dict)
    files: dict[str, list[Path]] = field(default_factory=dict)
    is_over: bool = False

    def close(self) -> None:
        """Deletes the folder. A repeat does nothing."""
        self.is_over = True
        shutil.rmtree(self.folder, ignore_errors=True)

    async def on(self, load: Load, what: Callable[[], T]) -> T:
        """Does something with it elsewhere. If that fails it is closed; what comes too late is deleted by who is late."""

        def kept() -> T:
            try:
                return what()
            finally:
                if self.is_over:
                    self.close()

        try:
            done: T = await load(kept)
            return done
        except BaseException:
            self.close()
            raise

    def load(self) -> Loaded:
        """The submission. Raises Refusal for fields that are no submission; what is wrong with a graph is in the answer."""
        graph, script = self.files.get("graph", []), self.files.get("script", [])
        if len(graph) + len(script) != 1:
            raise _refusal("graph", "give one file, as graph or as script")
        names = ("parameter", "parallelism", "modules") if script else OF_SCRIPTS
        message = "is for graphs" if script else "is for scripts; it stands in the graph instead"
        _raise([*(_refusal(name, message) for name in names if name in self.texts or name in self.files), *self._malformed()])
        env, resources, master = self._pairs("env"), self._pairs("resource"), self._one("master")
        if graph:
            _check_text(graph[0])
            with _loading:
                if self.is_over:
                    raise _refusal("graph", "nobody waits for it any more")
                return load_graph(
                    graph[0], self._pairs("parameter"), same_machine=False, sent=True, env=env, master=master,
                    parallelism=self._pairs("parallelism"), resources=resources, confined=True,
                )  # fmt: skip
        packages = [each.strip() for text in self.texts.get("packages", []) for each in text.split(",") if each.strip()]
        return load_script(
            script[0], self.texts.get("args", []), name=self._one("name"), conf=self._pairs("conf"), packages=packages, master=master,
            env=env, resources=resources, py_files=self.files.get("py_files", []), files=self.files.get("files", []),
            jars=self.files.get("jars", []), archives=self.files.get("archives", []),
        )  # fmt: skip

    def mistakes(self, loaded: Loaded, warnings: bool = False) -> list[Mistake]:
        """What is wrong with it, or what it is warned of, each with its line."""
        return [self._mistake(loaded, each) for each in loaded.problems if each.warning is warnings]

    def as_mistakes(self, loaded: Loaded, problems: Sequence[ClusterProblem]) -> list[Mistake]:
        """What the cluster has found, as if it had been found here."""
        return [self._mistake(loaded, Problem(tuple(each.place), each.message, each.hint)) for each in problems]

    def parameters(self) -> dict[str, str]:
        """Those of the graph."""
        return self._pairs("parameter")

    def _mistake(self, loaded: Loaded, problem: Problem) -> Mistake:
        line, column = loaded.document.position(problem) if loaded.document else (None, None)
        message, hint = (text.replace(f"{self.folder}/", "") for text in (problem.message, problem.hint or ""))
        return Mistake(place=list(problem.place), message=message, hint=hint or None, line=line, column=column)

    def _malformed(self) -> Iterator[Refusal]:
        """The fields that are not what they should be, whatever they are for."""
        for name in PAIRS:
            if not all(text.partition("=")[0] and "=" in text for text in self.texts.get(name, [])):
                yield _refusal(name, "NAME=VALUE is needed")  # not repeated: it may be a secret
        for name in ("master", "name"):
            if len(self.texts.get(name, [])) > 1:
                yield _refusal(name, "is given more than once")

    def _one(self, name: str) -> str | None:
        values = self.texts.get(name, [])
        return values[0] if values else None

    def _pairs(self, name: str) -> dict[str, str]:
        return dict(text.split("=", 1) for text in self.texts.get(name, []))


async def receive(request: Request, parameters: Sequence[str], load: Load) -> Parcel:
    """The request's body as a parcel; `parameters`: those of its URL. `load`: does something that blocks, elsewhere. Raises Refusal."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == MULTIPART:
        return await _multipart(request, parameters, load)
    if kind != JSON and kind not in YAML:
        raise Refusal(415, f"{kind or 'a body without a Content-Type'} is not taken; send {JSON}, {YAML[0]} or {MULTIPART}")
    body = await request.body()
    if not body.strip():
        raise _refusal("body", "a graph is needed")

    parcel = _empty()
    if parameters:
        parcel.texts["parameter"] = list(parameters)
    path = parcel.folder / ("graph.json" if kind == JSON else "graph.yaml")

    def put() -> None:
        try:
            parcel.folder.mkdir(0o700)
            path.write_bytes(body)
        except OSError as failure:
            raise Refusal(507, f"the graph cannot be kept: {failure.strerror}") from None
        parcel.files["graph"] = [path]

    await parcel.on(load, put)
    return parcel


def _empty() -> Parcel:
    """Its folder is not made yet."""
    return Parcel(Path(tempfile.gettempdir()) / f"{_prefix}{secrets.token_hex(8)}")


def sweep(process: str) -> None:
    """Deletes the folders of the process that had this name before, if it was killed. Those that come are this one's."""
    global _prefix
    _prefix = f"millrace-web-{hashlib.sha256(process.encode()).hexdigest()[:12]}-"
    for left in Path(tempfile.gettempdir()).glob(f"{_prefix}*"):
        shutil.rmtree(left, ignore_errors=True)


async def _multipart(request: Request, parameters: Sequence[str], load: Load) -> Parcel:
    with place():
        parser = _Whole(
            request.headers, request.stream(), max_files=FILES_MOST, max_fields=FIELDS_MOST, max_part_size=FIELD_BYTES_MOST
        )
        try:
            form = await parser.parse()
            try:
                if not parser.has_ended:  # what was left out would be missing in the job
                    raise Refusal(400, "the multipart body ends before its last boundary", "invalid-body")
                parcel = _empty()
                await parcel.on(load, lambda: _unpack(parcel, form, parameters))
                return parcel
            finally:
                await form.close()
        except MultiPartException as wrong:
            raise Refusal(400, f"the multipart body cannot be read: {wrong.message}", "invalid-body") from None
        except ClientDisconnect:
            raise Refusal(400, "the body broke off", "invalid-body") from None


class _Whole(MultiPartParser):
    """Notes whether the last boundary has come: a part that is cut off is left out without a word."""

    has_ended = False

    def on_end(self) -> None:
        self.has_ended = True


@contextmanager
def place() -> Iterator[None]:
    """One of PARCELS_MOST, for a body with files that is received. Raises Refusal."""
    global _under_way
    if _under_way >= PARCELS_MOST:
        detail = f"{PARCELS_MOST} submissions with files are received already; try again"
        raise Refusal(429, detail, headers={"Retry-After": "1", "Connection": "close"})
    _under_way += 1
    try:
        yield
    finally:
        _under_way -= 1


def _unpack(parcel: Parcel, form: FormData, parameters: Sequence[str]) -> None:
    parcel.folder.mkdir(0o700)
    wrong: list[Refusal] = []
    for name, value in form.multi_items():
        try:
            _take(parcel, name, value)
        except Refusal as refusal:
            if refusal.status_code != 400:
                raise
            wrong.append(refusal)
    _raise(wrong)
    if parameters:
        parcel.texts.setdefault("parameter", []).extend(parameters)


def _take(parcel: Parcel, name: str, value: UploadFile | str) -> None:
    if isinstance(value, UploadFile):
        if name not in ("graph", "script", "modules", *GROUPS):
            raise _refusal(name, "no file of that name is taken", ("graph", "script", "modules", *GROUPS))
        parcel.files.setdefault(name, []).append(_put(parcel.folder, name, value.filename or "", value.file))
    elif name in TEXTS:
        parcel.texts.setdefault(name, []).append(value)
    else:
        raise _refusal(name, "no field of that name is taken; a file needs a filename", TEXTS)


def _put(folder: Path, name: str, filename: str, content: IO[bytes]) -> Path:
    """Into the folder. A name is of one part: nothing is written elsewhere, whatever a stranger calls it."""
    if filename in ("", ".", "..") or "/" in filename or "\0" in filename or len(filename.encode(errors="replace")) > 255:
        raise _refusal(name, "its filename is no name of a file, without a folder")
    path = folder / filename
    try:
        with open(path, "xb") as file:
            shutil.copyfileobj(content, file)
    except FileExistsError:
        raise _refusal(name, f"two files are called {filename}") from None
    except (OSError, ValueError) as failure:
        if isinstance(failure, OSError) and failure.strerror:
            raise Refusal(507, f"{filename} cannot be kept: {failure.strerror}") from None
        raise _refusal(name, "its filename is no name of a file") from None
    return path


def _check_text(graph: Path) -> None:
    """What is found sooner here than by who reads YAML, of which JSON is a part."""
    size = graph.stat().st_size
    if size > GRAPH_BYTES_MOST:
        raise Refusal(413, f"the graph has {size} bytes, more than the {GRAPH_BYTES_MOST} that are taken; bring data as files")
    if graph.suffix == ".json":
        try:
            parse_json(graph.read_bytes())
        except Refused as refused:
            raise Refusal(400, f"the graph cannot be read: {refused}", "invalid-graph") from None


def _raise(wrong: Sequence[Refusal]) -> None:
    """All of them as one, if there are any."""
    if wrong:
        raise Refusal(400, "; ".join(each.detail for each in wrong), "invalid-parameter", [m for each in wrong for m in each.mistakes])


def _refusal(name: str, message: str, known: Sequence[str] = ()) -> Refusal:
    mistake = Mistake(place=[name], message=message, hint=did_you_mean(name, known, f"there are {', '.join(known)}") if known else None)
    return Refusal(400, f"{name}: {message}", "invalid-parameter", [mistake])
