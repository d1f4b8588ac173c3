"""What a user sees of each typical mistake is what stands in its file. `pytest tests/mistakes --rewrite` writes what it is now: read the
diff."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.stack import Options
from tests.end_to_end.running import RunningStack
from tests.mistakes.scene import played, read

FILES = sorted(Path(__file__).parent.glob("*.txt"))
HERE = [file for file in FILES if not read(file.read_text()).needs_stack]
ON_A_STACK = [file for file in FILES if file not in HERE]


def play(file: Path, folder: Path, environment: dict[str, str], request: pytest.FixtureRequest) -> None:
    before = file.read_text()
    now = played(read(before), folder, environment)
    if request.config.getoption("--rewrite"):
        file.write_text(now)
    else:
        assert now == before


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[dict[str, str]]:
    """One slot for all of them; the environment that names it."""
    home = tmp_path_factory.mktemp("home")
    archives = Path(pytestconfig.cache.mkdir("class-data-archives"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MILLRACE_HOME", str(home))
        with RunningStack("default", Options(slots=1, task_managers=1, heap_mb=512), archives) as running:
            running.quiesce()  # its slot is warm: no scene waits for that
            yield {"MILLRACE_HOME": str(home)}


@pytest.mark.parametrize("file", HERE, ids=lambda file: file.stem)
def test_a_mistake_is_told_as_it_is_written(file: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    play(file, tmp_path, {"MILLRACE_HOME": str(tmp_path / "none")}, request)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("file", ON_A_STACK, ids=lambda file: file.stem)
def test_a_mistake_of_a_running_job_is_told_as_it_is_written(
    file: Path, stack: dict[str, str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    play(file, tmp_path, stack, request)


def test_there_are_thirty_typical_mistakes() -> None:
    assert len(FILES) >= 30
