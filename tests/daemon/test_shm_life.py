"""A trainer's life on shared memory: it attaches, has several calls open, dies; limits, stopping, the steady state."""

import os
import pathlib
import re
import signal
import subprocess
import time

import pytest

import shm_peer
from harness import Client, background, fresh, page_faults, wait_until
from shm_peer import HAS_STEP, Peer, ShmError, Socket
from small import BCE, Ranks, bad_batch, batch


@pytest.mark.parametrize("change, reason, field", [
    ({"group": "nobody"}, "GROUP_NOT_FOUND", "group"), ({"rank": 7}, "RANK_RANGE", "rank"),
    ({"rank": 1}, "RANK_NOT_JOINED", "rank"), ({"generation": 99}, "STALE_GENERATION", "generation"),
    ({"slots": 0}, "INVALID_ARGUMENT", "num_slots"), ({"slots": 17}, "INVALID_ARGUMENT", "num_slots"),
    ({"data_bytes": (1 << 30) + 1}, "LIMIT_EXCEEDED", "data_bytes"),
])
def test_an_attach_that_is_refused_can_be_mended_on_the_same_connection(daemon, change, reason, field):
    name = fresh()
    generation = daemon.client.join(name, 0, 2, BCE).generation
    connection = Socket(daemon)
    good = {"group": name, "rank": 0, "generation": generation, "slots": 2, "data_bytes": 1000}
    connection.ask(**{**good, **change})
    with pytest.raises(ShmError) as refused:
        connection.answered()
    assert (refused.value.reason, refused.value.field) == (reason, field)
    connection.ask(**good)
    layout, fd = connection.answered()
    assert (layout.num_slots, layout.num_tasks, layout.num_terms) == (2, 1, 1)
    assert layout.data_offset % 64 == 0 and layout.region_bytes - layout.data_offset >= 1000
    assert layout.config_digest.decode() == daemon.client.group(name).config_digest
    os.close(fd)
    connection.close()


def test_several_calls_are_open_at_once(daemon, attach):
    name = fresh()
    ranks = Ranks(daemon.client, name, 2)
    peer = attach(name, 1, ranks.generation, slots=2)
    peer.columns({"step": 1, **batch(2)}, slot=0)
    peer.submit(slot=0)
    ranks.wait_for(1, "WAITING")
    peer.announce(2, 1, 4, slot=1)
    assert not peer.is_answered(0)
    assert ranks.compute(0, 1, 6).world.candidates == 8
    assert peer.wait(slot=0).candidate_factor == 0.5
    assert ranks.compute(0, 2, 12).world.candidates == 16


def test_sixteen_slots_of_one_rank_are_answered_each(daemon, attach):
    name = fresh()
    alone = {**BCE, "global_average": False}
    peer = attach(name, 0, daemon.client.join_all(name, 1, alone), alone, slots=16)
    for round_ in range(10):
        for slot in range(16):
            peer.columns({"step": round_ * 16 + slot, **batch(slot + 1)}, slot)
        for slot in range(16):
            peer.submit(slot)
            peer.wait(slot)
        assert [peer.answer(slot).local_candidates for slot in range(16)] == [float(s + 1) for s in range(16)]


@pytest.mark.parametrize("how", ["close", "kill"])
def test_the_death_of_a_rank_is_told_at_once(daemon, how):
    name = fresh()
    ranks = Ranks(daemon.client, name, 3)
    if how == "close":
        peer = Peer(daemon, name, 2, ranks.generation, BCE)
        end = peer.close
    else:
        child = child_that_attaches(daemon, name, 2, ranks.generation)
        end = child.kill
    call = background(lambda: ranks.compute(0, 1))
    ranks.wait_for(0, "WAITING")
    begin = time.monotonic()
    end()
    error = call.result()
    assert time.monotonic() - begin < 2 and error.reason == "STEP_TIMEOUT", error
    assert error.metadata["missing_states"] == "2 dead", error
    assert ranks.state(2) == "DEAD"
    again = Peer(daemon, name, 2, ranks.generation, BCE)
    assert ranks.state(2) != "DEAD"
    other = background(lambda: ranks.compute(1, 2))
    third = background(lambda: ranks.compute(0, 2))
    assert again.compute({"step": 2, **batch(2)})["world"] == (3.0, 6.0, 3)
    assert other.result().loss == third.result().loss
    again.close()


