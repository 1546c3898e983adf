"""RankingLoss under DDP and as FSDP averages, in two processes over gloo: each check is a function of ddp_checks."""

import inspect
import pathlib

import pytest

import ddp_checks
from processes import run_ranks

CHECKS = [
    name
    for name, function in inspect.getmembers(ddp_checks, inspect.isfunction)
    if list(inspect.signature(function).parameters) == ["rank"]
]


@pytest.mark.parametrize("check", CHECKS)
def test_two_ranks(daemon, check):
    run_ranks(2, pathlib.Path(ddp_checks.__file__), lambda rank: [check], daemon.unix)


def test_none_is_left_out():
    assert len(CHECKS) == 8
