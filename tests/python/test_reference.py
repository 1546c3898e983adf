"""TorchEasyRec's losses in autograd and binary64 on random batches: what lossd answers agrees, for every rank."""

import numpy as np
import pytest
import random_batches
import reference
from ranks import Ranks

SEEDS, STEPS = range(50), 12  # groups, steps of each: more than 1,000 batches of 1 to 3 ranks


def send(client, batch, config):
    """The batch in the client's buffers."""
    weighted = [name for name, columns in batch.tasks.items() if "weights" in columns]
    shape = {"dtype": batch.dtype, "layout": batch.layout, "weights": weighted}
    sent = client.batch(len(batch.lengths), sum(batch.lengths), **shape)
    sent.lengths = batch.lengths
    if batch.label_bits is not None:
        sent.label_bits = batch.label_bits
    for name, columns in batch.tasks.items():
        for field, values in columns.items():
            if field == "logits" and batch.dtype == "bfloat16":
                values = (values.view(np.uint32) >> 16).astype(np.uint16)
            setattr(sent.tasks[name], field, values)
    return sent


def close(got, want, allowed, what):
    assert abs(got - want) <= allowed, f"{what}: {got!r} is not {want!r}, off by {abs(got - want):.3e} > {allowed:.3e}"


def check(result, want, batch):
    """
    A gradient may be off by 5e-7 of the largest one that its term can give that row; a term and its sum by 2e-6 of
    itself and 1e-9 for each unit of denominator and weight; the gradient of log_scale by 2e-6 of Σ |g (z - max z)|.
    """
    allowed_loss = 1e-300
    for name, expected in want["tasks"].items():
        task = result.tasks[name]
        assert [term.name for term in task.terms] == [term["name"] for term in expected["terms"]]
        allowed_task = 1e-300
        for term, e in zip(task.terms, expected["terms"]):
            at = f"{name}.{term.name}"
            allowed = 2e-6 * abs(e["sum"]) + 1e-9 * e["denominator"]
            close(term.sum, e["sum"], allowed, at + " sum")
            close(term.denominator, e["denominator"], 1e-12 * e["denominator"], at + " denominator")
            close(term.factor, e["factor"], 1e-12 * e["factor"], at + " factor")
            close(term.local_mean, e["local_mean"], reference.ratio(allowed, e["denominator"]), at + " local_mean")
            close(term.value, e["value"], e["unit"] * allowed + 1e-300, at + " value")
            allowed_task += e["unit"] * allowed
        close(task.loss, expected["loss"], allowed_task * (1 + 1e-9), name + " loss")
        allowed_loss += allowed_task
        off = np.abs(np.asarray(task.gradient, np.float64) - expected["gradient"].numpy())
        assert (off <= 5e-7 * expected["bound"].numpy()).all(), f"{name} gradient: {off.max()}"
        assert (task.log_scale_gradient is not None) == ("log_scale" in batch.tasks[name]), name
        if task.log_scale_gradient is not None:
            allowed = 2e-6 * expected["slope_bound"] + expected["slope_floor"] + 1e-300
            close(task.log_scale_gradient, expected["slope"], allowed, name + " slope")
    close(result.loss, want["loss"], allowed_loss * (1 + 1e-9), "loss")


@pytest.fixture(scope="module")
def counted():
    """How many batches were compared, and what was in them."""
    seen = {"batches": 0, "terms": set(), "weighted": 0, "empty": 0}
    yield seen


@pytest.mark.parametrize("seed", SEEDS)
def test_random_batches_give_what_autograd_finds(fast, counted, seed):
    rng = np.random.default_rng(seed)
    config, world_size = random_batches.group_config(rng), int(rng.integers(1, 4))
    with Ranks(world_size, config, **fast) as group:
        for step in range(STEPS * 3 // (world_size + 1)):
            batches = random_batches.step(rng, config, world_size)
            sent = [send(client, batch, config) for client, batch in zip(group.clients, batches)]
            results = group.compute(sent, step)
            for rank, (result, want) in enumerate(zip(results, reference.answers(config, batches))):
                if isinstance(result, Exception):
                    raise result
                check(result, want, batches[rank])
                counted["batches"] += 1
                counted["empty"] += not batches[rank].lengths
                counted["weighted"] += any("weights" in columns for columns in batches[rank].tasks.values())
                counted["terms"] |= {term["name"] for task in want["tasks"].values() for term in task["terms"]}


def test_that_was_a_thousand_batches_of_all_losses(counted):
    if counted["batches"] == 0:
        pytest.fail("run the whole file")
    assert counted["batches"] >= 1000 and counted["terms"] == set(reference.LOSSES)
    assert counted["weighted"] > 100 and counted["empty"] > 20
