"""What ranks of one step are told: matching, waiting, failing, repeating, announcing."""

import time

import pytest

from harness import RpcError, background, fresh, together
from small import BCE, LN2, Ranks, bad_batch, batch


@pytest.fixture
def ranks(client):
    """ranks(world, config…) makes a group and joins all its ranks."""
    return lambda world, config=BCE, **more: Ranks(client, fresh("step"), world, config, **more)


def errors(*calls):
    results = together(*calls)
    for result in results:
        assert isinstance(result, RpcError), result
    return results


def fails(call, code, reason):
    error = errors(call)[0]
    assert (error.code, error.reason) == (code, reason), error
    return error


def test_two_ranks_get_their_shares(ranks):
    g = ranks(2)
    a, b = together(lambda: g.compute(0, 1, 6), lambda: g.compute(1, 1, 2))
    assert (a.candidate_factor, b.candidate_factor, a.request_factor) == (1.5, 0.5, 1)
    assert a.loss == pytest.approx(1.5 * LN2) and b.loss == pytest.approx(0.5 * LN2)
    assert set(a.tasks[0].gradient) == {-0.5 * 2 / 8} == set(b.tasks[0].gradient)
    assert (a.step, a.world.requests, a.world.candidates, a.world.ranks) == (1, 2, 8, 2) and not a.replayed
    status = g.status()
    assert (status.steps_done, status.all_reduces) == (1, 1)


def test_steps_may_start_anywhere_and_jump(ranks):
    g = ranks(2)
    for step in (0, 7, 8, 10**12, 2**53 - 1):
        a, b = together(lambda: g.compute(0, step), lambda: g.compute(1, step))
        assert a.step == b.step == step
    assert g.status().steps_done == 5


def test_the_deadline_of_a_call_names_the_missing_and_keeps_the_contribution(ranks):
    g = ranks(4)
    waiting = background(lambda: g.compute(2, 1))
    g.wait_for(2, "WAITING")
    start = time.monotonic()
    error = fails(lambda: g.compute(0, 1, timeout_ms=300), "deadline_exceeded", "PEER_WAIT_DEADLINE")
    assert 0.25 < time.monotonic() - start < 3
    assert error.metadata["missing_ranks"] == "1,3" and "1,3" in error.message
    a, b = together(lambda: g.compute(1, 1), lambda: g.compute(3, 1))  # rank 0's counts stay: nobody waits for it
    assert a.world.candidates == b.world.candidates == waiting.result().world.candidates == 8
    again = g.compute(0, 1)
    assert again.world.candidates == 8 and not again.replayed
    assert g.status().all_reduces == 1


@pytest.mark.parametrize("world, there, missing", [(2, [1], "0"), (5, [2], "0-1,3-4"), (4, [0], "1-3")])
def test_the_step_timeout_names_the_missing(ranks, world, there, missing):
    g = ranks(world, {"step_timeout_ms": 300, "first_step_timeout_ms": 300})
    for error in errors(*[lambda r=r: g.compute(r, 1) for r in there]):
        assert (error.code, error.reason) == ("deadline_exceeded", "STEP_TIMEOUT")
        assert error.metadata["missing_ranks"] == missing
    status = g.status()
    assert (status.steps_done, status.all_reduces) == (0, 1)
    done = together(*[lambda r=r: g.compute(r, 1) for r in range(world)])  # a failed step is not spent
    assert all(a.world.candidates == 2 * world for a in done)


def test_the_first_step_has_a_timeout_of_its_own(ranks):
    g = ranks(2, {"step_timeout_ms": 200, "first_step_timeout_ms": 60000})
    first = background(lambda: g.compute(0, 1))
    time.sleep(0.5)
    assert not first.done()
    g.compute(1, 1)
    assert first.result().step == 1
    fails(lambda: g.compute(0, 2), "deadline_exceeded", "STEP_TIMEOUT")


def test_ranks_at_different_steps_are_told_at_once(ranks):
    g = ranks(3)
    start = time.monotonic()
    for error in errors(lambda: g.compute(0, 5), lambda: g.compute(1, 6), lambda: g.compute(2, 6)):
        assert (error.code, error.reason) == ("aborted", "STEP_DESYNC")
        assert "5" in error.message and "6" in error.message, error
    assert time.monotonic() - start < 3
    assert all(not isinstance(a, RpcError) for a in together(*[lambda r=r: g.compute(r, 6) for r in range(3)]))
    assert g.status().all_reduces == 2


def test_a_step_again_gives_the_same_bits_and_says_so(ranks):
    g = ranks(2)
    first = together(lambda: g.compute(0, 1, 6), lambda: g.compute(1, 1))[0]
    again = g.compute(0, 1, 6)
    assert again.replayed and list(again.tasks[0].gradient) == list(first.tasks[0].gradient)
    changed = batch(6)
    changed["tasks"][0]["logits"] = [3.0] * 6
    other = g.compute(0, 1, changed)
    assert other.replayed and other.loss < first.loss  # computed from the logits that came
    assert g.status().all_reduces == 1


