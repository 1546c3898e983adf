"""
Every golden case about losses and averages through the running daemon, in both codecs.

A case is compared twice: its numbers with the reference on the numbers as written (binary64, so closely), and the
daemon with the reference on the same numbers rounded to binary32, as the wire carries them.
"""

import numpy as np
import pytest

import goldens
import reference
from harness import fresh, together

ids = lambda case: case[0]  # noqa: E731


def agree(got, want, what):
    got, want = np.array(got, dtype=np.float64).ravel(), np.array(want, dtype=np.float64).ravel()
    assert got.shape == want.shape, what
    np.testing.assert_allclose(got, want, rtol=2e-11, atol=1e-14, err_msg=what)


def run(daemon, config, batches, generation=None, step=1):
    """The answers of one step, after all ranks got the same bits of gradient in both codecs."""
    world = len(batches)
    answers = {}
    for codec in ("json", "proto"):
        client, group = daemon.rpc(codec), fresh("golden")
        client.join_all(group, world, config)
        calls = [{"group": group, "rank": r, "step": step, **b} for r, b in enumerate(batches)]
        answers[codec] = together(*[lambda c=c: client.call("ComputeLoss", c) for c in calls])
        for answer in answers[codec]:
            if isinstance(answer, Exception):
                raise answer
        client.leave_all(group, world)
    for a, b in zip(answers["json"], answers["proto"]):
        for x, y in zip(a.tasks, b.tasks):
            left, right = (np.array(t.gradient, dtype=np.float32).tobytes() for t in (x, y))
            assert left == right, "JSON and protobuf give other bits"
            assert x.loss == y.loss
    return answers["proto"]


def compare(daemon, config, batches):
    got = run(daemon, config, batches)
    want = reference.answers(config, batches)
    for answer, expected, batch in zip(got, want, batches):
        reference.check(answer, expected, batch)
    return got


@pytest.mark.parametrize("case", goldens.losses(), ids=ids)
def test_loss(daemon, case):
    _, config, batch, want = case
    exact = reference.answers(config, [batch], np.float64)[0]["tasks"]["t"]
    term = exact["terms"][0]
    agree(term["local_mean"], want["loss"], "loss")
    agree(exact["gradient"], want["grad"], "gradient")
    if want.get("grad_theta") is not None:
        agree(exact["slope"], want["grad_theta"], "gradient of log_scale")
    if not batch["tasks"][0].get("weights"):  # weighted cases count rows, we count weights: the mean is the same
        agree([term["sum"], term["denominator"]], [want["sum"], want["denominator"]], "sum, denominator")
    compare(daemon, config, [batch])


@pytest.mark.parametrize("case", goldens.rescales(), ids=ids)
def test_rescale(daemon, case):
    _, config, batches, golden = case
    exact = reference.answers(config, batches, np.float64)
    for mine, rank in zip(exact, golden["ranks"]):
        want = rank.get("expected") or {"request_ratio": 0.0, "candidate_ratio": 0.0}
        agree([mine["request_factor"], mine["candidate_factor"]], [want["request_ratio"], want["candidate_ratio"]],
              "factors")
        for name in ("bce", "listwise"):
            task = mine["tasks"][name]
            if name + "_local" not in want:
                continue
            term = task["terms"][0]
            agree([term["local_mean"], term["value"], term["sum"]],
                  [want[name + "_local"], want[name + "_rescaled"], want[name + "_sum"]], name)
            agree(task["gradient"], want[f"grad_{name}_rescaled"], name + " gradient")
        if "grad_theta_rescaled" in want:
            agree(mine["tasks"]["listwise"]["slope"], want["grad_theta_rescaled"], "gradient of log_scale")
    got = compare(daemon, config, batches)
    for index, name in enumerate(("bce", "listwise")):
        mean = sum(a.tasks[index].loss for a in got) / len(got)
        assert mean == pytest.approx(golden["expected"]["global_" + name], rel=2e-6, abs=1e-9), name
    if "param_grad_bce_ddp" in golden["expected"]:
        for index, name in enumerate(("bce", "listwise")):
            slope = sum(np.array(r["batch"]["x"]).reshape(-1, 2).T @ np.array(a.tasks[index].gradient)
                        for r, a in zip(golden["ranks"], got)) / len(got)
            np.testing.assert_allclose(slope, golden["expected"][f"param_grad_{name}_ddp"], rtol=0, atol=1e-6)


