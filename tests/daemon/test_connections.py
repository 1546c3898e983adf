"""Connections that send too much, too little or too slowly: each is told why, and none leaves anything behind."""

import signal
import time

import pytest

from harness import PATHS, RpcError, background, instrumented, wait_until
from small import BCE, Ranks, batch

LIST = PATHS["ListGroups"]


def head(*lines, method="POST", target=LIST):
    return "\r\n".join([f"{method} {target} HTTP/1.1", "Host: x", *lines, "", ""]).encode()


JSON = "Content-Type: application/json"
HALF = head(JSON, "Content-Length: 10") + b"{"


def receive(sock, seconds=20):
    """What comes until the server closes, as one answer: status, headers, body; None where nothing comes."""
    sock.settimeout(seconds)
    received = b""
    while chunk := sock.recv(65536):
        received += chunk
    sock.close()
    if not received:
        return None
    lines, body = received.split(b"\r\n\r\n", 1)
    assert lines.count(b"HTTP/1.1 ") == 1 and b"HTTP/1.1" not in body, received
    fields = dict(line.split(": ", 1) for line in lines.decode().split("\r\n")[1:])
    assert len(body) == int(fields["Content-Length"])
    return int(lines.split()[1]), fields, body


def send(daemon, data):
    sock = daemon.client.socket()
    sock.sendall(data)
    return sock


def error_of(answer):
    assert answer is not None, "closed without an answer"
    return RpcError(*answer)


@pytest.mark.parametrize("data", [HALF, head(JSON, "Content-Length: 10"), head(JSON)[:-2], head("Transfer-Encoding: chunked", JSON)])
def test_a_request_that_does_not_come_to_its_end_is_told_the_limit(start, data):
    daemon = start({"limits": {"upload_timeout_ms": 700}})
    begin = time.monotonic()
    error = error_of(receive(send(daemon, data)))
    assert (error.code, error.reason, error.metadata) == ("resource_exhausted", "LIMIT_EXCEEDED",
                                                          {"limit": "upload_timeout_ms"})
    assert 0.6 < time.monotonic() - begin < 5
    wait_until(lambda: daemon.metric("lossd_open_calls") == 0)


def test_a_refused_body_that_does_not_come_is_answered_long_before_the_upload_timeout(start):
    daemon = start({"limits": {"upload_timeout_ms": 60000, "json_body_bytes": 1000}})
    begin = time.monotonic()
    too_long = send(daemon, head(JSON, "Content-Length: 1001"))
    wrong_type = send(daemon, head("Content-Type: text/plain", "Content-Length: 1001"))
    error = error_of(receive(too_long))
    assert (error.reason, error.metadata["limit"]) == ("REQUEST_TOO_LARGE", "json_body_bytes")
    assert receive(wrong_type)[0] == 415
    assert time.monotonic() - begin < 10


def test_half_sent_and_waiting_calls_are_answered_when_the_drain_is_over(start):
    daemon = start({"drain_timeout_ms": 500})
    g = Ranks(daemon.client, "drain", 2)
    waiting = background(lambda: g.compute(0, 1))
    g.wait_for(0, "WAITING")
    half = send(daemon, HALF)
    refused = send(daemon, head("Content-Type: text/plain", "Content-Length: 10"))
    wait_until(lambda: daemon.metric("lossd_open_calls") == 2)
    begin = time.monotonic()
    daemon.process.send_signal(signal.SIGTERM)
    assert error_of(receive(half)).reason == "SHUTTING_DOWN"
    assert receive(refused)[0] in (415, 503)
    assert waiting.result(15).reason == "SHUTTING_DOWN"
    daemon.process.wait(20)
    assert time.monotonic() - begin < (10 if instrumented() else 2.4)
    daemon.stop()


@pytest.mark.plain
def test_a_client_that_does_not_read_its_answer_delays_the_end_for_a_grace_only(start):
    daemon = start({"drain_timeout_ms": 300})
    g = Ranks(daemon.client, "unread", 1)
    body = g.client.encode("ComputeLoss", {"group": "unread", "step": 1, **batch(600000)})
    sock = send(daemon, head(JSON, f"Content-Length: {len(body)}", target=PATHS["ComputeLoss"]) + body)
    wait_until(lambda: daemon.metric("lossd_memory_bytes") > 0)
    time.sleep(1)  # the answer is there, and larger than the sockets hold
    begin = time.monotonic()
    daemon.process.send_signal(signal.SIGTERM)
    daemon.process.wait(20)
    assert 2 < time.monotonic() - begin < 4
    sock.close()
    daemon.stop()


@pytest.mark.parametrize("target, status", [("/readyz?", 200), (LIST + "?encoding=json&message=%7B%7D&", 200)])
def test_a_query_of_many_parameters_is_read(daemon, target, status):
    for count in (200, 500, 5000):
        begin = time.monotonic()
        got = receive(send(daemon, head("Connection: close", method="GET", target=target + "a=b&" * count)))
        assert got[0] == status and time.monotonic() - begin < 5


