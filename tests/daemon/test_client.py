"""liblossd against the daemon: the same answers and failures over every transport."""

import json

import pytest
from google.protobuf import json_format

from client_program import (
    BCE, BF16, F16, F32, PLANES, ROWS, SHARED_MEMORY, TRANSPORTS, ClientFailure, Trainer, computed, end, ranks_of,
)
from harness import config_pb2, fresh

MANY = {
    "tasks": [
        {"name": "click", "losses": [{"binaryCrossEntropy": {}}, {"weight": 0.5, "l2Loss": {}}]},
        {"name": "kind", "numClass": 2, "weight": 2, "losses": [{"softmaxCrossEntropy": {"labelSmoothing": 0.1}}]},
        {"name": "bit", "labelBitmask": "6", "losses": [{"binaryFocalLoss": {}}]},
        {"name": "order", "lists": "LISTS_SESSIONS", "losses": [{"listwiseRankLoss": {"temperatureInit": 0.5}}]},
        {"name": "space", "outTaskSpaceWeight": 0.5, "losses": [{"binaryCrossEntropy": {}}]},
        {"name": "jrc", "numClass": 2, "losses": [{"jrcLoss": {}}]},
    ]
}
WEIGHTED = 0b010011  # click, kind, space


def step_of(daemon, transport, layout, logits=F32, gradient=F32):
    """What both ranks are answered to a batch with everything in it."""
    ranks = ranks_of(daemon, MANY, transport)
    for rank, (requests, candidates) in enumerate([(3, 50), (7, 20)]):
        ranks[rank].begin(requests, candidates, logits, gradient, layout, WEIGHTED, fill=rank)
        ranks[rank].tell("log_scale", 3, 0.25)
        ranks[rank].tell("gradient_scale", 8)
    answers = computed(ranks, 5)
    end(ranks)
    return answers


@pytest.mark.parametrize("layout", [PLANES, ROWS])
def test_every_transport_gives_the_same_bits(daemon, layout):
    first, *others = [step_of(daemon, transport, layout) for transport in TRANSPORTS]
    assert first[0]["counts"][:2] != first[1]["counts"][:2] and first[0]["tasks"][3]["log_scale_gradient"]
    assert all(other == first for other in others)


def test_both_layouts_give_the_same_bits(daemon):
    assert step_of(daemon, SHARED_MEMORY, PLANES) == step_of(daemon, SHARED_MEMORY, ROWS)


@pytest.mark.parametrize("logits", [F16, BF16])
@pytest.mark.parametrize("layout", [PLANES, ROWS])
def test_halves_that_hold_the_same_logits_give_the_same_bits_in_binary32(daemon, logits, layout):
    want = step_of(daemon, SHARED_MEMORY, PLANES)
    assert [step_of(daemon, transport, layout, logits) for transport in TRANSPORTS] == [want] * 3


@pytest.mark.parametrize("logits, bits", [(F16, 11), (BF16, 8)])
def test_gradients_in_halves_are_rounded(daemon, logits, bits):
    """Over HTTP once more than through shared memory: both within a unit of the last place of binary32's."""
    want = step_of(daemon, SHARED_MEMORY, PLANES)
    for transport in TRANSPORTS:
        got = step_of(daemon, transport, PLANES, logits, logits)
        for mine, exact in zip(got, want, strict=True):
            assert mine["loss"] == exact["loss"]
            for a, b in zip(mine["tasks"], exact["tasks"], strict=True):
                for x, y in zip(map(float.fromhex, a["gradient"]), map(float.fromhex, b["gradient"]), strict=True):
                    assert abs(x - y) <= abs(y) * 2.0**-bits * 1.001 + 2.0**-25, (x, y)


