"""What the process of an attempt need not do, because its host or an earlier process has done it."""

from __future__ import annotations

from typing import Any

import pytest

from services.task_manager.slot.common import attach
from tests.slot.lifecycle import Slot

pytestmark = pytest.mark.timeout(600)

ANSWERS = {
    "r\nu\nPythonUtils\nrj\ne\n": "ycorg.apache.spark.api.python.PythonUtils",
    "r\nm\na.B$\nMODULE$\ne\n": "yro7",
    "c\no7\nget\ne\n": "ys1",
}


class Client:
    """As Py4J's: it notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def send_command(self, command: str, retry: bool = True, binary: bool = False) -> str:
        self.asked.append(command)
        return ANSWERS[command]


class Conf:
    """As the JVM's: it notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.values = {"spark.master": "local[2]"}

    def contains(self, key: str) -> bool:
        self.asked.append(key)
        return key in self.values

    def get(self, key: str) -> str:
        return self.values[key]

    def set(self, key: str, value: str) -> None:
        self.values[key] = value

    def getExecutorEnv(self) -> Conf:
        self.asked.append("variables")
        return self

    def size(self) -> int:
        return 1

    def apply(self, at: int) -> Any:
        return type("Pair", (), {"_1": lambda _: "TZ", "_2": lambda _: "UTC"})()

    sc = conf = lambda self: self


def test_what_a_name_means_is_asked_once_and_what_refers_to_an_object_each_time() -> None:
    known: dict[str, str] = {}
    for asked in (list(ANSWERS), list(ANSWERS)[1:]):
        client = Client()
        with attach._asked_once(client, known):
            assert [client.send_command(command, retry=False) for command in ANSWERS] == list(ANSWERS.values())
        assert client.asked == asked
        for command in ANSWERS:  # user code, which may have imported other names
            client.send_command(command)
        assert client.asked == [*asked, *ANSWERS]


def test_a_setting_is_asked_once_unless_it_is_set() -> None:
    known: dict[str, str | None] = {}
    for asked in (["spark.master", "spark.home", "variables"], []):
        jsc = Conf()
        conf = attach._attached_conf(jsc, known)
        found = [conf.get("spark.master"), conf.get("spark.home"), conf.get("spark.home", "there"), conf.contains("spark.master")]
        assert found == ["local[2]", None, "there", True]
        assert conf.getAll() == [("spark.executorEnv.TZ", "UTC")]
        assert jsc.asked == asked
    conf.setIfMissing("spark.home", "here")
    assert conf.get("spark.home") == "here"


@pytest.mark.long
def test_a_query_imports_nothing_and_reads_no_lines_of_ours(slot: Slot) -> None:
    """Both took a third of what an attempt's Python does."""
    modules, lines = slot.value("""
        import linecache, sys
        before, read = set(sys.modules), set(linecache.cache)
        spark.sql("SELECT 1").limit(1).collect()
        spark.createDataFrame([(1, "a")], "id INT, text STRING").toPandas()
        sc.parallelize([1], 1).map(abs).sum()
        [sorted(set(sys.modules) - before), [file for file in set(linecache.cache) - read if "slot" in file or "pyspark" in file]]
        """)
    assert [name for name in modules if name.startswith(("pyspark", "encodings"))] == []
    assert [file for file in lines if not file.endswith("script.py")] == []
