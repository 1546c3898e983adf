"""Fixtures: a daemon that the tests of a module share, and daemons of a test's own. Each has to stop cleanly."""

import pytest

from harness import BUILD, Daemon
from lossctl_program import call
from shm_peer import Peer
from small import BCE

CODECS = ["json", "proto"]


def pytest_configure(config):
    config.addinivalue_line("markers", "plain: says something about the plain build only (memory, valgrind)")
    if not (BUILD / "daemon" / "lossd").exists():
        pytest.exit(f"there is no daemon/lossd in {BUILD}: build it, or set LOSSD_BUILD", 1)


@pytest.fixture(scope="module")
def daemon():
    shared = Daemon({"limits": {"groups": 1000}})
    yield shared
    shared.stop()


@pytest.fixture
def start():
    """start(config, …) gives a Daemon that ends with the test."""
    started = []

    def run(config=None, **options):
        started.append(Daemon(config, **options))
        return started[-1]

    yield run
    for one in started:
        one.stop()


@pytest.fixture(params=CODECS)
def client(request, daemon):
    """A client of the module's daemon, once in each codec."""
    return daemon.rpc(request.param)


@pytest.fixture
def lossctl(daemon):
    """lossctl(arguments…, input=…) against the module's daemon."""

    def run(*arguments, **options):
        return call("--addr", daemon.tcp, *arguments, **options)

    return run


@pytest.fixture
def attach(daemon):
    """attach(group, …) gives a Peer that is closed with the test."""
    peers = []

    def run(group, rank=0, generation=None, config=BCE, on=daemon, **more):
        peers.append(Peer(on, group, rank, generation, config, **more))
        return peers[-1]

    yield run
    for peer in peers:
        peer.close()
