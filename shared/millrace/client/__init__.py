"""The client library: `Millrace(bootstrap, token=...)` submits jobs, follows and cancels them, gets their results and logs.

with Millrace("127.0.0.1:9092", token=token) as millrace:
    job = millrace.submit({"name": "one", "vertices": {"one": {"sql": "SELECT 1 AS a"}}})
    for event in job.events():
        print(event["type"])
    print(job.result().rows)
"""

from .api import Ending, Job, Millrace, Submitting, new_id
from .errors import (
    Busy,
    Conflict,
    Invalid,
    Malformed,
    MillraceError,
    NotFinished,
    NotFound,
    OutcomeUnknown,
    Refused,
    Rejected,
    TooLate,
    Unavailable,
)
from .logs import LogPiece
from .queries import Shown
from .results import Result

__all__ = [
    "Busy", "Conflict", "Ending", "Invalid", "Job", "LogPiece", "Malformed", "Millrace", "MillraceError", "NotFinished",
    "NotFound", "OutcomeUnknown", "Refused", "Rejected", "Result", "Shown", "Submitting", "TooLate", "Unavailable", "new_id",
]  # fmt: skip
