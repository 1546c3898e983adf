"""
A real training run: one process with the whole batch, and 2 and 3 DDP ranks with very uneven shards, end with the same
parameters after 50 steps; with the means of each rank they end elsewhere. And all transports give the same bits.
"""

import pathlib

import numpy as np
import pytest
import random_batches
import reference
import torch
import training
from processes import run_ranks
from ranking_data import read_ranking_data

PROGRAM = pathlib.Path(training.__file__)
TRANSPORTS = ["shared_memory", "http_protobuf", "http_json"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The data set as arrays in a file."""
    lengths, grades, features = read_ranking_data()
    file = tmp_path_factory.mktemp("data") / "queries.npz"
    np.savez(file, features=np.float32(features), grades=np.float32(grades), lengths=np.int64(lengths))
    return file


@pytest.fixture(scope="module")
def run(daemon, data, tmp_path_factory):
    """run(world size): what each way has found, by way. Each run is made once."""
    found = {}

    def ranks(world_size):
        if world_size not in found:
            out = tmp_path_factory.mktemp("out")
            ways = [TRANSPORTS[0]] if world_size == 1 else [*TRANSPORTS, "local"]
            run_ranks(world_size, PROGRAM, lambda rank: [data, out / str(rank), *ways], daemon.unix)
            ends = [torch.load(out / str(rank)) for rank in range(world_size)]
            for way in ways:  # DDP: all ranks have the same parameters
                for name, value in ends[0][way]["parameters"].items():
                    assert all(torch.equal(end[way]["parameters"][name], value) for end in ends), (way, name)
                ends[0][way]["losses"] = np.mean([end[way]["losses"] for end in ends], axis=0)
            found[world_size] = ends[0]
        return found[world_size]

    return ranks


def difference(some, others):
    """The largest relative difference of a parameter: of tensors, by their norms."""
    return max(float((some[name] - others[name]).norm() / others[name].norm()) for name in others)


def test_shards_are_very_uneven(data):
    queries = training.Queries(data)
    for world_size in (2, 3):
        for step in range(training.STEPS):
            shards = queries.shards(step, world_size)
            assert sorted(np.concatenate(shards)) == sorted(queries.shards(step, 1)[0])
            if step == training.EMPTY_STEP:
                assert len(shards[-1]) == 0
                continue
            mean_lengths = [queries.lengths[shard].mean() for shard in shards]
            assert len(shards[-1]) > 1.5 * len(shards[0]) and mean_lengths[0] > 1.3 * mean_lengths[-1]


def test_one_process_learns(run, say):
    whole = run(1)["shared_memory"]
    moved = difference(whole["initial"], {name: whole["parameters"][name] for name in whole["initial"]})
    temperature = float(whole["parameters"]["log_scale"])
    say(f"loss {whole['losses'][0]:.3f} -> {whole['losses'][-1]:.3f}, log scale 1.609 -> {temperature:.3f}")
    assert np.mean(whole["losses"][-5:]) < 0.95 * np.mean(whole["losses"][:5])
    assert moved > 0.1 and abs(temperature + np.log(0.2)) > 0.1


@pytest.mark.parametrize("world_size", [2, 3])
def test_uneven_ranks_end_where_one_process_does(run, say, world_size):
    whole, parts = run(1)["shared_memory"], run(world_size)
    with_lossd = difference(parts["shared_memory"]["parameters"], whole["parameters"])
    with_local_means = difference(parts["local"]["parameters"], whole["parameters"])
    say(
        f"{world_size} ranks, relative difference to one process after {training.STEPS} steps: "
        f"lossd {with_lossd:.2e}, DDP with local means {with_local_means:.2e}"
    )
    assert with_lossd <= 1e-5
    assert with_local_means >= 100 * with_lossd and with_local_means >= 1e-3
    assert parts["shared_memory"]["losses"] == pytest.approx(whole["losses"], rel=1e-5)


@pytest.mark.parametrize("world_size", [2, 3])
@pytest.mark.parametrize("transport", TRANSPORTS[1:])
def test_all_transports_give_the_same_bits(run, world_size, transport):
    first, other = run(world_size)["shared_memory"], run(world_size)[transport]
    assert first["parameters"].keys() == other["parameters"].keys()
    assert all(torch.equal(value, other["parameters"][name]) for name, value in first["parameters"].items())
    assert (first["losses"] == other["losses"]).all()


def test_local_means_are_the_same_losses(data):
    """On one rank they agree with lossd's formulas, so that the difference above is that of the means."""
    queries = training.Queries(data)
    features, labels, weights, lengths = queries.batch(queries.shards(0, 1)[0])
    torch.manual_seed(5)
    local = training.LocalMeans()
    with torch.no_grad():
        logits = training.Ranker()(features)
        loss = float(local(logits, labels, lengths, {"click": weights}))
    columns = {"click": 0, "relevance": 1, "grade": slice(2, 7), "list": 7}
    tasks = {n: {"logits": logits[:, c].numpy(), "labels": labels[n].float().numpy()} for n, c in columns.items()}
    tasks["click"]["weights"] = weights.numpy()
    batch = random_batches.RankBatch(lengths.tolist(), tasks)
    assert loss == pytest.approx(reference.answers(training.CONFIG, [batch])[0]["loss"], rel=1e-6)
