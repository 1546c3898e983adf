"""Shared memory computes what HTTP computes, bit for bit, and says the same when something is wrong."""

import ctypes
import random
import struct
import subprocess

import pytest

import shm_peer
from harness import ROOT, background, fresh
from shm_peer import BF16, F16, F32, HAS_STEP, ShmError, of_message
from small import BCE, LN2, Ranks, bad_batch, batch

# Of every shape that there is: one logit and three, weights, learned temperature, sessions, task space.
MANY = {"tasks": [
    {"name": "click", "losses": [{"binary_cross_entropy": {}}, {"l2_loss": {}, "weight": 0.25}]},
    {"name": "rank", "losses": [{"listwise_rank_loss": {}}], "weight": 2},
    {"name": "grade", "num_class": 3, "losses": [{"softmax_cross_entropy": {"label_smoothing": 0.1}}]},
    {"name": "buy", "num_class": 2, "lists": "LISTS_SESSIONS", "losses": [{"jrc_loss": {}}]},
    {"name": "far", "out_task_space_weight": 0.5, "losses": [{"binary_focal_loss": {}}]},
]}


def rounded(value, kind):
    """The nearest float of this type, ties to even."""
    if kind == F16:
        return struct.unpack("<e", struct.pack("<e", value))[0]
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    if kind == BF16:
        bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def many_batch(seed, kind=F32):
    """A ComputeLossRequest for MANY, its logits of this type."""
    r = random.Random(seed)
    lengths = [r.choice([0, 1, 2, 3, 5, 17]) for _ in range(r.choice([1, 4, 9]))]
    count = sum(lengths)

    def logits(width):
        return [rounded(r.gauss(0, 2), kind) for _ in range(count * width)]

    def labels(values):
        return [float(r.choice(values)) for _ in range(count)]

    return {"lengths": lengths, "gradient_scale": r.choice([1.0, 0.5, 1024.0]), "tasks": [
        {"name": "click", "logits": logits(1), "labels": labels([0, 0.25, 1]),
         "weights": [rounded(r.uniform(0, 3), F32) for _ in range(count)]},
        {"name": "rank", "logits": logits(1), "labels": labels([0, 0, 1]), "log_scale": r.uniform(0, 4)},
        {"name": "grade", "logits": logits(3), "labels": labels([0, 1, 2, -100])},
        {"name": "buy", "logits": logits(2), "labels": labels([0, 1]), "sessions": [r.randrange(4) for _ in range(count)]},
        {"name": "far", "logits": logits(1), "labels": labels([0, 1]), "task_space": labels([-1, 0, 1])},
    ]}


def pair(daemon, attach, config=BCE, **more):
    """A group of one that is called over HTTP, and one of one over shared memory."""
    http, shm = fresh(), fresh()
    daemon.client.join_all(http, 1, config)
    generation = daemon.client.join_all(shm, 1, config)
    return http, attach(shm, 0, generation, config, **more)


def test_the_mirrors_in_python_have_the_offsets_of_the_header(tmp_path):
    lines = []
    for mirror in shm_peer.MIRRORS:
        name = "struct lossd_shm_" + mirror.__name__
        lines.append(f'printf("%zu\\n", sizeof({name}));')
        lines += [f'printf("%zu\\n", offsetof({name}, {field}));' for field, *_ in mirror._fields_]
    source = tmp_path / "sizes.c"
    source.write_text("#include <stdio.h>\n#include \"lossd_shm.h\"\nint main(void) { %s return 0; }\n" % "\n".join(lines))
    subprocess.run(["cc", "-I", ROOT / "proto", source, "-o", tmp_path / "sizes"], check=True)
    found = subprocess.run([tmp_path / "sizes"], check=True, capture_output=True, text=True).stdout.split()
    ours = []
    for mirror in shm_peer.MIRRORS:
        ours += [ctypes.sizeof(mirror)] + [getattr(mirror, field).offset for field, *_ in mirror._fields_]
    assert [int(word) for word in found] == ours


@pytest.mark.parametrize("row_major", [False, True])
@pytest.mark.parametrize("kind", [F32, F16, BF16])
def test_the_answers_are_those_of_http_bit_for_bit(daemon, attach, kind, row_major):
    http, peer = pair(daemon, attach, MANY)
    for step in range(12):
        request = {"step": step, **many_batch(step, kind)}
        expected = of_message(daemon.rpc("proto").call("ComputeLoss", {"group": http, "rank": 0, **request}))
        layout = {"logits_type": kind, "gradient_type": F32, "row_major": row_major and kind == F32, "slack": step % 3}
        assert peer.compute(request, **layout) == expected


@pytest.mark.parametrize("kind", [F16, BF16])
def test_gradients_in_halves_are_the_floats_rounded(daemon, attach, kind):
    http, peer = pair(daemon, attach, MANY)
    for step in range(6):
        request = {"step": step, **many_batch(step, kind), "gradient_scale": 64.0}
        expected = of_message(daemon.rpc("proto").call("ComputeLoss", {"group": http, "rank": 0, **request}))
        for task in expected["tasks"]:
            task["gradient"] = [rounded(g, kind) for g in task["gradient"]]
        assert peer.compute(request, logits_type=kind, row_major=step % 2 == 1) == expected


def test_gradients_can_be_skipped(daemon, attach):
    http, peer = pair(daemon, attach, MANY)
    request = {"step": 3, **many_batch(3), "skip_gradient": True}
    peer.columns(request)
    before = peer.map[peer.layout.data_offset:]
    peer.submit()
    peer.wait()
    assert peer.map[peer.layout.data_offset:] == before
    expected = of_message(daemon.rpc("proto").call("ComputeLoss", {"group": http, "rank": 0, **request}))
    assert peer.result(has_gradient=False) == expected


