"""A graph's file, or a script as for spark-submit, made ready to submit: read, completed, checked."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from millrace.core.jobgraph.compile import check_unread
from millrace.core.jobgraph.model import (
    DEFAULT_LIMITS,
    READ_FORMATS,
    WRITE_FORMATS,
    JobGraph,
    Limits,
    Module,
    as_text,
    spark_app_graph,
)
from millrace.core.jobgraph.parameters import Substitution
from millrace.core.jobgraph.problems import Place, Problem, did_you_mean
from millrace.core.jobgraph.validate import environment_problems, readable, validate

from .files import check_files, inputs_problem, module_kind, module_of, near_file, target_problem
from .imports import BYTES_MOST, FILES_MOST, FilesBeside, imported, package
from .spark_conf import MASTER, is_remote
from .sql import check_sql
from .yaml_file import Document, read_yaml

_FILE_FORMATS = tuple(name.lower() for name in (*READ_FORMATS, *WRITE_FORMATS, "delta"))
_MEMORY = "a slot's memory is fixed when its TaskManager starts (millrace up --heap-mb)"
_THREADS = "a slot's threads are fixed when its TaskManager starts (millrace up --cores)"
DRIVERS_OWN = {"spark.driver.memory": _MEMORY, "spark.driver.cores": _THREADS}
SLOTS_OWN = {
    **DRIVERS_OWN,
    "spark.executor.memory": _MEMORY,
    "spark.executor.cores": _THREADS,
    "spark.cores.max": _THREADS,
    "spark.executor.instances": "the cluster's slots decide that (millrace up --slots)",
}
"""Settings that would have no effect in a slot, each with what to do; executors of a Spark cluster heed theirs. A message of another
client that has one is taken, with a warning: it was in 0.1.0."""
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


@dataclass
class Loaded:
    """What a submission needs: `raw` is sent, `uploads` (SHA-256 -> local file, or its content) and `env` go to the blob server before.

    graph: the graph as services will see it, None if `errors` is not empty.
    """

    path: Path
    raw: dict[str, Any] = field(default_factory=dict)
    graph: JobGraph | None = None
    problems: list[Problem] = field(default_factory=list)
    uploads: dict[str, Path | bytes] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    document: Document | None = None

    @property
    def errors(self) -> list[Problem]:
        """The problems that stop a submission."""
        return [problem for problem in self.problems if not problem.warning]

    def render(self, problem: Problem) -> str:
        """`examples/flights.yaml:12:5: vertices.joined.inputs: ...`, with `warning: ` before the text of one."""
        line, column = self.document.position(problem) if self.document else (0, 0)
        at = f"{self.path}:{line}:{column}: " if self.document else ""
        place = problem.place[:-1] if problem.place[-1:] == ("again",) else problem.place
        where = ".".join(str(part) for part in place)
        return f"{at}{'warning: ' if problem.warning else ''}{where}{': ' if where else ''}{problem.text}"

    def rendered(self) -> list[str]:
        """All problems, in the order of the file."""
        if self.document is None:
            return [self.render(problem) for problem in self.problems]
        return [self.render(problem) for problem in sorted(self.problems, key=self.document.position)]


def load_graph(
    path: Path,
    parameters: Mapping[str, str] | None = None,
    limits: Limits = DEFAULT_LIMITS,
    checks: bool = True,
    same_machine: bool = True,
    sent: bool = False,
    env: Mapping[str, str] | None = None,
    master: str | None = None,
    parallelism: Mapping[str, str] | None = None,
    resources: Mapping[str, str] | None = None,
    confined: bool = False,
) -> Loaded:
    """Reads a graph's file (YAML or JSON) and finds all that can be found wrong before submitting; raises nothing.

    Relative paths are relative to the file; a path that starts with a parameter given on the command line, to the working folder.

    - checks: also the SQL, and that local sources are there.
    - same_machine: the cluster sees this machine's files. Else a local path is one of its own machines, where nobody can look from here.
    - sent: the graph goes to a cluster next, whose parser for SQL is loaded already. Here SQL is checked only where something else is
      wrong, so that all is reported at once.
    - env: variables that go before the file's; `master` does, too, and `parallelism` (vertex -> a number) before that of its vertices.
    - resources: what each slot must have (memory_mb, cores, or an extra -> a number), before the file's own for the job.
    - confined: a stranger has sent the file, and others into the same folder. Nothing else on this machine is looked at, and a relative
      path stays as it is, for the cluster to refuse.
    """
    loaded = Loaded(path)
    overrides = dict(parameters or {})
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror or str(error) if isinstance(error, OSError) else f"not UTF-8 at byte {error.start}"
        loaded.problems.append(Problem((), f"{path} cannot be read: {reason}"))
        return loaded
    loaded.document = read_yaml(text, limits)
    loaded.problems += loaded.document.problems
    value = loaded.document.value
    if not isinstance(value, dict):
        if not loaded.problems:
            loaded.problems += _errors(validate(value, limits))
        return loaded
    if master:
        value = {**value, "master": master}
    value = _with_resources(_with_parallelism(loaded, value, parallelism or {}), resources or {})
    base = Path(os.path.normpath(path.parent.absolute()))
    completed = _Completion(value, base, overrides, limits, loaded, confined)
    loaded.raw = completed.run()
    result = validate(loaded.raw, limits, overrides)
    loaded.problems += _errors(result)
    declared = loaded.raw.get("parameters")
    if isinstance(declared, dict):
        loaded.raw["parameters"] = {name: overrides.get(name, value) for name, value in declared.items()}
    _take_environment(loaded, env or {}, limits)
    if checks:
        known = result if isinstance(result, JobGraph) else readable(loaded.raw, result, limits, overrides)
        loaded.problems += check_files(known) if same_machine else []
        loaded.problems += check_memory(loaded.raw)
        if not sent or loaded.errors:
            loaded.problems += check_sql(known)
    if isinstance(result, JobGraph) and not loaded.errors:
        loaded.graph = result
        if standings := _standings(loaded):
            loaded.raw["sources"] = standings
        loaded.problems += check_unread(result)
    return loaded


def _with_parallelism(loaded: Loaded, value: dict[str, Any], given: Mapping[str, str]) -> dict[str, Any]:
    """The graph with another parallelism of these vertices. A number that is none is found with all that is wrong with the graph."""
    vertices = value.get("vertices")
    vertices = dict(vertices) if isinstance(vertices, dict) else {}
    for name, number in given.items():
        if isinstance(vertices.get(name), dict):
            vertices[name] = {**vertices[name], "parallelism": _number(number)}
        else:
            hint = did_you_mean(name, [str(each) for each in vertices])
            loaded.problems.append(Problem(("vertices",), f"{name!r} is given a parallelism and is no vertex", hint))
    return {**value, "vertices": vertices} if given else value


def _with_resources(value: dict[str, Any], given: Mapping[str, str]) -> dict[str, Any]:
    """The graph with these resources for the job; what its vertices ask for stays."""
    own = value.get("resources")
    resources = dict(own) if isinstance(own, dict) else {}
    for name, number in given.items():
        if name in ("memory_mb", "cores"):
            resources[name] = _number(number)
        else:
            extras = resources.get("extras")
            resources["extras"] = {**(extras if isinstance(extras, dict) else {}), name: _number(number)}
    return {**value, "resources": resources} if given else value


def _number(text: str) -> int | str:
    return int(text) if re.fullmatch(r"-?\d{1,9}", text) else text


def _take_environment(loaded: Loaded, env: Mapping[str, str], limits: Limits) -> None:
    """The variables go apart: a graph stands in topics, where values are for everybody."""
    own = loaded.raw.pop("env", None)
    values = {str(name): as_text(value) for name, value in own.items()} if isinstance(own, dict) else {}
    loaded.env = {**{name: value for name, value in values.items() if isinstance(value, str)}, **env}
    if env:  # the file's own are checked with the file
        loaded.problems += [each for each in environment_problems(loaded.env, limits) if each not in loaded.problems]


def _standings(loaded: Loaded) -> dict[str, Any]:
    """Where each query stands, so that an error at run time tells the file's line."""
    assert loaded.document is not None and loaded.graph is not None
    found: dict[str, Any] = {}
    for name, vertex in loaded.graph.vertices.items():
        standing = loaded.document.texts.get(("vertices", name, "sql"))
        if vertex.sql is not None and standing is not None:
            line, indent = standing
            found[name] = {"file": loaded.path.name[-255:], "line": line, **({} if indent is None else {"indent": indent})}
    return found


