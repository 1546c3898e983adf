"""The daemon is killed while calls are open, and started anew: clients come back by themselves, and no step is lost."""

import contextlib
import json
import os
import pathlib
import random
import re
import threading
import time

import pytest

from client_program import (
    JSON, PROTOBUF, SHARED_MEMORY, TRANSPORTS, ClientFailure, Lines, Trainer, computed, end, ranks_of,
)
from lossd_process import LossdProcess

LISTWISE = {"tasks": [{"name": "a", "losses": [{"binaryCrossEntropy": {}}, {"l2Loss": {}}]}]}
RESTARTS = int(os.environ.get("LOSSD_RESTARTS", "12"))


@contextlib.contextmanager
def mortal():
    """A lossd to be killed and started again."""
    daemon = LossdProcess({"drain_timeout_ms": 300})
    try:
        yield daemon
    finally:
        daemon.kill()
        daemon.folder.cleanup()


def run_undisturbed(steps, count):
    with mortal() as daemon:
        trainers = ranks_of(daemon, LISTWISE, SHARED_MEMORY, count)
        for trainer in trainers:
            trainer.start("run", 0, steps, 7)
        lines = [Lines(trainer, steps) for trainer in trainers]
        for one in lines:
            one.join(120)
        end(trainers)
    assert all(one.failure is None for one in lines), [one.failure for one in lines]
    return [[(line["step"], line["loss"], line["world"]) for line in one.lines] for one in lines]


def wait_for_progress(lines):
    """Until one more step is done by somebody. False where all is done."""
    before = [len(one.lines) for one in lines]
    while all(one.is_alive() for one in lines):
        if [len(one.lines) for one in lines] != before:
            return True
        time.sleep(0.0005)
    return False


@pytest.mark.parametrize("transport, steps, count", [(SHARED_MEMORY, 6000, 2), (PROTOBUF, 1500, 2), (JSON, 1000, 2),
                                                     (SHARED_MEMORY, 3000, 3)])
def test_no_step_is_lost_or_doubled(transport, steps, count):
    """Killed at random times while every rank is somewhere in its loop, until all steps are done."""
    want = run_undisturbed(steps, count)
    chance = random.Random(transport * 10 + count)
    kills = 0
    with mortal() as daemon:
        trainers = ranks_of(daemon, LISTWISE, transport, count)
        for trainer in trainers:
            trainer.start("run", 0, steps, 7)
        lines = [Lines(trainer, steps) for trainer in trainers]
        while kills < RESTARTS and wait_for_progress(lines):
            time.sleep(chance.uniform(0, 0.02))
            daemon.kill()
            kills += 1
            time.sleep(chance.choice([0, 0.02]))
            daemon.start()
        for one in lines:
            one.join(120)
        assert all(one.failure is None for one in lines), [one.failure for one in lines]
        end(trainers)
        daemon.stop()
    assert kills >= 3, "the steps were over before the daemon was killed"
    got = [[(line["step"], line["loss"], line["world"]) for line in one.lines] for one in lines]
    assert got == want
    print(f"{kills} kills in {steps} steps of {count} ranks")


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_call_that_waits_is_made_again(transport):
    with mortal() as daemon:
        trainers = ranks_of(daemon, LISTWISE, transport)
        for trainer in trainers:
            trainer.begin(1, 4, fill=1)
        trainers[0].start("compute", 0)
        time.sleep(0.2)
        daemon.kill()
        daemon.start()
        assert trainers[1].tell("compute", 0)["step"] == 0
        assert trainers[0].answer()["step"] == 0
        end(trainers)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_what_only_one_was_answered_is_computed_again_for_the_other(transport):
    """Rank 0 goes on to step 1 of a new daemon, which has never heard of step 0."""
    with mortal() as daemon:
        trainers = ranks_of(daemon, LISTWISE, transport)
        for trainer in trainers:
            trainer.begin(2, 9, fill=1)
        first = computed(trainers, 0)
        daemon.kill()
        daemon.start()
        trainers[0].begin(2, 7, fill=2)
        trainers[0].start("compute", 1)
        again = trainers[1].tell("compute", 0)
        trainers[1].begin(2, 7, fill=2)
        trainers[1].start("compute", 1)
        assert again["loss"] == first[1]["loss"]
        assert [trainer.answer()["step"] for trainer in trainers] == [1, 1]
        end(trainers)


def test_batches_stay_where_they_are_over_a_restart():
    """Filled before, submitted after."""
    with mortal() as daemon:
        trainer = ranks_of(daemon, LISTWISE, SHARED_MEMORY, 1)[0]
        trainer.begin(3, 1000, fill=5)
        columns = trainer.tell("columns")
        want = trainer.tell("compute", 0)
        trainer.begin(3, 1000, fill=5)
        daemon.kill()
        daemon.start()
        assert trainer.tell("columns") == columns
        got = trainer.tell("compute", "-")
        assert (got["step"], got["loss"], got["tasks"]) == (1, want["loss"], want["tasks"])
        trainer.begin(3, 90000, fill=5)
        daemon.kill()
        daemon.start()
        trainer.begin(3, 90000, fill=6)
        assert trainer.tell("compute", "-")["step"] == 2
        end([trainer])


