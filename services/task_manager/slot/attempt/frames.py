"""Small steps between DataFrames, sessions and the JVM that the other files of an attempt share."""

from __future__ import annotations

import re
from typing import Any


def quoted(name: str) -> str:
    """A column or view name as SQL takes any name."""
    return "`" + name.replace("`", "``") + "`"


def clone(session: Any) -> Any:
    """A session of the same context with the same settings and a catalog of temp views of its own (about 2 ms)."""
    from pyspark.sql import SparkSession

    return SparkSession(session.sparkContext, session._jsparkSession.cloneSession())


def frame(jdf: Any, session: Any) -> Any:
    """The DataFrame of a JVM Dataset."""
    from pyspark.sql import DataFrame

    return DataFrame(jdf, session)


def in_session(df: Any, session: Any) -> Any:
    """The same plan as a DataFrame of another session of the same context."""
    if df.sparkSession._jsparkSession == session._jsparkSession:
        return df
    dataset = getattr(session._jvm, "org.apache.spark.sql.classic.Dataset")  # as a whole it is one call, by its parts seven
    return frame(dataset.ofRows(session._jsparkSession, df._jdf.logicalPlan()), session)


def schema_json(df: Any) -> str:
    """The schema as Spark's JSON, without a way through Python."""
    return str(df._jdf.schema().json())


def java_schema(session: Any, schema: str) -> Any:
    """The JVM's StructType of Spark's JSON."""
    return session._jvm.org.apache.spark.sql.types.DataType.fromJson(schema)


def python_schema(schema: str) -> Any:
    """PySpark's StructType of Spark's JSON."""
    from pyspark.sql.types import _parse_datatype_json_string

    return _parse_datatype_json_string(schema)


def ddl_json(session: Any, ddl: str) -> str:
    """Spark's JSON of columns written as in CREATE TABLE."""
    return str(session._jvm.org.apache.spark.sql.types.StructType.fromDDL(ddl).json())


def from_rdd(session: Any, jrdd: Any, jschema: Any) -> Any:
    """A DataFrame over a JVM RDD of InternalRow."""
    return frame(session._jsparkSession.internalCreateDataFrame(jrdd, jschema, False), session)


def empty(session: Any, schema: str) -> Any:
    """No rows of a schema (Spark's JSON); Spark's optimizer does not know that there are none. All may be NULL, as in what is read of an
    exchange. Else a plan that asks whether a column is NULL, or counts it, would not need the column, and nobody would hand it on."""
    jvm = session._jvm
    tag = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("org.apache.spark.sql.catalyst.InternalRow"))
    return from_rdd(session, session.sparkContext._jsc.sc().emptyRDD(tag), java_schema(session, schema).asNullable())


def path_and_fs(session: Any, folder: str) -> tuple[Any, Any]:
    """Hadoop's Path and FileSystem of a path or URL."""
    path = session._jvm.org.apache.hadoop.fs.Path(folder)
    return path, path.getFileSystem(session._jsparkSession.sessionState().newHadoopConf())


def literal(path: str) -> str:
    """A path for Spark's readers that means this path alone, whatever its name: they take paths for patterns.

    (Their option to take none for a pattern reads files twice if a name looks like one.)
    """
    return re.sub(r"([\\\[\]{}*?])", r"\\\1", path)


def items(seq: Any) -> list[Any]:
    """The elements of a Scala Seq."""
    return [seq.apply(i) for i in range(seq.size())]


def sequence(session: Any, values: list[str] | list[int]) -> Any:
    """A Scala Seq of these values."""
    return session._jvm.PythonUtils.toSeq(values)
