"""Whoever waits in liblossd can be told to stop waiting, over every transport, and goes on afterwards."""

import os
import signal
import time

import pytest

from client_program import BCE, JSON, PROTOBUF, SHARED_MEMORY, TRANSPORTS, Trainer, computed, end, ranks_of
from harness import fresh, wait_until
from test_client_limits import stop


def interrupted(trainer, *words):
    """A command that is to end when it has been asked for the third time: how long it took."""
    trainer.tell("interrupt", 3)
    begin = time.monotonic()
    failure = trainer.refused(*words)
    taken = time.monotonic() - begin
    assert (failure.code, failure.reason, failure.retry) == (1, "INTERRUPTED", 1), failure
    assert trainer.tell("interrupt", 0)["asked"] == 3
    assert 0.1 < taken < 2
    return taken


@pytest.fixture(params=TRANSPORTS)
def transport(request):
    return request.param


def test_a_wait_that_is_interrupted_can_be_taken_up_again(daemon, transport):
    first, second = trainers = ranks_of(daemon, BCE, transport)
    first.begin(2, 30, fill=1)
    assert interrupted(first, "compute", 0) > 0.15
    interrupted(first, "wait")
    assert first.refused("submit", 0).reason == "BAD_CALL"  # it still is
    second.begin(5, 70, fill=2)
    second.start("compute", 0)
    first.start("wait")
    answers = [trainer.answer() for trainer in trainers]
    assert [(answer["step"], answer["replayed"], world(answer)) for answer in answers] == [(0, 0, 100)] * 2
    end(trainers)


def test_a_batch_that_is_given_up_is_replaced_by_the_next(daemon, transport):
    """Its place comes round again in the third step."""
    first, second = trainers = ranks_of(daemon, BCE, transport)
    first.begin(2, 30, fill=1)
    interrupted(first, "compute", 0)
    for step in range(4):
        first.begin(2, 30, fill=1)
        second.begin(5, 70, fill=2)
        answers = computed(trainers, step)
        assert [(answer["step"], world(answer)) for answer in answers] == [(step, 100), (step, 100)]
    end(trainers)


def world(answer):
    """Candidates of all ranks."""
    return float.fromhex(answer["counts"][4])


@pytest.mark.parametrize("slots, candidates", [(1, 30), (2, 50000)])
def test_where_its_memory_is_needed_a_batch_that_was_given_up_is_waited_for(daemon, slots, candidates):
    first, second = trainers = ranks_of(daemon, BCE, SHARED_MEMORY, slots=slots)
    first.begin(2, 30, fill=1)
    interrupted(first, "compute", 0)
    interrupted(first, "begin", 1, candidates, 0, 0, 0, 0)
    second.begin(5, 70, fill=2)
    second.start("compute", 0)
    first.begin(1, candidates, fill=3)
    assert world(second.answer()) == 100
    second.begin(5, 70, fill=2)
    assert [world(answer) for answer in computed(trainers, 1)] == [candidates + 70] * 2
    end(trainers)


@pytest.mark.parametrize("slots, candidates", [(1, 30), (2, 50000)])
@pytest.mark.parametrize("codec", [PROTOBUF, JSON])
def test_over_http_its_memory_is_free_at_once(daemon, codec, slots, candidates):
    first, second = trainers = ranks_of(daemon, BCE, codec, slots=slots)
    first.begin(2, 30, fill=1)
    interrupted(first, "compute", 0)
    wait_until(lambda: daemon.metric("lossd_parked_calls") == 0)  # it sees that nobody waits
    first.begin(1, candidates, fill=3)
    first.start("compute", 0)
    wait_until(lambda: daemon.metric("lossd_parked_calls") == 1)
    second.begin(5, 70, fill=2)
    second.start("compute", 0)
    assert [world(trainer.answer()) for trainer in trainers] == [candidates + 70] * 2
    end(trainers)


def test_a_daemon_that_is_away_is_not_waited_for(start, transport):
    daemon = start()
    with Trainer(daemon.unix, transport) as trainer, Trainer("unix:/nonexistent/socket", transport) as nobody:
        trainer.join(fresh("client"), 0, 1, BCE)
        nobody.open()
        trainer.begin(1, 50, fill=1)
        trainer.tell("compute", 0)
        daemon.kill()
        interrupted(trainer, "compute", 1)
        interrupted(trainer, "announce", 2, 1, 50)
        interrupted(trainer, "leave")
        daemon.start()
        assert trainer.tell("wait")["step"] == 1
        trainer.tell("leave")
        interrupted(nobody, "join", "g", 0, 1, "-")


def test_what_a_new_daemon_is_sent_first_is_not_waited_for(start, transport):
    daemon = start()
    first, second = trainers = ranks_of(daemon, BCE, transport)
    for trainer in trainers:
        trainer.begin(2, 30, fill=1)
    computed(trainers, 0)
    for trainer in trainers:
        trainer.begin(2, 30, fill=1)
    daemon.kill()
    daemon.start()
    interrupted(first, "compute", 1)
    interrupted(first, "wait")
    if transport == SHARED_MEMORY:
        interrupted(first, "begin", 1, 50000, 0, 0, 0, 0)
    second.start("compute", 1)
    first.start("wait")
    assert [trainer.answer()["step"] for trainer in trainers] == [1, 1]
    end(trainers)


def test_a_daemon_that_hangs_is_not_waited_for(start, transport):
    daemon = start()
    with Trainer(daemon.unix, transport) as trainer:
        trainer.join(fresh("client"), 0, 1, BCE)
        trainer.begin(1, 50, fill=1)
        want = trainer.tell("compute", 0)
        stop(daemon.process)
        for _ in range(2):
            interrupted(trainer, "announce", 1, 1, 50)
        interrupted(trainer, "compute", 1)
        interrupted(trainer, "wait")
        if transport == SHARED_MEMORY:
            interrupted(trainer, "begin", 1, 50000, 0, 0, 0, 0)
        os.kill(daemon.process.pid, signal.SIGCONT)
        trainer.begin(1, 50, fill=1)
        trainer.tell("announce", 2, 1, 50)
        assert trainer.tell("compute", 2)["loss"] == want["loss"]


def test_it_is_asked_now_and_then_only(daemon, transport):
    """Not once for each of the many short waits."""
    first, second = trainers = ranks_of(daemon, BCE, transport, no_spin=1)
    for trainer in trainers:
        trainer.tell("interrupt", 0)
    begin = time.monotonic()
    for step in range(100):
        first.begin(1, 10, fill=1)
        second.begin(1, 10, fill=1)
        computed(trainers, step)
    taken = time.monotonic() - begin
    for trainer in trainers:
        assert trainer.tell("interrupt", 0)["asked"] <= 2 + taken / 0.1
    end(trainers)
