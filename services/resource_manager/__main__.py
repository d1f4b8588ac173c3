"""`python -m services.resource_manager`: the one place where a ResourceManager's parts are put together."""

from __future__ import annotations

import sys

from millrace.runtime.hosting import Hosted
from millrace.runtime.service import Process
from millrace.runtime.settings import BadSettings

from .core.machine import ResourceManager
from .metrics import COUNTS, shows
from .ports import ports
from .providers.process import ByAgents
from .settings import ResourceManagerSettings
from .traces import counting


def main() -> int:
    settings = ResourceManagerSettings.load_or_exit()
    try:
        provider = settings.make_provider()
    except BadSettings as bad:
        print("\n".join(f"resource-manager: {each}" for each in bad.problems), file=sys.stderr)
        return 2
    process = Process(settings)
    topology = process.wait_for_cluster()
    if isinstance(provider, ByAgents):
        provider.cluster = process.cluster
    machine, carried_out = ResourceManager(topology.shards), ports(process.store, provider)
    return process.run([Hosted(machine, carried_out, settings.deciding(), counts=counting(COUNTS, process.traces), shows=shows)], topology)


if __name__ == "__main__":
    sys.exit(main())
