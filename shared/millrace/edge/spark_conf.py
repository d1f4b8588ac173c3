"""Which Spark settings of a job take effect on a running Spark, which need a JVM of their own, which are refused; and which packages
Spark needs for what.

Standard library only, no relative imports: others import it too.
"""

from __future__ import annotations

import re

REFUSED = {
    "spark.submit.deployMode": "the driver always runs in a slot of the cluster",
    "spark.app.id": "Spark gives it",
    "spark.remote": "attempts use their slot's own Spark, not Spark Connect",
    "spark.api.mode": "attempts use their slot's own Spark, not Spark Connect",
    "spark.driver.host": "the slot decides where its driver listens",
    "spark.driver.port": "the slot decides where its driver listens",
    "spark.driver.bindAddress": "the slot decides where its driver listens",
    "spark.driver.supervise": "the cluster runs failed attempts again (retry)",
    "spark.local.dir": "the slot has its own local folders",
    "spark.ui.enabled": "a slot's driver has no web page of its own",
    "spark.ui.port": "a slot's driver has no web page of its own",
    "spark.log.callerContext": "the slot decides how its driver logs",
    "spark.python.task.killTimeout": "the slot needs it to end an attempt",
    "spark.pyspark.python": "the cluster decides which Python runs (python of the TaskManager)",
    "spark.pyspark.driver.python": "the cluster decides which Python runs (python of the TaskManager)",
    "spark.python.worker.reuse": "the slot needs it to keep attempts apart",
    "spark.python.use.daemon": "the slot needs it to end an attempt",
    "spark.python.daemon.module": "the slot needs it to end an attempt",
    "spark.python.worker.module": "the slot needs it to end an attempt",
    "spark.sql.artifact.isolation.enabled": "PySpark needs it off to find the modules of a job",
}
"""Settings that cannot be honoured, each with the reason a user is told."""

# spark.sql.* settings that Spark fixes with its context or with the first session (staticConfKeys of its SQLConf).
STATIC_SQL = {
    "spark.sql.broadcastExchange.maxThreadThreshold",
    "spark.sql.cache.serializer",
    "spark.sql.catalog.spark_catalog.defaultDatabase",
    "spark.sql.catalogImplementation",
    "spark.sql.codegen.cache.maxEntries",
    "spark.sql.codegen.comments",
    "spark.sql.debug",
    "spark.sql.defaultUrlStreamHandlerFactory.enabled",
    "spark.sql.event.truncate.length",
    "spark.sql.extensions",
    "spark.sql.extensions.test.loadFromCp",
    "spark.sql.filesourceTableRelationCacheSize",
    "spark.sql.globalTempDatabase",
    "spark.sql.hive.metastore.barrierPrefixes",
    "spark.sql.hive.metastore.jars",
    "spark.sql.hive.metastore.jars.path",
    "spark.sql.hive.metastore.sharedPrefixes",
    "spark.sql.hive.metastore.version",
    "spark.sql.hive.thriftServer.singleSession",
    "spark.sql.hive.version",
    "spark.sql.legacy.sessionInitWithConfigDefaults",
    "spark.sql.metadataCacheTTLSeconds",
    "spark.sql.queryExecutionListeners",
    "spark.sql.resultQueryStage.maxThreadThreshold",
    "spark.sql.shuffleExchange.maxThreadThreshold",
    "spark.sql.sources.disabledJdbcConnProviderList",
    "spark.sql.sources.schemaStringLengthThreshold",
    "spark.sql.streaming.streamingQueryListeners",
    "spark.sql.streaming.ui.enabled",
    "spark.sql.streaming.ui.enabledCustomMetricList",
    "spark.sql.streaming.ui.retainedProgressUpdates",
    "spark.sql.streaming.ui.retainedQueries",
    "spark.sql.subquery.maxThreadThreshold",
    "spark.sql.ui.retainedExecutions",
    "spark.sql.warehouse.dir",
}
MASTER = "spark.master"
MASTER_RULE = (
    "a master is local[N], spark://HOST:PORT (several by commas), yarn or k8s://https://HOST:PORT; "
    "without one, the job runs in its slot's own Spark"
)
_HOSTS = r"(?:[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}"
_MASTER = re.compile(
    rf"local(?:\[(?:\*|[1-9][0-9]*)(?:, *[1-9][0-9]*)?\])?|spark://{_HOSTS}(?:,{_HOSTS})*|yarn"
    r"|k8s://(?:https?://)?[A-Za-z0-9_.\[\]:-]+(?:/[A-Za-z0-9_./-]*)?"
)
_HARMLESS = {"spark.app.name"}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._\-]*\Z")


