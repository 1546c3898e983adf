"""Fixtures: where the package and the library are, and a daemon that the tests of a module share."""

import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from lossd_process import BUILD, ROOT, LossdProcess  # noqa: E402

sys.path.insert(0, str(ROOT / "client" / "python"))
os.environ.setdefault("LOSSD_LIBRARY", str(BUILD / "client" / "liblossd.so"))


def pytest_configure(config):
    config.addinivalue_line("markers", "plain: says something about the plain build only (time)")
    for file in (BUILD / "daemon" / "lossd", pathlib.Path(os.environ["LOSSD_LIBRARY"])):
        if not file.exists():
            pytest.exit(f"there is no {file.name} in {file.parent}: build it, or set LOSSD_BUILD", 1)


@pytest.fixture(scope="module")
def daemon():
    shared = LossdProcess({"limits": {"groups": 1000}})
    yield shared
    shared.stop()


@pytest.fixture(params=["shared_memory", "http_protobuf", "http_json"])
def way(request, daemon):
    """How to reach the daemon: keywords of lossd.Client, for each transport once."""
    return {"address": daemon.unix, "transport": request.param}


@pytest.fixture
def fast(daemon):
    """The same for tests that are about something else."""
    return {"address": daemon.unix}


@pytest.fixture
def say(capsys):
    """say(line): a figure that the log of a run should show."""

    def run(line):
        with capsys.disabled():
            print(f"\n{line}")

    return run
