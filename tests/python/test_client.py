"""lossd.Client against a daemon: a step over each transport, what it is told, and how long its buffers live."""

import copy
import gc
import os
import pickle
import threading
import time

import numpy as np
import pytest
from lossd_process import LossdProcess
from ranks import BCE, Ranks, fill, fresh

import lossd

LN2 = float(np.log(2))
LISTS = {"tasks": [
    {"name": "click", "losses": [{"binary_cross_entropy": {}}, {"listwise_rank_loss": {"temperature_init": 1}}]},
]}  # fmt: skip


def test_a_step_of_two_uneven_ranks(way):
    """All logits 0, so that everything is ln 2, ln 3 and a half: 2 requests with 6 candidates, and 6 with 2."""
    with Ranks(2, LISTS, **way) as group:
        batches = [
            fill(group[0], [3, 3], np.zeros(6), [1, 0, 0, 0, 1, 0]),
            fill(group[1], [1, 0, 0, 1, 0, 0], np.zeros(2), [1, 0]),
        ]
        first, second = group.compute(batches, 7)
        assert group[0].transport == way["transport"]
        assert (first.step, first.replayed) == (7, False)
        assert first.loss == pytest.approx(1.5 * LN2 + 0.5 * np.log(3)) and second.loss == pytest.approx(LN2 / 2)
        assert (first.local, first.world) == (lossd.Counts(2, 6, 1), lossd.Counts(8, 8, 2))
        assert (second.request_factor, second.candidate_factor) == (1.5, 0.5)
        cross_entropy, listwise = first.tasks["click"].terms
        assert cross_entropy.name == "binary_cross_entropy" and listwise.name == "listwise_rank_loss"
        assert cross_entropy.sum == pytest.approx(6 * LN2) and cross_entropy.factor == 1.5
        assert cross_entropy.value == pytest.approx(cross_entropy.factor * cross_entropy.local_mean)
        assert (listwise.denominator, listwise.factor) == (2, 0.5)
        want = 2 * ((0.5 - np.array([1, 0, 0, 0, 1, 0])) / 8 + (1 / 3 - np.array([1, 0, 0, 0, 1, 0])) / 8)
        assert first.tasks["click"].gradient == pytest.approx(want, rel=1e-6)
        assert first.tasks["click"].log_scale_gradient is None and first.tasks["click"].nonfinite_units == 0


def test_a_result_can_be_printed(fast):
    with Ranks(2, LISTS, **fast) as group:
        batches = [fill(group[0], [3, 3], np.zeros(6), [1, 0, 0, 0, 1, 0]), fill(group[1], [1, 0], [0, 0][:1], [1])]
        result, _ = group.compute(batches, 0)
        assert str(result).splitlines() == [  # factors 6 / 3.5 and 2 / 2
            "step 0: loss 2.28686, 2 of 4 requests, 6 of 7 candidates, 2 ranks",
            "  click: loss 2.28686",
            "    binary_cross_entropy: 1.18825, factor 1.71429",
            "    listwise_rank_loss: 1.09861, factor 1",
        ]
        words = "binary_cross_entropy 1.18825 (factor 1.71429), listwise_rank_loss 1.09861 (factor 1)"
        assert repr(result.tasks["click"]) == f"TaskResult(loss=2.28686, terms: {words})"
        task = result.tasks["click"]
        for _ in range(2):
            group[0].batch(1, 1)
        assert str(result) == repr(result) and repr(result).startswith("Result(step=0, loss=2.28")
        assert repr(task) == "TaskResult(of a batch that is gone)"


def test_all_transports_give_the_same_bits(daemon):
    rng = np.random.default_rng(3)
    lengths, logits = [5, 0, 7, 1], rng.normal(size=13).astype(np.float32)
    labels = rng.integers(0, 2, 13)
    bits = []
    for transport in ("shared_memory", "http_protobuf", "http_json"):
        with Ranks(1, LISTS, address=daemon.unix, transport=transport) as group:
            batch = fill(group[0], lengths, logits, labels)
            batch.tasks["click"].log_scale = 0.3
            result = group[0].compute(batch)
            task = result.tasks["click"]
            bits.append((result.loss, task.gradient.tobytes(), task.log_scale_gradient, task.terms))
    assert bits[0] == bits[1] == bits[2]


