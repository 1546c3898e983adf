"""What JoinGroup refuses: the field that is wrong, in the words of the schema."""

import pytest

from small import BCE


def loss(kind="binary_cross_entropy", **parameters):
    return {kind: parameters}


def task(*losses, **more):
    return {"name": "t", "losses": list(losses) or [loss()], **more}


def group(*tasks, **more):
    return {"tasks": list(tasks) or [task()], **more}


LISTWISE = "listwise_rank_loss"
CONFIGS = {  # config, field below "config"
    "no_tasks": ({}, "tasks"),
    "no_losses": ({"tasks": [{"name": "t"}]}, "tasks[0].losses"),
    "no_name": ({"tasks": [{"losses": [loss()]}]}, "tasks[0].name"),
    "empty_name": (group(task(name="")), "tasks[0].name"),
    "name_with_space": (group(task(name="a b")), "tasks[0].name"),
    "name_with_slash": (group(task(name="../x")), "tasks[0].name"),
    "name_too_long": (group(task(name="x" * 64)), "tasks[0].name"),
    "name_not_ascii": (group(task(name="täsk")), "tasks[0].name"),
    "name_repeated": (group(task(), task()), "tasks[1].name"),
    "loss_not_set": (group(task({"weight": 1})), "tasks[0].losses[0]"),
    "num_class_zero": (group(task(num_class=0)), "tasks[0].num_class"),
    "num_class_too_big": (group(task(loss("softmax_cross_entropy"), num_class=4097)), "tasks[0].num_class"),
    "num_class_of_bce": (group(task(num_class=2)), "tasks[0]"),
    "num_class_of_softmax": (group(task(loss("softmax_cross_entropy"))), "tasks[0]"),
    "num_class_of_jrc": (group(task(loss("jrc_loss"), num_class=3)), "tasks[0]"),
    "task_weight_negative": (group(task(weight=-1)), "tasks[0].weight"),
    "task_weight_nan": (group(task(weight="NaN")), "tasks[0].weight"),
    "loss_weight_infinite": (group(task({"weight": "Infinity", **loss()})), "tasks[0].losses[0].weight"),
    "loss_weight_negative": (group(task({"weight": -0.5, **loss()})), "tasks[0].losses[0].weight"),
    "smoothing_one": (group(task(loss(label_smoothing=1))), "tasks[0].losses[0].binary_cross_entropy.label_smoothing"),
    "smoothing_negative": (group(task(loss(label_smoothing=-0.1))),
                           "tasks[0].losses[0].binary_cross_entropy.label_smoothing"),
    "smoothing_of_softmax": (group(task(loss("softmax_cross_entropy", label_smoothing=1.1), num_class=2)),
                             "tasks[0].losses[0].softmax_cross_entropy.label_smoothing"),
    "gamma_negative": (group(task(loss("binary_focal_loss", gamma=-1))), "tasks[0].losses[0].binary_focal_loss.gamma"),
    "focal_alpha_one": (group(task(loss("binary_focal_loss", alpha=1))), "tasks[0].losses[0].binary_focal_loss.alpha"),
    "focal_alpha_zero": (group(task(loss("binary_focal_loss", alpha=0))), "tasks[0].losses[0].binary_focal_loss.alpha"),
    "jrc_alpha": (group(task(loss("jrc_loss", alpha=1.5), num_class=2)), "tasks[0].losses[0].jrc_loss.alpha"),
    "temperature_zero": (group(task(loss(LISTWISE, temperature_init=0))),
                         "tasks[0].losses[0].listwise_rank_loss.temperature_init"),
    "temperature_nan": (group(task(loss(LISTWISE, temperature_init="NaN"))),
                        "tasks[0].losses[0].listwise_rank_loss.temperature_init"),
    "two_listwise": (group(task(loss(LISTWISE), loss(LISTWISE))), "tasks[0].losses"),
    "bitmask_zero": (group(task(label_bitmask=0)), "tasks[0].label_bitmask"),
    "in_space_negative": (group(task(in_task_space_weight=-1)), "tasks[0].in_task_space_weight"),
    "out_space_nan": (group(task(out_task_space_weight="NaN")), "tasks[0].out_task_space_weight"),
    "step_timeout_zero": (group(step_timeout_ms=0), "step_timeout_ms"),
    "step_timeout_too_long": (group(step_timeout_ms=86400001), "step_timeout_ms"),
    "first_step_timeout_zero": (group(first_step_timeout_ms=0), "first_step_timeout_ms"),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_is_refused(client, name):
    config, field = CONFIGS[name]
    error = client.refused("JoinGroup", {"group": "cfg", "world_size": 1, "config": config})
    assert (error.code, error.reason) == ("invalid_argument", "INVALID_CONFIG"), error
    assert error.field.startswith("config." + field), error


@pytest.mark.parametrize("change, field", [
    ({"group": ""}, "group"), ({"group": "a b"}, "group"), ({"group": "x" * 64}, "group"), ({"group": "a/b"}, "group"),
    ({"world_size": 0}, "world_size"), ({"local_world_size": 3}, "local_world_size"),
    ({"local_world_size": 0}, "local_world_size"), ({"node_rank": 1}, "node_rank"), ({"nnodes": 0}, "nnodes")])
def test_a_join_is_refused(client, change, field):
    error = client.refused("JoinGroup", {"group": "join", "rank": 0, "world_size": 2, "config": BCE, **change})
    assert error.code == "invalid_argument" and error.field == field, error


@pytest.mark.parametrize("absent", ["group", "world_size", "config"])
def test_a_join_needs(client, absent):
    request = {"group": "join", "rank": 0, "world_size": 2, "config": BCE}
    error = client.refused("JoinGroup", {k: v for k, v in request.items() if k != absent})
    assert error.code == "invalid_argument" and error.field == absent, error


def test_several_nodes_are_not_supported_yet(client):
    request = {"group": "nodes", "rank": 0, "world_size": 2, "local_world_size": 1, "nnodes": 2, "config": BCE,
               "master_addr": "127.0.0.1:7430"}
    error = client.refused("JoinGroup", request)
    assert (error.code, error.reason, error.field) == ("unimplemented", "NOT_SUPPORTED", "nnodes")


def test_an_unknown_enum_name_is_refused(daemon):
    error = daemon.rpc("json").refused("JoinGroup", {"group": "e", "world_size": 1, "config": {**BCE, "grad_reduce": "MEAN"}})
    assert (error.code, error.reason) == ("invalid_argument", "MALFORMED_REQUEST")
    assert error.field == "config.grad_reduce", error
