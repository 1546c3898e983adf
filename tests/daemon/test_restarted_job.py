"""A job is killed and started again: what is left of the first run is not what the second one meets."""

import pytest

from client_program import PROTOBUF, SHARED_MEMORY, ClientFailure, Trainer
from harness import background, fresh, group_pb2, wait_until
from shm_peer import Peer
from small import BCE, batch

OTHER = {"tasks": [{"name": "t", "losses": [{"l2_loss": {}}]}]}


def wait_for(daemon, group, **states):
    """Until all of these ranks are seen so: r0="DEAD", …"""
    def are():
        ranks = daemon.client.group(group).ranks
        return all(group_pb2.RankState.Name(ranks[int(r[1:])].state) == f"RANK_STATE_{s}" for r, s in states.items())

    wait_until(are)


def killed(daemon, group, world_size=2):
    """Rank 0 of a run over shared memory waits in step 0 for the others, and is killed. The generation."""
    with Trainer(daemon.unix, SHARED_MEMORY) as trainer:
        generation = trainer.join(group, 0, world_size, BCE)["generation"]
        trainer.begin(1, 40, fill=2)
        trainer.tell("submit", 0)
        wait_for(daemon, group, r0="WAITING")
        trainer.kill()
    wait_for(daemon, group, r0="DEAD")
    return int(generation)


@pytest.mark.parametrize("transport", [SHARED_MEMORY, PROTOBUF])
@pytest.mark.parametrize("first", [0, 1])
def test_the_next_run_computes_with_itself_whoever_comes_first(daemon, transport, first):
    group = fresh("restart")
    before = killed(daemon, group)
    with Trainer(daemon.unix, transport) as one, Trainer(daemon.unix, transport) as other:
        assert int(one.join(group, first, 2, BCE)["generation"]) == before + 1
        one.begin(1, 4, fill=2)
        one.start("compute", 0)
        wait_for(daemon, group, **{f"r{first}": "WAITING"})
        assert int(other.join(group, 1 - first, 2, BCE)["generation"]) == before + 1
        other.begin(1, 8, fill=2)
        answers = [other.tell("compute", 0), one.answer()]
        assert [float.fromhex(answer["counts"][4]) for answer in answers] == [12, 12], answers
        for trainer in (one, other):
            trainer.tell("leave")


def test_the_next_run_may_have_another_config_and_size(daemon):
    group = fresh("restart")
    before = killed(daemon, group)
    with Trainer(daemon.unix) as one, Trainer(daemon.unix) as other:
        assert int(one.join(group, 2, 3, OTHER)["generation"]) == before + 1
        with pytest.raises(ClientFailure) as refused:
            other.join(group, 1, 3, BCE)
        assert refused.value.reason == "CONFIG_DIGEST_MISMATCH"


def test_a_member_over_http_is_never_known_to_be_dead(daemon):
    group = fresh("restart")
    before = daemon.client.join(group, 1, 3, BCE).generation
    with Trainer(daemon.unix, SHARED_MEMORY) as trainer:
        assert int(trainer.join(group, 0, 3, BCE)["generation"]) == before
        trainer.kill()
    wait_for(daemon, group, r0="DEAD")
    error = daemon.client.refused("JoinGroup", {"group": group, "rank": 2, "world_size": 3, "config": OTHER})
    assert error.reason == "CONFIG_DIGEST_MISMATCH"
    assert daemon.client.join(group, 2, 3, BCE).generation == before


def test_calls_of_the_dead_over_http_are_told_who_ended_their_generation(daemon):
    group = fresh("restart")
    before = daemon.client.join(group, 0, 2, BCE).generation
    call = background(lambda: daemon.client.call("ComputeLoss", {"group": group, "rank": 0, "step": 0, **batch(2)}))
    wait_for(daemon, group, r0="WAITING")
    Peer(daemon, group, 0, before, BCE).close()
    wait_for(daemon, group, r0="DEAD")
    assert daemon.client.join(group, 1, 2, BCE).generation == before + 1
    error = call.result()
    assert error.reason == "STALE_GENERATION" and error.metadata["generation"] == str(before + 1)
    assert "rank 1 joined when the processes of all members were dead: the group" in error.message, error.message


def test_the_same_processes_come_back_though_all_were_seen_dead(daemon):
    group = fresh("restart")
    before = [daemon.client.join(group, rank, 2, BCE, instance=rank + 5).generation for rank in range(2)]
    for rank in range(2):
        Peer(daemon, group, rank, before[0], BCE).close()
    wait_for(daemon, group, r0="DEAD", r1="DEAD")
    assert [daemon.client.join(group, rank, 2, BCE, instance=rank + 5).generation for rank in (1, 0)] == before
    peers = [Peer(daemon, group, rank, before[0], BCE) for rank in range(2)]
    for peer in peers:
        peer.columns({"step": 0, **batch(2)})
        peer.submit()
    assert [peer.wait().world_candidates for peer in peers] == [4, 4]
    for peer in peers:
        peer.close()
