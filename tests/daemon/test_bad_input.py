"""
What a client can get wrong: each with its HTTP status, code, reason and field; the peers of its step are not touched,
the daemon goes on, and its memory stays within four bodies of the largest size.
"""

import json
import struct

import pytest

from harness import Daemon, RpcError, background, loss_pb2
from small import BCE, Ranks, batch

LIMITS = {"json_body_bytes": 65536, "proto_body_bytes": 131072, "json_depth": 32, "candidates": 64, "requests": 16,
          "tasks": 4, "losses": 3, "groups": 8, "ranks": 8, "upload_timeout_ms": 1500}
LIST = {"tasks": [{"name": "t", "losses": [{"listwise_rank_loss": {}}]}]}
SOFTMAX = {"tasks": [{"name": "t", "num_class": 3, "losses": [{"softmax_cross_entropy": {}}]}]}
SESSIONS = {"tasks": [{"name": "t", "lists": "LISTS_SESSIONS", "losses": [{"listwise_rank_loss": {}}]}]}
SPACE = {"tasks": [{"name": "t", "out_task_space_weight": 0, "losses": [{"binary_cross_entropy": {}}]}]}
BITS = {"tasks": [{"name": "t", "label_bitmask": 2, "losses": [{"binary_cross_entropy": {}}]}]}
TWO = {"tasks": [{"name": n, "losses": [{"binary_cross_entropy": {}}]} for n in "tu"]}


@pytest.fixture(scope="module")
def daemon():
    one = Daemon({"limits": LIMITS})
    yield one
    one.stop()


def good(**task):
    """Two requests, three candidates; columns of the task may be replaced."""
    return {"lengths": [2, 1], "tasks": [{"name": "t", "logits": [0.5, 0.1, -1], "labels": [1, 0, 1], **task}]}


def without(body, *keys):
    return {**body, "tasks": [{k: v for k, v in body["tasks"][0].items() if k not in keys}]}


def with_task(**more):
    return {**good(), "tasks": good()["tasks"] + [{"name": "u", **{k: good()["tasks"][0][k] for k in ("logits", "labels")}, **more}]}


