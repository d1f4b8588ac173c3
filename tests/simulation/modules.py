"""I18: what the graph of a live job uses lies in storage, from its acceptance to its end."""

from __future__ import annotations

import json

from millrace.io.storage.store import blob_path
from tests.simulation.cluster import Cluster
from tests.simulation.world import PREFIX

JOBS = f"{PREFIX}jobs/"


class Modules:
    """Follows the keys of jobs; what somebody else writes there says nothing of what a Dispatcher has stored."""

    def __init__(self, cluster: Cluster) -> None:
        self._world, self._seen = cluster.world, 0
        self._live: dict[str, list[str]] = {}  # key -> the paths of what its graph uses

    def look(self) -> None:
        history, foreign = self._world.etcd.history, self._world.etcd.foreign
        for revision, key, value in history[self._seen :]:
            if key.startswith(JOBS) and (revision, key) not in foreign:
                told = json.loads(value) if value is not None else {"state": ""}
                self._live.pop(key, None)
                if told["state"] == "accepted" and told["graph"].get("modules"):
                    job = key.removeprefix(JOBS)
                    self._live[key] = [blob_path(job, told["acceptance"], module["sha256"]) for module in told["graph"]["modules"]]
        self._seen = len(history)
        for key, paths in self._live.items():
            lost = [path for path in paths if not self._world.storage.lies(path)]
            assert not lost, f"I18: {key} is live, and {lost} is not there"
