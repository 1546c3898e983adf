"""Connections of shared memory that break, though both ends live."""

import os
import socket
import time
import urllib.request

from ranks import BCE, Ranks, fill

import lossd


def break_connections(path):
    """Those of this process to the socket at this path. How many there were."""
    broken = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            one = socket.socket(fileno=os.dup(int(name)))
        except OSError:
            continue
        with one:
            if one.family == socket.AF_UNIX and one.type == socket.SOCK_SEQPACKET and one.getpeername() == path:
                one.shutdown(socket.SHUT_RDWR)
                broken += 1
    return broken


def states(daemon, group):
    request = urllib.request.Request(
        f"http://{daemon.tcp}/lossd.v1.GroupService/GetGroup",
        f'{{"group": "{group}"}}'.encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:
        text = answer.read().decode()
    return [part.split('"')[0] for part in text.split("RANK_STATE_")[1:]]


def compute(client, batch, step):
    """Again where the other rank was still seen dead."""
    while True:
        try:
            return client.compute(batch, step)
        except lossd.Error as error:
            assert " dead" in error.metadata.get("missing_states", ""), error


def test_ranks_that_were_all_seen_dead_come_back_into_their_generation(daemon):
    with Ranks(2, {**BCE, "step_timeout_ms": 3000, "first_step_timeout_ms": 3000}, address=daemon.unix, transport="shared_memory") as group:
        before = group[0].generation
        for step in range(3):
            assert break_connections(daemon.unix.removeprefix("unix:") + ".shm") == 2
            end = time.monotonic() + 10
            while states(daemon, group.group) != ["DEAD", "DEAD"]:
                assert time.monotonic() < end, states(daemon, group.group)
                time.sleep(0.01)
            batches = [fill(client, [2], [0, 0], [0, 1]) for client in group]
            answers = group.together(*[lambda c=c, b=b: compute(c, b, step) for c, b in zip(group.clients, batches)])
            assert [answer.world for answer in answers] == [lossd.Counts(2, 4, 2)] * 2
            assert [client.generation for client in group] == [before, before]
