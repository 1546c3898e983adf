"""
The losses again, in binary64 numpy and straight from the formulas, for comparison with the daemon.

Configs and batches are the dicts that go on the wire. Nothing here is shared with the daemon's code.
"""

import math

import numpy as np

MAX_LOG_SCALE = math.log(100.0)


def softplus(x):
    return np.logaddexp(0.0, x)


def sigmoid(x):
    return np.exp(-softplus(-x))


def log_sum_exp(x):
    return np.logaddexp.reduce(x) if len(x) else -np.inf


class Rows:
    """What the losses of one task see: z [C] or [C, K], y, w [C], the rows of each list."""

    def __init__(self, config, batch, task, precision):
        def column(values, kind=precision):
            return np.array([float(v) for v in values], dtype=kind).astype(np.float64)

        lengths = batch.get("lengths", [])
        self.count = int(sum(lengths))
        classes = config.get("num_class", 1)
        self.z = column(task.get("logits", []))
        if classes > 1:
            self.z = self.z.reshape(-1, classes)
        if "label_bitmask" in config:
            mask = int(config["label_bitmask"])
            self.y = np.array([float((int(bits) & mask) != 0) for bits in batch.get("label_bits", [])])
        else:
            self.y = column(task.get("labels", []))
        self.weighted = bool(task.get("weights")) or "task_space" in task
        self.w = column(task["weights"]) if task.get("weights") else np.ones(self.count)
        if "task_space" in task:
            inside = column(task["task_space"]) > 0
            space = np.where(inside, config.get("in_task_space_weight", 1), config.get("out_task_space_weight", 1))
            self.w = self.w * space
        if config.get("lists") == "LISTS_SESSIONS":
            ids = np.array([int(s) for s in task["sessions"]])
            self.lists = [np.flatnonzero(ids == s) for s in np.unique(ids)]
        else:
            ends = np.cumsum(lengths).astype(int)
            self.lists = [np.arange(end - n, end) for end, n in zip(ends, lengths)]
        self.log_scale = task.get("log_scale")
        finite = np.isfinite(self.z.reshape(self.count, -1)).all(axis=1) if self.count else np.zeros(0, bool)
        self.bad = ~finite


class Term:
    """Sum over the batch, its gradient, its denominator, and the largest gradient that a row can have (the bound)."""

    def __init__(self, total, gradient, denominator, kind, bound):
        self.sum, self.gradient, self.denominator, self.kind, self.bound = total, gradient, denominator, kind, bound
        self.log_scale_gradient = self.log_scale_bound = None


def pointwise(rows, values, gradients, bound):
    """Σ w ℓ over Σ w."""
    w = np.where(rows.bad, 0.0, rows.w)
    values, gradients = np.where(rows.bad, 0.0, values), np.where(rows.bad, 0.0, gradients)
    kind = "weights" if rows.weighted else "candidates"
    return Term(float(np.sum(w * values)), w * gradients, float(np.sum(rows.w)), kind, w * bound)


def binary_cross_entropy(rows, p):
    s = p.get("label_smoothing", 0.0)
    t = rows.y * (1 - s) + s / 2
    with np.errstate(invalid="ignore"):
        return pointwise(rows, softplus(rows.z) - rows.z * t, sigmoid(rows.z) * (1 - t) - sigmoid(-rows.z) * t, 1.0)


def binary_focal_loss(rows, p):
    gamma, alpha = p.get("gamma", 2.0), p.get("alpha", 0.5)
    z, y = rows.z, rows.y
    up, down = np.exp(-gamma * softplus(z)), np.exp(-gamma * softplus(-z))  # (1-p)^gamma, p^gamma
    f = alpha * y * up + (1 - alpha) * (1 - y) * down
    entropy = softplus(z) - z * y
    gradient = f * (sigmoid(z) * (1 - y) - sigmoid(-z) * y)
    if not p.get("detach_weight", True):
        slope = -alpha * y * gamma * sigmoid(z) * up + (1 - alpha) * (1 - y) * gamma * sigmoid(-z) * down
        gradient = gradient + entropy * slope
    return pointwise(rows, f * entropy, gradient, max(alpha, 1 - alpha))


def l2_loss(rows, p):
    return pointwise(rows, (rows.z - rows.y) ** 2, 2 * (rows.z - rows.y), np.abs(2 * (rows.z - rows.y)))


def softmax_cross_entropy(rows, p):
    s, classes = p.get("label_smoothing", 0.0), rows.z.shape[1]
    kept = rows.y != -100
    use = kept & ~rows.bad
    logp = rows.z - np.logaddexp.reduce(rows.z, axis=1, keepdims=True)
    target = np.full(rows.z.shape, s / classes)
    index = np.flatnonzero(kept)
    target[index, rows.y[index].astype(int)] += 1 - s
    w = np.where(use, rows.w, 0.0)
    logp, target = np.where(use[:, None], logp, 0.0), np.where(use[:, None], target, 0.0)
    gradient = w[:, None] * np.where(use[:, None], np.exp(logp) - target, 0.0)
    denominator = float(np.sum(np.where(kept, rows.w, 0.0)))
    kind = "weights" if rows.weighted else "kept"
    if p.get("ignore_counting") == "IGNORE_COUNTING_ALL" and not rows.weighted:
        kind = "kept, scaled by candidates"
    return Term(float(-np.sum(w[:, None] * target * logp)), gradient, denominator, kind, w[:, None] * np.ones(classes))


