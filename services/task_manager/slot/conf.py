"""`millrace.edge.spark_conf` under this package's name. A host, whose Python may not have Millrace, is given that file instead."""

from millrace.edge.spark_conf import REFUSED, STATIC_SQL, classify_conf, is_static

__all__ = ["REFUSED", "STATIC_SQL", "classify_conf", "is_static"]