def is_master(value: str) -> bool:
    """Whether Spark takes it as ``spark.master``. ``local-cluster`` is for Spark's own tests: its executors know no bound of the slot."""
    return _MASTER.fullmatch(value) is not None


def is_remote(master: str) -> bool:
    """Whether executors are processes elsewhere, and not a part of the driver's."""
    return not master.startswith("local")


def is_static(key: str) -> bool:
    """Whether a running Spark context ignores ``key``: everything but SQL's runtime settings and the settings of its sources."""
    if key in _HARMLESS or key in REFUSED:
        return False
    if key.startswith("spark.sql."):
        return key in STATIC_SQL
    return key.startswith("spark.")


def classify_conf(conf: dict[str, str]) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """Splits a job's Spark settings into (runtime, static, refused).

    ``runtime`` are set on the attempt's session. ``static`` give the job a JVM of its own. ``refused`` maps each key that
    cannot be honoured to the reason.
    """
    runtime: dict[str, str] = {}
    static: dict[str, str] = {}
    refused: dict[str, str] = {}
    for key, value in conf.items():
        if not _NAME.match(key) or not key.startswith("spark."):
            refused[key] = "Spark settings are called spark.something"
        elif key in REFUSED:
            refused[key] = REFUSED[key]
        elif "\0" in str(value):
            refused[key] = "its value holds a NUL character"
        elif key == MASTER and not is_master(value):
            refused[key] = f"{value[:100]!r} is no master: {MASTER_RULE}"
        elif is_static(key):
            static[key] = value
        else:
            runtime[key] = value
    return runtime, static, refused


PACKAGES = {
    "avro": "org.apache.spark:spark-avro_2.13:4.2.0",
    "kafka": "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "delta": "io.delta:delta-spark_2.13:VERSION",
    "iceberg": "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:VERSION",
    "hudi": "org.apache.hudi:hudi-spark4.0-bundle_2.13:VERSION",
    "mongodb": "org.mongodb.spark:mongo-spark-connector_2.13:VERSION",
    "bigquery": "com.google.cloud.spark:spark-bigquery-with-dependencies_2.13:VERSION",
    "s3a": "org.apache.hadoop:hadoop-aws:3.5.0",
    "abfs": "org.apache.hadoop:hadoop-azure:3.5.0",
    "abfss": "org.apache.hadoop:hadoop-azure:3.5.0",
    "wasb": "org.apache.hadoop:hadoop-azure:3.5.0",
    "wasbs": "org.apache.hadoop:hadoop-azure:3.5.0",
    "gs": "com.google.cloud.bigdataoss:gcs-connector:VERSION",
}
"""Formats, and schemes of paths, that PySpark 4.2 (Hadoop 3.5) reads with a package that it does not bring along. VERSION: one that is
made for this Spark."""
ADD_PACKAGE = "add it to conf as spark.jars.packages: {} (for a script: --packages), or ask who runs the cluster"
_HADOOP = {"s3a": "s3a", "azurebfs": "abfs", "azure": "wasb"}  # packages of Hadoop's classes


def lacking(message: str) -> tuple[str, str] | None:
    """(what needs a package, the package), of an error of Spark's or Hadoop's about a class or format that is not there."""
    of_class = re.search(r"org\.apache\.hadoop\.fs\.(\w+)\.", message)
    scheme = re.search(r"No FileSystem for scheme:? \"?(\w+)", message)
    source = re.search(r"data source: `?([\w.-]+?)`?\. ", message)
    name = scheme.group(1) if scheme else _HADOOP.get(of_class.group(1)) if of_class else None
    if name is not None:
        return (f"{name}://", PACKAGES[name]) if name in PACKAGES else None
    name = source.group(1).lower() if source else ""
    return (f"the format {name}", PACKAGES[name]) if name in PACKAGES else None
