"""What is refused under Flink's paths, and with which headers."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from tests.web.flink.scene import RUNS, Commands, made, path

DASHBOARD = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}


@pytest.fixture
def commands() -> Commands:
    return Commands()


@pytest.fixture
def web(commands: Commands) -> TestClient:
    return made(commands)


@pytest.mark.parametrize(("site", "dest"), [
    ("none", "document"), ("same-origin", "document"), ("cross-site", "image"), ("same-origin", "image"), ("none", "empty"),
])  # fmt: skip
def test_no_link_and_no_picture_cancels_a_job(web: TestClient, commands: Commands, site: str, dest: str) -> None:
    """A link in a mail is of no site, and leads to a document."""
    answer = web.get(path("/jobs/J/yarn-cancel"), headers={"Sec-Fetch-Site": site, "Sec-Fetch-Dest": dest})
    assert (answer.status_code, list(answer.json()), commands.canceled) == (403, ["errors"], [])


@pytest.mark.parametrize("headers", [DASHBOARD, {}])
def test_the_dashboard_and_who_is_no_browser_cancel_by_get(web: TestClient, commands: Commands, headers: dict[str, str]) -> None:
    assert web.get(path("/jobs/J/yarn-cancel"), headers=headers).status_code == 202
    assert commands.canceled == [RUNS]


def test_a_refusal_keeps_its_headers_under_flinks_paths(web: TestClient) -> None:
    """Without them a client does not know how long a log is, and when to ask again."""
    logs = [each for each in web.get("/v1/taskmanagers/tm/logs").json()["logs"] if each["size"]]
    assert logs
    for log in logs:
        answer = web.get(f"/v1/taskmanagers/tm/logs/{log['name']}", headers={"Range": "bytes=99999999-"})
        assert (answer.status_code, list(answer.json())) == (416, ["errors"])
        assert answer.headers["content-range"] == f"bytes */{log['size']}", log
