"""
TorchEasyRec's losses once more, in PyTorch with binary64 and autograd: what lossd has to agree with.

Only values are written down here; the gradients are those that autograd finds. Configs are the dicts of the wire,
batches are random_batches.RankBatch. Each loss gives a Term: its sum over the batch, its denominator, and the largest
gradient that it can give each logit, which tolerances refer to.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

MAX_LOG_SCALE = math.log(100.0)
IGNORED = -100


@dataclass
class Term:
    total: Tensor  # scalar, differentiable
    denominator: float
    bound: Tensor  # shape of the logits
    counted: float  # rows for a factor that goes by rows although the denominator does not


@dataclass
class Rows:
    """What the losses of a task see."""

    z: Tensor  # [C] or [C, K], a leaf
    y: Tensor  # [C]
    w: Tensor | None  # [C]
    lists: Tensor  # [C] index of the list
    num_lists: int
    theta: Tensor  # scalar, a leaf

    def members(self, index):
        return torch.nonzero(self.lists == index).flatten()


def by_rows(rows, values, bound, kept=None):
    """Mean over rows that are kept; with weights, over weights."""
    kept = torch.ones(len(rows.y), dtype=torch.bool) if kept is None else kept
    w = torch.ones(len(rows.y), dtype=torch.float64) if rows.w is None else rows.w
    w = torch.where(kept, w, torch.zeros_like(w))
    shape = (-1,) + (1,) * (rows.z.dim() - 1)
    return Term((w * values).sum(), float(w.sum()), w.view(shape) * bound, float(kept.sum()))


def binary_cross_entropy(rows, p):
    smoothing = p.get("label_smoothing", 0.0)
    target = rows.y * (1 - smoothing) + smoothing / 2
    values = F.binary_cross_entropy_with_logits(rows.z, target, reduction="none")
    return by_rows(rows, values, torch.ones_like(rows.z))


def binary_focal_loss(rows, p):
    gamma, alpha = p.get("gamma", 2.0), p.get("alpha", 0.5)
    up, down = (-gamma * F.softplus(rows.z, threshold=1e9)).exp(), (-gamma * F.softplus(-rows.z, threshold=1e9)).exp()
    weight = alpha * rows.y * up + (1 - alpha) * (1 - rows.y) * down
    if p.get("detach_weight", True):
        weight = weight.detach()
    values = weight * F.binary_cross_entropy_with_logits(rows.z, rows.y, reduction="none")
    return by_rows(rows, values, torch.full_like(rows.z, max(alpha, 1 - alpha)))


def l2_loss(rows, p):
    return by_rows(rows, F.mse_loss(rows.z, rows.y, reduction="none"), (2 * (rows.z - rows.y)).abs().detach())


def softmax_cross_entropy(rows, p):
    smoothing = p.get("label_smoothing", 0.0)
    values = F.cross_entropy(rows.z, rows.y.long(), ignore_index=IGNORED, label_smoothing=smoothing, reduction="none")
    term = by_rows(rows, values, torch.ones_like(rows.z), rows.y != IGNORED)
    if p.get("ignore_counting") == "IGNORE_COUNTING_ALL":
        term.counted = float(len(rows.y))
    return term


def jrc_loss(rows, p):
    alpha = p.get("alpha", 0.5)
    positive = rows.y == 1
    same = rows.lists[:, None] == rows.lists[None, :]
    rivals = same & (positive[:, None] != positive[None, :])
    own = torch.where(positive, rows.z[:, 1], rows.z[:, 0])
    values = alpha * F.cross_entropy(rows.z, positive.long(), reduction="none")
    w = torch.ones(len(rows.y), dtype=torch.float64) if rows.w is None else rows.w
    bound = w[:, None].repeat(1, 2)
    for channel, side in ((1, positive), (0, ~positive)):
        index = torch.nonzero(side & rivals.any(1)).flatten()  # without rivals there is nothing to contrast
        against = rows.z[:, channel].expand(len(index), -1).masked_fill(~rivals[index], -math.inf)
        level = torch.logsumexp(torch.cat([against, own[index, None]], dim=1), dim=1)
        values = values.index_add(0, index, (1 - alpha) * (level - own[index]))
        bound[:, channel] += (1 - alpha) * (rivals[index].double() * w[index, None]).sum(0)
    term = by_rows(rows, values, torch.zeros_like(rows.z))
    term.bound = bound
    return term


def target_of(kind, y, scale):
    positive = y != 0
    if kind == "TARGET_RAW":
        return y
    if kind == "TARGET_PROBABILITY":
        return y / y.sum() if float(y.sum()) else torch.zeros_like(y)
    if kind == "TARGET_SOFTMAX":
        return torch.softmax(scale.detach() * y, 0)
    mixed = 0 < int(positive.sum()) < len(y)
    return positive.double() / positive.sum() if mixed else torch.zeros_like(y)


def listwise_rank_loss(rows, p):
    only_valid = p.get("denominator") == "DENOMINATOR_VALID"
    scale = rows.theta.clamp(max=MAX_LOG_SCALE).exp()
    total, valid, bound = torch.zeros((), dtype=torch.float64), 0, torch.zeros_like(rows.z)
    for index in range(rows.num_lists):
        members = rows.members(index)
        y = rows.y[members]
        mixed = 0 < int((y != 0).sum()) < len(y)
        valid += mixed
        if len(members) == 0 or (only_valid and not mixed):
            continue
        t = target_of(p.get("target", "TARGET_MEAN_POSITIVE"), y, scale)
        total = total - (t * torch.log_softmax(scale * rows.z[members], 0)).sum()
        bound[members] = float(scale) * max(float(t.sum().abs()), float(t.abs().max()))
    return Term(total, float(valid if only_valid else rows.num_lists), bound, 0.0)


LOSSES = {
    f.__name__: f
    for f in (binary_cross_entropy, binary_focal_loss, softmax_cross_entropy, jrc_loss, l2_loss, listwise_rank_loss)
}


def ratio(a, b):
    return a / b if b else 0.0


def rows_of(config, batch):
    """Rows of one task of one rank."""
    columns = batch.tasks[config["name"]]
    count = sum(batch.lengths)

    def column(values):
        return torch.as_tensor(values).double()

    if "label_bitmask" in config:
        y = torch.tensor([float(int(bits) & config["label_bitmask"] != 0) for bits in batch.label_bits]).double()
    else:
        y = column(columns["labels"])
    w = column(columns["weights"]) if "weights" in columns else None
    if "task_space" in columns:
        inside, outside = config.get("in_task_space_weight", 1), config.get("out_task_space_weight", 1)
        space = torch.where(column(columns["task_space"]) > 0, float(inside), float(outside)).double()
        w = space if w is None else w * space
    if config.get("lists") == "LISTS_SESSIONS":
        ids, lists = torch.unique(torch.as_tensor(columns["sessions"]), return_inverse=True)
        num_lists = len(ids)
    else:
        num_lists = len(batch.lengths)
        lists = torch.repeat_interleave(torch.arange(num_lists), torch.tensor(batch.lengths, dtype=torch.int64))
    listwise = [loss["listwise_rank_loss"] for loss in config["losses"] if "listwise_rank_loss" in loss]
    initial = listwise[0].get("temperature_init", 0.07) if listwise else 1.0
    theta = columns.get("log_scale", -math.log(initial))
    classes = config.get("num_class", 1)
    z = column(columns["logits"]).reshape((count,) if classes == 1 else (count, classes))
    return Rows(z.requires_grad_(), y, w, lists, num_lists, torch.tensor(theta, dtype=torch.float64).requires_grad_())


def factor_of(config, kind, terms, weighted, parameters, r):
    """What a rank's local mean is multiplied by."""
    if not config.get("global_average", True):
        return 1.0
    counts = [term.denominator for term in terms]
    by_count = weighted and config.get("weight_normalizer") == "WEIGHT_NORMALIZER_LOCAL"
    if by_count or parameters.get("ignore_counting") == "IGNORE_COUNTING_ALL":
        counts = [term.counted for term in terms]
    world = 1 if config.get("grad_reduce") == "GRAD_REDUCE_SUM" else len(terms)
    return ratio(counts[r] * world, sum(counts))


