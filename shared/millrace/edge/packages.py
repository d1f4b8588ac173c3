"""Formats and places of sources and sinks that a slot's Spark cannot read or write as it comes, and the packages that bring them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from millrace.core.jobgraph.model import READ_FORMATS, JobGraph
from millrace.core.jobgraph.problems import Place, Problem, did_you_mean

from .spark_conf import ADD_PACKAGE, PACKAGES

_OWN = (*(name.lower() for name in READ_FORMATS if name != "avro"), "jdbc", "rate", "hive", "noop", "socket", "statestore")
_COORDINATES = "spark.jars.packages"
_BRING = ("spark.jars", _COORDINATES, "spark.driver.extraClassPath", "spark.jars.repositories")


def check_packages(graph: JobGraph) -> Iterator[Problem]:
    """Packages whose coordinates Spark would refuse. And warnings where no package and no jar goes with the job; the slots of a cluster may
    have their own, which cannot be known here."""
    for package in graph.conf.get(_COORDINATES, "").split(","):
        if package.strip() and len([part for part in re.split("[:/]", package) if part.strip()]) != 3:
            yield Problem(("conf", _COORDINATES), f"{package.strip()!r} is no package", "one is GROUP:ARTIFACT:VERSION; several by commas")
    if any(graph.conf.get(key) for key in _BRING) or any(module.kind == "jar" for module in graph.modules or ()):
        return
    for name, vertex in graph.vertices.items():
        for kind in ("source", "sink"):
            part = getattr(vertex, kind, None)
            if part is not None:
                yield from _of(("vertices", name, kind), part.format, part.path)


def _of(place: Place, form: str, path: str | None) -> Iterator[Problem]:
    scheme = (path or "").partition("://")[0].lower() if "://" in (path or "") else ""
    for field, name, what in (("format", form.lower(), form), ("path", scheme, f"{scheme}://")):
        if name in PACKAGES:
            message = f"{what} needs a package that Spark does not bring along"
            yield Problem((*place, field), message, ADD_PACKAGE.format(PACKAGES[name]), True)
    if form.lower() not in (*_OWN, *PACKAGES) and "." not in form:
        hint = did_you_mean(form, READ_FORMATS, "add its package to conf as spark.jars.packages, or its jar to modules")
        yield Problem((*place, "format"), f"Spark has no format {form} of its own", hint, True)
