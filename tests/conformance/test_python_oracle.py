"""Both codecs against Google's Python library: random messages have to mean the same to either, in every direction.

LOSSD_CODEC_TESTEE: the program of codec_testee.c; LOSSD_CODEC_MODULES: the folder of the modules of protoc --python_out.
"""

import os
import random
import struct
import subprocess
import sys

import pytest
from google.protobuf import json_format

sys.path.insert(0, os.environ["LOSSD_CODEC_MODULES"])

import kinds_pb2  # noqa: E402
from lossd.v1 import config_pb2, error_pb2, group_pb2, loss_pb2  # noqa: E402

JSON, PROTO = 0, 1
# In the order of codec_testee.c.
TYPES = [
    kinds_pb2.Kinds,
    loss_pb2.ComputeLossRequest,
    loss_pb2.ComputeLossResponse,
    config_pb2.DaemonConfig,
    group_pb2.JoinGroupRequest,
    group_pb2.GetGroupResponse,
    error_pb2.ErrorInfo,
]
MESSAGES = 150
# Without the largest float: Python 3.21 refuses its shortest text, which it writes itself.
FLOATS = [0.0, -0.0, 1.0, 0.1, 1e-45, 1.1754944e-38, 3.402823e38, 16777216.0, float("inf"), -float("inf"), float("nan")]
TEXTS = ["", "a", "tasks[0]", "\u00e9\u20ac", "\U0001f600", "\"\\/\b\f\n\r\t\x01\x7f", "\uffff"]


class Program:
    def __init__(self):
        self.process = subprocess.Popen([os.environ["LOSSD_CODEC_TESTEE"]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def transcode(self, index, source, target, body):
        self.process.stdin.write(struct.pack("<BBBI", index, source, target, len(body)) + body)
        self.process.stdin.flush()
        failed, size = struct.unpack("<BI", self.process.stdout.read(5))
        answer = self.process.stdout.read(size)
        assert not failed, (answer, body)
        return answer

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(10) == 0


@pytest.fixture(scope="module")
def testee():
    testee = Program()
    yield testee
    testee.close()


def random_whole(dice, bits, signed):
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return dice.choice([0, 1, low, high, dice.randint(low, high)])


def random_float(dice, wide):
    if dice.random() < 0.3:
        return dice.choice(FLOATS)
    size = 8 if wide else 4
    return struct.unpack("<d" if wide else "<f", dice.randbytes(size))[0]


def random_value(dice, field, depth):
    kind = field.cpp_type
    if kind in (field.CPPTYPE_INT32, field.CPPTYPE_INT64):
        return random_whole(dice, 32 if kind == field.CPPTYPE_INT32 else 64, True)
    if kind in (field.CPPTYPE_UINT32, field.CPPTYPE_UINT64):
        return random_whole(dice, 32 if kind == field.CPPTYPE_UINT32 else 64, False)
    if kind in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return random_float(dice, kind == field.CPPTYPE_DOUBLE)
    if kind == field.CPPTYPE_BOOL:
        return dice.random() < 0.5
    if kind == field.CPPTYPE_ENUM:
        return dice.choice(field.enum_type.values).number
    if field.type == field.TYPE_BYTES:
        return dice.randbytes(dice.randrange(8))
    return "".join(dice.choice(TEXTS) for _ in range(dice.randrange(3)))


def fill(dice, message, depth=0):
    for field in message.DESCRIPTOR.fields:
        if dice.random() < 0.4 or (depth > 3 and field.message_type):
            continue
        repeated = field.label == field.LABEL_REPEATED
        if field.message_type and repeated:
            for _ in range(dice.randrange(3)):
                fill(dice, getattr(message, field.name).add(), depth + 1)
        elif field.message_type:
            getattr(message, field.name).SetInParent()
            fill(dice, getattr(message, field.name), depth + 1)
        elif repeated:
            getattr(message, field.name).extend(random_value(dice, field, depth) for _ in range(dice.randrange(20)))
        else:
            setattr(message, field.name, random_value(dice, field, depth))
    return message


def same(message, other):
    """By bytes, so that NaN equals NaN and -0 differs from 0."""
    return message.SerializeToString(deterministic=True) == other.SerializeToString(deterministic=True)


def with_quiet_nans(message):
    """JSON has one NaN only: messages with other ones are compared after going through it."""
    return json_format.Parse(json_format.MessageToJson(message), type(message)())


@pytest.mark.parametrize("index", range(len(TYPES)), ids=[kind.__name__ for kind in TYPES])
def test_both_libraries_read_what_the_other_writes(testee, index):
    dice = random.Random(index)
    for _ in range(MESSAGES):
        message = fill(dice, TYPES[index]())
        plain = with_quiet_nans(message)
        binary = message.SerializeToString()
        text = json_format.MessageToJson(message, preserving_proto_field_name=dice.random() < 0.5).encode()

        assert same(TYPES[index].FromString(testee.transcode(index, PROTO, PROTO, binary)), message)
        assert same(json_format.Parse(testee.transcode(index, PROTO, JSON, binary), TYPES[index]()), plain)
        assert same(TYPES[index].FromString(testee.transcode(index, JSON, PROTO, text)), plain)
        assert same(json_format.Parse(testee.transcode(index, JSON, JSON, text), TYPES[index]()), plain)


def merged_by_python(parts):
    message = kinds_pb2.Kinds()
    for part in parts:
        message.MergeFromString(part)
    return message


def test_messages_in_parts_are_merged_as_python_merges_them(testee):
    dice = random.Random(99)
    for _ in range(MESSAGES):
        parts = [fill(dice, kinds_pb2.Kinds(), 1).SerializeToString() for _ in range(dice.randrange(2, 5))]
        answer = testee.transcode(0, PROTO, PROTO, b"".join(parts))
        assert same(kinds_pb2.Kinds.FromString(answer), merged_by_python(parts))