def test_columns_are_what_the_daemon_gets(daemon):
    """The same batch from Python, as JSON."""
    group = fresh("client")
    with Trainer(daemon.unix, SHARED_MEMORY) as trainer:
        trainer.join(group, 0, 1, MANY)
        trainer.begin(4, 30, layout=ROWS, weighted=WEIGHTED, fill=3)
        columns = trainer.tell("columns")
        answer = trainer.tell("compute", 0)
    tasks = [
        {
            "name": task["name"],
            **{k: [float.fromhex(x) for x in task[k]] for k in ("logits", "labels", "weights", "task_space")},
            "sessions": [str(x) for x in task["sessions"]],
        }
        for task in columns["tasks"]
    ]
    bits = [str(x) for x in columns["label_bits"]]
    request = {"group": group, "step": 0, "lengths": columns["lengths"], "label_bits": bits, "tasks": tasks}
    response = daemon.client.call("ComputeLoss", request)
    assert response.replayed and response.loss == float.fromhex(answer["loss"])
    for want, got in zip(response.tasks, answer["tasks"], strict=True):
        assert (want.name, want.loss) == (got["name"], float.fromhex(got["loss"]))
        assert list(want.gradient) == [float.fromhex(x) for x in got["gradient"]]
        terms = [[t.name, t.value, t.local_mean, t.sum, t.denominator, t.factor] for t in want.terms]
        assert terms == [[name, *map(float.fromhex, numbers)] for name, *numbers in got["terms"]]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_rank_without_data_and_a_step_after_an_announcement(daemon, transport):
    ranks = ranks_of(daemon, BCE, transport)
    for rank, (requests, candidates) in enumerate([(0, 0), (2, 6)]):
        ranks[rank].begin(requests, candidates, fill=9)
        ranks[rank].tell("announce", 0, requests, candidates)
    empty, full = computed(ranks, 0)
    assert empty["loss"] == "0x0p+0" and full["counts"] == ["0x1p+1", "0x1.8p+2", 1, "0x1p+1", "0x1.8p+2", 2]
    assert float.fromhex(full["factors"][0]) == 2
    end(ranks)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_an_absent_step_counts_on(daemon, transport):
    with Trainer(daemon.unix, transport) as trainer:
        trainer.join(fresh("client"), 0, 1, BCE)
        for step in range(3):
            trainer.begin(1, 3, fill=step)
            assert trainer.tell("compute", "-")["step"] == step


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_fewer_rows_than_begun_and_no_gradient(daemon, transport):
    with Trainer(daemon.unix, transport) as trainer:
        trainer.join(fresh("client"), 0, 1, BCE)
        trainer.begin(1, 8, fill=1)
        whole = trainer.tell("compute", 0)
        trainer.tell("skip_gradient", 1)
        assert "gradient" not in trainer.tell("compute", 1)["tasks"][0]
        trainer.tell("counts", 1, 9)
        failure = trainer.refused("compute", 2)
        assert (failure.reason, failure.field) == ("BAD_SHAPE", "candidates")
        trainer.begin(0, 0)
        assert trainer.tell("compute", 2)["counts"][:2] == ["0x0p+0", "0x0p+0"]
        assert whole["counts"][1] == "0x1p+3"


def failures(daemon, transport):
    """One of each kind that a trainer can cause."""
    group = fresh("client")
    found = []
    with Trainer(daemon.unix, transport) as trainer:
        trainer.join(group, 0, 1, MANY)
        trainer.begin(3, 12, weighted=WEIGHTED, fill=1)
        trainer.tell("logit", 1, 5, "nan")
        found.append(trainer.refused("compute", 0))
        trainer.tell("fill", 1)
        trainer.tell("logit", 0, 3, "inf")
        found.append(trainer.refused("compute", 0))
        trainer.tell("fill", 1)
        trainer.tell("log_scale", 0, 1)
        found.append(trainer.refused("compute", 0))
        trainer.begin(3, 12, weighted=0b1000, fill=1)
        found.append(trainer.refused("compute", 0))
        trainer.begin(3, 12, weighted=WEIGHTED, fill=1)
        trainer.tell("counts", 3, 11)
        found.append(trainer.refused("compute", 0))
        trainer.tell("counts", 3, 12)
        trainer.tell("gradient_scale", "inf")
        found.append(trainer.refused("compute", 0))
        trainer.tell("gradient_scale", 1)
        found.append(trainer.refused("compute", 2**53))
        trainer.tell("compute", 70)
        trainer.begin(0, 0, weighted=WEIGHTED)
        found.append(trainer.refused("compute", 3))
        found.append(trainer.refused("announce", 71, 1, 1))
        trainer.tell("leave")
    return [{**vars(failure)} for failure in found]


