"""What liblossd does where the daemon has no shared memory, no room, or no answer."""

import json
import pathlib
import resource
import select
import signal
import socket
import time

import pytest

from client_program import AUTO, BCE, PROTOBUF, SHARED_MEMORY, TRANSPORTS, ClientFailure, Trainer
from harness import fresh, wait_until


def test_where_the_daemon_shares_no_memory(start):
    daemon = start({"shared_memory": False})
    with Trainer(daemon.unix, AUTO) as trainer:
        assert trainer.join(fresh("client"), 0, 1, BCE)["transport"] == PROTOBUF
        trainer.begin(1, 4, fill=1)
        trainer.tell("compute", 0)
    with Trainer(daemon.unix, SHARED_MEMORY, reconnect_ms=100) as trainer:
        trainer.open()
        with pytest.raises(ClientFailure) as caught:
            trainer.join_opened(fresh("client"), 0, 1, BCE)
        assert (caught.value.code, caught.value.reason) == (14, "CANNOT_CONNECT")
    with Trainer(daemon.tcp, SHARED_MEMORY) as trainer:
        assert trainer.refused("open", *trainer.options).reason == "BAD_ADDRESS"


def test_the_environment_says_where_and_for_how_long(daemon):
    with Trainer("-", AUTO, env={"LOSSD_ADDR": daemon.unix, "LOSSD_TIMEOUT_MS": "100"}) as trainer:
        assert trainer.join(fresh("client"), 0, 2, BCE)["transport"] == SHARED_MEMORY
        trainer.begin(1, 4, fill=1)
        assert trainer.refused("compute", 0).reason == "PEER_WAIT_DEADLINE"
    with Trainer("-", AUTO, env={"LOSSD_ADDR": daemon.tcp}) as trainer:
        assert trainer.join(fresh("client"), 0, 1, BCE)["transport"] == PROTOBUF


def test_limits_of_buffers_are_named_and_smaller_batches_go_on(start):
    daemon = start({"limits": {"region_bytes": 1 << 20, "shared_memory_clients": 1}})
    with Trainer(daemon.unix, SHARED_MEMORY) as trainer:
        trainer.join(fresh("client"), 0, 1, BCE)
        trainer.begin(1, 1000, fill=1)
        want = trainer.tell("compute", 0)
        failure = trainer.refused("begin", 1, 100000, 0, 0, 0, 0)
        assert (failure.code, failure.reason, failure.metadata) == (8, "LIMIT_EXCEEDED", {"limit": "region_bytes"})
        trainer.begin(1, 1000, fill=1)
        assert trainer.tell("compute", 1)["loss"] == want["loss"]
        trainer.begin(1, 40000, fill=1)
        trainer.tell("compute", 2)
        with Trainer(daemon.unix, AUTO, reconnect_ms=100) as other:
            other.open()
            with pytest.raises(ClientFailure) as caught:
                other.join_opened(fresh("client"), 0, 1, BCE)
            assert caught.value.metadata["limit"] == "shared_memory_clients", caught.value


def limit(trainer, what, value):
    resource.prlimit(trainer.process.pid, what, (value, resource.getrlimit(what)[1]))


def held(trainer):
    """(descriptors, bytes of address space)"""
    process = pathlib.Path(f"/proc/{trainer.process.pid}")
    return len(list((process / "fd").iterdir())), int((process / "statm").read_text().split()[0]) * 4096


def hold_addresses(trainer):
    limit(trainer, resource.RLIMIT_AS, held(trainer)[1] + (20 << 20))


def hold_descriptors(trainer):
    limit(trainer, resource.RLIMIT_NOFILE, held(trainer)[0])


