"""Rules of the design, each taken out or bent: `registry.py` says what a mutant is, the other files have them by subject."""

from tests.simulation.mutants import (  # noqa: F401  # each registers its mutants
    blocking,
    chains,
    clusters,
    gangs,
    growth,
    jobs,
    log,
    outside,
    repairing,
    rescaling,
    restored,
    scheduling,
    sharing,
    shutting,
    silent,
    skewing,
    slots,
    speculating,
    storing,
    strangers,
    workers,
)
from tests.simulation.mutants.registry import MUTANTS

__all__ = ["MUTANTS"]
