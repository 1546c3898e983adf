"""
Real ranking data: 201 queries with 1 to 27 candidates each, as batches of one, two and three very uneven ranks.
What the daemon answers is compared with the reference, and what the ranks get together with one rank that has it all.
"""

import numpy as np
import pytest

import reference
from harness import fresh, together
from ranking_data import read_ranking_data

# TorchEasyRec's losses on what people would train on these grades.
CONFIG = {"tasks": [
    {"name": "click", "losses": [{"binary_cross_entropy": {}}]},
    {"name": "relevant", "weight": 0.5, "losses": [{"binary_focal_loss": {"gamma": 2, "alpha": 0.25}}]},
    {"name": "grade", "losses": [{"weight": 0.1, "l2_loss": {}}]},
    {"name": "grade_class", "num_class": 5, "losses": [{"softmax_cross_entropy": {"label_smoothing": 0.1}}]},
    {"name": "list", "losses": [{"binary_cross_entropy": {}}, {"weight": 0.3, "listwise_rank_loss": {}}]},
    {"name": "joint", "num_class": 2, "losses": [{"jrc_loss": {"alpha": 0.4}}]},
]}
SPLITS = {1: [0], 2: [0, 187], 3: [0, 4, 43]}  # where the queries of each rank begin


@pytest.fixture(scope="module")
def queries():
    """(lengths, grades, features [C, 300])"""
    return read_ranking_data()


@pytest.fixture(scope="module")
def columns(queries):
    """Logits of a linear model with fixed weights, as binary32, and labels of each task: {name: ([C, K], [C])}"""
    _, grades, features = queries
    rng = np.random.default_rng(20)

    def logits(classes=1):
        score = features @ rng.normal(size=(300, classes))
        return (1.5 * (score - score.mean(0)) / score.std(0)).astype(np.float32).astype(float)

    click, relevant = (grades >= 1).astype(float), (grades >= 2).astype(float)
    return {"click": (logits(), click), "relevant": (logits(), relevant), "grade": (logits(), grades),
            "grade_class": (logits(5), grades), "list": (logits(), relevant), "joint": (logits(2), relevant)}


def batches_of(queries, columns, world):
    lengths, _, _ = queries
    starts = np.concatenate([[0], np.cumsum(lengths)])
    edges = SPLITS[world] + [len(lengths)]
    batches = []
    for first, last in zip(edges, edges[1:]):
        rows = slice(starts[first], starts[last])
        tasks = [{"name": n, "logits": z[rows].ravel().tolist(), "labels": y[rows].tolist()}
                 for n, (z, y) in columns.items()]
        tasks[4]["log_scale"] = 1.1
        batches.append({"lengths": lengths[first:last], "tasks": tasks})
    return batches


def answers_of(client, batches):
    group, world = fresh("data"), len(batches)
    client.join_all(group, world, CONFIG)
    answers = together(*[lambda r=r, b=b: client.call("ComputeLoss", {"group": group, "rank": r, "step": 1, **b})
                         for r, b in enumerate(batches)])
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    client.leave_all(group, world)
    return answers


def test_it_is_the_whole_data_set(queries):
    lengths, grades, _ = queries
    assert (len(lengths), sum(lengths), min(lengths), max(lengths)) == (201, 3005, 1, 27)
    assert len(grades) == 3005 and set(grades) == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("world", SPLITS)
def test_answers_are_the_references(client, queries, columns, world):
    batches = batches_of(queries, columns, world)
    wants = reference.answers(CONFIG, batches)
    for answer, want, batch in zip(answers_of(client, batches), wants, batches):
        reference.check(answer, want, batch)
        assert (answer.world.requests, answer.world.candidates, answer.world.ranks) == (201, 3005, world)


@pytest.mark.parametrize("world", [2, 3])
def test_the_mean_over_ranks_is_the_gradient_of_one_rank_with_all_data(client, queries, columns, world):
    whole = answers_of(client, batches_of(queries, columns, 1))[0]
    bound = reference.answers(CONFIG, batches_of(queries, columns, 1))[0]["tasks"]
    parts = answers_of(client, batches_of(queries, columns, world))
    assert np.mean([p.loss for p in parts]) == pytest.approx(whole.loss, rel=2e-6)
    for index, task in enumerate(whole.tasks):
        pooled = np.concatenate([np.array(p.tasks[index].gradient) for p in parts]) / world
        off = np.abs(pooled - np.array(task.gradient))
        assert (off <= 1e-6 * bound[task.name]["bound"].ravel()).all(), (task.name, off.max())
    slopes = [p.tasks[4].log_scale_gradient for p in parts]
    assert np.mean(slopes) == pytest.approx(whole.tasks[4].log_scale_gradient,
                                            abs=4e-6 * bound["list"]["slope_bound"])


def test_both_codecs_give_the_same_bits(daemon, queries, columns):
    batches = batches_of(queries, columns, 3)
    for a, b in zip(answers_of(daemon.rpc("json"), batches), answers_of(daemon.rpc("proto", unix=True), batches)):
        assert a.loss == b.loss
        for x, y in zip(a.tasks, b.tasks):
            assert np.array(x.gradient, np.float32).tobytes() == np.array(y.gradient, np.float32).tobytes()
            assert [t.value for t in x.terms] == [t.value for t in y.terms]


def test_an_even_split_without_averaging_would_not_do(queries, columns):
    """The splits are uneven enough that local means differ from the global one: otherwise nothing above says much."""
    batches = batches_of(queries, columns, 3)
    local = reference.answers({**CONFIG, "global_average": False}, batches)
    whole = reference.answers(CONFIG, batches_of(queries, columns, 1))[0]["loss"]
    assert abs(np.mean([a["loss"] for a in local]) - whole) > 1e-2 * whole
