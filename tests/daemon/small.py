"""Groups and batches small enough to check by hand."""

import time

from harness import group_pb2

BCE = {"tasks": [{"name": "t", "losses": [{"binary_cross_entropy": {}}]}]}
# At logit 0 and label 1 the loss of a row is ln 2 and its gradient -1/2, over the candidates.
LN2 = 0.6931471805599453


def batch(candidates, name="t"):
    """One request of so many candidates, all with logit 0 and label 1."""
    return {"lengths": [candidates] if candidates else [],
            "tasks": [{"name": name, "logits": [0.0] * candidates, "labels": [1.0] * candidates}]}


def bad_batch(candidates):
    """The same with NaN in the last logit."""
    bad = batch(candidates)
    bad["tasks"][0]["logits"][-1] = "NaN"
    return bad


class Ranks:
    """A group of the BCE task and its calls."""

    def __init__(self, client, name, world, config=BCE, **more):
        self.client, self.name, self.world = client, name, world
        self.generation = client.join_all(name, world, {**BCE, **config}, **more)

    def compute(self, rank, step, what=2, timeout_ms=None, **more):
        """what: a batch, or how many candidates."""
        request = {"group": self.name, "rank": rank, "step": step, **more}
        request |= batch(what) if isinstance(what, int) else what
        return self.client.call("ComputeLoss", request, timeout_ms=timeout_ms)

    def announce(self, rank, step, candidates=2, **more):
        request = {"group": self.name, "rank": rank, "step": step, "requests": 1, "candidates": candidates, **more}
        return self.client.call("AnnounceCounts", request)

    def status(self):
        return self.client.group(self.name)

    def state(self, rank):
        return group_pb2.RankState.Name(self.status().ranks[rank].state).removeprefix("RANK_STATE_")

    def wait_for(self, rank, state, seconds=10):
        """Until a rank is seen in this state."""
        end = time.monotonic() + seconds
        while self.state(rank) != state:
            assert time.monotonic() < end, f"rank {rank} is {self.state(rank)}, not {state}: {self.status()}"
            time.sleep(0.005)
