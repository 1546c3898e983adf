"""
A training run, as one of its processes: `training.py DATA.npz OUT.pt WAY...`, with torchrun's environment.

A small multi-task ranker learns from real queries by SGD for 50 steps, once for each WAY: the transports of lossd, or
"local", which is DDP with the means of each rank. The parameters at the end go to OUT.pt, {way: {name: tensor}}.
"""

import os
import sys

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F

import lossd
from lossd.torch import RankingLoss

STEPS, QUERIES, EMPTY_STEP = 50, 24, 17
CONFIG = {
    "tasks": [
        {"name": "click", "losses": [{"binary_cross_entropy": {}}]},  # with sample weights
        {"name": "relevance", "weight": 0.7, "losses": [{"binary_cross_entropy": {"label_smoothing": 0.1}}]},
        {"name": "grade", "num_class": 5, "weight": 0.5, "losses": [{"softmax_cross_entropy": {}}]},
        {"name": "list", "losses": [{"listwise_rank_loss": {"temperature_init": 0.2}, "weight": 0.4}]},
    ]
}


class Queries:
    """The data set: features [N, 300] and grades [N], cut into queries."""

    def __init__(self, file):
        data = np.load(file)
        self.features, self.grades = torch.from_numpy(data["features"]), torch.from_numpy(data["grades"])
        self.lengths = data["lengths"]
        self.starts = np.concatenate([[0], np.cumsum(self.lengths)])

    def batch(self, queries):
        """Features, labels of all tasks, weights and lengths of some queries."""
        rows = torch.tensor([r for q in queries for r in range(self.starts[q], self.starts[q + 1])], dtype=torch.long)
        grades = self.grades[rows]
        labels = {"click": grades >= 1, "relevance": grades / 4, "grade": grades, "list": grades >= 2}
        weights = 0.5 + rows % 4
        lengths = torch.tensor([int(self.lengths[q]) for q in queries], dtype=torch.long)
        return self.features[rows], labels, weights, lengths

    def shards(self, step, world_size):
        """
        The queries of a step for each rank: equal shares of the sum of squared lengths, longest first, so that rank 0
        has few long lists and the last one many short ones. In one step the last rank has none.
        """
        chosen = np.random.default_rng(step).choice(len(self.lengths), QUERIES, replace=False)
        if world_size == 1:
            return [chosen]
        order = chosen[np.argsort(-self.lengths[chosen], kind="stable")]
        cost = np.cumsum(self.lengths[order].astype(float) ** 2)
        ends = np.searchsorted(cost, cost[-1] * np.arange(1, world_size) / world_size, side="left") + 1
        shards = np.split(order, ends)
        if step == EMPTY_STEP:
            shards = [np.concatenate([shards[0], shards[-1]]), *shards[1:-1], shards[-1][:0]]
        return shards


class Ranker(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(300, 24), torch.nn.Tanh(), torch.nn.Linear(24, 8))

    def forward(self, features):
        return self.layers(features)


class LocalMeans(torch.nn.Module):
    """The same losses as a trainer writes them without lossd: means over what this rank has."""

    def __init__(self):
        super().__init__()
        self.log_scale = torch.nn.Parameter(torch.tensor([-float(np.log(0.2))]))
        self.log_scale.register_hook(self._mean_over_ranks)  # as DDP would

    @staticmethod
    def _mean_over_ranks(gradient):
        gradient = gradient.clone()
        dist.all_reduce(gradient)
        return gradient / dist.get_world_size()

    def forward(self, logits, labels, lengths, weights):
        if len(logits) == 0:
            return logits.sum() + 0 * self.log_scale.sum()
        weights = weights["click"]
        click = F.binary_cross_entropy_with_logits(logits[:, 0], labels["click"].float(), weights, reduction="sum")
        smooth = labels["relevance"] * 0.9 + 0.05
        relevance = F.binary_cross_entropy_with_logits(logits[:, 1], smooth)
        grade = F.cross_entropy(logits[:, 2:7], labels["grade"].long())
        lists = []
        for z, y in zip(logits[:, 7].split(lengths.tolist()), labels["list"].split(lengths.tolist())):
            logp = torch.log_softmax(self.log_scale.exp() * z, 0)
            lists.append(-logp[y].mean() if 0 < int(y.sum()) < len(y) else 0 * logp.sum())
        return click / weights.sum() + 0.7 * relevance + 0.5 * grade + 0.4 * torch.stack(lists).mean()


def train(queries, way):
    """The parameters and the losses of each step, of the way."""
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.manual_seed(5)
    ranker = Ranker()
    initial = {name: value.detach().clone() for name, value in ranker.named_parameters()}
    model = ranker if world_size == 1 else torch.nn.parallel.DistributedDataParallel(ranker)
    if way == "local":
        step = LocalMeans()
    else:
        group = f"training-{world_size}-{way}"
        step = RankingLoss(CONFIG, lossd.Client(os.environ["LOSSD_ADDR"], transport=way), group=group)
        assert step.client.transport == way
    parameters = [*ranker.parameters(), *step.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.5)
    losses = []
    for i in range(STEPS):
        features, labels, weights, lengths = queries.batch(queries.shards(i, world_size)[rank])
        optimizer.zero_grad()
        loss = step(model(features), labels, lengths, weights={"click": weights})
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    if way != "local":
        step.leave()
    found = {name: value.detach() for name, value in ranker.named_parameters()}
    temperature = step.log_scale if way == "local" else step.log_scale["list"]
    return {"parameters": {**found, "log_scale": temperature.detach()}, "initial": initial, "losses": losses}


def main(data, out, *ways):
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    if int(os.environ["WORLD_SIZE"]) > 1:
        dist.init_process_group("gloo")
    queries = Queries(data)
    torch.save({way: train(queries, way) for way in ways}, out)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