# config, batch, reason, field. All are refused in both codecs and poison nothing but a step of their own group.
BATCHES = {
    "logits_short": (BCE, good(logits=[1, 2]), "SHAPE_MISMATCH", "tasks[0].logits"),
    "logits_long": (BCE, good(logits=[1, 2, 3, 4]), "SHAPE_MISMATCH", "tasks[0].logits"),
    "logits_absent": (BCE, without(good(), "logits"), "SHAPE_MISMATCH", "tasks[0].logits"),
    "logits_of_one_class": (SOFTMAX, good(), "SHAPE_MISMATCH", "tasks[0].logits"),
    "labels_short": (BCE, good(labels=[1]), "LABEL_COUNT_MISMATCH", "tasks[0].labels"),
    "labels_long": (BCE, good(labels=[1] * 4), "LABEL_COUNT_MISMATCH", "tasks[0].labels"),
    "labels_absent": (BCE, without(good(), "labels"), "LABEL_COUNT_MISMATCH", "tasks[0].labels"),
    "lengths_absent": (BCE, {"tasks": good()["tasks"]}, "SHAPE_MISMATCH", "tasks[0].logits"),
    "lengths_overflow_32_bit": (BCE, {**good(), "lengths": [4294967295, 4]}, "LIMIT_EXCEEDED", "lengths"),
    "lengths_overflow_64_bit": (BCE, {**good(), "lengths": [4294967295] * 16}, "LIMIT_EXCEEDED", "lengths"),
    "task_unknown": (BCE, good(name="x"), "TASK_SET_MISMATCH", "tasks[0].name"),
    "task_repeated": (TWO, with_task(name="t"), "TASK_SET_MISMATCH", "tasks[1].name"),
    "task_missing": (TWO, good(), "TASK_SET_MISMATCH", "tasks"),
    "task_too_many": (BCE, with_task(), "TASK_SET_MISMATCH", "tasks[1].name"),
    "tasks_absent": (BCE, {"lengths": [2, 1]}, "TASK_SET_MISMATCH", "tasks"),
    "logit_nan": (BCE, good(logits=[0, "NaN", 0]), "NONFINITE_LOGITS", "tasks[0].logits[1]"),
    "logit_infinity": (BCE, good(logits=[0, 0, "Infinity"]), "NONFINITE_LOGITS", "tasks[0].logits[2]"),
    "logit_minus_infinity": (LIST, good(logits=["-Infinity", 0, 0]), "NONFINITE_LOGITS", "tasks[0].logits[0]"),
    "label_nan": (BCE, good(labels=[0, "NaN", 1]), "LABEL_OUT_OF_RANGE", "tasks[0].labels[1]"),
    "label_infinity": (LIST, good(labels=["Infinity", 0, 1]), "LABEL_OUT_OF_RANGE", "tasks[0].labels[0]"),
    "label_negative": (BCE, good(labels=[0, 0, -0.5]), "LABEL_OUT_OF_RANGE", "tasks[0].labels[2]"),
    "label_above_one": (BCE, good(labels=[0, 1.5, 1]), "LABEL_OUT_OF_RANGE", "tasks[0].labels[1]"),
    "class_too_high": (SOFTMAX, good(logits=[0] * 9, labels=[0, 3, 1]), "LABEL_OUT_OF_RANGE", "tasks[0].labels[1]"),
    "class_minus_one": (SOFTMAX, good(logits=[0] * 9, labels=[0, 2, -1]), "LABEL_OUT_OF_RANGE", "tasks[0].labels[2]"),
    "class_fraction": (SOFTMAX, good(logits=[0] * 9, labels=[0.5, 2, 1]), "LABEL_OUT_OF_RANGE", "tasks[0].labels[0]"),
    "weight_negative": (BCE, good(weights=[1, -1, 1]), "WEIGHT_OUT_OF_RANGE", "tasks[0].weights[1]"),
    "weight_nan": (BCE, good(weights=["NaN", 1, 1]), "WEIGHT_OUT_OF_RANGE", "tasks[0].weights[0]"),
    "weight_infinity": (BCE, good(weights=[1, 1, "Infinity"]), "WEIGHT_OUT_OF_RANGE", "tasks[0].weights[2]"),
    "weights_short": (BCE, good(weights=[1]), "SHAPE_MISMATCH", "tasks[0].weights"),
    "weights_beside_a_list": (LIST, good(weights=[1, 1, 1]), None, "tasks[0].weights"),
    "sessions_not_asked_for": (LIST, good(sessions=[1, 1, 2]), None, "tasks[0].sessions"),
    "sessions_missing": (SESSIONS, good(), None, "tasks[0].sessions"),
    "sessions_short": (SESSIONS, good(sessions=[1]), "SHAPE_MISMATCH", "tasks[0].sessions"),
    "task_space_missing": (SPACE, good(), None, "tasks[0].task_space"),
    "task_space_short": (SPACE, good(task_space=[1]), "SHAPE_MISMATCH", "tasks[0].task_space"),
    "task_space_nan": (SPACE, good(task_space=[1, 0, "NaN"]), "WEIGHT_OUT_OF_RANGE", "tasks[0].task_space[2]"),
    "labels_beside_bits": (BITS, {**good(), "label_bits": [1, 2, 3]}, None, "tasks[0].labels"),
    "label_bits_missing": (BITS, without(good(), "labels"), "LABEL_COUNT_MISMATCH", "label_bits"),
    "label_bits_short": (BITS, {**without(good(), "labels"), "label_bits": [1]}, "LABEL_COUNT_MISMATCH", "label_bits"),
    "log_scale_without_a_list": (BCE, good(log_scale=1), None, "tasks[0].log_scale"),
    "log_scale_nan": (LIST, good(log_scale="NaN"), "INVALID_ARGUMENT", "tasks[0].log_scale"),
    "gradient_scale_infinity": (BCE, {**good(), "gradient_scale": "Infinity"}, "INVALID_ARGUMENT", "gradient_scale"),
    "gradient_scale_nan": (BCE, {**good(), "gradient_scale": "NaN"}, "INVALID_ARGUMENT", "gradient_scale"),
}


@pytest.mark.parametrize("name", BATCHES)
def test_a_bad_batch(client, name):
    config, body, reason, field = BATCHES[name]
    g = Ranks(client, "bad", 1, config)
    error = client.refused("ComputeLoss", {"group": "bad", **body})
    if reason == "LIMIT_EXCEEDED":
        assert error.code == "resource_exhausted" and error.metadata["limit"] in ("candidates", "requests"), error
    else:
        assert error.code == "invalid_argument", error
    assert error.field == field and reason in (None, error.reason), error
    assert g.status().steps_done == 0 and error.message


