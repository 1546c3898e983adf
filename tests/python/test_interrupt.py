"""A signal gets through to a process that waits for the daemon, and the client is as good as before."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from lossd_process import ROOT
from ranks import BCE, Ranks, fill, fresh

import lossd

WAITS = """
import sys
import numpy as np
import lossd

client = lossd.Client(sys.argv[1], transport=sys.argv[2])
config = {"tasks": [{"name": "t", "losses": [{"binary_cross_entropy": {}}]}]}
client.join(config, group=sys.argv[3], rank=0, world_size=2)
batch = client.batch(1, 2)
batch.lengths, batch.tasks["t"].logits, batch.tasks["t"].labels = [2], np.zeros(2), [0, 1]
print("waits", flush=True)
client.compute(batch, 0)
"""


def test_control_c_ends_a_process_that_waits_for_a_missing_rank(way):
    process = subprocess.Popen(
        [sys.executable, "-c", WAITS, way["address"], way["transport"], fresh()],
        env={**os.environ, "PYTHONPATH": str(ROOT / "client" / "python")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "waits\n"
    time.sleep(0.3)
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, printed = process.communicate(timeout=20)
    assert time.monotonic() - begin < 1
    assert process.returncode == -signal.SIGINT and printed.rstrip().endswith("KeyboardInterrupt"), printed


class Stop(Exception):
    pass


@pytest.fixture
def stopped():
    """stopped(call): the call is ended by a signal whose handler raises."""

    def handler(*_):
        raise Stop

    before = signal.signal(signal.SIGUSR1, handler)

    def run(call):
        main = threading.main_thread().ident
        timer = threading.Timer(0.2, lambda: signal.pthread_kill(main, signal.SIGUSR1))
        begin = time.monotonic()
        timer.start()
        with pytest.raises(Stop):
            call()
        assert time.monotonic() - begin < 1
        timer.join()

    yield run
    signal.signal(signal.SIGUSR1, before)


def test_what_a_handler_raises_comes_out_and_the_wait_can_go_on(way, stopped):
    with Ranks(2, BCE, **way) as group:
        first, second = (fill(group[rank], [2], [0, 0], [0, 1]) for rank in range(2))
        stopped(lambda: group[0].compute(first, 0))
        stopped(lambda: group[0].wait(first))
        group[1].submit(second, 0)
        waiting = threading.Thread(target=group[1].wait, args=(second,))
        waiting.start()
        assert group[0].wait(first).world == lossd.Counts(2, 4, 2)
        waiting.join()
        for step in range(1, 4):
            batches = [fill(client, [2], [0, 0], [0, 1]) for client in group]
            assert [result.step for result in group.compute(batches, step)] == [step, step]


def test_a_batch_that_is_lost_by_it_is_in_nobodys_way(way, stopped):
    with Ranks(2, BCE, **way) as group:
        stopped(lambda: group[0].compute(fill(group[0], [2], [0, 0], [0, 1]), 0))
        for step in range(4):
            batches = [fill(client, [2], [0, 0], [0, 1]) for client in group]
            assert [result.step for result in group.compute(batches, step)] == [step, step]


def test_a_handler_that_raises_nothing_ends_no_call(way):
    seen = []
    before = signal.signal(signal.SIGUSR1, lambda *_: seen.append(time.monotonic()))
    try:
        with Ranks(2, BCE, **way) as group:
            first, second = (fill(group[rank], [2], [0, 0], [0, 1]) for rank in range(2))
            main = threading.main_thread().ident

            def later():
                signal.pthread_kill(main, signal.SIGUSR1)
                time.sleep(0.3)
                group[1].compute(second, 0)

            other = threading.Timer(0.2, later)
            other.start()
            assert group[0].compute(first, 0).step == 0
            other.join()
            assert len(seen) == 1 and time.monotonic() - seen[0] > 0.1  # while it waited
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_daemon_that_is_away_is_not_waited_for(stopped):
    client = lossd.Client("unix:/nonexistent/socket")
    stopped(lambda: client.join(BCE, group="g", rank=0, world_size=1))
    client.close()
