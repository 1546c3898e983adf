"""What errors say: of the daemon, of the library, of the package itself."""

import pickle

import numpy as np
import pytest
from ranks import BCE, Ranks, fill, fresh

import lossd
from lossd import errors


def test_a_bad_batch_is_refused_with_reason_and_field_and_its_peer_is_told(way):
    with Ranks(2, BCE, **way) as group:
        bad = fill(group[0], [2], [0, 0], [1, 2])
        good = fill(group[1], [1], [0], [1])
        own, peers = group.compute([bad, good], 4)
        assert type(own) is lossd.Error
        assert (own.code, own.reason, own.retry) == ("invalid_argument", "LABEL_OUT_OF_RANGE", "never")
        assert own.field == "tasks[0].labels[1]" and "2" in own.message and own.missing_ranks == ()
        assert str(own).startswith("LABEL_OUT_OF_RANGE (invalid_argument): tasks[0].labels[1]")
        assert type(peers) is lossd.PeerError
        assert (peers.code, peers.reason, peers.retry) == ("aborted", "STEP_REJECTED_BY_PEER", "higher")
        assert (peers.metadata["rank"], peers.metadata["peer_reason"]) == ("0", "LABEL_OUT_OF_RANGE")


def test_a_step_that_waits_in_vain_names_the_missing_ranks(way):
    with Ranks(4, {**BCE, "first_step_timeout_ms": 300}, **way) as group:
        with pytest.raises(lossd.PeerError) as caught:
            group[1].compute(fill(group[1], [1], [0], [1]), 0)
        error = caught.value
        assert (error.code, error.reason, error.retry) == ("deadline_exceeded", "STEP_TIMEOUT", "same")
        assert error.missing_ranks == (0, 2, 3)


def test_the_timeout_of_a_client_ends_its_wait(daemon, way):
    with Ranks(2, BCE, timeout=0.3, **way) as group:
        with pytest.raises(lossd.PeerError) as caught:
            group[0].compute(fill(group[0], [1], [0], [1]), 0)
        assert (caught.value.reason, caught.value.missing_ranks) == ("PEER_WAIT_DEADLINE", (1,))


def test_a_wrong_config_is_told_before_anybody_is_reached():
    client = lossd.Client("127.0.0.1:1", reconnect=0.001)
    with pytest.raises(lossd.Error) as caught:
        client.join({"tasks": [{"nam": "t"}]}, group="g", rank=0, world_size=1)
    assert caught.value.reason == "BAD_CONFIG" and "nam" in caught.value.field + caught.value.message


def test_nobody_at_the_address():
    client = lossd.Client("127.0.0.1:1", reconnect=0.001)
    with pytest.raises(lossd.Error) as caught:
        client.join(BCE, group="g", rank=0, world_size=1)
    assert (caught.value.reason, caught.value.code) == ("CANNOT_CONNECT", "unavailable")


def test_an_address_of_no_form():
    with pytest.raises(lossd.Error) as caught:
        lossd.Client("ftp://somewhere")
    assert caught.value.reason == "BAD_ADDRESS"


def test_a_wrong_environment(monkeypatch, daemon):
    monkeypatch.setenv("RANK", "one")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(lossd.Error) as caught:
        lossd.Client(daemon.unix).join(BCE)
    assert (caught.value.reason, caught.value.field) == ("BAD_ENVIRONMENT", "RANK")


def test_a_batch_before_joining(fast):
    with pytest.raises(lossd.Error) as caught:
        lossd.Client(**fast).batch(1, 1)
    assert caught.value.reason == "BAD_CALL"


def test_configs_that_differ(fast):
    other = {"tasks": [{"name": "t", "losses": [{"l2_loss": {}}]}]}
    group = fresh()
    with lossd.Client(**fast) as first, lossd.Client(**fast) as second:
        first.join(BCE, group=group, rank=0, world_size=2)
        with pytest.raises(lossd.Error) as caught:
            second.join(other, group=group, rank=1, world_size=2)
    assert caught.value.reason == "CONFIG_DIGEST_MISMATCH" and caught.value.retry == "fix"
    assert set(caught.value.metadata) >= {"mine", "first_seen"}


@pytest.mark.parametrize("kind", [lossd.Error, lossd.PeerError])
def test_errors_survive_pickling(kind):
    """As they have to between the processes of a pool."""
    error = kind("STEP_TIMEOUT", "step 2 waits", code="deadline_exceeded", field="step",
                 metadata={"missing_ranks": "0,4-6"}, retry="same")  # fmt: skip
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind and vars(again) == vars(error) and str(again) == str(error)
    assert again.missing_ranks == (0, 4, 5, 6)


def test_a_failure_is_read_as_it_lies():
    failure = errors._structs.Failure(code=9, retry=3, reason=b"X", field=b"f", message=b"m \xc3\xa4")
    metadata = b"a\0b\0empty\0\0"
    failure.metadata_bytes = len(metadata)
    memory = memoryview(failure).cast("B")
    start = type(failure).metadata.offset
    memory[start : start + len(metadata)] = metadata
    error = errors.from_failure(failure)
    assert (error.code, error.retry, error.reason, error.field) == ("failed_precondition", "fix", "X", "f")
    assert error.message == "m ä" and error.metadata == {"a": "b", "empty": ""}


def one(client):
    return client.batch(1, 2)


@pytest.mark.parametrize(
    ("assign", "kind", "words"),
    [
        (lambda b: setattr(b, "lengths", [1, 2]), ValueError, r"lengths has shape \[2\], and not \[1\]"),
        (lambda b: setattr(b, "lengths", [-1]), ValueError, "outside of 0"),
        (lambda b: setattr(b, "lengths", [2**32]), ValueError, "outside of 0"),
        (lambda b: setattr(b, "lengths", [1.0]), TypeError, "whole numbers"),
        (lambda b: setattr(b.tasks["t"], "logits", [[1, 2]]), ValueError, r"tasks\[0\].logits has shape \[1, 2\]"),
        (lambda b: setattr(b.tasks["t"], "logits", ["1", "2"]), TypeError, "not numbers"),
        (lambda b: setattr(b.tasks["t"], "sessions", [1, 2]), ValueError, "no such column"),
        (lambda b: setattr(b, "label_bits", [1, 2]), ValueError, "no such column"),
        (lambda b: setattr(b, "logits", [[1], [2]]), ValueError, 'layout="rows"'),
    ],
)
def test_columns_of_another_shape_or_kind(fast, assign, kind, words):
    with Ranks(1, BCE, **fast) as group:
        with pytest.raises(kind, match=words):
            assign(one(group[0]))


def test_bits_and_numbers_of_bfloat16_are_not_confused(fast):
    with Ranks(1, BCE, **fast) as group:
        batch = group[0].batch(1, 2, dtype="bfloat16")
        with pytest.raises(TypeError, match="bfloat16"):
            batch.tasks["t"].logits = np.zeros(2, np.float32)
        batch.tasks["t"].logits = np.array([0x3F80, 0], np.uint16)


@pytest.mark.parametrize("name", ["dtype", "layout", "gradient_dtype"])
def test_words_of_a_batch_that_are_none(fast, name):
    with Ranks(1, BCE, **fast) as group:
        with pytest.raises(ValueError, match=name):
            group[0].batch(1, 1, **{name: "float8"})


def test_a_group_that_nobody_has_declared(fast):
    with lossd.Client(**fast) as client, pytest.raises(lossd.Error) as caught:
        client.join(group=fresh(), rank=0, world_size=1)
    assert caught.value.reason in ("GROUP_NOT_FOUND", "INVALID_CONFIG", "INVALID_ARGUMENT")
