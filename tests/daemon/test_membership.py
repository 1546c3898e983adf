"""Joining, leaving, generations; and the addresses that a call can get wrong."""

import pytest

from harness import RpcError, background, fresh, together
from small import BCE, Ranks, batch


def request(group, **more):
    return {"group": group, "step": 1, **batch(2), **more}


def test_joining_again_starts_a_new_generation(client):
    g = Ranks(client, fresh("gen"), 2)
    waiting = background(lambda: g.compute(0, 1))
    g.wait_for(0, "WAITING")
    answer = client.join(g.name, 1, 2, BCE)
    assert answer.generation > g.generation
    error = waiting.result()
    assert (error.code, error.reason) == ("failed_precondition", "STALE_GENERATION")
    error = client.refused("ComputeLoss", request(g.name, rank=1, generation=g.generation))
    assert (error.code, error.reason) == ("failed_precondition", "STALE_GENERATION")
    error = client.refused("ComputeLoss", request(g.name, rank=0, generation=answer.generation))
    assert (error.code, error.reason) == ("failed_precondition", "RANK_NOT_JOINED")
    client.join(g.name, 0, 2, BCE)
    assert together(lambda: g.compute(0, 1), lambda: g.compute(1, 1))[0].world.candidates == 4


def test_the_same_instance_again_changes_nothing(client):
    group = fresh("inst")
    first = client.join(group, 0, 2, BCE, instance="18446744073709551615")
    assert client.join(group, 0, 2, BCE, instance="18446744073709551615") == first
    assert client.join(group, 1, 2, BCE, instance=7).generation == first.generation
    assert client.join(group, 1, 2, BCE, instance=8).generation > first.generation


def test_a_new_generation_may_have_another_config_and_size(client):
    g = Ranks(client, fresh("gen"), 2)
    other = {"tasks": [{"name": "other", "losses": [{"l2_loss": {}}]}]}
    assert client.join(g.name, 0, 1, other).generation > g.generation
    assert client.call("ComputeLoss", {"group": g.name, **batch(2, "other")}).loss == 1


@pytest.mark.parametrize("change, field, mine, first", [
    ({"tasks": [{"name": "t", "losses": [{"weight": 2, "binary_cross_entropy": {}}]}]},
     "tasks[0].losses[0].weight", "2", "1"),
    ({"tasks": [{"name": "t", "losses": [{"binary_cross_entropy": {"label_smoothing": 0.25}}]}]},
     "tasks[0].losses[0].binary_cross_entropy.label_smoothing", "0.25", "0"),
    ({"tasks": [{"name": "u", "losses": [{"binary_cross_entropy": {}}]}]}, "tasks[0].name", "u", "t"),
    ({"grad_reduce": "GRAD_REDUCE_SUM"}, "grad_reduce", "GRAD_REDUCE_SUM", "GRAD_REDUCE_MEAN"),
    ({"step_timeout_ms": 5}, "step_timeout_ms", "5", "120000"),
], ids=lambda x: x if isinstance(x, str) else "")
def test_a_config_that_differs_is_refused_with_both_values(client, change, field, mine, first):
    group = fresh("diff")
    client.join(group, 0, 2, BCE)
    error = client.refused("JoinGroup", {"group": group, "rank": 1, "world_size": 2, "config": {**BCE, **change}})
    assert (error.code, error.reason) == ("failed_precondition", "CONFIG_DIGEST_MISMATCH")
    assert error.field.removeprefix("config.") == field, error
    assert mine in error.message and first in error.message, error


def test_defaults_written_out_are_the_same_config(client):
    group = fresh("same")
    a = client.join(group, 0, 2, BCE)
    written = {"tasks": [{"name": "t", "num_class": 1, "weight": 1, "losses": [
        {"weight": 1, "binary_cross_entropy": {"label_smoothing": 0}}]}], "global_average": True,
        "grad_reduce": "GRAD_REDUCE_MEAN"}
    b = client.join(group, 1, 2, written)
    assert a.config_digest == b.config_digest and len(a.config_digest) == 64


@pytest.mark.parametrize("change, field", [({"world_size": 3}, "world_size"), ({"nnodes": 2}, "nnodes")])
def test_a_world_that_differs_is_refused(client, change, field):
    group = fresh("world")
    client.join(group, 0, 2, BCE)
    error = client.refused("JoinGroup", {"group": group, "rank": 1, "world_size": 2, "config": BCE, **change})
    assert error.field == field and error.code in ("failed_precondition", "invalid_argument", "unimplemented")
    if field == "world_size":
        assert error.reason == "CONFIG_DIGEST_MISMATCH" and "3" in error.message and "2" in error.message


def test_a_rank_that_leaves_ends_the_step_of_the_others(client):
    g = Ranks(client, fresh("leave"), 3)
    waiting = [background(lambda r=r: g.compute(r, 1)) for r in (0, 1)]
    g.wait_for(0, "WAITING"), g.wait_for(1, "WAITING")
    client.call("LeaveGroup", {"group": g.name, "rank": 2})
    for call in waiting:
        error = call.result()
        assert (error.code, error.reason) == ("aborted", "RANK_LEFT") and "2" in error.message, error
    assert g.state(2) == "LEFT"
    assert client.refused("ComputeLoss", request(g.name, rank=2)).reason in ("RANK_LEFT", "RANK_NOT_JOINED")


def test_a_group_that_everyone_left_frees_its_name(client):
    g = Ranks(client, fresh("free"), 2)
    client.leave_all(g.name, 2)
    error = client.refused("ComputeLoss", request(g.name))
    assert (error.code, error.reason, error.metadata["group"]) == ("not_found", "GROUP_NOT_FOUND", g.name)
    assert client.join(g.name, 0, 1, {"tasks": [{"name": "x", "losses": [{"l2_loss": {}}]}]}).generation > g.generation