def test_log_scale_gradient_scale_and_skip_gradient(way):
    with Ranks(1, LISTS, **way) as group:
        plain = group[0].compute(fill(group[0], [2], [0.5, -0.5], [0, 1]))
        gradient, loss = plain.tasks["click"].gradient.copy(), plain.loss
        batch = fill(group[0], [2], [0.5, -0.5], [0, 1])
        assert batch.tasks["click"].log_scale is None and batch.gradient_scale == 1
        batch.gradient_scale, batch.tasks["click"].log_scale = 4, 0.0
        scaled = group[0].compute(batch)
        assert scaled.loss == loss and (scaled.tasks["click"].gradient == 4 * gradient).all()
        # z = ±1/2, s = 1: p of the positive is 1 / (1 + e); d/ds of ln(1 + e^s) is 1 - p, times 4
        assert scaled.tasks["click"].log_scale_gradient == pytest.approx(4 * np.e / (1 + np.e), rel=1e-6)
        batch = fill(group[0], [2], [0.5, -0.5], [0, 1])
        assert not batch.skip_gradient and batch.tasks["click"].log_scale is None  # as new
        batch.skip_gradient = True
        assert group[0].compute(batch).loss == loss


def test_weights_sessions_task_space_and_label_bits_reach_the_daemon(way):
    config = {"tasks": [
        {"name": "weighted", "losses": [{"l2_loss": {}}]},
        {"name": "space", "in_task_space_weight": 3, "losses": [{"l2_loss": {}}]},
        {"name": "lists", "lists": "LISTS_SESSIONS", "label_bitmask": 2,
         "losses": [{"listwise_rank_loss": {"temperature_init": 1, "learnable_temperature": False}}]},
        {"name": "classes", "num_class": 3, "losses": [{"softmax_cross_entropy": {}}]},
    ]}  # fmt: skip
    with Ranks(1, config, **way) as group:
        batch = group[0].batch(1, 4, weights=["weighted"])
        batch.lengths, batch.label_bits = [4], [2, 1, 3, 0]
        tasks = batch.tasks
        tasks["weighted"].logits = [1, 2, 3, 4]
        tasks["weighted"].labels, tasks["weighted"].weights = np.zeros(4), [1, 0, 0, 1]
        tasks["space"].logits, tasks["space"].labels, tasks["space"].task_space = [1, 2, 3, 4], [0] * 4, [0, 0, 0, 5]
        tasks["lists"].logits, tasks["lists"].sessions = [0] * 4, [8, 9, 9, 8]
        tasks["classes"].logits, tasks["classes"].labels = np.zeros((4, 3)), [2, -100, 0, 1]
        assert tasks["lists"].labels is None and tasks["lists"].weights is None and tasks["classes"].num_class == 3
        result = group[0].compute(batch)
        assert result.tasks["weighted"].loss == pytest.approx((1 + 16) / 2)
        assert result.tasks["space"].loss == pytest.approx((1 + 4 + 9 + 3 * 16) / 6)
        assert result.tasks["lists"].loss == pytest.approx(LN2)
        assert result.tasks["classes"].loss == pytest.approx(np.log(3))
        assert result.tasks["classes"].gradient.shape == (4, 3)
        assert [term.denominator for task in result.tasks.values() for term in task.terms] == [2, 6, 2, 3]
        with pytest.raises(ValueError, match="no task 'clik'"):
            group[0].batch(1, 1, weights=["clik"])
        with pytest.raises(ValueError, match="no such column"):
            batch.tasks["space"].weights = [1] * 4