def answers(config, batches):
    """What each rank of a step should get, by rank: {"loss", "tasks": {name: {"loss", "terms", "gradient", …}}}."""
    out = [{"loss": 0.0, "tasks": {}} for _ in batches]
    for task in config["tasks"]:
        rows = [rows_of(task, batch) for batch in batches]
        loss_of_rank = [torch.zeros((), dtype=torch.float64) for _ in batches]
        for r in range(len(batches)):
            out[r]["tasks"][task["name"]] = {
                "terms": [],
                "bound": torch.zeros_like(rows[r].z),
                "slope_bound": 0.0,
                "slope_floor": 0.0,
            }
        for loss in task["losses"]:
            kind = next(name for name in LOSSES if name in loss)
            terms = [LOSSES[kind](own, loss[kind]) for own in rows]
            for r, (term, own) in enumerate(zip(terms, rows)):
                found = out[r]["tasks"][task["name"]]
                factor = factor_of(config, kind, terms, own.w is not None, loss[kind], r)
                weight = task.get("weight", 1.0) * loss.get("weight", 1.0)
                unit = weight * factor * ratio(1.0, term.denominator)
                value = unit * term.total
                loss_of_rank[r] = loss_of_rank[r] + value
                found["bound"] += abs(unit) * term.bound
                found["terms"].append({
                    "name": kind, "sum": float(term.total), "denominator": term.denominator, "factor": factor,
                    "value": float(value), "unit": abs(unit),
                    "local_mean": ratio(float(term.total), term.denominator),
                })  # fmt: skip
                if kind == "listwise_rank_loss" and value.requires_grad:
                    slope = torch.autograd.grad(value, own.z, retain_graph=True)[0]
                    found["slope_bound"] = _slope_bound(own, slope)
                    # What binary64 itself loses where probabilities are nearly 1 and logits far from 0.
                    found["slope_floor"] = 1e-14 * float((abs(unit) * term.bound * own.z.detach().abs()).sum())
        for r, own in enumerate(rows):
            found = out[r]["tasks"][task["name"]]
            found["loss"] = float(loss_of_rank[r])
            out[r]["loss"] += found["loss"]
            grads = (None, None)
            if loss_of_rank[r].requires_grad:
                grads = torch.autograd.grad(loss_of_rank[r], (own.z, own.theta), allow_unused=True)
            found["gradient"] = torch.zeros_like(own.z) if grads[0] is None else grads[0]
            found["slope"] = 0.0 if grads[1] is None else float(grads[1])
    return out


def _slope_bound(rows, gradient):
    """Σ |g (z - max z)| over the lists."""
    total = 0.0
    for index in range(rows.num_lists):
        members = rows.members(index)
        if len(members):
            z = rows.z[members].detach()
            total += float((gradient[members] * (z - z.max())).abs().sum())
    return total
