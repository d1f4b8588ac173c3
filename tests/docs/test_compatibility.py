"""The published contract stays: what was released is still read, and still written."""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from . import compatibility
from .compatibility import Comparison, breaks, contract, release, releases

published = functools.cache(contract)
Schemas = dict[str, Any]
Change = Callable[[Schemas], Any]
SUBMIT, LIST, REJECTED, LETTER, FINISHED, FAILED = (
    "client.commands/SubmitJob.json", "client.commands/ListJobs.json", "client.replies/JobRejected.json",
    "dead-letters/DeadLetter.json", "job.events/JobFinished.json", "job.events/JobFailed.json",
)  # fmt: skip


@pytest.mark.parametrize("file", releases(), ids=lambda file: file.stem)
def test_nothing_that_was_released_is_broken(file: Path) -> None:
    """A change that must break gets a new version of its message, beside the old one (docs/publishing.md)."""
    assert breaks(json.loads(file.read_text()), published()) == []


def test_there_is_a_release_to_be_true_to() -> None:
    assert releases() != []


def properties(schemas: Schemas, name: str) -> Any:
    return schemas[name]["properties"]


BREAKING: dict[str, tuple[Change, str]] = {
    "a request that is gone": (lambda s: s.pop(SUBMIT), f"{SUBMIT}: is gone"),
    "a cause whose message is another thing": (
        lambda s: s[FAILED]["$defs"]["Fault"]["properties"]["message"].update(type="object"), f"{FAILED}: cause.message: object is refused",
    ),
    "a fact that is gone": (lambda s: s.pop(FINISHED), f"{FINISHED}: is gone"),
    "a field of a request that is gone": (
        lambda s: properties(s, SUBMIT).pop("accept_before_ms"), f"{SUBMIT}: accept_before_ms: is refused",
    ),
    "a new field that a request must have": (
        lambda s: s[SUBMIT]["required"].append("tenant"), f"{SUBMIT}: tenant: is required, and need not be there",
    ),
    "a field that a request must have now": (
        lambda s: s[LIST]["required"].append("most"), f"{LIST}: most: is required, and need not be there",
    ),
    "a narrower type in a request": (
        lambda s: properties(s, SUBMIT).update(accept_before_ms={"type": "integer"}),
        f"{SUBMIT}: accept_before_ms: null is refused",
    ),
    "a lower limit in a request": (
        lambda s: properties(s, LIST)["most"].update(maximum=500),
        f"{LIST}: most: a larger number is refused (maximum: 500 does not take 1000)",
    ),
    "a limit where there was none": (
        lambda s: properties(s, SUBMIT)["parameters"].update(maxProperties=5),
        f"{SUBMIT}: parameters: a larger mapping is refused (maxProperties: 5 does not take any)",
    ),
    "another pattern in a request": (
        lambda s: properties(s, SUBMIT)["job"].update(pattern="^x$"), f"{SUBMIT}: job: another pattern (pattern: ^x$ ",
    ),
    "another default in a request": (
        lambda s: properties(s, LIST)["most"].update(default=10), f"{LIST}: most: left out, it meant 100 and means 10",
    ),
    "another version in the place of the old one": (
        lambda s: properties(s, SUBMIT).update(version={"const": 2, "type": "integer"}), f"{SUBMIT}: version: 1 is refused",
    ),
    "a kind of edge that graphs may not have any more": (
        lambda s: s["JobGraph.json"]["$defs"]["Sink"]["properties"]["mode"]["enum"].remove("append"),
        "JobGraph.json: vertices.*.sink.mode: append is refused",
    ),
    "a field of a vertex that is gone": (
        lambda s: s["JobGraph.json"]["$defs"]["Vertex"]["properties"].pop("parallelism"),
        "JobGraph.json: vertices.*.parallelism: is refused",
    ),
    "a field of a fact that is gone": (
        lambda s: (properties(s, LETTER).pop("sha256"), s[LETTER]["required"].remove("sha256")),
        f"{LETTER}: sha256: is required, and need not be there",
    ),
    "a field of a fact that may be null now": (
        lambda s: properties(s, LETTER).update(reason={"anyOf": [{"type": "string"}, {"type": "null"}]}),
        f"{LETTER}: reason: null is refused",
    ),
    "a field of a fact with another type": (
        lambda s: properties(s, LETTER).update(offset={"type": "string"}), f"{LETTER}: offset: string is refused",
    ),
    "a word that a reply may have now": (
        lambda s: properties(s, REJECTED)["kind"]["enum"].append("tired"), f"{REJECTED}: kind: tired is refused",
    ),
    "a field that is gone inside of a reply": (
        lambda s: (s[REJECTED]["$defs"]["Problem"]["properties"].pop("hint"), s[REJECTED]["$defs"]["Problem"]["required"].remove("hint")),
        f"{REJECTED}: problems[].hint: is required, and need not be there",
    ),
    "a keyword that no rule is about": (
        lambda s: properties(s, SUBMIT)["job"].update(contentEncoding="base64"),
        f"{SUBMIT}: job: another contentEncoding (contentEncoding: base64 does not take any)",
    ),
}  # fmt: skip