@pytest.mark.parametrize("hold", [hold_addresses, hold_descriptors])
def test_who_can_not_take_larger_buffers_goes_on_with_the_smaller_ones(start, hold):
    """The daemon has made them, and takes the pages of the ones before."""
    daemon = start()
    with Trainer(daemon.unix, SHARED_MEMORY) as trainer:
        trainer.join("g", 0, 1, BCE)
        trainer.begin(1, 1000, fill=1)
        want = trainer.tell("compute", 0)
        trainer.begin(1, 1000, fill=1)
        hold(trainer)
        failure = trainer.refused("begin", 1, 10000000, 0, 0, 0, 0)
        assert (failure.code, failure.reason) == (8, "OUT_OF_MEMORY"), failure
        limit(trainer, resource.RLIMIT_NOFILE, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
        trainer.start("compute", 1)  # of what was filled before
        assert select.select([trainer.process.stdout], [], [], 20)[0], "waits for an answer that nobody will write"
        assert trainer.answer()["loss"] == want["loss"]


def grow(daemon):
    """Batches that grow: their losses, and the regions that they had."""
    losses = []
    with Trainer(daemon.unix, SHARED_MEMORY) as trainer:
        trainer.join("g", 0, 1, BCE)
        regions = [daemon.metric("lossd_region_bytes")]  # without columns
        for step, candidates in enumerate([1000, 30000, 900000]):
            trainer.begin(1, candidates, fill=1)
            regions.append(daemon.metric("lossd_region_bytes") - regions[-1])
            losses.append(trainer.tell("compute", step)["loss"])
            wait_until(lambda: daemon.metric("lossd_region_bytes") == regions[-1])
    return losses, regions


def test_buffers_grow_where_two_regions_have_room_and_no_more(start):
    losses, regions = grow(start())
    assert regions[3] > 20 * regions[2] > 200 * regions[1] > 0
    assert grow(start({"limits": {"regions_bytes": int(regions[2] + regions[3])}})) == (losses, regions)


def test_who_has_no_descriptor_left_is_told_so(start):
    daemon = start()
    with Trainer(daemon.unix, SHARED_MEMORY) as trainer:
        trainer.open()
        limit(trainer, resource.RLIMIT_NOFILE, held(trainer)[0] + 1)  # for HTTP
        failure = trainer.refused("join", "g", 0, 1, json.dumps(BCE))
        assert (failure.code, failure.reason) == (8, "OUT_OF_MEMORY"), failure


def test_buffers_of_the_expected_size_are_made_when_joining(start):
    daemon = start()
    with Trainer(daemon.unix, SHARED_MEMORY, expected=(10, 50000)) as trainer:
        trainer.join(fresh("client"), 0, 1, BCE)
        region = daemon.metric("lossd_region_bytes")
        assert region > 2 * 50000 * 12
        trainer.begin(10, 50000, fill=1)
        trainer.tell("compute", 0)
        assert daemon.metric("lossd_region_bytes") == region


def stop(process):
    """SIGSTOP, and wait until no thread runs any more."""
    process.send_signal(signal.SIGSTOP)
    threads = list(pathlib.Path(f"/proc/{process.pid}/task").glob("*/stat"))
    while any(file.read_text().rsplit(")", 1)[1].split()[0] != "T" for file in threads):
        time.sleep(0.01)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_daemon_that_hangs_is_left_and_found_again(start, transport):
    daemon = start()
    with Trainer(daemon.unix, transport, timeout_ms=200) as trainer:
        trainer.join(fresh("client"), 0, 1, BCE)
        trainer.begin(1, 50, fill=1)
        want = trainer.tell("compute", 0)
        trainer.begin(1, 50, fill=1)
        stop(daemon.process)
        try:
            failure = trainer.refused("compute", 1)
        finally:
            daemon.process.send_signal(signal.SIGCONT)
        assert (failure.code, failure.reason) == (4, "NO_ANSWER")
        answer = trainer.tell("compute", 1)
        assert (answer["loss"], answer["tasks"]) == (want["loss"], want["tasks"])


def seconds_of(trainer, *words):
    """How long a command takes that gets no answer, and the reason it gives."""
    begin = time.monotonic()
    reason = trainer.refused(*words).reason
    return time.monotonic() - begin, reason


@pytest.mark.parametrize("bounds", [{"timeout_ms": 200}, {"reconnect_ms": 200}])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_daemon_that_hangs_is_not_waited_for_longer_than_was_said(start, transport, bounds):
    """Calls that wait for no other rank, of which the shorter bound and a second are enough."""
    daemon = start()
    with Trainer(daemon.unix, transport, **bounds) as trainer, Trainer(daemon.unix, transport, **bounds) as late:
        trainer.join(fresh("client"), 0, 2, BCE)
        trainer.begin(1, 50, fill=1)
        late.open()
        stop(daemon.process)
        try:
            # announce; begin, whose buffers have to be made, or whose daemon has to be found; join; leave
            took = [seconds_of(trainer, "announce", 0, 1, 50)]
            if transport == SHARED_MEMORY:
                took.append(seconds_of(trainer, "begin", 1, 50000, 0, 0, 0, 0))
            took += [seconds_of(trainer, "announce", 0, 1, 50), seconds_of(late, "join", "late", 0, 1, json.dumps(BCE)),
                     seconds_of(trainer, "leave")]
        finally:
            daemon.process.send_signal(signal.SIGCONT)
        assert all(reason == "NO_ANSWER" for _, reason in took), took
        assert all(seconds < 4 for seconds, _ in took), took
        trainer.tell("leave")


@pytest.mark.parametrize("bounds", [{"timeout_ms": 200}, {"reconnect_ms": 200}])
def test_a_host_that_drops_packets_is_not_waited_for_longer_than_was_said(bounds):
    """A listener whose queue is full: what comes behind is dropped."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(listener.getsockname())
        time.sleep(0.1)
        with Trainer(f"127.0.0.1:{listener.getsockname()[1]}", **bounds) as trainer:
            trainer.open()
            seconds, reason = seconds_of(trainer, "join", "g", 0, 1, json.dumps(BCE))
            assert reason == "CANNOT_CONNECT" and seconds < 4, (seconds, reason)
        for one in waiting:
            one.close()


@pytest.mark.parametrize("transport", [AUTO, SHARED_MEMORY])
def test_who_finds_the_queue_of_shared_memory_full_does_not_wait_for_ever(start, tmp_path, transport):
    daemon = start()
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener, \
            socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as waiting:
        listener.bind(path)
        listener.listen(0)
        waiting.connect(path)
        with Trainer(daemon.unix, transport, reconnect_ms=100, env={"LOSSD_SHM_SOCKET": path}) as trainer:
            trainer.open()
            trainer.start("join", "g", 0, 1, json.dumps(BCE))
            if not select.select([trainer.process.stdout], [], [], 20)[0]:
                trainer.kill()
            with pytest.raises(ClientFailure) as caught:
                trainer.answer()
            assert (caught.value.code, caught.value.reason) == (4, "NO_ANSWER")


def test_a_join_that_failed_half_way_is_the_same_again(start):
    """The rank was a member already: another one would have begun a new generation."""
    daemon = start({"limits": {"shared_memory_clients": 1}})
    group = fresh("client")
    with Trainer(daemon.unix, SHARED_MEMORY) as first, Trainer(daemon.unix, SHARED_MEMORY, reconnect_ms=100) as second:
        assert first.join(group, 0, 2, BCE)["generation"] == 1
        second.open()
        with pytest.raises(ClientFailure):
            second.join_opened(group, 1, 2, BCE)
        assert daemon.client.group(group).ranks[1].state != 1
        first.tell("close")
        wait_until(lambda: daemon.metric("lossd_shared_memory_clients") == 0)
        assert second.join_opened(group, 1, 2, BCE)["generation"] == 1
