"""Memory that the daemon has made for trainers stays within limits.regions_bytes, whoever keeps descriptors of it; and
who gives up a region has room for another one at once."""

import os
import pathlib
import signal

import pytest

from harness import background, wait_until
from shm_peer import Peer, ShmError, Socket
from small import BCE, Ranks, batch
from test_shm_life import parent_that_attaches

MIB = 1 << 20
ALONE = {**BCE, "global_average": False}


def held(files):
    """Bytes of memory behind descriptors, or behind paths of them."""
    return sum(os.stat(file).st_blocks * 512 for file in files)


class Keeper:
    """A trainer that attaches again and again, and keeps every descriptor."""

    def __init__(self, daemon, rank=0):
        self.daemon, self.rank, self.files = daemon, rank, []
        self.generation = daemon.client.join_all("g", 2, ALONE)
        self.connect()

    def connect(self):
        self.peer = Peer(self.daemon, "g", self.rank, self.generation, ALONE, data_bytes=MIB)
        self.files.append(os.dup(self.peer.fd))

    def attach(self, data_bytes=MIB):
        os.close(self.peer.fd)
        self.peer.attach(data_bytes=data_bytes)
        self.files.append(os.dup(self.peer.fd))

    def data(self):
        return memoryview(self.peer.map)[self.peer.layout.data_offset:]

    def compute(self, step):
        assert self.peer.compute({"step": step, **batch(2)})["world"] == (1.0, 2.0, 1)

    def end(self):
        self.peer.close()
        wait_until(lambda: self.daemon.metric("lossd_region_bytes") == 0)
        assert held(self.files) == 0
        for file in self.files:
            os.close(file)


@pytest.mark.parametrize("how", ["submit", "attach", "connect"])
def test_kept_descriptors_hold_no_memory_of_the_daemon(start, how):
    limit = 4 * MIB
    keeper = Keeper(start({"limits": {"regions_bytes": limit}}))
    for step in range(40):
        assert MIB < held(keeper.files) <= limit
        if how == "submit":
            keeper.compute(step)
        if how == "connect":
            keeper.peer.close()
            keeper.connect()
        else:
            keeper.attach()
    keeper.end()


def test_the_region_before_is_whole_until_something_is_submitted_in_the_one_after_it(start):
    keeper = Keeper(start())
    size = keeper.peer.layout.region_bytes
    for _ in range(2):
        old = keeper.data()
        old[:] = bytes([1]) * len(old)
        keeper.attach()
        assert keeper.daemon.metric("lossd_region_bytes") >= 2 * size
        keeper.peer.ring()
        keeper.peer.control.bell += 1  # neither is a submission
        keeper.daemon.client.group("g")
        assert old == bytes([1]) * len(old)
    keeper.compute(1)
    wait_until(lambda: keeper.daemon.metric("lossd_region_bytes") == size)
    assert held(keeper.files[:2]) == 0
    keeper.end()
    assert old == bytes(len(old))


def test_an_attach_that_is_refused_takes_the_region_before_all_the_same(start):
    keeper = Keeper(start())
    size = keeper.peer.layout.region_bytes
    keeper.attach()
    keeper.peer.ask("nobody", 0, 1)
    with pytest.raises(ShmError):
        keeper.peer.answered()
    wait_until(lambda: keeper.daemon.metric("lossd_region_bytes") == size)
    keeper.compute(1)
    keeper.end()


def sizes(start, *data_bytes):
    """What regions with so many data take."""
    daemon = start()
    generation = daemon.client.join_all("g", 1, BCE)
    found = []
    for count in data_bytes:
        connection = Socket(daemon)
        connection.ask("g", 0, generation, data_bytes=count)
        layout, fd = connection.answered()
        os.close(fd)
        connection.close()
        found.append(layout.region_bytes)
    return found


def test_a_trainer_needs_room_for_two_regions_and_no_more(start):
    small, large = sizes(start, MIB, 8 * MIB)
    keeper = Keeper(start({"limits": {"regions_bytes": small + large}}))
    for step in range(40):  # with and without something submitted in between
        keeper.attach(8 * MIB if step % 2 == 0 else MIB)
        if step % 3 == 0:
            keeper.compute(step)
    keeper.end()
    keeper = Keeper(start({"limits": {"regions_bytes": small + large - 4096}}))
    with pytest.raises(ShmError) as refused:
        keeper.attach(8 * MIB)
    assert refused.value.metadata == {"limit": "regions_bytes"}
    keeper.peer.fd = os.dup(keeper.files[-1])
    keeper.compute(1)
    keeper.end()


def test_who_comes_again_at_once_has_the_room_that_was_its_own(start):
    size, = sizes(start, 32 * MIB)
    daemon = start({"limits": {"regions_bytes": size}})
    generation = daemon.client.join_all("g", 1, BCE)
    for _ in range(20):
        connection = Socket(daemon)
        connection.ask("g", 0, generation, data_bytes=32 * MIB)
        _, fd = connection.answered()
        os.close(fd)
        connection.close()
        other = Socket(daemon)
        other.ask("g", 0, generation, data_bytes=32 * MIB)
        os.close(other.answered()[1])
        other.close()


def test_who_waits_for_room_and_dies_leaves_it_to_others(start):
    size, = sizes(start, 32 * MIB)
    daemon = start({"limits": {"regions_bytes": size}})
    generation = daemon.client.join_all("g", 2, BCE)
    for _ in range(10):
        connections = [Socket(daemon) for _ in range(3)]
        connections[0].ask("g", 0, generation, data_bytes=32 * MIB)
        os.close(connections[0].answered()[1])
        for rank, connection in enumerate(connections[1:]):
            connection.ask("g", rank, generation, data_bytes=32 * MIB)
        for connection in connections:
            connection.close()
    peer = Peer(daemon, "g", 1, generation, BCE, data_bytes=32 * MIB)
    peer.close()
    wait_until(lambda: daemon.metric("lossd_region_bytes") == 0)


def test_the_child_of_a_trainer_that_was_killed_keeps_no_memory(start):
    daemon = start()
    ranks = Ranks(daemon.client, "g", 2)
    parent, child = parent_that_attaches(daemon, "g", 1, ranks.generation)
    files = [file for file in pathlib.Path(f"/proc/{child}/fd").iterdir() if "memfd:lossd" in os.readlink(file)]
    assert len({os.stat(file).st_ino for file in files}) == 1 and held(files) > MIB
    parent.kill()
    parent.wait()
    wait_until(lambda: daemon.metric("lossd_region_bytes") == 0)
    assert held(files) == 0
    os.kill(child, signal.SIGKILL)


def test_a_daemon_that_stops_leaves_trainers_what_they_have(start):
    """They may not have read their gradients yet, and send their batches to the next daemon."""
    daemon = start()
    ranks = Ranks(daemon.client, "g", 2)
    peer = Peer(daemon, "g", 1, ranks.generation, BCE)
    call = background(lambda: ranks.compute(0, 1, 6))
    want = peer.compute({"step": 1, **batch(2)})
    call.result()
    daemon.stop()
    assert peer.is_closed() and peer.result() == want and want["tasks"][0]["gradient"] == [-0.125, -0.125]
    peer.close()
