"""The JobMaster publishes sinks: when, once, and what a sink that cannot be published means."""

from __future__ import annotations

from millrace.core.machine import PeerBorn
from millrace.core.messages import effects, jobs
from tests.core.of_job_master import SINK, Shard, kinds


def test_sinks_are_published_once_all_tasks_have_finished_and_then_the_job_ends() -> None:
    shard = Shard()
    shard.start(SINK)
    shard.offer("a1")
    said = shard.told("a1", "FINISHED", report={"outputs": {}})
    assert kinds(said)[-2:] == ["dispatcher JobStatusChanged RUNNING", "do PublishSink sink//data/out"]
    assert said[-2].body.publishing, "it takes no other parallelism any more, and who asks is to be told"
    [again] = [each.body for each in shard(PeerBorn("dispatcher", 3), "dispatcher") if isinstance(each.body, jobs.JobStatusChanged)]
    assert again.publishing
    effect = said[-1].effect
    assert effect.staged == ["/data/.out.staging/acc-j/1/0-out/0/1"]
    assert shard(jobs.CancelStartedJob(job="j")) == []
    done = effects.SinkPublished(job="j", vertex="out")
    assert kinds(shard(done, "")) == ["dispatcher JobEnded FINISHED"]
    assert shard(done, "") == []


def test_a_sink_that_cannot_be_published_fails_the_job() -> None:
    shard = Shard()
    shard.start(SINK)
    shard.offer("a1")
    shard.told("a1", "FINISHED", report={"outputs": {}})
    said = shard(effects.SinkPublished(job="j", vertex="out", problem="/data/out is there already"), "")
    assert kinds(said) == ["dispatcher JobEnded FAILED"]
    assert shard.job.cause.message == "/data/out is there already"


def test_a_job_does_not_end_while_one_of_its_sinks_is_being_published() -> None:
    """Its end deletes what is staged, from under the hands of who moves it."""
    shard = Shard()
    other = {"sink": {"format": "parquet", "path": "/data/other", "mode": "error"}, "inputs": {"q": "forward"}}
    shard.start({"name": "two", "vertices": {**SINK["vertices"], "other": other}})
    shard.offer("a1")
    shard.told("a1", "FINISHED", attempt="j/0-other/0/1.1", report={"outputs": {}})
    assert shard.job.sinks == {"out": False, "other": False}
    said = shard(effects.SinkPublished(job="j", vertex="other", problem="/data/other is there already"), "")
    assert kinds(said) == ["dispatcher JobStatusChanged FAILING", "event JobStateChanged FAILING"]
    assert shard(jobs.CancelStartedJob(job="j")) == []
    assert kinds(shard(effects.SinkPublished(job="j", vertex="out"), "")) == ["dispatcher JobEnded FAILED"]
    assert shard.job.cause.message == "/data/other is there already"


def test_sinks_that_append_to_one_path_stage_and_publish_each_its_own() -> None:
    """Both are of one task, whose attempt empties the folder that it stages in: what the first sink staged would be gone."""
    shard = Shard()
    again = {"sink": {"format": "parquet", "path": "/data/out/", "mode": "append"}, "inputs": {"q": "forward"}}
    out = {**SINK["vertices"]["out"], "sink": {**SINK["vertices"]["out"]["sink"], "mode": "append"}}
    shard.start({"name": "two", "vertices": {**SINK["vertices"], "out": out, "again": again}})
    [deployed] = [each for each in shard.offer("a1") if "DeployTasks" in str(kinds([each]))]
    written = {each.vertex: each.folder for each in deployed.body.tasks[0].spec.outputs if each.edge == "sink"}
    said = shard.told("a1", "FINISHED", attempt="j/0-again/0/1.1", report={"outputs": {}})
    published = {each.effect.vertex: each.effect.staged for each in said if "do PublishSink" in kinds([each])[0]}
    assert published == {vertex: [folder] for vertex, folder in written.items()}
    assert written["out"] != written["again"]
    assert all(folder.startswith("/data/.out.staging/acc-j/1/") for folder in written.values())
