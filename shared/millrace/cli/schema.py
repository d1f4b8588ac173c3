"""`millrace schema`: the JSON Schema of what is submitted."""

from __future__ import annotations

import json
from typing import Annotated

import typer


def schema(
    what: Annotated[str, typer.Argument(metavar="[SubmitJob | JobGraph]", help="Which one.")] = "SubmitJob",
) -> None:
    """Print the JSON Schema of what is submitted: the message SubmitJob, or the graph alone (for an editor)."""
    from millrace.core.jobgraph.model import JobGraph
    from millrace.edge.schema import Explained

    graph = JobGraph.model_json_schema(schema_generator=Explained)
    if what == "JobGraph":
        print(json.dumps(graph, indent=1))
        return
    if what != "SubmitJob":
        raise typer.BadParameter(f"there are SubmitJob and JobGraph, not {what}")
    from millrace.core.messages.client import SubmitJob

    message = SubmitJob.model_json_schema(schema_generator=Explained)
    definitions = graph.pop("$defs", {})
    message["$defs"] = {**message.get("$defs", {}), **definitions, "JobGraph": graph}
    message["properties"]["graph"] = {"$ref": "#/$defs/JobGraph"}
    message["required"] = ["type", "version", *message["required"]]
    print(json.dumps(message, indent=1))
