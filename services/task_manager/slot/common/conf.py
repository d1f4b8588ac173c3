"""`millrace.edge.spark_conf` under this package's name. A host, whose Python may not have Millrace, is given that file instead."""

from millrace.edge.spark_conf import (
    ADD_PACKAGE,
    MASTER,
    REFUSED,
    STATIC_SQL,
    classify_conf,
    is_remote,
    is_static,
    lacking,
)

__all__ = ["ADD_PACKAGE", "MASTER", "REFUSED", "STATIC_SQL", "classify_conf", "is_remote", "is_static", "lacking"]
