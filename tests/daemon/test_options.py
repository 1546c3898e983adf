"""Each flag of a config and of a batch against the reference: what TorchEasyRec does otherwise, and what only some need."""

import numpy as np
import pytest

import reference
from harness import config_pb2, fresh, together

RNG = np.random.default_rng(11)
LENGTHS = [[3, 0, 4, 1], [2], [5, 6, 1, 0, 3]]


def numbers(count, scale=1.5):
    return (scale * RNG.normal(size=count)).astype(np.float32).astype(float).tolist()


def ranks_of(task):
    """Batches of three uneven ranks; task(candidates) gives the columns of one."""
    return [{"lengths": n, "tasks": [{"name": "t", **task(sum(n))}]} for n in LENGTHS]


def binary(count):
    return {"logits": numbers(count), "labels": RNG.integers(0, 2, count).astype(float).tolist()}


def weighted(count):
    return {**binary(count), "weights": np.abs(numbers(count)).tolist()}


def classes(count, ignore=0.3):
    labels = RNG.integers(0, 4, count)
    return {"logits": numbers(4 * count), "labels": np.where(RNG.random(count) < ignore, -100, labels).tolist()}


def joint(count):
    return {"logits": numbers(2 * count), "labels": RNG.integers(0, 2, count).tolist()}


def with_sessions(columns):
    return lambda count: {**columns(count), "sessions": RNG.integers(-3, 3, count).tolist()}


def spaced(count):
    return {**weighted(count), "task_space": RNG.integers(-1, 2, count).astype(float).tolist()}


def graded(count):
    return {"logits": numbers(count), "labels": RNG.integers(0, 4, count).astype(float).tolist(), "log_scale": 0.7}


def task(*losses, **more):
    return {"tasks": [{"name": "t", "losses": list(losses), **more}]}


BCE, L2, FOCAL = {"binary_cross_entropy": {}}, {"l2_loss": {}}, {"binary_focal_loss": {}}
LIST, JRC = {"listwise_rank_loss": {}}, {"jrc_loss": {}}
SESSIONS = {"lists": "LISTS_SESSIONS"}
CASES = {
    "sum": ({**task(BCE), "grad_reduce": "GRAD_REDUCE_SUM"}, binary),
    "no_average": ({**task(BCE), "global_average": False}, weighted),
    "weights": (task(BCE), weighted),
    "weights_local": ({**task(BCE), "weight_normalizer": "WEIGHT_NORMALIZER_LOCAL"}, weighted),
    "weights_sum": ({**task(L2), "grad_reduce": "GRAD_REDUCE_SUM"}, weighted),
    "focal_weights": (task({"weight": 3, **FOCAL}), weighted),
    "focal_textbook": (task({"binary_focal_loss": {"gamma": 1.5, "alpha": 0.2, "detach_weight": False}}), binary),
    "task_space": (task(BCE, in_task_space_weight=2, out_task_space_weight=0.25), spaced),
    "two_losses": (task({"weight": 0.5, **BCE}, L2, {"weight": 2, **LIST}, weight=3), binary),
    "same_loss_twice": (task(BCE, {"weight": 2, "binary_cross_entropy": {"label_smoothing": 0.2}}), binary),
    "softmax_kept": (task({"softmax_cross_entropy": {}}, num_class=4), classes),
    "softmax_all": (task({"softmax_cross_entropy": {"ignore_counting": "IGNORE_COUNTING_ALL"}}, num_class=4), classes),
    "jrc": (task(JRC, num_class=2), joint),
    "jrc_sessions": (task({"jrc_loss": {"alpha": 0.2}}, num_class=2, **SESSIONS), with_sessions(joint)),
    "list_sessions": (task(LIST, **SESSIONS), with_sessions(graded)),
    "list_valid": (task({"listwise_rank_loss": {"denominator": "DENOMINATOR_VALID"}}), graded),
    "list_raw": (task({"listwise_rank_loss": {"target": "TARGET_RAW"}}), graded),
    "list_probability": (task({"listwise_rank_loss": {"target": "TARGET_PROBABILITY"}}), graded),
    "list_softmax": (task({"listwise_rank_loss": {"target": "TARGET_SOFTMAX"}}), graded),
    "list_own_temperature": (task({"listwise_rank_loss": {"temperature_init": 0.5, "learnable_temperature": False}}),
                             binary),
}