@pytest.mark.parametrize("layout", ["planes", "rows"])
def test_halves_are_computed_from_what_they_hold(way, layout):
    config = {"tasks": [{"name": n, "losses": [{"l2_loss": {}}]} for n in ("a", "b")]}
    values = np.array([[1.5, -2.0], [0.25, 3.0]])
    with Ranks(1, config, **way) as group:
        for dtype, bits in (("float16", values.astype(np.float16)), ("bfloat16", values.astype(np.float32))):
            if dtype == "bfloat16":
                bits = (bits.view(np.uint32) >> 16).astype(np.uint16)
            batch = group[0].batch(1, 2, dtype=dtype, layout=layout)
            batch.lengths = [2]
            if layout == "rows":
                batch.logits = bits
                assert (batch.tasks["b"].logits == bits[:, 1]).all()
            for i, task in enumerate(batch.tasks.values()):
                task.labels = [0, 0]
                if layout == "planes":
                    task.logits = bits[:, i]
            result = group[0].compute(batch)
            assert result.loss == pytest.approx((1.5**2 + 0.25**2) / 2 + (4 + 9) / 2)
            assert (result.tasks["b"].gradient == values[:, 1]).all()
            assert batch.logits is None or layout == "rows"


def test_gradients_may_have_the_type_of_the_logits(fast):
    with Ranks(1, {"tasks": [{"name": "t", "losses": [{"l2_loss": {}}]}]}, **fast) as group:
        batch = fill(group[0], [2], np.array([1.5, -2], np.float16), [0, 0], dtype="float16", gradient_dtype="float16")
        gradient = group[0].compute(batch).tasks["t"].gradient
        assert gradient.dtype == np.float16 and gradient.tolist() == [1.5, -2]


def test_announced_counts_let_the_others_go_on(way):
    with Ranks(2, BCE, **way) as group:
        group[1].announce(0, 1, 3)
        result = group[0].compute(fill(group[0], [1], [0], [1]), 0)  # does not wait for rank 1's batch
        assert result.world == lossd.Counts(2, 4, 2) and result.candidate_factor == 0.5
        assert group[1].compute(fill(group[1], [3], [0] * 3, [1] * 3), 0).candidate_factor == 1.5


def test_submit_and_wait_have_two_batches_in_flight(fast):
    with Ranks(1, BCE, **fast) as group:
        first, second = fill(group[0], [1], [0], [1]), fill(group[0], [2], [0, 0], [1, 1])
        group[0].submit(first, 0)
        group[0].submit(second, 1)
        assert [group[0].wait(batch).step for batch in (first, second)] == [0, 1]


def test_other_threads_run_while_it_waits(way):
    """Rank 0 waits for rank 1, and this thread counts meanwhile: with the GIL held it would not get far."""
    with Ranks(2, BCE, **way) as group:
        batches = [fill(client, [1], [0], [1]) for client in group.clients]
        waiting = group.pool.submit(group[0].compute, batches[0], 0)
        time.sleep(0.2)
        count, end = 0, time.monotonic() + 0.3
        while time.monotonic() < end:
            count += 1
        assert not waiting.done() and count > 10000
        group[1].compute(batches[1], 0)
        assert waiting.result(10).loss == pytest.approx(LN2)


def test_a_client_is_one_threads_at_a_time(fast):
    with Ranks(2, BCE, **fast) as group:
        batches = [fill(client, [1], [0], [1]) for client in group.clients]
        waiting = group.pool.submit(group[0].compute, batches[0], 0)
        time.sleep(0.2)
        with pytest.raises(RuntimeError, match="another thread"):
            group[0].compute(batches[0], 0)
        group[1].compute(batches[1], 0)
        waiting.result(10)


def test_columns_are_the_buffers(way):
    with Ranks(1, BCE, **way) as group:
        batch = fill(group[0], [2], [0, 0], [1, 0])
        logits = batch.tasks["t"].logits
        assert np.shares_memory(logits, batch.tasks["t"].logits) and logits.dtype == np.float32
        logits[:] = [1, 2]
        memoryview(logits)[1] = 3.0
        np.from_dlpack(logits)  # shares
        result = group[0].compute(batch)
        want = 1 / (1 + np.exp([-1.0, -3.0])) - [1, 0]
        gradient = result.tasks["t"].gradient
        assert gradient == pytest.approx(want / 2, rel=1e-6)
        with pytest.raises(ValueError, match="read-only"):
            gradient[0] = 1