def jrc_loss(rows, p):
    alpha = p.get("alpha", 0.5)
    count = rows.count
    values, gradient, bound = np.zeros(count), np.zeros((count, 2)), np.zeros((count, 2))
    for rows_of_list in rows.lists:
        if rows.bad[rows_of_list].any():
            continue
        for i in rows_of_list:
            k = int(rows.y[i] == 1)  # the channel of this row; its rivals stand on the other side
            rivals = rows_of_list[(rows.y[rows_of_list] == 1) != bool(k)]
            logp = rows.z[i] - log_sum_exp(rows.z[i])
            values[i] = -alpha * logp[k]
            gradient[i] += alpha * rows.w[i] * (np.exp(logp) - np.eye(2)[k])
            bound[i] += rows.w[i]
            if not len(rivals):
                continue
            against = rows.z[rivals, k]
            level = log_sum_exp(against)
            values[i] += (1 - alpha) * softplus(level - rows.z[i, k])
            pull = (1 - alpha) * rows.w[i] * sigmoid(level - rows.z[i, k])
            gradient[i, k] -= pull
            gradient[rivals, k] += pull * np.exp(against - level)
            bound[rivals, k] += (1 - alpha) * rows.w[i]
    kind = "weights" if rows.weighted else "candidates"
    return Term(float(np.sum(rows.w * values)), gradient, float(np.sum(rows.w)), kind, bound)


def target_distribution(kind, y, scale):
    positive = y != 0
    if kind == "TARGET_RAW":
        return y
    if kind == "TARGET_PROBABILITY":
        return y / y.sum() if y.sum() else np.zeros(len(y))
    if kind == "TARGET_SOFTMAX":
        return np.exp(scale * y - log_sum_exp(scale * y))
    return positive / positive.sum() if 0 < positive.sum() < len(y) else np.zeros(len(y))


def listwise_rank_loss(rows, p):
    theta = rows.log_scale if rows.log_scale is not None else -np.log(p.get("temperature_init", 0.07))
    scale = np.exp(min(theta, MAX_LOG_SCALE))
    total, valid, slope, slope_bound = 0.0, 0, 0.0, 0.0
    gradient, bound = np.zeros(rows.count), np.zeros(rows.count)
    for members in rows.lists:
        y = rows.y[members]
        valid += 0 < np.sum(y != 0) < len(y)
        if not len(members) or rows.bad[members].any():
            continue
        above = rows.z[members] - rows.z[members].max()
        logp = scale * above - log_sum_exp(scale * above)
        t = target_distribution(p.get("target", "TARGET_MEAN_POSITIVE"), y, scale)
        total -= np.sum(np.where(t != 0, t * logp, 0.0))
        local = scale * (t.sum() * np.exp(logp) - t)
        gradient[members] = local
        bound[members] = scale * max(abs(t.sum()), np.abs(t).max())
        slope += np.sum(above * local)
        slope_bound += np.sum(np.abs(above * local))
    asked = p.get("denominator") == "DENOMINATOR_VALID"
    term = Term(float(total), gradient, float(valid if asked else len(rows.lists)), "valid" if asked else "lists", bound)
    open_ = theta <= MAX_LOG_SCALE
    term.log_scale_gradient, term.log_scale_bound = (float(slope) if open_ else 0.0), float(slope_bound)
    return term


LOSSES = {
    f.__name__: f
    for f in (binary_cross_entropy, binary_focal_loss, softmax_cross_entropy, jrc_loss, l2_loss, listwise_rank_loss)
}


def loss_of(config):
    """(name, parameters) of a LossConfig."""
    return next((name, config[name]) for name in LOSSES if name in config)


def ratio(a, b):
    return a / b if b else 0.0