def test_two_ranks_on_two_transports_average_together(daemon, attach):
    name = fresh()
    ranks = Ranks(daemon.client, name, 2)
    peer = attach(name, 1, ranks.generation)
    for step in range(20):
        call = background(lambda s=step: ranks.compute(0, s, 6))
        mine = peer.compute({"step": step, **batch(2)})
        assert mine["world"] == (2.0, 8.0, 2) and mine["factors"] == (1.0, 0.5)
        assert mine["loss"] == pytest.approx(LN2 * 0.5)
        assert call.result().loss == pytest.approx(LN2 * 1.5)


def test_an_announcement_lets_the_peer_go_on(daemon, attach):
    name = fresh()
    ranks = Ranks(daemon.client, name, 2)
    peer = attach(name, 1, ranks.generation)
    peer.announce(1, 1, 2)
    assert ranks.state(1) == "ANNOUNCED"
    assert ranks.compute(0, 1, 6).candidate_factor == 1.5
    assert peer.compute({"step": 1, **batch(2)})["factors"] == (1.0, 0.5)


BAD = {
    "logits": bad_batch(3),
    "label": {"lengths": [2], "tasks": [{"name": "t", "logits": [0, 0], "labels": [1, 7]}]},
    "weight": {"lengths": [2], "tasks": [{"name": "t", "logits": [0, 0], "labels": [1, 1], "weights": [1, -2]}]},
    "sum": {"lengths": [2, 2], "tasks": [{"name": "t", "logits": [0, 0, 0], "labels": [1, 1, 1]}]},
    "overflow": {"lengths": [0xFFFFFFFF] * 3, "tasks": [{"name": "t", "logits": [0], "labels": [1]}]},
    "no labels": {"lengths": [2], "tasks": [{"name": "t", "logits": [0, 0]}]},
    "sessions": {"lengths": [2], "tasks": [{"name": "t", "logits": [0, 0], "labels": [1, 1], "sessions": [1, 2]}]},
    "log_scale": {"lengths": [1], "tasks": [{"name": "t", "logits": [0], "labels": [1], "log_scale": 1.0}]},
    "label_bits": {**batch(2), "label_bits": [1, 2]},
    "scale": {**batch(2), "gradient_scale": "Infinity"},
    "generation": {**batch(2), "generation": 12345},
    "range": {**batch(2), "step": 1 << 53},
    "order": {**batch(2), "step": 1},
    "conflict": {**batch(3), "step": 8},
}


@pytest.mark.parametrize("what", BAD)
def test_the_errors_are_those_of_http(daemon, attach, what):
    http, peer = pair(daemon, attach)
    for step in (7, 8):
        daemon.client.call("ComputeLoss", {"group": http, "rank": 0, "step": step, **batch(2)})
        peer.compute({"step": step, **batch(2)})
    request = {"step": 9, **BAD[what]}
    theirs = daemon.rpc("proto").refused("ComputeLoss", {"group": http, "rank": 0, **request})
    with pytest.raises(ShmError) as ours:
        peer.compute(request)
    mine = ours.value
    if what == "generation":  # each group has its own
        theirs.metadata = mine.metadata
        mine.message = theirs.message.removeprefix("generation: ")
    assert (mine.reason, mine.code, mine.field, mine.metadata) == \
        (theirs.reason, theirs.code, theirs.field, theirs.metadata)
    assert theirs.message == (f"{mine.field}: " if mine.field else "") + mine.message
    peer.compute({"step": 10, **batch(2)})


def test_a_batch_larger_than_the_limits_is_refused_as_over_http(start, attach):
    daemon = start({"limits": {"requests": 3, "candidates": 5}})
    http, peer = pair(daemon, lambda *args: attach(*args, on=daemon))
    for lengths in ([1] * 4, [3, 3]):
        request = {"step": 1, "lengths": lengths,
                   "tasks": [{"name": "t", "logits": [0] * sum(lengths), "labels": [0] * sum(lengths)}]}
        theirs = daemon.rpc("proto").refused("ComputeLoss", {"group": http, "rank": 0, **request})
        with pytest.raises(ShmError) as ours:
            peer.compute(request)
        assert (ours.value.reason, ours.value.metadata) == (theirs.reason, theirs.metadata)
        assert ours.value.field == theirs.field == "lengths"


def test_no_step_and_bad_announcements_are_refused_as_over_http(daemon, attach):
    name = fresh()
    ranks = Ranks(daemon.client, name, 2)
    peer = attach(name, 1, ranks.generation)
    for step, requests, candidates, flags in [(1, 1, 2, 0), (1 << 53, 1, 2, HAS_STEP), (1, 0, 2, HAS_STEP)]:
        with pytest.raises(ShmError) as ours:
            peer.announce(step, requests, candidates, flags=flags)
        request = {"group": name, "rank": 1, "requests": requests, "candidates": candidates}
        theirs = daemon.client.refused("AnnounceCounts", {**request, **({"step": step} if flags else {})})
        assert (ours.value.reason, ours.value.field, ours.value.metadata) == \
            (theirs.reason, theirs.field, theirs.metadata)
    theirs = daemon.client.refused("ComputeLoss", {"group": name, "rank": 1, **batch(1)})
    with pytest.raises(ShmError) as ours:
        peer.compute(batch(1))
    assert (ours.value.reason, ours.value.field) == (theirs.reason, theirs.field) == ("STEP_RANGE", "step")
