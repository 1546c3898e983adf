"""Shared memory where the system or the daemon has no more of it: refused by name, and nobody else is concerned."""

import pytest

from harness import background, wait_until
from shm_peer import Peer, ShmError, Socket
from small import BCE, Ranks, batch


def test_a_region_above_the_limit_on_files_is_refused(start):
    daemon = start(wrapper=("prlimit", "--fsize=1000000"))
    ranks = Ranks(daemon.client, "g", 1)
    with pytest.raises(ShmError) as refused:
        Peer(daemon, "g", 0, ranks.generation, BCE, data_bytes=1 << 20)
    assert (refused.value.reason, refused.value.retry) == ("OVERLOADED", "same")
    peer = Peer(daemon, "g", 0, ranks.generation, BCE, data_bytes=1 << 16)
    assert peer.compute({"step": 1, **batch(2)})["world"] == (1, 2, 1)
    peer.close()


def test_who_gets_no_region_does_not_speak_for_a_rank_that_has_one(start):
    daemon = start({"limits": {"regions_bytes": 1 << 20}})
    ranks = Ranks(daemon.client, "g", 2)
    holder = Peer(daemon, "g", 1, ranks.generation, BCE, data_bytes=1 << 19)
    for _ in range(2):
        other = Socket(daemon)
        other.ask("g", 1, ranks.generation, data_bytes=1 << 19)
        with pytest.raises(ShmError) as refused:
            other.answered()
        assert refused.value.metadata == {"limit": "regions_bytes"}
        other.close()
    wait_until(lambda: daemon.metric("lossd_shared_memory_clients") == 1)
    assert ranks.state(1) == "IDLE"
    call = background(lambda: ranks.compute(0, 1))
    ranks.wait_for(0, "WAITING")
    holder.close()
    ranks.wait_for(1, "DEAD")
    error = call.result()
    assert error.metadata["missing_states"] == "1 dead", error
