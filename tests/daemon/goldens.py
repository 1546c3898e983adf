"""The golden cases as configs and batches of the wire, with what they expect of each rank."""

import json
import math

from harness import GOLDEN

FILES = ["bce", "focal", "softmax_ce", "jrc", "l2", "listwise"]
# Sums of weights that are divided by all rows, the ignored ones too: what TorchEasyRec does there, and we don't.
NOT_OURS = {"softmax/ignore_index_weighted_parity"}
TARGETS = {"mean_positive": "MEAN_POSITIVE", "raw": "RAW", "prob": "PROBABILITY", "softmax": "SOFTMAX"}


def load(name):
    return json.loads((GOLDEN / f"{name}.json").read_text())


def flat(values):
    """Row-major numbers; the words NaN and Infinity stay words, as ProtoJSON writes them."""
    return [x for row in values for x in flat(row)] if values and isinstance(values[0], list) else list(values)


def loss_config(kind, golden):
    """(LossConfig, what the task needs besides) from the parameters of a case."""
    golden = golden or {}
    keys = {"label_smoothing", "gamma", "alpha", "detach_weight", "temperature_init"}
    parameters = {k: v for k, v in golden.items() if k in keys}
    if kind == "listwise_rank_loss" and "target" in golden:
        parameters["target"] = "TARGET_" + TARGETS[golden["target"]]
        parameters["denominator"] = "DENOMINATOR_" + golden["denominator"].upper()
    task = {"num_class": golden["num_class"]} if "num_class" in golden else {}
    return {kind: parameters}, task


def task_batch(batch, name="t"):
    task = {"name": name, "logits": flat(batch["logits"]), "labels": batch["labels"]}
    if batch.get("sample_weights"):
        task["weights"] = batch["sample_weights"]
    return task


def losses():
    """One batch, one loss, one rank: (id, config, batch, expected)."""
    for case in (c for name in FILES for c in load(name) if c["id"] not in NOT_OURS):
        loss, task_config = loss_config(case["loss"], case["config"])
        lengths = case["batch"]["lengths"]
        if lengths is None:  # the loss does not look at lists
            lengths = [len(case["batch"]["labels"])]
        batch = {"lengths": lengths, "tasks": [task_batch(case["batch"])]}
        if case["batch"].get("session_index") is not None:
            task_config["lists"] = "LISTS_SESSIONS"
            batch["tasks"][0]["sessions"] = case["batch"]["session_index"]
        if "theta" in case["config"]:
            batch["tasks"][0]["log_scale"] = case["config"]["theta"]
        yield case["id"], {"tasks": [{"name": "t", **task_config, "losses": [loss]}]}, batch, case["expected"]


def rescales():
    """(id, config, batches, case): BCE and list-wise at temperature 1 over ranks of very different size."""
    tasks = [{"name": "bce", "losses": [{"binary_cross_entropy": {}}]},
             {"name": "listwise", "losses": [{"listwise_rank_loss": {}}]}]
    for case in (c for c in load("rescale") if "ranks" in c):
        batches = []
        for rank in case["ranks"]:
            one = rank["batch"]
            batches.append({"lengths": one["lengths"],
                            "tasks": [task_batch(one, "bce"), {**task_batch(one, "listwise"), "log_scale": 0.0}]})
        yield case["id"], {"tasks": tasks}, batches, case


def multitasks():
    """(id, config, batch, expected loss of each task, expected gradient of each task, gradient of log_scale)."""
    for case in load("multitask"):
        want = case["expected"]
        if "tasks" in case:
            config, tasks = [], []
            for t in case["tasks"]:
                indicator = t.get("task_space_indicator")
                one = {"name": t["name"], "weight": t["weight"], "losses": [{"binary_cross_entropy": {}}]}
                if indicator:
                    one |= {k: t[k] for k in ("in_task_space_weight", "out_task_space_weight")}
                config.append(one)
                tasks.append(task_batch(t, t["name"]) | ({"task_space": indicator} if indicator else {}))
            names = [t["name"] for t in tasks]
            yield (case["id"], {"tasks": config}, {"lengths": [2], "tasks": tasks},
                   [want["loss_" + n] for n in names], [want["grad_" + n] for n in names], None)
            continue
        golden, batch = case["config"], case["batch"]
        lists = {"lists": "LISTS_SESSIONS"} if "session_ids" in golden else {}
        sessions = {"sessions": golden["session_ids"]} if lists else {}
        both = golden.get("losses", [{"type": "binary_cross_entropy"}, {"type": "listwise_rank_loss"}])
        bce = {"weight": both[0].get("weight", 1.0), "binary_cross_entropy": {}}
        listwise = {"weight": both[1].get("weight", 1.0), "listwise_rank_loss": {"temperature_init": 0.07}}
        task = {"name": "t", "weight": golden["task_weight"], **lists, "losses": [bce, listwise]}
        sent = task_batch(batch, "t") | sessions | {"log_scale": math.log(1 / 0.07)}
        gradient = [a + b for a, b in zip(want["grad_bce"], want["grad_listwise"])]
        lengths = batch.get("lengths", [len(batch["labels"])])
        yield (case["id"], {"tasks": [task]}, {"lengths": lengths, "tasks": [sent]},
               [want["bce"] + want["listwise"]], [gradient], want["grad_theta"])


def weights():
    """Of weights.json: (id, config, batches, case) of the two cases with ranks."""
    for case in (c for c in load("weights") if "ranks" in c):
        space = {k: v for k, v in case["config"].items() if k.endswith("_weight")}
        config = {"tasks": [{"name": "t", **space, "losses": [{"binary_cross_entropy": {}}]}]}
        batches = []
        for rank in case["ranks"]:
            task = task_batch(rank) | ({"task_space": rank["indicator"]} if "indicator" in rank else {})
            batches.append({"lengths": [len(rank["labels"])], "tasks": [task]})
        yield case["id"], config, batches, case
