"""Environment variables on their way to a job."""

from __future__ import annotations

import hashlib
import json

import pytest

from millrace.client.environment import environment_module
from millrace.client.errors import Invalid
from millrace.core.messages.base import canonical


def test_a_modules_name_in_a_message_does_not_let_values_be_guessed() -> None:
    module, content = environment_module({"PIN": "1234"}, "the token")
    assert module == {"name": "environment", "sha256": hashlib.sha256(content).hexdigest(), "kind": "env"}
    assert json.loads(content)["env"] == {"PIN": "1234"}
    salt = hashlib.sha256(canonical({"PIN": "1234"})).hexdigest()
    assert json.loads(content)["salt"] != salt
    assert environment_module({"PIN": "1234"}, "another")[0] != module


def test_the_same_variables_again_are_the_same_job() -> None:
    assert environment_module({"A": "1", "B": "2"}, "t") == environment_module({"B": "2", "A": "1"}, "t")


@pytest.mark.parametrize(
    "env",
    [{"1A": "hush"}, {"A\n": "hush"}, {"SPARK_HOME": "hush"}, {"A": "hush\0"}, {"A": "hush" * 20_000}, {"A hush": "x"},
     {"A": "hush\udcff"}, {"A\udcff": "x"}],
)
def test_what_cannot_be_set_is_refused_without_its_value(env: dict[str, str]) -> None:
    with pytest.raises(Invalid) as refused:
        environment_module(env, "t")
    assert "hush" not in str(refused.value) and "env" in str(refused.value)
