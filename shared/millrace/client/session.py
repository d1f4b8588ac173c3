"""A client's connection: requests to the Dispatcher, and files to and from its blob server. What can be asked is in the modules above."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from millrace.core.messages import base, blocklist, client, requirements, schedules
from millrace.core.messages.execution import Archive

from . import errors
from .link import Link

if TYPE_CHECKING:
    from .blobs import BlobClient

BUSY_S = 0.1
WRONG_TOKEN = "the blob server does not take the token: is it this cluster's? A local stack's is in the file that `millrace status` names"

SILENT_S = 1.0  # before what needs a part that is silent is asked again: that one answers all of it when it is back
SENT_ON = (blocklist.BlockHost, blocklist.UnblockHost, client.DeregisterCluster)
"""They are sent on whoever is silent, and so they are not asked again: they would be done as often."""
KEPT = (schedules.SetSchedule, schedules.PauseSchedule, schedules.RemoveSchedule)
"""They are carried out when a silent etcd is back, and so they are not asked again either."""
CHANGES = (*SENT_ON, *KEPT, client.CancelJob, requirements.UpdateRequirements)
"""Without an answer it is not known whether they were carried out."""

Q = TypeVar("Q", bound=base.Request)
R = TypeVar("R", bound=base.Reply)
A = TypeVar("A", bound=client.AboutJob)
S = TypeVar("S", bound="Session")
T = TypeVar("T")


class Session:
    """`_ask` and `_call_blobs` for the classes that are based on this one, which have the calls. For any number of threads."""

    def __init__(
        self,
        bootstrap: str,
        *,
        token: str = "",
        timeout_s: float = 10.0,
        kafka_options: Mapping[str, Any] | None = None,
    ) -> None:
        self._timeout_s, self._token = timeout_s, token
        self._link = self._connect(bootstrap, kafka_options)
        self._closed = threading.Event()
        self._blobs: BlobClient | None = None

    def _connect(self, bootstrap: str, options: Mapping[str, Any] | None) -> Link:
        return Link(bootstrap, options, connect_s=min(5.0, self._timeout_s), delivery_s=self._timeout_s)

    def __enter__(self: S) -> S:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection; whoever waits for something goes on."""
        self._closed.set()
        if self._blobs is not None:
            self._blobs.close()
        self._link.close()

    # requests

    def _ask(self, request: base.Request, kind: type[R], within_s: float | None = None) -> R:
        """The answer. A Dispatcher that is too busy for one is asked again within the time-out, and less often where a part is silent."""
        limit_s = self._timeout_s if within_s is None else within_s
        deadline = time.monotonic() + limit_s
        try:
            reply = self._link.ask(request).result(limit_s)
            while isinstance(reply, client.RequestRefused) and reply.kind == "busy" and time.monotonic() < deadline:
                if reply.silent and isinstance(request, SENT_ON):
                    break
                if reply.silent and isinstance(request, KEPT):
                    raise errors.OutcomeUnknown(reply.reason)
                silent, reason = reply.silent, reply.reason
                self._closed.wait(SILENT_S if silent else BUSY_S)
                try:
                    reply = self._link.ask(request).result(max(BUSY_S, deadline - time.monotonic()))
                except errors.OutcomeUnknown:
                    if not silent:
                        raise
                    if isinstance(request, CHANGES):  # the answer before names who is silent: it is not the Dispatcher
                        raise errors.OutcomeUnknown(reason) from None
                    break
            return expected(reply, kind)
        except errors.OutcomeUnknown as unknown:
            if isinstance(request, CHANGES):
                raise
            raise errors.Unavailable(str(unknown), "dispatcher") from None

    # files

    def _uploaded(
        self, graph: Mapping[str, Any], uploads: Mapping[str, Path | bytes] | None, env: Mapping[str, str] | None
    ) -> dict[str, Any]:
        """The graph, with the environment variables as one of its modules; all that it needs is uploaded."""
        uploads = dict(uploads or {})
        if env:
            from .environment import environment_module  # with the graph's model, which takes a while to build

            module, content = environment_module(env, self._token)
            uploads[module["sha256"]] = content
            graph = {**graph, "modules": [*graph.get("modules", ()), module]}
        for each in uploads.values():
            self._upload(each)
        return dict(graph)

    def environment_hash(self, env: Mapping[str, str]) -> str:
        """Of these variables: the same for the same ones in the same cluster; who does not have its token learns nothing of their values
        by it. Raises Invalid, Unavailable."""
        from .environment import environment_module

        return environment_module(env, self._known_token())[0]["sha256"]

    def _upload(self, content: Path | bytes) -> None:
        self._call_blobs(lambda blobs: blobs.put_bytes(content) if isinstance(content, bytes) else blobs.put_file(content))

    def file(self, path: str) -> bytes:
        """The content of a kept file, by its path."""
        return self._call_blobs(lambda blobs: blobs.get_file(path))

    def archive(self, path: str) -> Archive:
        """What is kept of an ended job. Raises Unavailable for a file that is no archive."""
        try:
            return Archive.model_validate(self._json(path))
        except ValidationError as wrong:
            raise errors.Unavailable(f"{path} on the blob server is no archive of a job: {wrong.errors()[0]['msg']}") from None

    def _json(self, path: str) -> dict[str, Any]:
        try:
            value: dict[str, Any] = json.loads(self.file(path))
        except (ValueError, RecursionError):
            raise errors.Unavailable(f"{path} on the blob server is damaged: it is no JSON") from None
        return value

    def _blob_client(self) -> BlobClient:
        if self._blobs is None:
            from .blobs import BlobClient

            token = self._known_token()
            described = self._ask(client.DescribeBlobServer(), client.BlobServerDescribed)
            self._blobs = BlobClient(described.url, token)
        return self._blobs

    def _known_token(self) -> str:
        if not self._token:
            raise errors.Unavailable("the blob server's token is not known: give it, or set MILLRACE_TOKEN")
        return self._token

    def _call_blobs(self, call: Callable[[BlobClient], T]) -> T:
        """Over the known connection; once more over a new one, for the blob server moves with the Dispatcher's leader."""
        from .blobs import BlobError

        try:
            return call(self._blob_client())
        except BlobError as failure:
            if failure.status is None:
                self._blobs = None
                try:
                    return call(self._blob_client())
                except BlobError as again:
                    failure = again
            reason = WRONG_TOKEN if failure.status == 401 else str(failure)
            raise errors.Unavailable(reason) from None