def test_a_batch_is_gone_when_its_slot_is_begun_anew(way):
    with Ranks(1, BCE, num_slots=2, **way) as group:
        first = fill(group[0], [1], [0], [1])
        result = group[0].compute(first)
        group[0].batch(1, 1)
        assert first.tasks["t"].labels.tolist() == [1]  # one more has been begun
        group[0].batch(1, 1)
        for touch in (
            lambda: first.lengths,
            lambda: first.tasks["t"].logits,
            lambda: result.tasks,
            lambda: result.world,
        ):
            with pytest.raises(RuntimeError, match="gone"):
                touch()
        with pytest.raises(RuntimeError, match="gone"):
            group[0].compute(first)
        assert result.loss == pytest.approx(LN2)  # that is kept


def test_new_buffers_are_not_made_under_arrays_that_show_the_old_ones(way):
    with Ranks(1, BCE, **way) as group:
        kept = group[0].compute(fill(group[0], [2], [0, 0], [1, 1])).tasks["t"].gradient[1:]
        with pytest.raises(BufferError, match="max_candidates"):
            group[0].batch(1, 10000)
        assert kept.tolist() == [-0.25]
        kept = kept.copy()
        larger = fill(group[0], [10000], np.zeros(10000), np.ones(10000))
        assert group[0].compute(larger).loss == pytest.approx(LN2) and kept.tolist() == [-0.25]


def test_batches_that_grow_and_shrink_keep_their_buffers(way):
    """Sizes within the capacity, or a little above it, cost no new buffers: addresses stay."""
    with Ranks(1, BCE, max_requests=8, max_candidates=1000, **way) as group:
        addresses = set()
        for count in (1000, 3, 0, 999, 1000):
            batch = fill(group[0], [count], np.zeros(count), np.ones(count))
            addresses.add(batch.tasks["t"].logits.ctypes.data)
            result = group[0].compute(batch)
            assert result.local.candidates == count and len(result.tasks["t"].gradient) == count
            del batch, result
        assert len(addresses) <= 2  # of two slots


@pytest.mark.parametrize("transport", ["shared_memory", "http_protobuf"])
def test_a_daemon_that_was_killed_is_found_again(transport):
    """The open call is answered by the next daemon, and arrays that show the buffers go on showing them."""
    daemon = LossdProcess()
    with Ranks(2, BCE, address=daemon.unix, transport=transport) as group:
        for step in range(3):
            batches = [fill(client, [2], [0, 0], [1, 1]) for client in group.clients]
            logits = batches[0].tasks["t"].logits
            waiting = group.pool.submit(group[0].compute, batches[0], step)
            time.sleep(0.1)
            daemon.kill()
            daemon.start()
            second = group[1].compute(batches[1], step)
            first = waiting.result(30)
            assert (first.step, second.step) == (step, step) and first.loss == pytest.approx(LN2)
            assert first.world.candidates == 4 and first.tasks["t"].gradient.tolist() == [-0.25, -0.25]
            assert logits.tolist() == [0, 0] and np.shares_memory(logits, batches[0].tasks["t"].logits)
    daemon.stop()


def test_close_waits_for_arrays(way):
    client = lossd.Client(**way)
    client.join(BCE, group=fresh(), rank=0, world_size=1)
    gradient = client.compute(fill(client, [2], [0, 0], [1, 1])).tasks["t"].gradient
    client.close()
    client.close()
    gc.collect()
    assert client.closed and gradient.tolist() == [-0.25, -0.25]
    for call in (lambda: client.generation, client.leave, lambda: client.batch(1, 1)):
        with pytest.raises(RuntimeError, match="closed"):
            call()