def test_many_cookies_are_refused_at_once_and_leave_nothing(daemon):
    def refuse(times):
        for _ in range(times):
            sock = send(daemon, head(JSON, "Content-Length: 2", "Cookie: " + "a=b; " * 1000) + b"{}")
            sock.settimeout(10)
            received = b""
            while chunk := sock.recv(65536):
                received += chunk
            assert received.startswith(b"HTTP/1.1 431 "), received
            sock.close()

    refuse(100)
    memory = daemon.memory_kb("VmRSS")
    refuse(300)
    if not instrumented():
        assert daemon.memory_kb("VmRSS") - memory < 1024
    wait_until(lambda: daemon.metric("lossd_open_calls") == 0)


def test_a_connection_past_the_limit_is_told_so_and_probes_go_on(start):
    daemon = start({"limits": {"connections": 8}})
    held = [daemon.client.socket() for _ in range(8)]
    wait_until(lambda: daemon.metric("lossd_connections") == 9)
    error = daemon.client.refused("LeaveGroup", {"group": "g", "rank": 0})
    assert (error.reason, error.metadata) == ("OVERLOADED", {"limit": "connections"})
    assert error.headers["Connection"] == "close" and error.headers["Retry-After"]
    assert daemon.client.http("GET", "/livez")[0] == 200
    assert daemon.client.call("Check", {}).status == 1
    held.pop().close()
    wait_until(lambda: daemon.metric("lossd_connections") == 8)
    del held[0]
    wait_until(lambda: daemon.metric("lossd_connections") < 8)
    assert daemon.client.refused("LeaveGroup", {"group": "g", "rank": 0}).reason == "GROUP_NOT_FOUND"


def test_clients_that_close_at_any_byte_are_gone_soon(start):
    daemon = start({"limits": {"upload_timeout_ms": 60000}})
    call = head(JSON, "Content-Length: 100") + b'{"a'
    quiet = daemon.descriptors()
    for cut in (0, 1, 5, 30, 60, len(call) - 3, len(call)):
        for _ in range(10):
            send(daemon, call[:cut]).close()
    time.sleep(0.5)  # all are accepted by now
    wait_until(lambda: daemon.descriptors() <= quiet and daemon.metric("lossd_connections") == 1)


def test_a_client_that_has_closed_its_side_gets_its_answer_and_is_not_kept(daemon):
    for unix in (False, True):
        sock = daemon.rpc(unix=unix).socket()
        sock.sendall(head(JSON, "Content-Length: 2") + b"{}")
        sock.shutdown(1)
        begin = time.monotonic()
        assert receive(sock)[0] == 200 and time.monotonic() - begin < 5


def test_reading_calls_are_taken_when_calls_and_memory_are_used_up(start):
    daemon = start({"limits": {"open_calls": 1, "memory_bytes": 1 << 20}, "drain_timeout_ms": 100,
                    "groups": [{"name": "full", "world_size": 2, "config": BCE}]})
    client = daemon.client
    waiting = background(lambda: client.call("ComputeLoss", {"group": "full", "rank": 0, "step": 1, **batch(20000)}))
    wait_until(lambda: daemon.metric("lossd_parked_calls") == 1)
    error = client.refused("LeaveGroup", {"group": "full", "rank": 1})
    assert (error.reason, error.metadata) == ("OVERLOADED", {"limit": "open_calls"})
    for _ in range(20):
        for codec in ("json", "proto"):
            rpc = daemon.rpc(codec)
            assert rpc.call("Check", {}).status == 1
            assert rpc.call("ListGroups", {}).groups[0].name == "full" == rpc.group("full").name
    assert not waiting.done()


@pytest.mark.parametrize("codec", ["json", "proto"])
def test_a_waiting_call_holds_its_batch_and_not_its_body_too(start, codec):
    daemon = start()
    g = Ranks(daemon.rpc(codec), "hold", 2)
    waiting = background(lambda: g.compute(0, 1, 100000))
    g.wait_for(0, "WAITING")
    columns, gradients = 2 * 4 * 100000, 4 * 100000
    assert columns <= daemon.metric("lossd_memory_bytes") < columns + gradients + 100000
    g.compute(1, 1)
    assert waiting.result().local.candidates == 100000


def test_a_call_that_others_leave_no_memory_may_be_sent_again(start):
    """Bodies of 8 bytes a candidate, as much again decoded; half of the memory is the waiting call's."""
    daemon = start({"limits": {"memory_bytes": 8 << 20}})
    client = daemon.rpc("proto")
    g, other = Ranks(client, "full", 2), Ranks(client, "other", 1)
    waiting = background(lambda: g.compute(0, 1, 400000))
    g.wait_for(0, "WAITING")
    assert other.compute(0, 1, 100000).local.candidates == 100000
    messages = []
    for count in (250000, 450000):  # has no room when it is decoded, when it is received
        error = client.refused("ComputeLoss", {"group": "other", "rank": 0, "step": 2, **batch(count)})
        assert (error.reason, error.metadata) == ("OVERLOADED", {"limit": "memory_bytes"}), error
        messages.append(error.message)
    assert messages[0] != messages[1], "at two places"
    g.compute(1, 1)
    assert waiting.result().local.candidates == 400000
    assert other.compute(0, 2, 450000).local.candidates == 450000
    error = client.refused("ComputeLoss", {"group": "other", "rank": 0, "step": 3, **batch(600000)})
    assert (error.reason, error.metadata) == ("LIMIT_EXCEEDED", {"limit": "memory_bytes"}), error