def expected(reply: base.Reply, kind: type[R]) -> R:
    """The reply, if it is of this kind. Raises what a refusal means; Unavailable for a reply of another kind."""
    if isinstance(reply, kind):
        return reply
    if isinstance(reply, client.RequestRefused):
        if reply.kind == "busy":
            raise errors.Unavailable(reply.reason, reply.silent)
        if reply.problems:
            raise errors.Invalid(reply.reason, reply.problems)
        raise (errors.NotFound if reply.kind == "not_found" else errors.Refused)(reply.reason)
    raise errors.Unavailable(f"the cluster answers with {reply.type} where {kind.__name__} was asked for")


def about(kind: type[A], job: str) -> A:
    """The request of this kind about a job. Raises Malformed for what is no job's id."""
    try:
        return kind(job=job)
    except ValueError:
        raise errors.Malformed(f"{job!r} is no job's id: {base.JOB_ID_RULE}") from None


def checked(kind: type[Q], **fields: Any) -> Q:
    """The request of this kind. Raises Malformed for what it may not have."""
    try:
        return kind(**fields)
    except ValidationError as wrong:
        first = wrong.errors(include_url=False)[0]
        if first["loc"] == ("host",):
            raise errors.Malformed(f"{fields['host']!r} is no host: give it as `millrace taskmanagers` lists it") from None
        raise errors.Malformed(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
