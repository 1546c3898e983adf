"""What ranks of DDP do together, as one of their processes: `ddp_checks.py NAME` runs the function of that name."""

import math
import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

import lossd
from lossd.torch import RankingLoss

CONFIG = {
    "tasks": [
        {"name": "click", "losses": [{"binary_cross_entropy": {}}]},
        {"name": "list", "losses": [{"listwise_rank_loss": {"temperature_init": 0.5}}]},
    ]
}
LENGTHS = [[2, 3], [1, 0, 4, 1]]  # of rank 0 and of rank 1


def data(rank, step=0):
    """Features, labels, lengths."""
    generator = torch.Generator().manual_seed(10 * step + rank)
    count = sum(LENGTHS[rank])
    labels = torch.randint(0, 2, (count, 2), generator=generator)
    labels[:, 1] = torch.arange(count) % 2
    return torch.randn(count, 4, generator=generator), labels, LENGTHS[rank]


def model():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2))


def wanted(step=0):
    """Gradients of model() and of the log scale for the batches of both ranks together."""
    whole, theta = model().double(), torch.tensor(-math.log(0.5), dtype=torch.float64, requires_grad=True)
    logits = whole(torch.cat([data(0, step)[0], data(1, step)[0]]).double())
    labels, lengths = torch.cat([data(0, step)[1], data(1, step)[1]]), LENGTHS[0] + LENGTHS[1]
    loss = F.binary_cross_entropy_with_logits(logits[:, 0], labels[:, 0].double())
    for z, y in zip(logits[:, 1].split(lengths), labels[:, 1].split(lengths)):
        if 0 < int(y.sum()) < len(y):
            loss = loss - torch.log_softmax(theta.exp() * z, 0)[y == 1].mean() / len(lengths)
    loss.backward()
    return float(loss), [parameter.grad for parameter in whole.parameters()], theta.grad


def same(some, others):
    return all(torch.allclose(a.double(), b.double(), rtol=2e-5, atol=1e-7) for a, b in zip(some, others))