@pytest.mark.parametrize("case", [c for c in goldens.load("rescale") if "avg_counts" in c["id"]], ids=lambda c: c["id"])
def test_mean_counts(daemon, case):
    """The factors are this rank's counts over the mean counts: so the means can be read from them."""
    config = {"tasks": [{"name": "t", "losses": [{"l2_loss": {}}]}]}

    def batch(lengths):
        zeros = [0.5] * int(sum(lengths))
        return {"lengths": lengths, "tasks": [{"name": "t", "logits": zeros, "labels": zeros}]}

    batches = [batch(case["lengths"])]
    if "peer" in case:
        requests, candidates = (int(x) for x in case["peer"])
        batches.append(batch([candidates - requests + 1] + [1] * (requests - 1)))
    got = run(daemon, config, batches)[0]
    ranks = got.world.ranks
    assert [got.world.requests / ranks, got.world.candidates / ranks] == case["expected"]


def test_equal_counts_give_a_factor_of_exactly_one(daemon):
    """Means in binary32 miss 1 for these worlds and counts."""
    case = next(c for c in goldens.load("rescale") if c["id"] == "rescale/float32_avg_is_not_exact")
    config = {"tasks": [{"name": "t", "losses": [{"l2_loss": {}}]}]}
    small = [(w, n) for w, n, _ in case["expected"]["not_exactly_one"] if n <= 1000]
    assert len(small) > 8
    for world, count in small:
        batch = {"lengths": [count], "tasks": [{"name": "t", "logits": [1.0] * count, "labels": [0.0] * count}]}
        for answer in run(daemon, config, [batch] * world):
            assert answer.candidate_factor == 1 and answer.request_factor == 1
            assert answer.tasks[0].terms[0].factor == 1 and answer.loss == 1


@pytest.mark.parametrize("case", goldens.multitasks(), ids=ids)
def test_multitask(daemon, case):
    _, config, batch, losses, gradients, slope = case
    exact = reference.answers(config, [batch], np.float64)[0]
    names = [t["name"] for t in config["tasks"]]
    agree([exact["tasks"][n]["loss"] for n in names], losses, "losses")
    agree(np.concatenate([exact["tasks"][n]["gradient"] for n in names]), np.concatenate(gradients), "gradients")
    if slope is not None:
        agree(exact["tasks"]["t"]["slope"], slope, "gradient of log_scale")
    compare(daemon, config, [batch])


@pytest.mark.parametrize("case", goldens.weights(), ids=ids)
def test_weights(daemon, case):
    _, config, batches, golden = case
    want = golden["expected"]
    exact = reference.answers(config, batches, np.float64)
    agree([r["tasks"]["t"]["terms"][0]["factor"] for r in exact], want["exact_factor_on_local_mean"], "factors")
    mean = sum(r["loss"] for r in exact) / len(exact)
    agree(mean, want.get("exact_global_weighted_mean", want.get("exact")), "mean")
    local = {**config, "weight_normalizer": "WEIGHT_NORMALIZER_LOCAL"}
    parity = reference.answers(local, batches, np.float64)
    agree(sum(r["loss"] for r in parity) / len(parity), want["parity_mean_over_ranks"], "TorchEasyRec's mean")
    if "exact_grad" in want:
        agree(np.concatenate([r["tasks"]["t"]["gradient"] for r in exact]), np.concatenate(want["exact_grad"]), "grad")
    compare(daemon, config, batches)
    compare(daemon, local, batches)


@pytest.mark.parametrize("case", [c for c in goldens.load("weights") if "ranks" not in c], ids=lambda c: c["id"])
def test_weights_of_one_rank(client, case):
    """All zero weights give 0; a negative weight is refused, where TorchEasyRec goes on."""
    config = {"tasks": [{"name": "t", "losses": [{"binary_cross_entropy": {}}]}]}
    group = fresh("weights")
    client.join(group, 0, 1, config)
    batch = {"lengths": [len(case["batch"]["labels"])], "tasks": [goldens.task_batch(case["batch"])]}
    if min(case["batch"]["sample_weights"]) < 0:
        error = client.refused("ComputeLoss", {"group": group, **batch})
        assert (error.code, error.reason) == ("invalid_argument", "WEIGHT_OUT_OF_RANGE")
        assert error.field == "tasks[0].weights[1]"
        return
    answer = client.call("ComputeLoss", {"group": group, **batch})
    assert answer.loss == case["expected"]["loss"] == 0
    assert list(answer.tasks[0].gradient) == case["expected"]["grad"]
    reference.check(answer, reference.answers(config, [batch])[0], batch)


def test_all_cases_of_the_files_are_used():
    """A case that is added to a file has to be met by a test."""
    used = {c[0] for make in (goldens.losses, goldens.rescales, goldens.multitasks, goldens.weights) for c in make()}
    there = {c["id"] for name in goldens.FILES + ["rescale", "multitask", "weights"] for c in goldens.load(name)}
    others = {i for i in there if "avg_counts" in i} | {"rescale/float32_avg_is_not_exact"} | goldens.NOT_OURS
    others |= {c["id"] for c in goldens.load("weights") if "ranks" not in c}
    assert there == used | others
    assert len(there) + len(goldens.load("edges")) == 94  # and none is lost
