"""What metrics have counted."""

from __future__ import annotations

from millrace.runtime.metrics import Metric


def value_of(metric: Metric, *labels: str, suffix: str = "") -> float:
    """What this process has counted so far; of a histogram with the suffix `_count` or `_sum`."""
    wanted = dict(zip(metric.labels, labels, strict=True))
    return sum(
        sample.value
        for family in metric.families()
        for sample in family.samples
        if sample.name == metric.name + suffix and sample.labels == wanted
    )