def test_failures_are_the_same_over_every_transport(daemon):
    first, *others = [failures(daemon, transport) for transport in TRANSPORTS]
    assert [f["reason"] for f in first] == [
        "NONFINITE_LOGITS", "NONFINITE_LOGITS", "INVALID_ARGUMENT", "SHAPE_MISMATCH",
        "LABEL_COUNT_MISMATCH", "INVALID_ARGUMENT", "STEP_RANGE", "STEP_OUT_OF_ORDER", "ANNOUNCE_NEEDS_BATCH",
    ]
    assert first[0]["metadata"] == {"task": "kind", "count": "1", "first_index": "5"}
    assert first[0]["field"] == "tasks[1].logits[5]" and first[0]["code"] == 3 and first[0]["retry"] == 0
    for other in others:
        assert other == first


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_bad_batch_ends_the_peers_call_and_may_be_sent_again(daemon, transport):
    ranks = ranks_of(daemon, BCE, transport)
    for rank in ranks:
        rank.begin(1, 4, fill=2)
    ranks[1].tell("logit", 0, 2, "nan")
    ranks[0].start("compute", 3)
    assert ranks[1].refused("compute", 3).reason == "NONFINITE_LOGITS"
    with pytest.raises(ClientFailure) as caught:
        ranks[0].answer()
    assert caught.value.reason == "STEP_REJECTED_BY_PEER" and caught.value.metadata["rank"] == "1"
    ranks[1].tell("fill", 2)
    assert [answer["step"] for answer in computed(ranks, 3)] == [3, 3]
    for rank in ranks:
        rank.end()


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_timeout_names_who_is_missing(daemon, transport):
    ranks = ranks_of(daemon, BCE, transport, timeout_ms=300)
    for rank in ranks:
        rank.begin(1, 4, fill=2)
    failure = ranks[0].refused("compute", 0)
    assert (failure.code, failure.reason, failure.metadata["missing_ranks"]) == (4, "PEER_WAIT_DEADLINE", "1")
    assert [answer["replayed"] for answer in computed(ranks, 0)] == [0, 0]
    for rank in ranks:
        rank.end()


def test_a_killed_trainer_is_named_at_once(daemon):
    ranks = ranks_of(daemon, BCE, SHARED_MEMORY)
    ranks[0].begin(1, 4, fill=2)
    ranks[0].start("compute", 0)
    ranks[1].kill()
    with pytest.raises(ClientFailure) as caught:
        ranks[0].answer()
    assert caught.value.metadata["missing_ranks"] == "1", caught.value
    ranks[0].end()


def test_somebody_joining_anew_ends_calls_as_stale(daemon):
    for transport in TRANSPORTS:
        group = fresh("client")
        with Trainer(daemon.unix, transport) as old, Trainer(daemon.unix, transport) as new:
            old.join(group, 0, 2, BCE)
            old.begin(1, 4, fill=2)
            old.start("compute", 0)
            new.join(group, 1, 2, BCE)
            with Trainer(daemon.unix, transport) as again:
                again.join(group, 1, 2, BCE)
                with pytest.raises(ClientFailure) as caught:
                    old.answer()
                assert (caught.value.reason, caught.value.retry) == ("STALE_GENERATION", 2)
                assert old.refused("compute", 0).reason == "STALE_GENERATION"
                old.tell("leave")
                old.join_opened(group, 0, 2, BCE)
                for trainer in (old, again):
                    trainer.begin(1, 4, fill=2)
                assert [answer["step"] for answer in computed([old, again], 0)] == [0, 0]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_what_was_answered_can_be_read_until_the_group_is_joined_again(daemon, transport):
    with Trainer(daemon.unix, transport) as trainer:
        trainer.join(fresh("client"), 0, 1, BCE)
        trainer.begin(3, 5000, fill=1)
        answer = trainer.tell("compute", 0)
        columns = trainer.tell("columns")
        trainer.tell("leave")
        assert trainer.tell("show") == answer and trainer.tell("columns") == columns
        for refused in (("submit", 1), ("wait",), ("announce", 1, 3, 5000), ("begin", 3, 5000, 0, 0, 0, 0), ("leave",)):
            assert trainer.refused(*refused).reason == "BAD_CALL"
        assert trainer.tell("show") == answer
        trainer.join_opened(fresh("client"), 0, 1, BCE)
        trainer.begin(3, 5000, fill=1)
        assert trainer.tell("compute", 0) == answer