def gradients_are_those_of_the_global_batch(rank):
    """The temperature's too: whether the loss is outside of DDP, or inside with the model."""
    loss, gradients, slope = wanted()
    features, labels, lengths = data(rank)
    outside, step = DDP(model()), RankingLoss(CONFIG, group="outside")
    own = step(outside(features), labels, lengths)
    own.backward()
    assert same([p.grad for p in outside.parameters()], gradients)
    assert same([step.log_scale["list"].grad], [slope])
    mean = own.detach().clone()
    dist.all_reduce(mean)
    assert math.isclose(float(mean) / 2, loss, rel_tol=1e-5)

    class Both(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model, self.step = model(), RankingLoss(CONFIG, group="inside")

        def forward(self, features, labels, lengths):
            return self.step(self.model(features), labels, lengths)

    inside = DDP(Both())
    inside(features, labels, lengths).backward()
    assert same([p.grad for p in inside.module.model.parameters()], gradients)
    assert same([inside.module.step.log_scale["list"].grad], [slope])


def shards_get_the_mean_as_fsdp_reduces_it(rank):
    """
    FSDP reduce-scatters gradients and divides by the ranks: each rank has its shard of their mean. By hand, since
    PyTorch 1 has no FSDP for the CPU, and by FSDP itself where it has.
    """
    _, gradients, _ = wanted()
    features, labels, lengths = data(rank)
    local, step = model(), RankingLoss(CONFIG)
    step(local(features), labels, lengths).backward()
    flat = torch.cat([p.grad.flatten() for p in local.parameters()])
    shards = list(flat.chunk(2))
    for owner, shard in enumerate(shards):
        dist.reduce(shard, owner)
    want = torch.cat([gradient.flatten() for gradient in gradients]).chunk(2)[rank]
    assert same([shards[rank] / 2], [want])
    if int(torch.__version__.split(".")[0]) >= 2:
        fully_sharded(rank, gradients)


def fully_sharded(rank, gradients):
    """First a step that is refused, whose backward pass all ranks leave out, then a good one."""
    from torch.distributed.fsdp import FullyShardedDataParallel

    sharded = FullyShardedDataParallel(model(), device_id=torch.device("cpu"), use_orig_params=True)
    step = RankingLoss(CONFIG, group="fsdp", on_refused="zero")
    features, labels, lengths = data(rank)
    bad = features.clone()
    bad[0, 0] = math.nan if rank == 1 else 0
    step(sharded(bad), labels, lengths)
    assert step.refused
    step(sharded(features), labels, lengths).backward()
    with FullyShardedDataParallel.summon_full_params(sharded, with_grads=True):
        assert same([p.grad for p in sharded.parameters()], gradients)


def refused_steps_raise_on_all_ranks(rank):
    ddp, step = DDP(model()), RankingLoss(CONFIG)
    features, labels, lengths = data(rank)
    logits = ddp(features)
    bad = logits * (math.nan if rank == 1 else 1)
    try:
        step(bad, labels, lengths)
    except lossd.Error as error:
        if rank == 1:
            assert error.reason == "NONFINITE_LOGITS" and error.metadata["task"] == "click", error
        else:
            assert error.reason == "STEP_REJECTED_BY_PEER" and isinstance(error, lossd.PeerError)
            assert (error.metadata["rank"], error.metadata["peer_reason"]) == ("1", "NONFINITE_LOGITS")
    else:
        raise AssertionError("not refused")
    dist.barrier()
    assert step.next_step == 0
    step(logits, labels, lengths).backward()  # the same step again, with good logits
    assert same([p.grad for p in ddp.parameters()], wanted()[1])


def refused_steps_give_nothing_on_all_ranks(rank):
    """One row of rank 1 has NaN features: a zero gradient times NaN would be NaN, for everybody."""
    ddp, step = DDP(model()), RankingLoss(CONFIG, on_refused="zero")
    optimizer = torch.optim.SGD([*ddp.parameters(), *step.parameters()], lr=0.1)
    before = [p.detach().clone() for p in ddp.parameters()]
    features, labels, lengths = data(rank)
    if rank == 1:
        features[2, 1] = math.nan
    loss = step(ddp(features), labels, lengths)
    assert step.refused and float(loss) == 0 and step.next_step == 1
    loss.backward()
    assert all(p.grad is not None and not p.grad.any() for p in ddp.parameters())
    assert not step.log_scale["list"].grad.any()
    optimizer.step()
    assert all(torch.equal(p, b) for p, b in zip(ddp.parameters(), before))
    optimizer.zero_grad()
    step(ddp(data(rank)[0]), labels, lengths).backward()
    assert not step.refused and same([p.grad for p in ddp.parameters()], wanted()[1])


def after_an_announcement_a_refused_batch_is_missing_alone(rank):
    ddp, step = DDP(model()), RankingLoss(CONFIG, on_refused="zero")
    features, labels, lengths = data(rank)
    step.announce(lengths)
    dist.barrier()  # promised by both: the all-reduce is over
    if rank == 1:
        features[2, 1] = math.nan
    loss = step(ddp(features), labels, lengths)
    assert step.refused == (rank == 1) and (float(loss) == 0) == (rank == 1)
    loss.backward()
    gradients = torch.cat([p.grad.flatten() for p in ddp.parameters()])
    assert torch.isfinite(gradients).all() and gradients.any()
    peers = [torch.empty_like(gradients) for _ in range(2)]
    dist.all_gather(peers, gradients)
    assert torch.equal(*peers) and step.log_scale["list"].grad.any()


def other_errors_raise_everywhere(rank):
    step = RankingLoss(CONFIG, on_refused="zero")
    features, labels, lengths = data(rank)
    if rank == 1:
        labels[0, 0] = 2
    try:
        step(model()(features), labels, lengths)
    except lossd.Error as error:
        reason = error.reason if rank == 1 else error.metadata["peer_reason"]
        assert reason == "LABEL_OUT_OF_RANGE"
    else:
        raise AssertionError("not refused")
    dist.barrier()


def a_process_group_of_other_ranks_is_told(rank):
    alone = [dist.new_group([r]) for r in range(2)][rank]
    step = RankingLoss(CONFIG, process_group=alone, rank=rank, world_size=2)
    features, labels, lengths = data(rank)
    loss = step(model()(features), labels, lengths)
    try:
        loss.backward()
    except RuntimeError as why:
        assert "the process group has 1 ranks, and the lossd group 2" in str(why)
    else:
        raise AssertionError("not told")


def without_torchrun_torch_says_who_it_is(rank):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK"):
        del os.environ[name]
    step = RankingLoss(CONFIG, group="no-torchrun")
    assert (step.client.rank, step.client.world_size) == (rank, 2)
    dist.barrier()


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    globals()[sys.argv[1]](dist.get_rank())
    dist.destroy_process_group()