def test_a_step_again_with_other_counts_is_a_conflict(ranks):
    g = ranks(2)
    together(lambda: g.compute(0, 1), lambda: g.compute(1, 1))
    fails(lambda: g.compute(0, 1, 3), "already_exists", "STEP_PAYLOAD_CONFLICT")
    assert not isinstance(together(lambda: g.compute(0, 2), lambda: g.compute(1, 2))[0], RpcError)


def test_64_steps_are_kept(ranks):
    g = ranks(1)
    for step in range(1, 67):
        g.compute(0, step)
    assert g.compute(0, 3).replayed
    fails(lambda: g.compute(0, 2), "aborted", "STEP_OUT_OF_ORDER")
    assert g.compute(0, 67).step == 67


def test_a_later_step_ends_the_open_call_of_an_earlier_one(ranks):
    g = ranks(2)
    earlier = background(lambda: g.compute(0, 1))
    g.wait_for(0, "WAITING")
    later = background(lambda: g.compute(0, 2))
    error = earlier.result()
    assert (error.code, error.reason) == ("aborted", "SUPERSEDED")
    assert g.compute(1, 2).step == later.result().step == 2


def test_the_same_step_again_replaces_the_open_call(ranks):
    g = ranks(2)
    first = background(lambda: g.compute(0, 1, 2))
    g.wait_for(0, "WAITING")
    second = background(lambda: g.compute(0, 1, 6))
    assert first.result().reason == "SUPERSEDED"
    assert g.compute(1, 1).world.candidates == 8 == second.result().world.candidates


def test_announced_steps_do_not_wait(ranks):
    g = ranks(2)
    g.announce(0, 1, 6)
    g.announce(1, 1, 2)
    g.announce(0, 1, 6)  # again: harmless
    assert g.status().all_reduces == 1
    a = g.compute(0, 1, 6)  # the other's batch is not needed
    assert a.candidate_factor == 1.5 and not a.replayed
    assert g.compute(1, 1).candidate_factor == 0.5
    assert (g.status().steps_done, g.status().all_reduces) == (1, 1)


def test_an_announcement_gives_the_same_bits(ranks):
    plain, announced = ranks(2), ranks(2)
    announced.announce(0, 1, 6), announced.announce(1, 1, 2)
    a = together(lambda: plain.compute(0, 1, 6), lambda: plain.compute(1, 1))[0]
    b = announced.compute(0, 1, 6)
    assert (list(a.tasks[0].gradient), a.loss) == (list(b.tasks[0].gradient), b.loss)


def test_one_may_announce_one_step_ahead_but_not_two(ranks):
    g = ranks(2)
    g.announce(0, 1), g.announce(0, 2)
    fails(lambda: g.announce(0, 3), "failed_precondition", "ANNOUNCE_TOO_EARLY")
    for step in (1, 2):
        g.announce(1, step)
        g.compute(0, step), g.compute(1, step)
    g.announce(0, 3)
    assert g.status().steps_done == 2


def test_a_batch_may_differ_from_its_announcement_until_the_reduce(ranks):
    g = ranks(2)
    g.announce(0, 1, 2)
    other = background(lambda: g.compute(0, 1, 6))
    g.wait_for(0, "WAITING")
    assert g.compute(1, 1).world.candidates == 8 == other.result().world.candidates
    g.announce(0, 2, 2), g.announce(1, 2, 2)
    fails(lambda: g.compute(0, 2, 3), "already_exists", "STEP_PAYLOAD_CONFLICT")
    assert g.compute(0, 2).world.candidates == g.compute(1, 2).world.candidates == 4


@pytest.mark.parametrize("task", [
    {"lists": "LISTS_SESSIONS", "losses": [{"listwise_rank_loss": {}}]},
    {"losses": [{"listwise_rank_loss": {"denominator": "DENOMINATOR_VALID"}}]},
    {"out_task_space_weight": 0, "losses": [{"binary_cross_entropy": {}}]},
], ids=["sessions", "valid", "task_space"])
def test_an_announcement_is_refused_where_counts_are_not_enough(ranks, task):
    g = ranks(2, {"tasks": [{"name": "t", **task}]})
    error = fails(lambda: g.announce(0, 1), "failed_precondition", "ANNOUNCE_NEEDS_BATCH")
    assert "tasks[0]" in error.message, error


def test_a_bad_batch_after_an_announcement_concerns_its_rank_alone(ranks):
    g = ranks(2)
    g.announce(0, 1), g.announce(1, 1)
    fails(lambda: g.compute(1, 1, bad_batch(2)), "invalid_argument", "NONFINITE_LOGITS")
    assert g.compute(0, 1).world.candidates == 4
    assert g.compute(1, 1).world.candidates == 4