# Bodies that cannot be read: (codec, bytes or text, field or None)
def call(text):
    """A ComputeLoss for group "peers" with this text as further members."""
    return '{"group":"peers","rank":0,"step":1' + text + "}"


TASK = '"lengths":[1],"tasks":[{"name":"t","logits":[%s],"labels":[1]}]'
JSON_BODIES = {
    "empty": "", "blank": "  ", "not_json": "hello", "null": "null", "array": "[]", "number": "1", "string": '"x"',
    "open_object": '{"group":"peers"', "open_array": call(',"lengths":[1,2'), "comma_at_the_end": '{"group":"peers",}',
    "trailing_text": call("") + "x", "two_values": call("") + "{}", "single_quotes": "{'group':'peers'}",
    "comment": call("/**/"), "byte_order_mark": "\ufeff" + call(""), "no_quotes": '{group:"peers"}',
    "bare_nan": call("," + TASK % "NaN"), "bare_infinity": call("," + TASK % "Infinity"),
    "float_overflow": call("," + TASK % "1e39"), "float_huge": call("," + TASK % "1e999"),
    "float_text": call("," + TASK % '"abc"'), "float_padded": call("," + TASK % '" 1"'),
    "float_empty": call("," + TASK % '""'), "float_null": call("," + TASK % "null"),
    "float_bool": call("," + TASK % "true"), "float_object": call("," + TASK % "{}"),
    "plus_sign": call("," + TASK % "+1"), "leading_zero": call("," + TASK % "01"), "bare_point": call("," + TASK % ".5"),
    "point_without_digits": call("," + TASK % "1."), "hexadecimal": call("," + TASK % "0x1"),
    "length_negative": call(',"lengths":[-1]'), "length_fraction": call(',"lengths":[1.5]'),
    "length_too_big": call(',"lengths":[4294967296]'), "length_text": call(',"lengths":["x"]'),
    "lengths_not_a_list": call(',"lengths":3'), "lengths_nested": call(',"lengths":[[1]]'),
    "step_negative": '{"group":"peers","step":-1}', "step_fraction": '{"group":"peers","step":1.5}',
    "step_too_big": '{"group":"peers","step":18446744073709551616}', "rank_text": '{"group":"peers","rank":"one"}',
    "duplicate_key": '{"group":"peers","group":"peers"}', "duplicate_by_case": call(',"skipGradient":true,"skip_gradient":true'),
    "unknown_field": call(',"lenghts":[1]'), "unknown_nested": call(',"tasks":[{"name":"t","weigths":[1]}]'),
    "group_not_text": '{"group":1}', "bool_text": call(',"skipGradient":"true"'), "bool_number": call(',"skipGradient":1'),
    "lone_surrogate": '{"group":"\\ud800"}', "bad_escape": '{"group":"\\x"}', "control_character": '{"group":"a\nb"}',
    "nul_escape": '{"group":"\\u0000"}',
    "bad_utf8": b'{"group":"\xff\xfe"}', "overlong_utf8": b'{"group":"\xc0\xaf"}', "cut_utf8": b'{"group":"\xe2\x82"}',
    "task_not_an_object": call(',"tasks":[1]'), "task_null": call(',"tasks":[null]'),
    "truncated": json.dumps({"group": "peers", "rank": 0, "step": 1, **good()})[:-7],
    "deep_unknown": '{"x":' * 33 + "1" + "}" * 33, "deep_arrays": call(',"lengths":' + "[" * 40 + "]" * 40),
    "very_deep": "[" * 60000, "empty_objects": "[" + "{}," * 20000 + "{}]",
    "empty_tasks": call(',"tasks":[' + "{}," * 20000 + "{}]"), "many_keys": "{" + ",".join(f'"k{i}":0' for i in range(6000)) + "}",
    "long_number": call("," + TASK % ("1" * 60000)), "long_text": '{"group":"' + "x" * 60000 + '"}',
}


def message(**fields):
    return loss_pb2.ComputeLossRequest(group="peers", rank=0, step=1, **fields).SerializeToString()


