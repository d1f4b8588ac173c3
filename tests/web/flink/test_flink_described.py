"""Flink's API holds what its OpenAPI document says, whatever it is asked."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.web.flink.scene import Commands, made

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
"""Not that a wrong method is 405, and what is not known is refused: Flink does neither."""
HEADERS = {"Host": "127.0.0.1"}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("examples", [4, pytest.param(20, marks=pytest.mark.long)])
def test_nothing_that_is_asked_is_answered_otherwise_than_described(examples: int) -> None:
    schema = schemathesis.openapi.from_asgi("/v1/openapi.json", made(Commands()).app, headers=HEADERS)
    operations = [result.ok() for result in schema.get_all_operations()]
    for operation in operations:
        check(operation, examples)
    assert len(operations) > 50


def check(operation: Any, examples: int) -> None:
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
    @given(case=operation.as_strategy())
    def answered(case: Any) -> None:
        case.call_and_validate(headers=HEADERS, checks=CHECKS)

    answered()