HARMLESS: dict[str, Change] = {
    "nothing": lambda s: None,
    "a new message": lambda s: s.update({"client.commands/PauseJob.json": {"type": "object"}}),
    "a new field of a request that it need not have": lambda s: properties(s, SUBMIT).update(tenant={"type": "string"}),
    "a wider type in a request": lambda s: properties(s, SUBMIT).update(job={"type": ["string", "integer"]}),
    "a higher limit in a request": lambda s: properties(s, LIST)["most"].update(maximum=5000),
    "no limit in a request any more": lambda s: properties(s, LIST)["most"].pop("maximum"),
    "a field that graphs may have now": lambda s: s["JobGraph.json"]["properties"].update(owner={"type": "string"}),
    "a kind of sink that graphs may have now": lambda s: s["JobGraph.json"]["$defs"]["Sink"]["properties"]["mode"]["enum"].append("merge"),
    "a new field of a fact": lambda s: properties(s, LETTER).update(build={"type": "string"}),
    "a field of a fact that is never null any more": lambda s: properties(s, FINISHED).update(archive={"type": "string"}),
    "a word that no reply has any more": lambda s: properties(s, REJECTED)["kind"]["enum"].remove("late"),
    "other words of explanation": lambda s: properties(s, LETTER)["reason"].update(description="Why."),
}  # fmt: skip


@pytest.mark.parametrize("name", BREAKING)
def test_a_change_that_breaks_somebody_is_found(name: str) -> None:
    change, told = BREAKING[name]
    now = copy.deepcopy(published())
    change(now["schemas"])
    [line] = breaks(published(), now)
    assert line.startswith(told)


@pytest.mark.parametrize("name", HARMLESS)
def test_a_change_that_breaks_nobody_is_let_through(name: str) -> None:
    now = copy.deepcopy(published())
    HARMLESS[name](now["schemas"])
    assert breaks(published(), now) == []


def test_a_topic_keeps_its_name_and_its_key() -> None:
    now = copy.deepcopy(published())
    now["topics"].pop("job.events")
    now["topics"]["client.replies"] = "correlation"
    assert breaks(published(), now) == [
        "topic job.events: is gone", "topic client.replies: the key was reply_to and is correlation",
    ]  # fmt: skip


def test_a_schema_that_holds_itself_is_compared_to_its_ground() -> None:
    def tree(leaf: str) -> Schemas:
        node = {"type": "object", "properties": {"left": {"$ref": "#/$defs/Node"}, "leaf": {"type": leaf}}}
        return {"$defs": {"Node": node}, "$ref": "#/$defs/Node"}

    assert Comparison(tree("string"), tree("string")).reasons() == []
    assert Comparison(tree("string"), tree("integer")).reasons() == [
        "left.leaf: integer is refused", "leaf: integer is refused",
    ]  # fmt: skip


def test_a_release_is_kept_once_and_never_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compatibility, "RELEASED", tmp_path / "released")
    file = release()
    assert breaks(json.loads(file.read_text()), published()) == [] and releases() == [file]
    with pytest.raises(FileExistsError):
        release()