def test_a_bad_batch_fails_the_step_for_all_and_names_the_culprit(ranks):
    g = ranks(3)
    waiting = [background(lambda r=r: g.compute(r, 1)) for r in (0, 2)]
    g.wait_for(0, "WAITING"), g.wait_for(2, "WAITING")
    error = fails(lambda: g.compute(1, 1, bad_batch(3)), "invalid_argument", "NONFINITE_LOGITS")
    assert error.field == "tasks[0].logits[2]"
    for call in waiting:
        peer = call.result()
        assert (peer.code, peer.reason) == ("aborted", "STEP_REJECTED_BY_PEER"), peer
        assert "NONFINITE_LOGITS" in peer.message + str(peer.metadata) and peer.metadata["rank"] == "1"
    done = together(*[lambda r=r: g.compute(r, 1) for r in range(3)])  # the failed step again
    assert all(a.world.candidates == 6 and not a.replayed for a in done)
    assert (g.status().steps_done, g.status().all_reduces) == (1, 2)


def test_a_bad_batch_may_be_replaced_before_the_reduce(ranks):
    g = ranks(2)
    fails(lambda: g.compute(1, 1, bad_batch(2)), "invalid_argument", "NONFINITE_LOGITS")
    assert g.state(1) == "REFUSED"
    good = background(lambda: g.compute(1, 1))
    g.wait_for(1, "WAITING")
    assert g.compute(0, 1).world.candidates == good.result().world.candidates == 4
    assert (g.status().steps_done, g.status().all_reduces) == (1, 1)


def test_who_was_not_told_of_a_failed_step_is_told_by_its_next_call(ranks):
    g = ranks(2)
    fails(lambda: g.compute(0, 1, timeout_ms=100), "deadline_exceeded", "PEER_WAIT_DEADLINE")
    fails(lambda: g.compute(1, 1, bad_batch(2)), "invalid_argument", "NONFINITE_LOGITS")
    error = fails(lambda: g.compute(0, 1), "aborted", "STEP_REJECTED_BY_PEER")
    assert error.metadata["rank"] == "1"
    assert not isinstance(together(lambda: g.compute(0, 1), lambda: g.compute(1, 1))[0], RpcError)


def test_all_may_go_on_to_a_later_step_after_a_failure(ranks):
    g = ranks(2)
    waiting = background(lambda: g.compute(0, 1))
    g.wait_for(0, "WAITING")
    fails(lambda: g.compute(1, 1, bad_batch(2)), "invalid_argument", "NONFINITE_LOGITS")
    waiting.result()
    assert all(a.step == 2 for a in together(lambda: g.compute(0, 2), lambda: g.compute(1, 2)))


def test_an_empty_rank_takes_part(ranks):
    g = ranks(2)
    a, b = together(lambda: g.compute(0, 1, 4), lambda: g.compute(1, 1, 0))
    assert a.loss == pytest.approx(2 * LN2) and (a.request_factor, a.candidate_factor) == (2, 2)
    assert (b.loss, b.candidate_factor, b.local.candidates, list(b.tasks[0].gradient)) == (0, 0, 0, [])
    for answer in together(lambda: g.compute(0, 2, 0), lambda: g.compute(1, 2, 0)):
        assert (answer.loss, answer.candidate_factor, answer.world.candidates) == (0, 0, 0)


def test_a_client_that_dies_while_it_waits_keeps_its_contribution(daemon, ranks):
    g = ranks(2)
    body = g.client.encode("ComputeLoss", {"group": g.name, "rank": 0, "step": 1, **batch(6)})
    before = daemon.descriptors()
    sock = g.client.socket()
    head = f"POST /lossd.v1.LossService/ComputeLoss HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
    sock.sendall((head + f"Content-Type: application/{g.client.codec}\r\n\r\n").encode() + body)
    g.wait_for(0, "WAITING")
    sock.close()
    end = time.monotonic() + 5
    while daemon.descriptors() > before and time.monotonic() < end:
        time.sleep(0.02)
    assert daemon.descriptors() <= before
    assert g.compute(1, 1).world.candidates == 8
    assert g.compute(0, 1, 6).candidate_factor == 1.5


def test_status_shows_who_does_what(ranks):
    g = ranks(3)
    assert [g.state(r) for r in range(3)] == ["IDLE"] * 3
    g.announce(0, 4)
    waiting = background(lambda: g.compute(1, 4))
    g.wait_for(1, "WAITING")
    status = g.status()
    assert [g.state(r) for r in range(3)] == ["ANNOUNCED", "WAITING", "IDLE"]
    assert [r.at_step for r in status.ranks[:2]] == [4, 4] and not status.ranks[2].HasField("at_step")
    g.compute(2, 4)
    waiting.result()
    assert g.status().ranks[2].last_step == 4