PROTO_BODIES = {
    "truncated": message(lengths=[1, 2, 3])[:-1], "length_past_the_end": b"\x0a\x7fpeers", "tag_zero": b"\x00\x01",
    "wire_type_7": b"\x0f", "varint_too_long": b"\x18" + b"\xff" * 11, "open_varint": b"\x18\xff",
    "group_bad_utf8": b"\x0a\x02\xff\xfe", "group_with_nul": b"\x0a\x03a\x00b",
    "packed_floats_cut": b"\x3a\x0a\x0a\x01t\x12\x05" + struct.pack("<f", 1) + b"\x00", "json": b'{"group":"peers"}',
    "length_of_2_gib": b"\x0a\xff\xff\xff\xff\x07", "length_of_64_bit": b"\x3a" + b"\xff" * 9 + b"\x01",
    "group_start": b"\x0b" * 1000, "many_empty_tasks": message() + b"\x3a\x00" * 60000,
    "unknown_fields": message() + b"\xa0\x06\x01" * 40000 + b"\x0a",
}


@pytest.fixture(scope="module")
def peers(daemon):
    """A group whose rank 1 waits at step 1 through all of the test, and must not notice anything."""
    g = Ranks(daemon.rpc("proto"), "peers", 2)
    waiting = background(lambda: g.compute(1, 1))
    g.wait_for(1, "WAITING")
    yield waiting
    assert not waiting.done()
    assert g.compute(0, 1).world.candidates == 4 == waiting.result().world.candidates
    assert g.status().all_reduces == 1


@pytest.mark.parametrize("codec, name", [("json", n) for n in JSON_BODIES] + [("proto", n) for n in PROTO_BODIES])
def test_a_body_that_cannot_be_read(daemon, peers, codec, name):
    body = (JSON_BODIES if codec == "json" else PROTO_BODIES)[name]
    error = daemon.rpc(codec).refused("ComputeLoss", body.encode() if isinstance(body, str) else body)
    assert error.code in ("invalid_argument", "resource_exhausted", "not_found"), error
    limited = {"deep_unknown", "deep_arrays", "very_deep", "many_empty_tasks", "empty_tasks"}
    if error.code == "resource_exhausted":
        assert name in limited and error.metadata["limit"] in ("json_depth", "tasks", "memory_bytes"), error
    elif error.code == "not_found":
        assert name == "long_text", error
    elif name not in limited and name != "long_text":
        assert error.reason == "MALFORMED_REQUEST", error
    assert not peers.done()


@pytest.mark.parametrize("codec", ["json", "proto"])
def test_a_body_at_the_limit_passes_and_one_byte_more_does_not(daemon, codec):
    limit = LIMITS[codec + "_body_bytes"]
    client = daemon.rpc(codec)
    g = Ranks(client, "size", 1)
    if codec == "json":
        body = json.dumps({"group": g.name, **batch(3)})
        fit, over = body.ljust(limit).encode(), body.ljust(limit + 1).encode()
    else:
        body = client.encode("ComputeLoss", {"group": g.name, **batch(3)})
        room = limit - len(body)
        fit = body + pad(room)
        over = body + pad(room + 1)
    assert len(fit) == limit and len(over) == limit + 1
    assert client.call("ComputeLoss", fit).local.candidates == 3
    error = client.refused("ComputeLoss", over)
    assert (error.code, error.reason) == ("resource_exhausted", "REQUEST_TOO_LARGE")
    assert str(limit) in error.message + str(error.metadata)
    assert client.refused("ComputeLoss", over + b" " * 2 * limit).reason == "REQUEST_TOO_LARGE"


def pad(room):
    """An unknown field 200 of exactly so many bytes."""
    length = room - 2 - 3
    return b"\xc2\x0c" + bytes([length & 127 | 128, length >> 7 & 127 | 128, length >> 14]) + b"\0" * length


