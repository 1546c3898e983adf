"""The golden edge cases through the daemon: what is refused by default, what the two other policies make of it."""

import math

import numpy as np
import pytest

import goldens
from harness import fresh

REASONS = {"nonfinite_logit": "NONFINITE_LOGITS", "label_out_of_range": "LABEL_OUT_OF_RANGE",
           "label_not_integer": "LABEL_OUT_OF_RANGE", "shape_mismatch": "SHAPE_MISMATCH",
           "bad_length": "MALFORMED_REQUEST"}
CASES = goldens.load("edges")


def config_of(case, **policy):
    kind = case["loss"] if case["loss"] in ("softmax_cross_entropy", "listwise_rank_loss") else "binary_cross_entropy"
    task = {"name": "t", "losses": [{kind: {}}]}
    if kind == "softmax_cross_entropy":
        task["num_class"] = len(case["batch"]["logits"][0])
    return {"tasks": [task], **policy}


def batch_of(case, log_scale=None):
    batch = case["batch"]
    task = goldens.task_batch(batch)
    log_scale = batch.get("theta", log_scale)
    if log_scale is not None:
        task["log_scale"] = log_scale
    return {"lengths": batch.get("lengths", [len(batch["labels"])]), "tasks": [task]}


def compute(client, case, config, **more):
    group = fresh("edge")
    client.join(group, 0, 1, config)
    return client.call("ComputeLoss", {"group": group, **batch_of(case, **more)})


@pytest.mark.parametrize("case", [c for c in CASES if "error" in c["strict"] and "raw" not in c["batch"]],
                         ids=lambda c: c["id"])
def test_is_refused(daemon, case):
    for codec in ("json", "proto"):
        if case["id"] == "edges/negative_length" and codec == "proto":
            continue  # no such number in protobuf's uint32
        client, group = daemon.rpc(codec), fresh("edge")
        client.join(group, 0, 1, config_of(case))
        error = client.refused("ComputeLoss", {"group": group, **batch_of(case)})
        assert (error.code, error.reason) == ("invalid_argument", REASONS[case["strict"]["error"]]), error
        index = case["strict"].get("index")
        if error.reason == "NONFINITE_LOGITS":
            assert error.field == f"tasks[0].logits[{index}]" and error.metadata["first_index"] == str(index)
        elif error.reason == "LABEL_OUT_OF_RANGE":
            assert error.field == f"tasks[0].labels[{index}]"
        elif error.reason == "MALFORMED_REQUEST":
            assert error.field == f"lengths[{index}]"


@pytest.mark.parametrize("case", [c for c in CASES if "grad_per_candidate" in c["parity"] and "nonfinite_logit" ==
                                  c["strict"].get("error")], ids=lambda c: c["id"])
def test_propagates(client, case):
    answer = compute(client, case, config_of(case, on_nonfinite="ON_NONFINITE_PROPAGATE"))
    count = len(case["batch"]["labels"])
    want = np.array([float(g) / count for g in case["parity"]["grad_per_candidate"]])
    np.testing.assert_allclose(np.array(answer.tasks[0].gradient), want, atol=5e-7)
    total = sum(float(v) for v in case["parity"]["per_candidate"])
    assert math.isnan(answer.loss) if math.isnan(total) else answer.loss == total / count


def test_zero_policy_leaves_the_list_out_and_counts_it(client):
    case = next(c for c in CASES if c["id"] == "edges/listwise_nan_logit")
    want = case["strict"]["zero_policy"]
    answer = compute(client, case, config_of(case, on_nonfinite="ON_NONFINITE_ZERO"), log_scale=0.0)
    assert answer.loss == pytest.approx(want["loss"], rel=2e-6)
    np.testing.assert_allclose(np.array(answer.tasks[0].gradient), want["grad"], atol=5e-7 / 2)
    assert answer.tasks[0].log_scale_gradient == pytest.approx(want["grad_theta"], rel=2e-6)
    assert answer.tasks[0].nonfinite_units == want["nonfinite_units"]
    assert answer.local.requests == 2


@pytest.mark.parametrize("name", ["softmax_all_ignored", "listwise_scaled_overflow"])
def test_gives_zero_and_not_nan(client, name):
    case = next(c for c in CASES if c["id"] == "edges/" + name)
    answer = compute(client, case, config_of(case))
    assert answer.loss == case["strict"]["loss"] == 0
    assert not any(answer.tasks[0].gradient)
    if "denominator" in case["strict"]:
        assert answer.tasks[0].terms[0].denominator == case["strict"]["denominator"]


@pytest.mark.parametrize("case", [c for c in CASES if "task_bitmask" in c["batch"]], ids=lambda c: c["id"])
def test_bitmask(client, case):
    """At logit 0 the gradient is (1/2 - label) / C: it shows the labels."""
    mask = str(case["batch"]["task_bitmask"])
    bits = [str(raw % 2**64) for raw in case["batch"]["raw"]]
    group, count = fresh("bits"), len(bits)
    client.join(group, 0, 1, {"tasks": [{"name": "t", "label_bitmask": mask, "losses": [{"binary_cross_entropy": {}}]}]})
    answer = client.call("ComputeLoss", {"group": group, "lengths": [count], "label_bits": bits,
                                         "tasks": [{"name": "t", "logits": [0.0] * count}]})
    labels = [0.5 - g * count for g in answer.tasks[0].gradient]
    np.testing.assert_allclose(labels, case["strict"]["labels"], atol=1e-6)


def test_a_class_label_is_never_cut_to_an_integer(client):
    case = next(c for c in CASES if c["id"] == "edges/int_truncation")
    labels, group = case["batch"]["raw"], fresh("int")
    client.join(group, 0, 1, {"tasks": [{"name": "t", "num_class": 2, "losses": [{"softmax_cross_entropy": {}}]}]})
    error = client.refused("ComputeLoss", {"group": group, "lengths": [len(labels)],
                                           "tasks": [{"name": "t", "logits": [0.0] * 8, "labels": labels}]})
    assert (error.reason, error.field) == ("LABEL_OUT_OF_RANGE", f"tasks[0].labels[{case['strict']['index']}]")
