"""The package as pip installs it, without a network; its README as it stands."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from lossd_process import ROOT
from processes import run_ranks

PACKAGE = ROOT / "client" / "python"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder that pip has installed it to, from a copy: setuptools builds in the source's folder."""
    folder = tmp_path_factory.mktemp("install")
    shutil.copytree(PACKAGE, folder / "source", ignore=shutil.ignore_patterns("__pycache__"))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore"}
    command = [*pip, "--target", str(folder / "target"), str(folder / "source")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "target"


def test_all_modules_are_installed(installed):
    there = {file.name for file in (installed / "lossd").iterdir()} - {"__pycache__"}
    assert there == {file.name for file in (PACKAGE / "lossd").iterdir()} - {"__pycache__"}
    metadata = next(installed.glob("lossd-0.1.0*.dist-info")) / "METADATA"
    assert "\nVersion: 0.1.0\n" in metadata.read_text()


BLOCKS = re.findall(r"<!-- run -->\n```python\n(.*?)```", (PACKAGE / "README.md").read_text(), re.S)


def test_the_training_loop_of_the_readme_runs(daemon, installed, tmp_path):
    program = tmp_path / "loop.py"
    program.write_text(BLOCKS[0])
    run_ranks(2, program, lambda rank: [], daemon.unix, package=installed)


def test_the_numbers_of_the_readme_are_right(daemon, installed, tmp_path):
    program = tmp_path / "numbers_of_readme.py"
    program.write_text(BLOCKS[1])
    (printed,) = run_ranks(1, program, lambda rank: [], daemon.unix, package=installed)
    assert printed.strip() == re.search(r"# (3\.125 .*)", BLOCKS[1]).group(1)
    assert len(BLOCKS) == 2 and len(BLOCKS[0].splitlines()) <= 24


def test_the_installed_package_is_what_was_run(installed):
    code = "import lossd, pathlib; print(pathlib.Path(lossd.__file__).parent)"
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    printed = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert pathlib.Path(printed.stdout.strip()) == installed / "lossd"
