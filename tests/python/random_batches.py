"""Random groups and random batches for them: all losses, their options, weights, sessions, task spaces, bit masks."""

from dataclasses import dataclass, field

import numpy as np

TARGETS = ["TARGET_MEAN_POSITIVE", "TARGET_RAW", "TARGET_PROBABILITY", "TARGET_SOFTMAX"]


@dataclass
class RankBatch:
    lengths: list[int]
    tasks: dict[str, dict] = field(default_factory=dict)  # columns as lossd.TaskColumns has them
    label_bits: np.ndarray | None = None
    dtype: str = "float32"
    layout: str = "planes"


def maybe(rng, probability=0.5):
    return bool(rng.random() < probability)


def pick(rng, *choices):
    return choices[rng.integers(len(choices))]


def listwise(rng):
    options = {"temperature_init": float(pick(rng, 0.07, 0.5, 1.0, 3.0)), "learnable_temperature": maybe(rng, 0.7)}
    return {**options, "target": pick(rng, *TARGETS), "denominator": pick(rng, "DENOMINATOR_ALL", "DENOMINATOR_VALID")}


def losses_of(rng, family):
    """Losses that go together on one task."""
    if family == "binary":
        make = {
            "binary_cross_entropy": {"label_smoothing": float(pick(rng, 0, 0.1, 0.3))},
            "binary_focal_loss": {
                "gamma": float(pick(rng, 0, 1, 2, 3.5)), "alpha": float(pick(rng, 0.25, 0.5, 0.9)),
                "detach_weight": maybe(rng),
            },
        }  # fmt: skip
    elif family == "graded":
        make = {"l2_loss": {}}
    elif family == "pair":
        counting = pick(rng, "IGNORE_COUNTING_KEPT", "IGNORE_COUNTING_ALL")
        make = {
            "jrc_loss": {"alpha": float(pick(rng, 0, 0.3, 0.5, 1))},
            "softmax_cross_entropy": {"label_smoothing": 0.05, "ignore_counting": counting},
        }
    else:
        counting = pick(rng, "IGNORE_COUNTING_KEPT", "IGNORE_COUNTING_ALL")
        make = {"softmax_cross_entropy": {"label_smoothing": float(pick(rng, 0, 0.1)), "ignore_counting": counting}}
    names = [name for name in make if maybe(rng, 0.7)] or list(make)[:1]
    if family in ("binary", "graded") and maybe(rng, 0.6):
        make["listwise_rank_loss"] = listwise(rng)
        names.append("listwise_rank_loss")
    return [{name: make[name], "weight": float(rng.uniform(0.2, 2))} for name in names]


def task_config(rng, name):
    family = pick(rng, "binary", "binary", "graded", "pair", "classes")
    task = {"name": name, "weight": float(rng.uniform(0.2, 2)), "losses": losses_of(rng, family)}
    has_list = any("listwise_rank_loss" in loss for loss in task["losses"])
    if family == "classes":
        task["num_class"] = int(rng.integers(3, 7))
    elif family == "pair":
        task["num_class"] = 2
    if maybe(rng, 0.3) and (has_list or family == "pair"):
        task["lists"] = "LISTS_SESSIONS"
    if maybe(rng, 0.3) and not has_list:
        task["in_task_space_weight"], task["out_task_space_weight"] = 1.5, float(pick(rng, 0, 0.25))
    if maybe(rng, 0.2) and family in ("binary", "pair"):
        task["label_bitmask"] = int(1 << rng.integers(0, 64))
    return task


def group_config(rng):
    return {
        "tasks": [task_config(rng, f"task{i}") for i in range(rng.integers(1, 5))],
        "global_average": maybe(rng, 0.85),
        "grad_reduce": pick(rng, "GRAD_REDUCE_MEAN", "GRAD_REDUCE_MEAN", "GRAD_REDUCE_SUM"),
        "weight_normalizer": pick(rng, "WEIGHT_NORMALIZER_GLOBAL", "WEIGHT_NORMALIZER_LOCAL"),
    }


def labels(rng, task, count):
    kinds = {name for loss in task["losses"] for name in loss}
    binary = rng.integers(0, 2, count).astype(np.float32)
    if kinds & {"jrc_loss"}:
        return binary
    if "softmax_cross_entropy" in kinds:
        drawn = rng.integers(0, task["num_class"], count)
        return np.where(rng.random(count) < 0.2, -100, drawn).astype(np.float32)
    if kinds & {"binary_cross_entropy", "binary_focal_loss"}:
        soft = rng.random(count).astype(np.float32)
        return np.where(rng.random(count) < 0.3, soft, binary).astype(np.float32)
    return rng.integers(0, 5, count).astype(np.float32)


def logits(rng, task, count, dtype):
    """As values that the type of the logits has; bfloat16 as float32 whose lower half is 0."""
    shape = (count,) if task.get("num_class", 1) == 1 else (count, task["num_class"])
    z = (rng.normal(size=shape) * float(pick(rng, 0.5, 2, 8))).astype(np.float32)
    if dtype == "float16":
        return z.astype(np.float16)
    return (z.view(np.uint32) & 0xFFFF0000).view(np.float32) if dtype == "bfloat16" else z


def rank_batch(rng, config, dtype, layout, weighted):
    if maybe(rng, 0.06):
        lengths = []
    else:
        lengths = [int(n) for n in rng.integers(0, pick(rng, 3, 9), rng.integers(1, 8))]
    count = sum(lengths)
    batch = RankBatch(lengths, dtype=dtype, layout=layout)
    if any("label_bitmask" in task for task in config["tasks"]):
        batch.label_bits = rng.integers(0, 2**64, count, dtype=np.uint64)
    for task in config["tasks"]:
        columns = batch.tasks[task["name"]] = {"logits": logits(rng, task, count, dtype)}
        if "label_bitmask" not in task:
            columns["labels"] = labels(rng, task, count)
        if task["name"] in weighted:
            columns["weights"] = np.where(rng.random(count) < 0.2, 0, rng.random(count) * 3).astype(np.float32)
        if "in_task_space_weight" in task:
            columns["task_space"] = rng.integers(-1, 2, count).astype(np.float32)
        if task.get("lists") == "LISTS_SESSIONS":
            columns["sessions"] = rng.integers(-2, 3, count).astype(np.int64) * 2**40
        for loss in task["losses"]:
            if loss.get("listwise_rank_loss", {}).get("learnable_temperature") and maybe(rng, 0.8):
                columns["log_scale"] = float(rng.uniform(-1, 5))
    return batch


def step(rng, config, world_size):
    """Batches of all ranks. Type, layout and who has weights are the same for them."""
    dtype, layout = pick(rng, "float32", "float32", "float16", "bfloat16"), pick(rng, "planes", "rows")
    can = [t["name"] for t in config["tasks"] if not any("listwise_rank_loss" in loss for loss in t["losses"])]
    weighted = {name for name in can if maybe(rng, 0.5)}
    return [rank_batch(rng, config, dtype, layout, weighted) for _ in range(world_size)]
