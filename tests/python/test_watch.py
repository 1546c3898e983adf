"""A call that waits long says so, once, and one that is answered does not."""

import logging
import os
import subprocess
import sys
import threading
import time

import pytest
from lossd_process import ROOT
from ranks import BCE, Ranks, fill

import lossd
from lossd import _library, _watch

JOINS = """
import lossd
client = lossd.Client(reconnect=6)
try:
    client.join({"tasks": [{"name": "t", "losses": [{"l2_loss": {}}]}]}, group="g", rank=0, world_size=1)
except lossd.Error as why:
    print(why.reason)
"""


@pytest.fixture
def clock(monkeypatch):
    """clock[0] is the time, in seconds."""
    now = [100.0]
    monkeypatch.setattr(_watch.time, "monotonic", lambda: now[0])
    return now


def told(caplog):
    return [record.getMessage() for record in caplog.records if record.name == "lossd"]


def at(clock, watch, *seconds):
    begin = clock[0]
    for second in seconds:
        clock[0] = begin + second
        watch.look()


def test_joining_is_told_of_after_two_seconds_each_time(clock, caplog, monkeypatch):
    monkeypatch.setenv("LOSSD_ADDR", "unix:/run/lossd/lossd.sock")
    watch = _watch.Watch(None, None, None)
    watch.begin(_watch.JOIN)
    at(clock, watch, 0, 1.9)
    assert told(caplog) == []
    at(clock, watch, 0.2, 0.3, 30)
    line = "nobody answers at unix:/run/lossd/lossd.sock yet, trying for 30 s: is lossd running? LOSSD_ADDR names it"
    assert told(caplog) == [line]
    watch.begin(_watch.JOIN)
    at(clock, watch, 0, 2)
    assert told(caplog) == [line] * 2


def test_a_step_is_told_of_after_ten_seconds_and_once(clock, caplog, monkeypatch):
    monkeypatch.delenv("LOSSD_ADDR", raising=False)
    watch = _watch.Watch(None, None, None)
    watch.rank = 5
    watch.begin(3)
    at(clock, watch, 0, 9.9)
    assert told(caplog) == []
    at(clock, watch, 0.2, 0.3)
    watch.begin(3)  # the same again
    at(clock, watch, 0, 20)
    line = "rank 5 waits in step 3: `lossctl status` shows for whom"
    assert told(caplog) == [line]
    watch.begin(4)
    at(clock, watch, 0, 9.9)  # not counted from the step before
    assert told(caplog) == [line]
    at(clock, watch, 0.1)
    assert told(caplog) == [line, line.replace("3", "4")]
    watch.begin(None)
    at(clock, watch, 0, 100)
    watch.begin(_library.STEP_COUNTS_ON)
    at(clock, watch, 0, 10)
    assert told(caplog)[2:] == ["rank 5 waits in its step: `lossctl status` says why"]


def test_the_time_for_joining_is_the_shorter_one(monkeypatch):
    assert _watch.Watch("a:1", None, 7).limit == 7
    assert _watch.Watch("a:1", 5, None).limit == 5
    monkeypatch.setenv("LOSSD_TIMEOUT_MS", "2500")
    assert _watch.Watch("a:1", None, None).limit == 2.5 and _watch.Watch("a:1", 60, None).limit == 30


def test_an_address_that_was_given_stands_in_the_command(clock, caplog):
    watch = _watch.Watch("unix:/a", None, 4)
    watch.begin(_watch.JOIN)
    at(clock, watch, 0, 2)
    watch.begin(0)
    at(clock, watch, 0, 10)
    assert told(caplog) == [
        "nobody answers at unix:/a yet, trying for 4 s: is lossd running?",
        "rank 0 waits in step 0: `lossctl --addr unix:/a status` shows for whom",
    ]


def test_who_joins_in_vain_reads_it_on_standard_error():
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "client" / "python"), "LOSSD_ADDR": "unix:/nonexistent/s"}
    ended = subprocess.run([sys.executable, "-c", JOINS], env=environment, capture_output=True, text=True, timeout=60)
    line = "nobody answers at unix:/nonexistent/s yet, trying for 6 s: is lossd running? LOSSD_ADDR names it\n"
    assert (ended.stdout, ended.stderr) == ("CANNOT_CONNECT\n", line)


@pytest.mark.parametrize("in_two", [False, True], ids=["compute", "submit and wait"])
def test_a_step_that_waits_for_a_rank_says_so(way, caplog, monkeypatch, in_two):
    monkeypatch.setattr(_watch, "STEP_SECONDS", 0.4)
    with caplog.at_level(logging.WARNING, "lossd"), Ranks(2, BCE, **way) as group:
        for step in (6, 7, 8):  # rank 1 is late in step 7
            first, second = (fill(group[rank], [1], [0], [1]) for rank in range(2))

            def late(batch=second, step=step):
                time.sleep(1 if step == 7 else 0)
                group[1].compute(batch, step)

            other = threading.Thread(target=late)
            other.start()
            if in_two:
                group[0].submit(first, step)
                result = group[0].wait(first)
            else:
                result = group[0].compute(first, step)
            other.join()
            assert result.step == step
    assert told(caplog) == [f"rank 0 waits in step 7: `lossctl --addr {way['address']} status` shows for whom"]


def test_a_client_says_who_it_is(way):
    client = lossd.Client(**way)
    start = f"Client(address={way['address']!r}, "
    assert repr(client) == start + f"transport={way['transport']!r})"
    client.join(BCE, group="who", rank=0, world_size=1)
    assert repr(client) == start + f"group='who', rank=0, world_size=1, transport={way['transport']!r})"
    client.leave()
    client.close()
    assert repr(client) == start + "closed)"