def answers(config, batches, precision=np.float32):
    """
    What each rank should get for its batch of a step that these batches make: a list of dicts, one a rank.
    precision: what the numbers of the batches are rounded to before they are used.
    """
    mean = config.get("grad_reduce", "GRAD_REDUCE_MEAN") != "GRAD_REDUCE_SUM"
    average = config.get("global_average", True)
    local_weights = config.get("weight_normalizer") == "WEIGHT_NORMALIZER_LOCAL"
    world = len(batches)

    def factor(count, counts):
        return (ratio(count * (world if mean else 1), sum(counts))) if average else 1.0

    requests = [float(len(b.get("lengths", []))) for b in batches]
    candidates = [float(sum(b.get("lengths", []))) for b in batches]
    out = []
    for r in range(world):
        out.append({"loss": 0.0, "tasks": {}, "requests": requests[r], "candidates": candidates[r]})
        for key, counts in (("request_factor", requests), ("candidate_factor", candidates)):
            out[r][key] = ratio(counts[r] * world, sum(counts)) if average else 1.0
    for task_config in config["tasks"]:
        name = task_config["name"]
        rows = [Rows(task_config, b, next(t for t in b["tasks"] if t["name"] == name), precision) for b in batches]
        for r in range(world):
            out[r]["tasks"][name] = {"loss": 0.0, "terms": [], "gradient": np.zeros(rows[r].z.shape),
                                     "bound": np.zeros(rows[r].z.shape), "slope": 0.0, "slope_bound": 0.0}
        for loss in task_config["losses"]:
            kind, parameters = loss_of(loss)
            terms = [LOSSES[kind](rows[r], parameters) for r in range(world)]
            sums = [t.denominator for t in terms]
            for r, term in enumerate(terms):
                counts = sums
                if "scaled by candidates" in term.kind or (local_weights and term.kind == "weights"):
                    counts = candidates
                f = factor(counts[r], counts)
                weight = task_config.get("weight", 1.0) * loss.get("weight", 1.0)
                unit = weight * f * ratio(1.0, term.denominator)
                task = out[r]["tasks"][name]
                task["terms"].append({"name": kind, "sum": term.sum, "denominator": term.denominator, "factor": f,
                                      "local_mean": ratio(term.sum, term.denominator), "value": unit * term.sum,
                                      "weight": weight})
                task["loss"] += unit * term.sum
                out[r]["loss"] += unit * term.sum
                task["gradient"] += unit * term.gradient
                task["bound"] += np.abs(unit) * term.bound
                task["slope"] += unit * (term.log_scale_gradient or 0.0)
                task["slope_bound"] += abs(unit) * (term.log_scale_bound or 0.0)
    return out


def close(got, want, allowed, what):
    assert abs(got - want) <= allowed, f"{what}: {got!r} is not {want!r}, off by {abs(got - want):.3e} > {allowed:.3e}"


def check(answer, want, request, scale=1.0):
    """
    Compare an answer of the daemon with one of answers().

    A gradient may be off by 5e-7 of the largest one that its term can give that row; a term and its sum by 2e-6 of
    itself and 1e-9 for each unit of denominator and weight; the gradient of log_scale by 2e-6 of Σ |g (z - max z)|.
    """
    assert (answer.local.requests, answer.local.candidates) == (want["requests"], want["candidates"])
    close(answer.request_factor, want["request_factor"], 1e-12, "request_factor")
    close(answer.candidate_factor, want["candidate_factor"], 1e-12, "candidate_factor")
    assert [t.name for t in answer.tasks] == [t["name"] for t in request["tasks"]]
    allowed_loss = 0.0
    for task, sent in zip(answer.tasks, request["tasks"]):
        expected = want["tasks"][task.name]
        allowed_task = 0.0
        assert [t.name for t in task.terms] == [t["name"] for t in expected["terms"]]
        for term, e in zip(task.terms, expected["terms"]):
            at = f"{task.name}.{term.name}"
            allowed = 2e-6 * abs(e["sum"]) + 1e-9 * max(e["denominator"], 0.0)
            unit = abs(e["weight"] * e["factor"]) * ratio(1.0, e["denominator"])
            close(term.sum, e["sum"], allowed, at + " sum")
            close(term.denominator, e["denominator"], 1e-12 * abs(e["denominator"]), at + " denominator")
            close(term.factor, e["factor"], 1e-12 * abs(e["factor"]), at + " factor")
            close(term.local_mean, e["local_mean"], allowed * ratio(1.0, e["denominator"]), at + " local_mean")
            close(term.value, e["value"], unit * allowed + 1e-300, at + " value")
            allowed_task += unit * allowed
        close(task.loss, expected["loss"], allowed_task * (1 + 1e-9) + 1e-300, task.name + " loss")
        allowed_loss += allowed_task
        if request.get("skip_gradient"):
            assert not task.gradient and not task.HasField("log_scale_gradient")
            continue
        got = np.array(task.gradient, dtype=np.float64)
        gradient, bound = scale * expected["gradient"].ravel(), abs(scale) * expected["bound"].ravel()
        assert got.shape == gradient.shape, f"{task.name}: {got.shape} gradients, not {gradient.shape}"
        off = np.abs(got - gradient) - 5e-7 * bound
        worst = int(np.argmax(off)) if len(off) else 0
        assert not len(off) or off[worst] <= 0, (
            f"{task.name} gradient[{worst}]: {got[worst]!r} is not {gradient[worst]!r}, bound {bound[worst]!r}")
        assert not np.any(np.signbit(got) & (got == 0)), f"{task.name}: a gradient of -0"
        assert task.HasField("log_scale_gradient") == ("log_scale" in sent), task.name
        if "log_scale" in sent:
            close(task.log_scale_gradient, scale * expected["slope"],
                  2e-6 * abs(scale) * expected["slope_bound"] + 1e-300, task.name + " log_scale_gradient")
    close(answer.loss, want["loss"], allowed_loss * (1 + 1e-9) + 1e-300, "loss")