@pytest.mark.parametrize("what", ["GetGroup", "ComputeLoss", "AnnounceCounts", "LeaveGroup"])
def test_an_unknown_group_is_not_found(client, what):
    extra = request("nobody") if what == "ComputeLoss" else {"group": "nobody"}
    if what == "AnnounceCounts":
        extra |= {"rank": 0, "step": 1, "requests": 1, "candidates": 1}
    error = client.refused(what, extra)
    assert (error.code, error.reason, error.metadata["group"]) == ("not_found", "GROUP_NOT_FOUND", "nobody")


def test_a_rank_outside_the_world_concerns_its_caller_alone(client):
    g = Ranks(client, fresh("range"), 2)
    waiting = background(lambda: g.compute(0, 1))
    g.wait_for(0, "WAITING")
    for rank in (2, 4294967295):
        error = client.refused("ComputeLoss", request(g.name, rank=rank))
        assert (error.code, error.reason) == ("invalid_argument", "RANK_RANGE")
    assert client.refused("JoinGroup", {"group": g.name, "rank": 2, "world_size": 2, "config": BCE}).reason == "RANK_RANGE"
    assert not waiting.done()
    assert g.compute(1, 1).world.candidates == 4 == waiting.result().world.candidates


def test_who_has_not_joined_yet_is_waited_for(client):
    group = fresh("late")
    client.join(group, 0, 2, BCE)
    waiting = background(lambda: client.call("ComputeLoss", request(group, rank=0)))
    error = client.refused("ComputeLoss", request(group, rank=1))
    assert (error.code, error.reason) == ("failed_precondition", "RANK_NOT_JOINED")
    client.join(group, 1, 2, BCE)
    client.call("ComputeLoss", request(group, rank=1))
    assert not isinstance(waiting.result(), RpcError)


def test_steps_end_at_2_to_the_53(client):
    g = Ranks(client, fresh("limit"), 1)
    for step in ("9007199254740992", "18446744073709551615"):
        error = client.refused("ComputeLoss", {**request(g.name), "step": step})
        assert (error.code, error.reason) == ("invalid_argument", "STEP_RANGE")


def test_one_rank_alone_needs_no_step(client):
    g = Ranks(client, fresh("one"), 1)
    steps = [client.call("ComputeLoss", {"group": g.name, **batch(2)}).step for _ in range(3)]
    assert steps[1] == steps[0] + 1 and steps[2] == steps[1] + 1
    assert g.compute(0, 40).step == 40
    assert client.call("ComputeLoss", {"group": g.name, **batch(2)}).step == 41
    assert g.status().all_reduces == 5


def test_two_ranks_need_a_step(client):
    g = Ranks(client, fresh("two"), 2)
    error = client.refused("ComputeLoss", {"group": g.name, "rank": 0, **batch(2)})
    assert (error.code, error.field) == ("invalid_argument", "step")


def test_without_global_average_nobody_waits(client):
    g = Ranks(client, fresh("local"), 2, {"global_average": False})
    a = g.compute(0, 1, 6)
    assert (a.request_factor, a.candidate_factor, a.world.candidates, a.world.ranks) == (1, 1, 6, 1)
    assert g.compute(1, 9, 0).candidate_factor == 1
    assert g.status().all_reduces == 0


def test_declared_groups_need_no_join(start):
    daemon = start({"groups": [{"name": "given", "world_size": 2, "config": BCE}]})
    client = daemon.rpc("proto")
    calls = [lambda r=r: client.call("ComputeLoss", request("given", rank=r)) for r in range(2)]
    assert [a.world.candidates for a in together(*calls)] == [4, 4]
    assert client.join("given", 0, 2, BCE).config_digest == client.group("given").config_digest
    error = client.refused("JoinGroup", {"group": "given", "rank": 1, "world_size": 3})
    assert error.reason == "CONFIG_DIGEST_MISMATCH"


def test_groups_are_listed_by_name(client):
    names = [fresh("zz"), fresh("aa")]
    for name in names:
        client.join(name, 0, 2, BCE)
    groups = client.call("ListGroups", {}).groups
    listed = [g.name for g in groups]
    assert listed == sorted(listed) and set(names) <= set(listed)
    mine = next(g for g in groups if g.name == names[0])
    assert (mine.world_size, mine.nnodes, len(mine.ranks)) == (2, 1, 2)
    assert mine.config.tasks[0].losses[0].HasField("binary_cross_entropy") and mine.config.step_timeout_ms == 120000


def test_a_rank_has_to_say_which_it_is_in_a_world_of_several(client):
    config = {"tasks": [{"name": "t", "losses": [{"l2_loss": {}}]}]}
    for world in (1, 2):
        join = {"group": "who%d" % world, "world_size": world, "config": config}
        if world == 1:
            client.call("JoinGroup", join)
            client.call("LeaveGroup", {"group": join["group"]})
            continue
        error = client.refused("JoinGroup", join)
        assert (error.code, error.reason, error.field) == ("invalid_argument", "INVALID_ARGUMENT", "rank"), error
        for rank in range(world):
            client.call("JoinGroup", {**join, "rank": rank})
        error = client.refused("LeaveGroup", {"group": join["group"]})
        assert (error.code, error.reason, error.field) == ("invalid_argument", "INVALID_ARGUMENT", "rank"), error
        client.call("LeaveGroup", {"group": join["group"], "rank": 1})