def test_leaving_after_an_announcement_has_found_the_new_daemon():
    with mortal() as daemon:
        trainers = ranks_of(daemon, LISTWISE, SHARED_MEMORY)
        for trainer in trainers:
            trainer.begin(2, 9, fill=1)
        computed(trainers, 0)
        daemon.kill()
        daemon.start()
        trainers[0].tell("announce", 1, 2, 9)
        trainers[0].start("leave")
        assert trainers[1].tell("compute", 0)["step"] == 0
        trainers[0].answer()
        trainers[0].end()
        end(trainers[1:])


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_daemon_that_stays_away(transport):
    with mortal() as daemon:
        trainer = ranks_of(daemon, LISTWISE, transport, 1, reconnect_ms=400)[0]
        trainer.begin(1, 4, fill=1)
        daemon.kill()
        begin = time.monotonic()
        failure = trainer.refused("compute", 0)
        assert (failure.code, failure.reason, failure.retry) == (14, "CONNECTION_LOST", 1), failure
        assert 0.1 < time.monotonic() - begin < 2
        failure = trainer.refused("announce", 0, 1, 4)
        assert failure.reason == "CONNECTION_LOST" and re.search(r"away for \d+ ms", failure.message), failure
        daemon.start()
        assert trainer.tell("compute", 0)["step"] == 0
        end([trainer])


def test_a_daemon_that_is_told_to_stop():
    with mortal() as daemon:
        for transport in TRANSPORTS:
            trainers = ranks_of(daemon, LISTWISE, transport)
            for trainer in trainers:
                trainer.begin(1, 4, fill=1)
            trainers[0].start("compute", 0)
            time.sleep(0.1)
            daemon.process.terminate()
            daemon.process.wait(30)
            daemon.start()
            trainers[1].tell("compute", 0)
            assert trainers[0].answer()["step"] == 0
            end(trainers)


def test_joining_waits_for_a_daemon_that_comes_later():
    with mortal() as daemon:
        daemon.kill()
        pathlib.Path(daemon.unix.removeprefix("unix:")).unlink()
        trainer = Trainer(daemon.unix, reconnect_ms=300)
        trainer.open()
        with pytest.raises(ClientFailure) as caught:
            trainer.join_opened("g", 0, 1, LISTWISE)
        assert caught.value.reason == "CANNOT_CONNECT"
        trainer.tell("close")
        trainer.options = (*trainer.options[:4], 20000)
        trainer.open()
        late = threading.Timer(0.3, daemon.start)
        late.start()
        assert trainer.join_opened("g", 0, 1, LISTWISE)["generation"] == 1
        late.join()
        trainer.end()
        daemon.stop()


def test_leaving_a_daemon_that_was_killed_gives_others_their_last_step():
    with mortal() as daemon:
        trainers = ranks_of(daemon, LISTWISE, SHARED_MEMORY)
        for trainer in trainers:
            trainer.begin(2, 9, fill=1)
        want = computed(trainers, 0)
        daemon.kill()
        daemon.start()
        trainers[0].start("leave")
        assert trainers[1].tell("compute", 0)["loss"] == want[1]["loss"]
        trainers[0].answer()
        trainers[0].end()
        end(trainers[1:])


def test_leaving_a_new_daemon_that_has_no_room_for_this_trainer():
    """It has a seat for one, which is taken: nothing can be sent again, but the group can be left."""
    with mortal() as daemon:
        daemon.kill()
        file = pathlib.Path(daemon.unix.removeprefix("unix:")).parent / "config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "limits": {"shared_memory_clients": 1}}))
        daemon.start()
        with Trainer(daemon.unix, SHARED_MEMORY) as other:
            trainer = ranks_of(daemon, LISTWISE, SHARED_MEMORY, 1, reconnect_ms=300)[0]
            trainer.begin(1, 4, fill=1)
            trainer.tell("compute", 0)
            daemon.kill()
            daemon.start()
            other.join("other", 0, 1, LISTWISE)
            trainer.tell("leave")
            assert trainer.refused("leave").reason == "BAD_CALL"
            trainer.end()


def test_restarts_leave_neither_descriptors_nor_regions_behind():
    with mortal() as daemon:
        trainer = ranks_of(daemon, LISTWISE, SHARED_MEMORY, 1)[0]
        trainer.begin(3, 100000, fill=5)
        for step in range(6):
            daemon.kill()
            daemon.start()
            trainer.tell("compute", step)
            if step == 2:
                descriptors, mappings = sizes(trainer)
        assert sizes(trainer) == (descriptors, mappings)
        end([trainer])


def sizes(trainer):
    process = pathlib.Path(f"/proc/{trainer.process.pid}")
    shared = [line for line in (process / "maps").read_text().splitlines() if "memfd" in line]
    return len(os.listdir(process / "fd")), len(shared)
