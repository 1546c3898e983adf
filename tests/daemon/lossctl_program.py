"""lossctl as a program: how tests call it, and what it exits with."""

import json
import subprocess

import pytest

from harness import BUILD

LOSSCTL = BUILD / "client" / "lossctl"
USAGE, INPUT, NOT_LOSSD, DIFFERS, OUTPUT = 1, 2, 3, 4, 5
INVALID_ARGUMENT, DEADLINE, NOT_FOUND, UNAVAILABLE = 24, 32, 40, 112

needed = pytest.mark.skipif(not LOSSCTL.exists(), reason="built without client")


def call(*arguments, **options):
    return subprocess.run([LOSSCTL, *arguments], capture_output=True, text=True, timeout=60, check=False,
                          **options)


def write_rank(folder, group, rank, what, step=0, **more):
    file = folder / f"rank{rank}.json"
    file.write_text(json.dumps({"group": group, "rank": rank, "step": step, **what, **more}))
    return str(file)