MIB = 1 << 20
BOMBS = {  # codec, bytes of about so many MiB: all decode to much more than they are
    "empty_tasks_json": ("json", lambda n: b'{"tasks":[' + b"{}," * (n * MIB // 3 - 9) + b"{}]}"),
    "empty_lists": ("json", lambda n: b"[" + b"[]," * (n * MIB // 3 - 9) + b"[]]"),
    "many_keys": ("json", lambda n: b"{" + b",".join(b'"k%07d":[]' % i for i in range(n * MIB // 14)) + b"}"),
    "nested": ("json", lambda n: b"[" * (n * MIB)),
    "long_text": ("json", lambda n: b'{"group":"' + b"x" * (n * MIB - 64) + b'"}'),
    "empty_tasks_proto": ("proto", lambda n: b"\x3a\x00" * (n * MIB // 2)),
    "tasks_with_a_name": ("proto", lambda n: b"\x3a\x03\x0a\x01t" * (n * MIB // 5)),
    "unknown_fields": ("proto", lambda n: b"\xa0\x06\x01" * (n * MIB // 3)),
    "unpacked_lengths": ("proto", lambda n: b"\x28\x00" * (n * MIB // 2)),
}


@pytest.mark.plain
@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_takes_no_more_than_four_bodies_of_memory(start, name, size):
    codec, make = BOMBS[name]
    daemon = start({"http_threads": 1, "limits": {"json_body_bytes": 4 * MIB, "proto_body_bytes": 4 * MIB}})
    daemon.client.call("ListGroups", {})
    before = daemon.memory_kb("VmRSS")
    for _ in range(3):
        error = daemon.rpc(codec).refused("ComputeLoss", make(size))
        assert error.code in ("invalid_argument", "resource_exhausted", "not_found"), error
    grown = daemon.memory_kb("VmHWM") - before
    assert grown <= 4 * 4096 + 512, f"{grown} kB after bodies of {size} MiB"
    daemon.client.call("ListGroups", {})


# Limits: a config or batch at the limit passes, one past it is refused with the name of the limit.
def tasks(count, losses=1):
    return {"tasks": [{"name": f"t{i}", "losses": [{"l2_loss": {}}] * losses} for i in range(count)]}


@pytest.mark.parametrize("name, at, past", [
    ("tasks", {"world_size": 1, "config": tasks(4)}, {"world_size": 1, "config": tasks(5)}),
    ("losses", {"world_size": 1, "config": tasks(1, 3)}, {"world_size": 1, "config": tasks(1, 4)}),
    ("ranks", {"rank": 0, "world_size": 8, "config": BCE}, {"rank": 0, "world_size": 9, "config": BCE}),
])
def test_limits_of_a_group(client, name, at, past):
    assert client.call("JoinGroup", {"group": "limit", **at}).generation
    error = client.refused("JoinGroup", {"group": "limit2", **past})
    assert (error.code, error.reason, error.metadata["limit"]) == ("resource_exhausted", "LIMIT_EXCEEDED", name)
    assert str(LIMITS[name]) in error.message + str(error.metadata)
    client.leave_all("limit", 1)


@pytest.mark.parametrize("name, at, past", [
    ("candidates", {"lengths": [64]}, {"lengths": [65]}), ("requests", {"lengths": [1] * 16}, {"lengths": [1] * 17})])
def test_limits_of_a_batch(client, name, at, past):
    Ranks(client, "limits", 1)

    def sized(layout):
        count = sum(layout["lengths"])
        return {"group": "limits", **layout, "tasks": batch(count)["tasks"]}

    assert client.call("ComputeLoss", sized(at)).local.candidates == sum(at["lengths"])
    error = client.refused("ComputeLoss", sized(past))
    assert (error.code, error.reason, error.metadata["limit"]) == ("resource_exhausted", "LIMIT_EXCEEDED", name)
    announced = {"requests": len(past["lengths"]), "candidates": sum(past["lengths"])}
    error = client.refused("AnnounceCounts", {"group": "limits", "rank": 0, "step": 900, **announced})
    assert (error.reason, error.metadata["limit"]) == ("LIMIT_EXCEEDED", name)


def test_limit_of_groups(start):
    client = start({"limits": {"groups": 2}}).rpc()
    client.join("a", 0, 1, BCE), client.join("b", 0, 1, BCE)
    error = client.refused("JoinGroup", {"group": "c", "world_size": 1, "config": BCE})
    assert (error.reason, error.metadata["limit"]) == ("LIMIT_EXCEEDED", "groups")
    client.call("LeaveGroup", {"group": "a"})
    client.join("c", 0, 1, BCE)


def test_the_depth_limit(start):
    """JoinGroup's config.tasks[].losses[].binary_cross_entropy is seven levels deep."""
    request = {"group": "deep", "world_size": 1, "config": BCE}
    assert start({"limits": {"json_depth": 7}}).rpc("json").call("JoinGroup", request).generation
    error = start({"limits": {"json_depth": 6}}).rpc("json").refused("JoinGroup", request)
    assert (error.code, error.reason, error.metadata["limit"]) == ("resource_exhausted", "LIMIT_EXCEEDED", "json_depth")


def test_everything_still_works(client):
    assert client.call("Check", {}).status == 1
    g = Ranks(client, "still", 1)
    assert not isinstance(g.compute(0, 1), RpcError)