def test_what_was_answered_can_be_read_after_leaving_and_arrays_after_joining_again(way):
    name = fresh()
    client = lossd.Client(**way)
    client.join(BCE, group=name, rank=0, world_size=1)
    batch = fill(client, [2], [0, 0], [1, 1])
    result = client.compute(batch)
    gradient = result.tasks["t"].gradient
    client.leave()
    assert result.tasks["t"].gradient.tolist() == [-0.25, -0.25] and batch.tasks["t"].labels.tolist() == [1, 1]
    assert result.tasks["t"].loss == pytest.approx(LN2) and result.world.candidates == 2
    with pytest.raises(lossd.Error, match="BAD_CALL"):
        client.compute(batch)
    with pytest.raises(lossd.Error, match="BAD_CALL"):
        client.leave()
    with lossd.Client(**way) as other:
        other.join(BCE, group=name, rank=0, world_size=1)  # the name is free
    generation = client.join(BCE, group=fresh(), rank=0, world_size=1)
    assert generation > 0 and gradient.tolist() == [-0.25, -0.25]
    for touch in (
        lambda: batch.lengths,
        lambda: batch.gradient_scale,
        lambda: batch.tasks["t"].num_class,
        lambda: result.local,
    ):
        with pytest.raises(RuntimeError, match="gone"):
            touch()
    assert client.compute(fill(client, [1], [0], [1])).loss == pytest.approx(LN2)
    assert gradient.tolist() == [-0.25, -0.25]
    client.leave()


def test_a_context_leaves_the_group_unless_there_is_an_exception(daemon):
    group = fresh()
    with lossd.Client(daemon.unix) as client:
        assert client.join(BCE, group=group, rank=0, world_size=1) == client.generation > 0
        assert (client.group, client.rank, client.world_size) == (group, 0, 1)
    with lossd.Client(daemon.unix) as other:
        assert other.join(BCE, group=group, rank=0, world_size=2) > 0  # the name is free
        with pytest.raises(KeyError), lossd.Client(daemon.unix) as third:
            third.join(BCE, group=group, rank=1, world_size=2)
            raise KeyError


def test_behind_a_fork_only_the_parent_uses_a_client(fast):
    with Ranks(1, BCE, **fast) as group:
        child = os.fork()
        if child == 0:
            try:
                group[0].batch(1, 1)
            except RuntimeError as why:
                os._exit(3 if "fork" in str(why) else 4)
            os._exit(5)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
        assert group[0].compute(fill(group[0], [1], [0], [1])).loss == pytest.approx(LN2)


def test_the_config_of_the_group_has_all_defaults(way):
    client = lossd.Client(**way)
    assert client.config is None
    client.join(BCE, group=fresh(), rank=0, world_size=1)
    config = client.config
    assert [task["name"] for task in config["tasks"]] == [task["name"] for task in BCE["tasks"]]
    assert config["tasks"][0]["losses"] == [{"weight": 1, "binaryCrossEntropy": {"labelSmoothing": 0}}]
    assert (config["globalAverage"], config["gradReduce"]) == (True, "GRAD_REDUCE_MEAN")
    client.leave()
    assert client.config is None
    with client:
        client.join(config, group=fresh(), rank=0, world_size=1)  # it means the same
        assert client.config == config


def test_torchruns_environment_says_who_it_is(daemon, monkeypatch):
    name = fresh()
    environment = {
        "RANK": "1",
        "WORLD_SIZE": "3",
        "LOCAL_WORLD_SIZE": "3",
        "GROUP_RANK": "0",
        "TORCHELASTIC_RUN_ID": name,
    }
    for key, value in {**environment, "LOSSD_ADDR": daemon.unix}.items():
        monkeypatch.setenv(key, value)
    with lossd.Client() as client:
        client.join(BCE)
        assert (client.group, client.rank, client.world_size) == (name, 1, 3)


def test_a_client_is_neither_copied_nor_pickled(fast):
    with Ranks(1, BCE, **fast) as group:
        for copying in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="one rank of one process"):
                copying(group[0])


@pytest.mark.parametrize(
    "options", [{"transport": "carrier"}, {"timeout": 0}, {"reconnect": -1.0}], ids=lambda o: next(iter(o))
)
def test_options_that_can_not_be_are_refused(options):
    with pytest.raises(ValueError):
        lossd.Client("127.0.0.1:1", **options)


def test_there_is_no_thread_of_its_own(fast):
    before = threading.active_count()
    with lossd.Client(**fast):
        assert threading.active_count() == before