def test_a_rank_that_has_forked_dies_too_though_its_child_lives(start):
    """As a data loader's workers, the child holds the socket open."""
    daemon = start()
    ranks = Ranks(daemon.client, fresh(), 2)
    before = daemon.descriptors()
    parent, child = parent_that_attaches(daemon, ranks.name, 1, ranks.generation)
    call = background(lambda: ranks.compute(0, 1))
    ranks.wait_for(0, "WAITING")
    begin = time.monotonic()
    parent.kill()
    parent.wait()
    error = call.result()
    assert time.monotonic() - begin < 2 and error.metadata["missing_states"] == "1 dead", error
    assert pathlib.Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()[0] in "SR"
    wait_until(lambda: daemon.metric("lossd_region_bytes") == 0 and daemon.descriptors() <= before)
    assert "memfd" not in pathlib.Path(f"/proc/{daemon.process.pid}/maps").read_text()
    os.kill(child, signal.SIGKILL)


def child_that_attaches(daemon, name, rank, generation, then=""):
    """A process that attaches as this rank, and stays. then: what it does first."""
    code = ("import os, sys, types, time; sys.path.insert(0, sys.argv[1]); import shm_peer; "
            "d = types.SimpleNamespace(unix=sys.argv[2]); "
            "p = shm_peer.Peer(d, sys.argv[3], int(sys.argv[4]), int(sys.argv[5]), {}); print('ok', flush=True); "
            f"{then}time.sleep(60)")
    here = str(pathlib.Path(__file__).parent)
    child = subprocess.Popen(["/usr/bin/python3", "-c", code, here, daemon.unix, name, str(rank), str(generation)],
                             stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "ok\n"
    return child


def parent_that_attaches(daemon, name, rank, generation):
    """The same, which has forked: the process, and the id of its child."""
    parent = child_that_attaches(daemon, name, rank, generation,
                                 "child = os.fork() or time.sleep(60); print(child, flush=True); ")
    return parent, int(parent.stdout.readline())


def test_what_a_rank_that_dies_has_sent_still_counts(daemon, attach):
    name = fresh()
    ranks = Ranks(daemon.client, name, 2)
    peer = attach(name, 1, ranks.generation)
    peer.columns({"step": 1, **batch(2)})
    peer.submit()
    ranks.wait_for(1, "WAITING")
    peer.close()
    assert ranks.compute(0, 1, 6).world.candidates == 8


def test_what_a_rank_submits_with_its_last_breath_counts_too(daemon, attach):
    name = fresh()
    ranks = Ranks(daemon.client, name, 2)
    for step in range(1, 31):
        peer = attach(name, 1, ranks.generation)
        peer.columns({"step": step, **batch(2)})
        peer.submit()
        peer.close()
        assert ranks.compute(0, step, 6).world.candidates == 8


def test_a_second_attach_replaces_the_region(daemon, attach):
    name = fresh()
    generation = daemon.client.join_all(name, 1, BCE)
    peer = attach(name, 0, generation, data_bytes=1 << 16)
    old, old_control, before = peer.map, peer.control, peer.layout.region_bytes
    wait_until(lambda: daemon.metric("lossd_region_bytes") == before)  # others are gone
    peer.compute({"step": 1, **batch(2)})
    peer.attach(slots=3, data_bytes=1 << 22)
    assert daemon.metric("lossd_region_bytes") == before + peer.layout.region_bytes
    assert daemon.metric("lossd_shared_memory_clients") >= 1
    assert peer.compute({"step": 2, **batch(20000)}, slot=1)["world"] == (1.0, 20000.0, 1)
    old_control.bell += 1  # nobody looks there any more, and it is still ours
    assert len(old) > 1 << 16


def test_a_second_attach_with_an_open_call_is_refused_and_nothing_else(daemon, attach):
    name = fresh()
    ranks = Ranks(daemon.client, name, 2)
    peer = attach(name, 1, ranks.generation)
    peer.columns({"step": 1, **batch(2)})
    peer.submit()
    ranks.wait_for(1, "WAITING")
    peer.ask(name, 1, ranks.generation)
    with pytest.raises(ShmError) as refused:
        peer.answered()
    assert refused.value.reason == "MALFORMED_REQUEST"
    ranks.compute(0, 1, 6)
    assert peer.wait().world_candidates == 8


def test_a_call_ends_at_its_own_deadline(daemon, attach):
    name = fresh()
    ranks = Ranks(daemon.client, name, 2)
    peer = attach(name, 1, ranks.generation)
    begin = time.monotonic()
    with pytest.raises(ShmError) as late:
        peer.compute({"step": 1, **batch(2), "timeout_ns": 150_000_000})
    assert (late.value.reason, late.value.metadata["missing_ranks"]) == ("PEER_WAIT_DEADLINE", "0")
    assert 0.1 < time.monotonic() - begin < 5


def test_regions_and_clients_have_limits_that_are_named(start):
    daemon = start({"limits": {"region_bytes": 1 << 20, "regions_bytes": 3 << 20, "shared_memory_clients": 3}})
    generation = daemon.client.join_all("g", 3, BCE)
    connections = [Socket(daemon) for _ in range(3)]
    for rank, connection in enumerate(connections[:2]):
        connection.ask("g", rank, generation, data_bytes=1 << 20)
        os.close(connection.answered()[1])
    assert 2 << 20 < daemon.metric("lossd_region_bytes") <= 3 << 20
    last = connections[2]
    for asked, limit in (((1 << 20) + 1, "region_bytes"), (1 << 20, "regions_bytes")):
        last.ask("g", 2, generation, data_bytes=asked)
        with pytest.raises(ShmError) as refused:
            last.answered()
        assert (refused.value.reason, refused.value.metadata["limit"]) == ("LIMIT_EXCEEDED", limit)
    with pytest.raises(ShmError) as refused:
        Socket(daemon).answered()
    assert refused.value.metadata["limit"] == "shared_memory_clients"
    connections[0].close()
    wait_until(lambda: daemon.metric("lossd_region_bytes") < 2 << 20)
    last.ask("g", 2, generation, data_bytes=1 << 20)
    os.close(last.answered()[1])
    assert daemon.client.group("g").ranks[2].state != 0


def test_a_rank_that_gets_no_region_is_not_dead(start):
    daemon = start({"limits": {"regions_bytes": 0}})
    ranks = Ranks(daemon.client, "g", 2)
    call = background(lambda: ranks.compute(0, 1))
    ranks.wait_for(0, "WAITING")
    connection = Socket(daemon)
    connection.ask("g", 1, ranks.generation)
    with pytest.raises(ShmError):
        connection.answered()
    connection.close()
    time.sleep(0.1)
    assert ranks.compute(1, 1).world.candidates == 4 and call.result().world.candidates == 4


def test_others_are_served_while_a_large_region_is_touched(start):
    daemon = start()
    generation = daemon.client.join_all("g", 2, {**BCE, "global_average": False})
    small = Peer(daemon, "g", 0, generation, BCE)
    large = Socket(daemon)
    small.columns(batch(1))
    large.ask("g", 1, generation, data_bytes=256 << 20)
    slowest, served, step = 0.0, 0, 0
    while True:
        begin = time.monotonic()
        small.submission().step, small.submission().flags, step = step, HAS_STEP, step + 1
        small.submit()
        small.wait(sleep=False)
        slowest, served = max(slowest, time.monotonic() - begin), served + 1
        if shm_peer.select.select([large.sock], [], [], 0)[0]:
            break
    layout, fd = large.answered()
    assert layout.region_bytes > 256 << 20 and served >= 5  # at most 2 where it was touched at once
    assert slowest < 0.25, "somebody waited for the whole region"
    os.close(fd)
    small.close()
    large.close()


def test_sigterm_answers_open_calls_and_takes_the_sockets_away(start):
    daemon = start({"drain_timeout_ms": 300})
    generation = daemon.client.join_all("g", 2, BCE)
    waiting = Peer(daemon, "g", 0, generation, BCE, slots=2)
    waiting.columns({"step": 1, **batch(2)})
    waiting.submit()
    path = daemon.unix[5:]
    assert os.path.exists(path + ".shm") and os.stat(path + ".shm").st_mode & 0o777 == 0o660
    wait_until(lambda: daemon.metric("lossd_parked_calls") == 1)
    daemon.process.send_signal(signal.SIGTERM)
    with pytest.raises(ShmError) as down:
        waiting.wait()
    assert (down.value.reason, down.value.code) == ("SHUTTING_DOWN", "unavailable")
    assert waiting.is_closed()
    daemon.stop()
    assert not os.path.exists(path + ".shm") and not os.path.exists(path)
    waiting.close()


def test_steps_go_on_while_it_drains(start):
    daemon = start()
    generation = daemon.client.join_all("g", 2, BCE)
    peer = Peer(daemon, "g", 0, generation, BCE)
    call = background(lambda: daemon.client.call("ComputeLoss", {"group": "g", "rank": 1, "step": 1, **batch(2)}))
    wait_until(lambda: daemon.metric("lossd_parked_calls") == 1)
    daemon.process.send_signal(signal.SIGTERM)
    wait_until(lambda: any("event=draining" in line for line in daemon.log))
    assert peer.compute({"step": 1, **batch(2)})["world"] == (2.0, 4.0, 2)
    assert call.result().world.candidates == 4
    daemon.stop()
    peer.close()


def test_shared_memory_can_be_off(start):
    daemon = start({"shared_memory": False})
    assert not os.path.exists(daemon.unix[5:] + ".shm")
    assert not any("shared_memory" in line for line in daemon.log)


def test_a_path_that_is_too_long_has_no_shared_memory(start, tmp_path):
    folder = str(tmp_path)[: 80]
    folder = folder if os.path.isdir(folder) else "/tmp"
    address = f"unix:{folder}/" + "x" * (105 - len(folder) - 1)
    daemon = start(args=["--listen", "127.0.0.1:0", "--listen", address])
    assert len(address) - 5 == 105
    assert any("event=no_shared_memory" in line for line in daemon.log), daemon.log
    assert Client(address).call("ListGroups", {}) is not None


def test_it_says_where_shared_memory_is(daemon):
    assert any(re.search(rf"event=shared_memory socket={re.escape(daemon.unix[5:])}\.shm$", line.strip())
               for line in daemon.log), daemon.log


def test_calls_are_counted_like_those_of_http(start):
    daemon = start()
    peer = Peer(daemon, "g", 0, daemon.client.join_all("g", 1, BCE), BCE)
    for step in range(3):
        peer.compute({"step": step, **batch(2)})
    with pytest.raises(ShmError):
        peer.compute({"step": 9, **bad_batch(2)})
    method = "lossd.v1.LossService/ComputeLoss"
    assert daemon.metric("lossd_rpc_requests_total", method=method, code="ok") == 3
    assert daemon.metric("lossd_rpc_requests_total", method=method, code="invalid_argument") == 1
    assert daemon.metric("lossd_shared_memory_clients") == 1
    assert daemon.metric("lossd_region_bytes") == peer.layout.region_bytes
    assert daemon.metric("lossd_parked_calls") == 0
    peer.close()
    wait_until(lambda: daemon.metric("lossd_shared_memory_clients") == 0)
    wait_until(lambda: daemon.metric("lossd_region_bytes") == 0)


def run_steps(peer, first, count):
    peer.columns({"step": first, **batch(100)})
    sub = peer.submission()
    for step in range(first, first + count):
        sub.step = step
        peer.submit()
        peer.wait(sleep=False)


@pytest.mark.plain
def test_a_thousand_steps_fault_no_page_and_hold_no_more_memory(start):
    daemon = start({"compute_threads": 1})
    peer = Peer(daemon, "g", 0, daemon.client.join_all("g", 1, BCE), BCE)
    run_steps(peer, 0, 200)
    memory = daemon.metric("lossd_memory_bytes")
    rounds = []
    for begin in range(1000, 5000, 1000):  # the main thread may have pages of its own to touch
        before = sum(page_faults(daemon.process.pid).values())
        run_steps(peer, begin, 1000)
        rounds.append(sum(page_faults(daemon.process.pid).values()) - before)
    assert min(rounds) == 0, rounds
    assert daemon.metric("lossd_memory_bytes") == memory
    peer.close()


def system_calls(daemon, report, run):
    """How many system calls the daemon makes meanwhile."""
    tracer = subprocess.Popen(["strace", "-f", "-c", "-U", "calls,name", "-o", str(report), "-p", str(daemon.process.pid)],
                              stderr=subprocess.PIPE, text=True)
    assert "attached" in tracer.stderr.readline()
    run()
    tracer.send_signal(signal.SIGINT)
    tracer.wait(10)
    return sum(int(line.split()[0]) for line in report.read_text().splitlines()
               if re.match(r" *\d+ ", line) and not line.endswith("total"))


@pytest.mark.plain
def test_a_step_makes_no_system_call_but_those_of_waking_up(start, tmp_path):
    """A step that finds the daemon asleep may make four: it wakes up, reads the bell, and answers with one."""
    daemon = start()
    peer = Peer(daemon, "g", 0, daemon.client.join_all("g", 1, BCE), BCE)
    run_steps(peer, 0, 200)
    for begin in range(10000, 100000, 10000):  # until both have spun nearly always: somebody else may need the cores
        peer.rings = 0
        calls = system_calls(daemon, tmp_path / str(begin), lambda b=begin: run_steps(peer, b, 3000))
        assert calls < 0.3 * 3000 + 4 * peer.rings, (calls, peer.rings)
        if peer.rings < 300:
            break
    peer.close()
