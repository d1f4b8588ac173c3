"""The flights pipeline over all services, compared cell by cell with pandas computing the same from the same files."""

from __future__ import annotations

import itertools
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

import pandas as pd
import pytest

from deploy.local.flights import flights_folder
from millrace.edge.graph_file import load_graph
from tests.end_to_end.running import EXAMPLES, RunningStack

COLUMNS = ["weather", "rank", "airline", "flights", "mean_delay", "late_share"]


def rounded(value: float, digits: int) -> float:
    """As Spark rounds: halves away from zero, of the shortest decimal text of the number."""
    return float(Decimal(repr(value)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))


def by_pandas(data: Path) -> list[list[object]]:
    """What the pipeline should make, in the order of its last vertex."""
    flights = pd.read_csv(data / "flights.csv").dropna(subset=["dep_delay"])
    weather = pd.read_csv(data / "weather.csv")[["origin", "time_hour", "visib", "precip"]].assign(known=True)
    airlines = pd.read_csv(data / "airlines.csv")
    joined = flights.merge(airlines, on="carrier").merge(weather, on=["origin", "time_hour"], how="left")
    kind = pd.Series("dry and clear", index=joined.index)
    kind[joined["precip"] > 0] = "rain or snow"
    kind[joined["visib"] < 3] = "fog"
    kind[joined["known"].isna()] = "unknown"
    late = joined.assign(weather=kind, late=joined["dep_delay"] > 30).groupby(["weather", "name"])
    delays = late.agg(flights=("dep_delay", "size"), mean=("dep_delay", "mean"), share=("late", "mean")).reset_index()
    delays["mean"] = [rounded(value, 1) for value in delays["mean"]]
    delays["share"] = [rounded(value, 3) for value in delays["share"]]
    ranked = delays[delays["flights"] >= 100].sort_values(["weather", "mean", "name"], ascending=[True, False, True])
    ranks = ranked.groupby("weather").cumcount() + 1
    rows = zip(ranked["weather"], ranks, ranked["name"], ranked["flights"], ranked["mean"], ranked["share"], strict=True)
    return [list(row) for row in rows]


def some_of_the(flights: Path, folder: Path, every: int) -> Path:
    """A folder with every so-and-so-many-th flight of them; the weather and the airlines are the same."""
    folder.mkdir()
    for name in ("weather.csv", "airlines.csv"):
        (folder / name).symlink_to(flights / name)
    header, *rows = (flights / "flights.csv").read_text().splitlines(keepends=True)
    (folder / "flights.csv").write_text("".join([header, *rows[::every]]))
    return folder


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.long)])
def test_every_cell_is_what_pandas_computes(running: RunningStack, tmp_path: Path, every: int) -> None:
    data, out = some_of_the(flights_folder(), tmp_path / "data", every), tmp_path / "out"
    expected = by_pandas(data)
    assert len(expected) > 30
    loaded = load_graph(EXAMPLES / "flights.yaml", {"data": str(data), "out": str(out)})
    assert loaded.errors == []
    job = running.submit(loaded.raw, loaded.uploads)
    assert job.rows == expected
    result = job.job.result()
    assert (result.columns, result.truncated) == (COLUMNS, False)
    written = pd.read_parquet(out).sort_values(["weather", "rank"])
    assert written.columns.tolist() == COLUMNS
    assert written.to_numpy().tolist() == expected
    # On a busy machine a TaskManager may fall silent for too long: what ran there runs again.
    again = [subtask for *subtask, attempt in job.attempts() if attempt > 1]
    failed = [event for event in job.events if event.get("state") == "FAILED"]
    assert again == [[event["task"], event["subtask"]] for event in failed if event["error"]["kind"] == "lost"]
    assert len(again) == len(failed)
    assert {event["status"] for event in job.events if event["type"] == "JobStateChanged"} >= {"RUNNING"}
    detail = running.client.show(job.id).detail
    assert detail is not None and detail.spent is not None
    spent = detail.spent.model_dump()
    assert sum(spent.values()) == detail.ended_ms - detail.accepted_ms
    assert all(spent[part] > 0 for part in ("start_ms", "plan_ms", "compute_ms", "exchange_ms")), spent


def test_the_readmes_job_runs_over_the_demos_flights(running: RunningStack, tmp_path: Path) -> None:
    readme = (EXAMPLES.parent / "README.md").read_text()
    (tmp_path / "delays.yaml").write_text(readme.partition("```yaml\n")[2].partition("```")[0])
    with (flights_folder() / "flights.csv").open() as whole:
        (tmp_path / "flights.csv").write_text("".join(itertools.islice(whole, 5000)))
    expected = pd.read_csv(tmp_path / "flights.csv").groupby("carrier")["dep_delay"].mean()
    loaded = load_graph(tmp_path / "delays.yaml", {"data": str(tmp_path)})
    assert loaded.errors == []
    assert running.submit(loaded.raw, loaded.uploads).end["type"] == "JobFinished"
    written = pd.read_parquet(tmp_path / "report").set_index("carrier")["delay"]
    pd.testing.assert_series_equal(written.sort_index(), expected, check_names=False)
