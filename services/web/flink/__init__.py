"""Apache Flink's REST API over the same view: Flink's command line, its Java client and its dashboard work with this cluster unchanged.

Paths, fields, status codes and the shape of errors are those of Flink 2.3 (`docs/flink.md` lists where it differs, and why). Flink calls
`task` what one vertex of its graph is; here that is a task of a job, which may hold several of our vertices.
"""

VERSION = "2.3.0"
"""Of Flink, whose API this is."""