def test_calls_that_only_read_take_no_place_of_others(start):
    daemon = start({"limits": {"open_calls": 1}})
    reading = [send(daemon, HALF) for _ in range(3)]
    wait_until(lambda: daemon.metric("lossd_open_calls") == 3)
    assert daemon.client.refused("LeaveGroup", {"group": "g", "rank": 0}).reason == "GROUP_NOT_FOUND"
    for sock in reading:
        sock.close()


@pytest.mark.plain
def test_memory_that_the_machine_refuses_is_no_limit(start):
    daemon = start({"limits": {"memory_bytes": 1 << 40}}, wrapper=["prlimit", f"--as={300 << 20}"])
    error = daemon.rpc("proto").refused("ComputeLoss", bytes(255 << 20))
    assert (error.reason, error.metadata) == ("OVERLOADED", {}) and "out of memory" in error.message


@pytest.mark.parametrize("target, status", [("http://x/livez", 200), ("HTTP://x:7430/livez?verbose", 200), ("https://x", 200),
                                            ("http://x?a=b", 200), ("http://x/nothing", 404), ("http://x/a b", 400)])
def test_a_target_in_absolute_form(daemon, target, status):
    assert receive(send(daemon, head("Connection: close", method="GET", target=target)))[0] == status
    call = head(JSON, "Connection: close", "Content-Length: 2", target="http://x" + LIST) + b"{}"
    assert receive(send(daemon, call))[0] == 200


@pytest.mark.parametrize("lines, field", [
    (["Content-Type: application/proto"], "Content-Type"), (["Connect-Timeout-Ms: 1", "connect-timeout-ms: 2"], "Connect-Timeout-Ms"),
    (["Connect-Protocol-Version: 1"] * 2, "Connect-Protocol-Version"), (["Content-Encoding: identity"] * 2, "Content-Encoding")])
def test_a_header_that_decides_is_there_once(daemon, lines, field):
    error = error_of(receive(send(daemon, head(JSON, *lines, "Connection: close", "Content-Length: 2") + b"{}")))
    assert (error.code, error.reason, error.field) == ("invalid_argument", "MALFORMED_REQUEST", field)


def test_a_request_without_a_host_is_answered_once(daemon):
    """By the daemon, or from version 1.0 on by libmicrohttpd."""
    for data in (b"GET /livez HTTP/1.1\r\n\r\n", b"POST /x HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}"):
        sock = send(daemon, data)
        received = b""
        while chunk := sock.recv(65536):
            received += chunk
        sock.close()
        lines, body = received.split(b"\r\n\r\n", 1)
        assert lines.startswith(b"HTTP/1.1 400 ") and received.count(b"\r\nDate: ") == 1, received
        assert b"Host" in body and (body.startswith(b"<html>") or b"MALFORMED_REQUEST" in body)


@pytest.mark.parametrize("method, request_, step", [
    ("AnnounceCounts", {"group": "no-such", "rank": 3, "step": "7", "requests": 1, "candidates": 1}, 7),
    ("JoinGroup", {"group": "no-such", "rank": 3, "world_size": 2}, 0), ("LeaveGroup", {"group": "no-such", "rank": 3}, 0)])
def test_the_log_names_the_caller_of_a_failed_call(start, method, request_, step):
    daemon = start()
    daemon.client.refused(method, request_)
    daemon.stop()
    line = next(line for line in daemon.log if method in line)
    assert f"group=no-such rank=3 step={step} " in line, line


def test_a_field_that_the_client_made_up_adds_no_words_to_the_log(start):
    daemon = start()
    error = daemon.client.refused("GetGroup", b'{"x\\" code=ok y=\\"\\nlevel=info": 1}')
    assert error.field == 'x" code=ok y="\nlevel=info'
    daemon.stop()
    lines = [line for line in daemon.log if "GetGroup" in line or "code=ok" in line]
    assert len(lines) == 1 and lines[0].endswith(' field="x"\n'), lines


@pytest.mark.parametrize("absent", ["requests", "candidates"])
def test_an_announcement_needs_both_counts(client, absent):
    request = {"group": "g", "rank": 0, "step": 1, "requests": 0, "candidates": 0}
    error = client.refused("AnnounceCounts", {k: v for k, v in request.items() if k != absent})
    assert (error.reason, error.field) == ("INVALID_ARGUMENT", absent)