def test_batches_grow_and_several_are_in_use(daemon):
    with Trainer(daemon.unix, SHARED_MEMORY, slots=3) as trainer:
        trainer.join(fresh("client"), 0, 1, BCE)
        trainer.begin(1, 10, fill=0)
        trainer.tell("submit", 0)
        assert trainer.refused("begin", 1, 100000, 0, 0, 0, 0).reason == "BAD_CALL"
        trainer.begin(1, 9, fill=1)
        trainer.tell("submit", 1)
        trainer.tell("use", 1)
        assert trainer.tell("wait")["step"] == 1
        assert trainer.refused("wait").reason == "BAD_CALL"
        trainer.tell("use", 0)
        assert trainer.tell("wait")["step"] == 0
        for step, candidates in enumerate([100, 100000, 50, 200000, 300000], 2):
            trainer.begin(5, candidates, fill=step)
            answer = trainer.tell("compute", step)
            assert float.fromhex(answer["counts"][1]) == candidates


def test_what_the_order_of_calls_has_to_be(daemon):
    with Trainer(daemon.unix) as trainer:
        trainer.open()
        assert trainer.refused("leave").reason == "BAD_CALL"
        assert trainer.refused("begin", 1, 1, 0, 0, 0, 0).reason == "BAD_CALL"
        assert trainer.refused("announce", 0, 1, 1).reason == "BAD_CALL"
        trainer.join_opened(fresh("client"), 0, 1, BCE)
        assert trainer.refused("join", "other", 0, 1, json.dumps(BCE)).reason == "BAD_CALL"
        trainer.begin(1, 2, fill=0)
        assert trainer.refused("wait").reason == "BAD_CALL"
        trainer.tell("submit", 0)
        assert trainer.refused("submit", 0).reason == "BAD_CALL"
        trainer.begin(1, 2, fill=0)
        assert trainer.refused("begin", 1, 2, 0, 0, 0, 0).reason == "BAD_CALL"
        trainer.tell("leave")
        assert trainer.refused("wait").reason == "BAD_CALL"
        trainer.join_opened(fresh("client"), 0, 1, BCE)
        trainer.begin(1, 2, fill=0)
        trainer.tell("compute", 0)


@pytest.mark.parametrize("shape, field", [
    ((1, 1, 3, 0, 0, 0), "logits_type"), ((1, 1, F16, BF16, 0, 0), "gradient_type"),
    ((1, 1, 0, 0, 2, 0), "layout"), ((1, 1, 0, 0, 0, 2), "weighted_tasks"),
])
def test_shapes_that_there_are_not(daemon, shape, field):
    with Trainer(daemon.unix) as trainer:
        trainer.join(fresh("client"), 0, 1, BCE)
        failure = trainer.refused("begin", *shape)
        assert (failure.code, failure.reason, failure.field) == (3, "BAD_SHAPE", field)


def test_configs(start):
    daemon = start({"groups": [{"name": "declared", "world_size": 1, "config": MANY}]})
    with Trainer(daemon.unix) as trainer:
        trainer.open()
        for config, field in [("{", "config"), ('{"tasks": [{"name": "a", "los": []}]}', "config.tasks[0].los"),
                              ('{"tasks": [{"losses": []}]}', "config.tasks[0].name")]:
            failure = trainer.refused("join", "g", 0, 1, config)
            assert (failure.code, failure.reason, failure.field) == (3, "BAD_CONFIG", field), failure
        failure = trainer.refused("join", "g", 0, 1, json.dumps({"tasks": [{"name": "a"}]}))
        assert (failure.reason, failure.field) == ("INVALID_CONFIG", "config.tasks[0].losses"), failure
        failure = trainer.refused("join", "g", 0, 1, "-")
        assert (failure.reason, failure.field) == ("INVALID_ARGUMENT", "config")
        assert trainer.tell("config")["config"] is None
        trainer.join_opened("declared", 0, 1, None)
        config = trainer.tell("config")["config"]
        assert (config["tasks"][3]["name"], config["tasks"][3]["numClass"], config["stepTimeoutMs"]) == ("order", 1, 120000)
        parsed = json_format.ParseDict(config, config_pb2.GroupConfig())
        assert parsed == daemon.client.group("declared").config
        trainer.begin(3, 9, weighted=WEIGHTED, fill=0)
        assert [task["name"] for task in trainer.tell("compute", 0)["tasks"]] == [t["name"] for t in MANY["tasks"]]


def test_ranks_whose_configs_differ(daemon):
    group = fresh("client")
    with Trainer(daemon.unix) as one, Trainer(daemon.unix) as other:
        one.join(group, 0, 2, BCE)
        other.open()
        with pytest.raises(ClientFailure) as caught:
            other.join_opened(group, 1, 2, MANY)
        assert caught.value.reason == "CONFIG_DIGEST_MISMATCH" and caught.value.metadata["mine"]