def check_memory(raw: Mapping[str, Any]) -> list[Problem]:
    """Settings of what belongs to slots: as `submit` refuses the flags that say the same."""
    given = raw.get("conf")
    conf = given if isinstance(given, dict) else {}
    own = DRIVERS_OWN if is_remote(str(raw.get("master") or conf.get(MASTER) or "local")) else SLOTS_OWN
    return [Problem(("conf", key), f"cannot be set by a job: {own[key]}") for key in conf if key in own]


def load_script(
    script: Path,
    args: Sequence[str] = (),
    *,
    name: str | None = None,
    conf: Mapping[str, str] | None = None,
    py_files: Sequence[Path] = (),
    files: Sequence[Path] = (),
    jars: Sequence[Path] = (),
    archives: Sequence[Path] = (),
    packages: Sequence[str] = (),
    master: str | None = None,
    env: Mapping[str, str] | None = None,
    resources: Mapping[str, str] | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Loaded:
    """The one-vertex graph of a spark-submit command line; paths are relative to the working folder. What the script imports from its own
    folder goes along. Raises nothing."""
    loaded = Loaded(script)
    groups = {"file": files, "py": py_files, "jar": jars, "archive": archives}
    modules: dict[str, list[Module]] = {}
    main = _hashed(loaded, script, "file", (), "script")
    for kind, paths in groups.items():
        found = [_hashed(loaded, path, kind, (), f"--{kind}s" if kind != "py" else "--py-files") for path in paths]
        modules[kind] = [module for module in found if module is not None]
    if main is None or loaded.problems:
        return loaded
    given = [script.name, *(module.name for module in modules["py"])]
    scripts = [script, *(path for path in py_files if path.suffix == ".py")]
    modules["py"] += _take_along(loaded, imported(scripts, script.absolute().parent, given), ())
    graph = spark_app_graph(
        name or script.stem, main, args, dict(conf or {}), modules["py"], modules["file"], modules["jar"],
        modules["archive"], packages, master,
    )  # fmt: skip
    loaded.raw = _with_resources(graph, resources or {})
    result = validate(loaded.raw, limits)
    loaded.problems += [*_errors(result), *check_memory(loaded.raw)]
    _take_environment(loaded, env or {}, limits)
    loaded.graph = result if isinstance(result, JobGraph) and not loaded.errors else None
    return loaded


def _take_along(loaded: Loaded, beside: FilesBeside, place: Place) -> list[Module]:
    """Modules of what was found beside others, noted for upload."""
    modules = [_hashed(loaded, path, "py", place, "module") for path in beside.files.values()]
    for name, content in beside.packed.items():
        sha256 = hashlib.sha256(content).hexdigest()
        loaded.uploads[sha256] = content
        modules.append(Module(name=name, sha256=sha256, kind="py"))
    for folder in beside.too_large:
        message = f"{folder.name} is imported, and too large to go along ({FILES_MOST} files, {BYTES_MOST >> 20} MiB)"
        loaded.problems.append(Problem(place, message, "zip what is needed of it and name it under modules, or in --py-files", True))
    return [module for module in modules if module is not None]


def _errors(result: JobGraph | list[Problem]) -> list[Problem]:
    return [] if isinstance(result, JobGraph) else result


def _hashed(loaded: Loaded, path: Path, kind: str | None, place: Place, what: str) -> Module | None:
    """A local file as a module, noted for upload; else a problem."""
    try:
        module = module_of(path, kind)
    except (OSError, ValueError) as error:
        reason = "no name that a module can have"
        if isinstance(error, OSError):
            reason = error.strerror or "cannot be read"
        near = None if path.exists() else near_file(path)
        loaded.problems.append(Problem(place, f"{what} {path}: {reason}", near))
        return None
    loaded.uploads[module.sha256] = path.absolute()
    return module


def _lost(name: str, kind: str | None) -> dict[str, str]:
    """Stands for a module that is not there, so that nothing else is said of it and others keep their index; never sent."""
    return {"name": name, "sha256": "0" * 64, "kind": kind or module_kind(name)}


class _Completion:
    """Makes what a file says whole: absolute paths, modules with their hashes, scripts by module name."""

    def __init__(
        self, raw: dict[str, Any], base: Path, overrides: Mapping[str, str], limits: Limits, loaded: Loaded, confined: bool = False
    ) -> None:
        self.confined = confined
        self.raw = raw
        self.base = base
        self.overrides = overrides
        self.limits = limits
        self.loaded = loaded
        declared = raw.get("parameters")
        known = {**declared, **overrides} if isinstance(declared, dict) else {}
        self.values = {name: text for name, value in known.items() if isinstance(text := as_text(value), str)}
        self.modules: list[Any] = []

    def run(self) -> dict[str, Any]:
        """The raw graph as it is sent. What is wrong in a way that `validate` sees is left to it."""
        raw = dict(self.raw)
        given = raw.get("modules")
        if isinstance(given, list):
            self.modules = [self._module(entry, ("modules", index)) for index, entry in enumerate(given)]
        vertices = raw.get("vertices")
        if isinstance(vertices, dict) and len(vertices) <= self.limits.vertices:
            raw["vertices"] = {name: self._vertex(name, vertex) for name, vertex in vertices.items()}
        if self.modules:
            raw["modules"] = self.modules
        return raw

    def _module(self, entry: Any, place: Place) -> Any:
        """`lib.zip`, or {name: data.zip, kind: archive}: a file beside the graph's."""
        kind = None
        if isinstance(entry, dict) and "sha256" not in entry and isinstance(entry.get("name"), str):
            if set(entry) - {"name", "kind"} or entry.get("kind", "py") not in ("py", "file", "jar", "archive"):
                return entry
            entry, kind = entry["name"], entry.get("kind")
        if not isinstance(entry, str):
            return entry
        module = self._hashed(entry, kind, place, "module")
        return _lost(Path(entry).name, kind) if module is None else module.model_dump()

    def _hashed(self, name: str, kind: str | None, place: Place, what: str) -> Module | None:
        path = self.base / name
        if self.confined and (path.parent != self.base or not path.is_file()):
            near = did_you_mean(name, sorted(each.name for each in self.base.iterdir()))
            self.loaded.problems.append(Problem(place, f"{what} {name}: it was not sent along", near))
            return None
        return _hashed(self.loaded, path, kind, place, what)

    def _vertex(self, name: str, vertex: Any) -> Any:
        if not isinstance(vertex, dict):
            return vertex
        vertex = dict(vertex)
        for kind in ("source", "sink"):
            part = vertex.get(kind)
            if isinstance(part, dict) and isinstance(part.get("path"), str) and part["path"]:
                vertex[kind] = {**part, "path": self._path(part.get("format"), part["path"])}
        app = vertex.get("spark_app")
        if isinstance(app, dict) and isinstance(app.get("script"), str) and app["script"]:
            vertex["spark_app"] = {
                **app,
                "script": self._script(app["script"], ("vertices", name, "spark_app", "script")),
            }
        if isinstance(vertex.get("python"), str):
            self._target(vertex["python"], ("vertices", name, "python"), vertex.get("inputs") or {})
        return vertex

    def _put(self, text: str) -> str | None:
        """A text with parameters put in; None if that cannot be done, which is left to `validate` to tell."""
        substitution = Substitution(self.values, self.limits)
        result = str(substitution.put(text, ()))
        return None if substitution.problems else result

    def _path(self, format_: object, path: str) -> str:
        """The absolute path of a file format's relative one, parameters put in; anything else as it is."""
        kind = self._put(format_) if isinstance(format_, str) else None
        resolved = self._put(path)
        if resolved is None or kind is None or kind.lower() not in _FILE_FORMATS:
            return path
        if self.confined or _SCHEME.match(resolved) or resolved.startswith("/"):
            return path
        if resolved.startswith("~/"):
            resolved = str(Path(resolved).expanduser())
        first = re.match(r"\$\{(\w+)\}", path)
        base = Path.cwd() if first and first.group(1) in self.overrides else self.base
        return f"file://{os.path.normpath(base / resolved)}".replace("$", "$$")

    def _script(self, script: str, place: Place) -> str:
        resolved = self._put(script)
        names = [entry["name"] for entry in self.modules if isinstance(entry, dict) and "name" in entry]
        if resolved is None or resolved in names:
            return script
        module = self._hashed(resolved, "file", place, "script")
        if module is None:
            self.modules.append(_lost(script, "file"))
            return script
        self._add(module)
        path = self.base / resolved
        self._add_imported([path], path.parent, place)
        return module.name.replace("$", "$$")

    def _target(self, target: str, place: Place, inputs: object) -> None:
        """The module of a python vertex goes with the job if it lies beside the graph's file."""
        module, _, function = (self._put(target) or "").partition(":")
        top = module.partition(".")[0]
        if not top.isidentifier():
            return
        file = f"{top}.py"
        names = [str(entry.get("name")) for entry in self.modules if isinstance(entry, dict)]
        here = self.base / file
        if file not in names and here.is_file():
            found = _hashed(self.loaded, here, "py", place, "module")
            if found is not None:
                self._add(found)
                names.append(file)
        if file in names:
            self._add_imported([here], self.base, place)
        elif (self.base / top).is_dir() and f"{top}.zip" not in names:
            for each in _take_along(self.loaded, package(self.base / top), place):
                self._add(each)
        packed = [entry for entry in self.modules if isinstance(entry, dict) and entry.get("kind", "py") == "py"]
        if file not in names and any(not str(entry.get("name")).endswith(".py") for entry in packed):
            return  # it may be in a zip or wheel
        if file not in names:
            near = did_you_mean(file, sorted(each.name for each in self.base.glob("*.py")))
            message = f"there is no {file} beside the graph: the module must be installed where tasks run"
            self.loaded.problems.append(Problem(place, message, near, True))
            return
        upload = next((path for path in self.loaded.uploads.values() if isinstance(path, Path) and path.name == file), None)
        if upload is None or module != top:
            return
        wrong = target_problem(upload, function)
        if wrong is None and isinstance(inputs, dict):
            wrong = inputs_problem(upload, function, [str(name) for name in inputs])
        if wrong is not None:
            self.loaded.problems.append(Problem(place, wrong))

    def _add_imported(self, modules: list[Path], folder: Path, place: Place) -> None:
        given = [str(entry.get("name")) for entry in self.modules if isinstance(entry, dict)]
        for module in _take_along(self.loaded, imported(modules, folder, given), place):
            self._add(module)

    def _add(self, module: Module) -> None:
        if module.model_dump() not in self.modules:
            self.modules.append(module.model_dump())