def answers_of(client, config, batches):
    group, world = fresh("opt"), len(batches)
    client.join_all(group, world, config)
    answers = together(*[lambda r=r, b=b: client.call("ComputeLoss", {"group": group, "rank": r, "step": 3, **b})
                         for r, b in enumerate(batches)])
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    client.leave_all(group, world)
    return answers


def test_every_loss_of_the_schema_has_a_formula_and_a_case():
    kinds = {field.name for field in config_pb2.LossConfig.DESCRIPTOR.oneofs_by_name["loss"].fields}
    used = {kind for config, _ in CASES.values() for t in config["tasks"] for loss in t["losses"]
            for kind in loss if kind != "weight"}
    assert kinds == set(reference.LOSSES) == used


@pytest.mark.parametrize("name", CASES)
def test_option(client, name):
    config, columns = CASES[name]
    batches = ranks_of(columns)
    for answer, want, batch in zip(answers_of(client, config, batches), reference.answers(config, batches), batches):
        reference.check(answer, want, batch)


def test_gradient_scale_multiplies_gradients_only(client):
    config, batches = task(BCE, LIST), ranks_of(graded)
    for b in batches:
        b["gradient_scale"] = 1024.0
        b["tasks"][0]["labels"] = [float(y > 0) for y in b["tasks"][0]["labels"]]
    for answer, want, batch in zip(answers_of(client, config, batches), reference.answers(config, batches), batches):
        reference.check(answer, want, batch, scale=1024.0)


def test_skip_gradient_gives_losses_only(client):
    config, batches = task(LIST), ranks_of(graded)
    for b in batches:
        b["skip_gradient"] = True
    for answer, want, batch in zip(answers_of(client, config, batches), reference.answers(config, batches), batches):
        reference.check(answer, want, batch)


def test_tasks_come_back_in_the_order_of_the_request(client):
    config = {"tasks": [{"name": n, "losses": [BCE]} for n in "abc"]}
    batch = {"lengths": [4], "tasks": [{"name": n, **binary(4)} for n in "cab"]}
    answer = answers_of(client, config, [batch])[0]
    reference.check(answer, reference.answers(config, [batch])[0], batch)


@pytest.mark.parametrize("loss, columns, units", [(BCE, binary, 2), (LIST, graded, 1), (JRC, joint, 1)],
                         ids=["row", "list", "session"])
def test_zero_policy_leaves_out_the_unit_that_owns_the_logit(client, loss, columns, units):
    config = {**task(loss, num_class=2 if loss is JRC else 1), "on_nonfinite": "ON_NONFINITE_ZERO"}
    batches = ranks_of(columns)
    width = len(batches[2]["tasks"][0]["logits"]) // 15
    batches[2]["tasks"][0]["logits"][7 * width] = "NaN"  # both in the second request
    batches[2]["tasks"][0]["logits"][9 * width] = "-Infinity"
    with np.errstate(invalid="ignore"):
        wants = reference.answers(config, batches)
    for answer, want, batch in zip(answers_of(client, config, batches), wants, batches):
        reference.check(answer, want, batch)
    assert answer.tasks[0].nonfinite_units == units


def test_large_and_small_logits_stay_finite(client):
    batch = {"lengths": [6], "tasks": [{"name": "t", "logits": [3e38, -3e38, 88, -104, 1e-40, 0],
                                        "labels": [1, 1, 0, 0, 1, 0]}]}
    config = task(BCE, LIST)
    answer = answers_of(client, config, [batch])[0]
    reference.check(answer, reference.answers(config, [batch])[0], batch)


def test_the_mean_over_ranks_is_the_loss_of_all_rows(client):
    """Whatever the split: what the trainer's mean over ranks gives is the mean over the global batch."""
    config, batches = task(BCE, LIST), ranks_of(lambda n: {**binary(n), "log_scale": 0.0})
    whole = {"lengths": sum(LENGTHS, []), "tasks": [{"name": "t", "log_scale": 0.0, **{
        k: sum((b["tasks"][0][k] for b in batches), []) for k in ("logits", "labels")}}]}
    parts, one = answers_of(client, config, batches), answers_of(client, config, [whole])[0]
    assert np.mean([p.loss for p in parts]) == pytest.approx(one.loss, rel=2e-6)
    pooled = np.concatenate([np.array(p.tasks[0].gradient) for p in parts]) / 3
    np.testing.assert_allclose(pooled, one.tasks[0].gradient, atol=1e-7)
