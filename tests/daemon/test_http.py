"""HTTP and Connect themselves: framing, methods, media types, GET, keep-alive, deadlines, pages, counters."""

import base64
import json
import time
import urllib.parse

import pytest

from harness import PATHS, RpcError, background, fresh, group_pb2
from small import BCE, Ranks, batch

COMPUTE = PATHS["ComputeLoss"]
LIST = PATHS["ListGroups"]


def exchange(client, data, seconds=10):
    """All that comes back for these bytes until the server closes, or nothing comes for a while."""
    sock = client.socket()
    sock.settimeout(seconds)
    sock.sendall(data)
    received = b""
    closed = False
    try:
        while chunk := sock.recv(65536):
            received += chunk
            if b"\r\n\r\n" in received:
                sock.settimeout(0.5)
        closed = True
    except TimeoutError:
        pass
    except ConnectionResetError:
        closed = True
    sock.close()
    return received, closed


def head(*lines, method="POST", path=LIST, version="1.1"):
    return "\r\n".join([f"{method} {path} HTTP/{version}", *lines, "", ""]).encode()


JSON = "Content-Type: application/json"
SMUGGLING = {
    "two_lengths": head("Host: x", JSON, "Content-Length: 2", "Content-Length: 2") + b"{}",
    "two_different_lengths": head("Host: x", JSON, "Content-Length: 2", "Content-Length: 4") + b"{}{}",
    "length_and_chunked": head("Host: x", JSON, "Content-Length: 2", "Transfer-Encoding: chunked") + b"2\r\n{}\r\n0\r\n\r\n",
    "chunked_and_length": head("Host: x", JSON, "Transfer-Encoding: chunked", "Content-Length: 12") + b"2\r\n{}\r\n0\r\n\r\n",
    "two_hosts": head("Host: x", "Host: y", JSON, "Content-Length: 2") + b"{}",
    "no_host": head(JSON, "Content-Length: 2") + b"{}",
    "gzip_then_chunked": head("Host: x", JSON, "Transfer-Encoding: gzip, chunked") + b"2\r\n{}\r\n0\r\n\r\n",
    "identity_encoding": head("Host: x", JSON, "Transfer-Encoding: identity", "Content-Length: 2") + b"{}",
    "unknown_encoding": head("Host: x", JSON, "Transfer-Encoding: xchunked") + b"2\r\n{}\r\n0\r\n\r\n",
    "two_transfer_encodings": head("Host: x", JSON, "Transfer-Encoding: chunked", "Transfer-Encoding: chunked")
    + b"2\r\n{}\r\n0\r\n\r\n",
    "space_before_colon": head("Host: x", JSON, "Content-Length : 2") + b"{}",
    "folded_length": head("Host: x", JSON, "Content-Length: 2", " 3") + b"{}",
    "length_not_a_number": head("Host: x", JSON, "Content-Length: two") + b"{}",
    "length_negative": head("Host: x", JSON, "Content-Length: -2") + b"{}",
    "length_signed": head("Host: x", JSON, "Content-Length: +2") + b"{}",
    "length_list": head("Host: x", JSON, "Content-Length: 2, 2") + b"{}",
    "length_hexadecimal": head("Host: x", JSON, "Content-Length: 0x2") + b"{}",
    "chunk_size_not_hexadecimal": head("Host: x", JSON, "Transfer-Encoding: chunked") + b"zz\r\n{}\r\n0\r\n\r\n",
    "chunk_size_negative": head("Host: x", JSON, "Transfer-Encoding: chunked") + b"-2\r\n{}\r\n0\r\n\r\n",
    "chunk_longer_than_said": head("Host: x", JSON, "Transfer-Encoding: chunked") + b"1\r\n{}\r\n0\r\n\r\n",
    "no_version": b"POST " + LIST.encode() + b"\r\nHost: x\r\n\r\n",
    "not_http": b"hello\r\n\r\n",
    "tls_hello": b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03" + bytes(160) + b"\r\n\r\n",
}


@pytest.mark.parametrize("name", SMUGGLING)
def test_a_request_with_unclear_borders_is_refused_and_the_connection_closed(daemon, name):
    for unix in (False, True):
        received, closed = exchange(daemon.rpc(unix=unix), SMUGGLING[name] + head("Host: x", method="GET", path="/livez"))
        assert closed, received
        assert received.count(b"HTTP/1.1 200") == 0, received
        status = int(received.split()[1]) if received else 400
        assert 400 <= status < 600, received
        if status == 400 and b"application/json" in received:
            assert b"MALFORMED_REQUEST" in base64_values(received)


def base64_values(received):
    body = json.loads(received.split(b"\r\n\r\n", 1)[1])
    return b"".join(base64.b64decode(d["value"] + "===") for d in body["details"])


@pytest.mark.parametrize("method, path, content_type, status, code", [
    ("POST", "/", "application/json", 405, None),
    ("POST", "/nothing", "application/json", 404, "unimplemented"),
    ("POST", "/lossd.v1.LossService/Nothing", "application/json", 404, "unimplemented"),
    ("POST", "/lossd.v1.lossservice/ComputeLoss", "application/json", 404, "unimplemented"),
    ("POST", COMPUTE + "/", "application/json", 404, "unimplemented"),
    ("POST", COMPUTE + "%00x", "application/json", 404, "unimplemented"),
    ("POST", "/x/.." + COMPUTE, "application/json", 404, "unimplemented"),
    ("POST", "/lossd.v1.LossService%2FComputeLoss", "application/json", 404, "unimplemented"),
    ("POST", "/grpc.health.v1.Health/Watch", "application/json", 404, "unimplemented"),
    ("GET", "/missing", None, 404, "unimplemented"),
    ("GET", COMPUTE, None, 405, None),
    ("PUT", COMPUTE, "application/json", 405, None),
    ("DELETE", LIST, None, 405, None),
    ("PATCH", LIST, "application/json", 405, None),
    ("OPTIONS", LIST, None, 405, None),
    ("POST", COMPUTE, None, 415, None),
    ("POST", COMPUTE, "text/plain", 415, None),
    ("POST", COMPUTE, "application/foo", 415, None),
    ("POST", COMPUTE, "image/jpeg", 415, None),
    ("POST", COMPUTE, "application/connect+proto", 415, None),
    ("POST", COMPUTE, "application/connect+json", 415, None),
    ("POST", COMPUTE, "application/grpc", 415, None),
    ("POST", COMPUTE, "application/grpc-web+proto", 415, None),
    ("POST", COMPUTE, "application/jsonx", 415, None),
    ("POST", "/livez", "application/json", 405, None),
])
def test_wrong_paths_methods_and_media_types(daemon, method, path, content_type, status, code):
    headers = {"Content-Type": content_type} if content_type else {}
    got, fields, body = daemon.client.http(method, path, b"{}" if method in ("POST", "PUT", "PATCH") else None, headers)
    assert got == status, body
    if status == 405:
        assert fields["Allow"]
    if status == 415:
        assert "application/json" in fields["Accept-Post"] and "application/proto" in fields["Accept-Post"]
    if code:
        assert RpcError(got, fields, body).code == code


@pytest.mark.parametrize("content_type", ["application/json; charset=utf-8", "Application/JSON", "application/json;x=1",
                                          "application/json ; charset=UTF-8"])
def test_media_types_have_no_case_and_may_have_parameters(daemon, content_type):
    status, fields, _ = daemon.client.http("POST", LIST, b"{}", {"Content-Type": content_type})
    assert (status, fields["Content-Type"]) == (200, "application/json")


@pytest.mark.parametrize("headers, status, code", [
    ({"Connect-Protocol-Version": "1"}, 200, None),
    ({"Connect-Protocol-Version": "2"}, 400, "invalid_argument"),
    ({"Content-Encoding": "identity"}, 200, None),
    ({"Content-Encoding": "gzip"}, 501, "unimplemented"),
    ({"Content-Encoding": "foo"}, 501, "unimplemented"),
    ({"Accept-Encoding": "gzip, br"}, 200, None),
    ({"Connect-Timeout-Ms": "1"}, 200, None),
    ({"Connect-Timeout-Ms": "9999999999"}, 200, None),
    ({"Connect-Timeout-Ms": "12345678901"}, 400, "invalid_argument"),
    ({"Connect-Timeout-Ms": ""}, 400, "invalid_argument"),
    ({"Connect-Timeout-Ms": "-1"}, 400, "invalid_argument"),
    ({"Connect-Timeout-Ms": "+1"}, 400, "invalid_argument"),
    ({"Connect-Timeout-Ms": "1.5"}, 400, "invalid_argument"),
    ({"Connect-Timeout-Ms": "1s"}, 400, "invalid_argument"),
    ({"Connect-Timeout-Ms": "0x1"}, 400, "invalid_argument"),
    ({"traceparent": "garbage"}, 200, None),
    ({"X-Anything-Bin": "!!"}, 200, None),
])
def test_headers(daemon, headers, status, code):
    got, fields, body = daemon.client.http("POST", LIST, b"{}", {"Content-Type": "application/json", **headers})
    assert got == status, body
    if code:
        assert RpcError(got, fields, body).code == code


def test_an_empty_body_is_a_message_in_protobuf_and_nothing_in_json(daemon):
    assert daemon.client.http("POST", LIST, b"", {"Content-Type": "application/proto"})[0] == 200
    error = RpcError(*daemon.client.http("POST", LIST, b"", {"Content-Type": "application/json"}))
    assert (error.code, error.reason) == ("invalid_argument", "MALFORMED_REQUEST")


def query(**parts):
    return "?" + urllib.parse.urlencode(parts)


def get(daemon, method, suffix, body=None):
    return daemon.client.http("GET", PATHS[method] + suffix, body)


def test_get_of_read_only_methods(daemon):
    group = fresh("get")
    daemon.client.join(group, 0, 2, BCE)
    text = json.dumps({"group": group})
    binary = group_pb2.GetGroupRequest(group=group).SerializeToString()
    urlsafe = base64.urlsafe_b64encode
    forms = [
        {"encoding": "json", "message": text},
        {"connect": "v1", "encoding": "json", "message": text},
        {"message": text, "unknown": "x", "encoding": "json", "connect": "v1"},
        {"encoding": "json", "base64": "1", "message": urlsafe(text.encode()).decode().rstrip("=")},
        {"encoding": "json", "base64": "1", "message": urlsafe(text.encode() + b" ").decode()},
        {"encoding": "proto", "base64": "1", "message": urlsafe(binary).decode().rstrip("=")},
        {"encoding": "proto", "base64": "1", "message": urlsafe(binary).decode(), "compression": "identity"},
    ]
    for form in forms:
        status, fields, body = get(daemon, "GetGroup", query(**form))
        assert (status, fields["Content-Type"]) == (200, "application/" + form["encoding"]), (form, body)
        assert daemon.rpc(form["encoding"]).decode("GetGroup", body).group.name == group
    assert get(daemon, "ListGroups", query(encoding="json", message="{}"))[0] == 200
    assert get(daemon, "Check", query(encoding="json", message="{}"))[0] == 200


@pytest.mark.parametrize("form, status, code", [
    ({}, 400, "invalid_argument"),
    ({"encoding": "json"}, 400, "invalid_argument"),
    ({"message": "{}"}, 400, "invalid_argument"),
    ({"encoding": "xml", "message": "{}"}, 415, None),
    ({"encoding": "json", "message": "{"}, 400, "invalid_argument"),
    ({"encoding": "json", "message": ""}, 400, "invalid_argument"),
    ({"encoding": "proto", "base64": "1", "message": "!!"}, 400, "invalid_argument"),
    ({"encoding": "proto", "base64": "1", "message": "A"}, 400, "invalid_argument"),
    ({"encoding": "json", "message": "{}", "compression": "gzip"}, 501, "unimplemented"),
    ({"encoding": "json", "message": '{"group":"g \u00fc/+&="}'}, 404, "not_found"),
    ({"encoding": "json", "message": '{"group":1}'}, 400, "invalid_argument"),
])
def test_bad_get_queries(daemon, form, status, code):
    got, fields, body = get(daemon, "GetGroup", query(**form) if form else "")
    assert got == status, body
    if code:
        error = RpcError(got, fields, body)
        assert error.code == code
        if code == "not_found":
            assert error.metadata["group"] == "g ü/+&="


def test_get_with_a_body_is_refused(daemon):
    assert get(daemon, "ListGroups", query(encoding="json", message="{}"), b"{}")[0] == 415


def test_one_connection_serves_call_after_call(daemon):
    connection = daemon.client.connection()
    for path, body, status in [(LIST, b"{}", 200), ("/nothing", b"{}", 404), (LIST, b"{", 400), (COMPUTE, b"{}", 400),
                               (LIST, b"{}", 200)]:
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        sock = connection.sock
        response = connection.getresponse()
        assert response.read() and response.status == status and response.headers["Content-Length"]
        assert connection.sock is sock, "closed after " + path
    connection.close()


def test_pipelined_calls_are_answered_in_order(daemon):
    one = head("Host: x", JSON, "Content-Length: 2") + b"{}"
    received, closed = exchange(daemon.client, one * 3 + head("Host: x", "Connection: close", method="GET", path="/livez"))
    assert received.count(b"HTTP/1.1 200 OK") == 4 and closed
    assert received.rstrip().endswith(b"ok") or b"livez" in received.rsplit(b"\r\n\r\n", 1)[1]


@pytest.mark.parametrize("sizes", [[2], [1, 1], [1] * 40])
def test_chunked_bodies(daemon, sizes):
    body = b"{}".ljust(sum(sizes))
    data, at = b"", 0
    for size in sizes:
        data += f"{size:x}\r\n".encode() + body[at:at + size] + b"\r\n"
        at += size
    received, _ = exchange(daemon.client, head("Host: x", JSON, "Transfer-Encoding: chunked") + data + b"0\r\n\r\n")
    assert received.startswith(b"HTTP/1.1 200"), received


def test_expect_100_continue(daemon):
    sock = daemon.client.socket()
    sock.sendall(head("Host: x", JSON, "Content-Length: 2", "Expect: 100-continue"))
    assert sock.recv(1000).startswith(b"HTTP/1.1 100")
    sock.sendall(b"{}")
    assert sock.recv(1000).startswith(b"HTTP/1.1 200")
    sock.close()


def test_http_1_0_is_answered_and_closed(daemon):
    received, closed = exchange(daemon.client, head("Host: x", JSON, "Content-Length: 2", version="1.0") + b"{}")
    assert b" 200 " in received.split(b"\r\n")[0] + b" " and closed


def test_long_heads_are_refused(daemon):
    for data in (head("Host: x", "X-Long: " + "a" * 500000), head("Host: x", path="/" + "a" * 500000)):
        received, closed = exchange(daemon.client, data)
        assert closed and (not received or 400 <= int(received.split()[1]) < 600), received[:200]
    assert daemon.client.call("Check", {}).status == 1


def test_many_headers_are_fine_up_to_a_limit(daemon):
    headers = {f"X-{i}": "y" * 50 for i in range(90)}
    status, _, _ = daemon.client.http("POST", LIST, b"{}", {"Content-Type": "application/json", **headers})
    assert status == 200


@pytest.mark.parametrize("service", ["", "lossd.v1.LossService", "lossd.v1.GroupService"])
def test_health(client, service):
    assert client.call("Check", {"service": service}).status == 1  # SERVING


def test_health_of_an_unknown_service(client):
    error = client.refused("Check", {"service": "nothing"})
    assert (error.code, error.reason) == ("not_found", "SERVICE_NOT_FOUND")


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz"])
def test_probes(daemon, path):
    status, fields, body = daemon.client.http("GET", path)
    assert status == 200 and fields["Content-Type"].startswith("text/plain") and body
    assert daemon.client.http("HEAD", path)[0] == 200


def test_status_page(daemon):
    status, fields, body = daemon.client.http("GET", "/")
    assert status == 200 and b"lossd" in body and fields["Content-Type"].startswith("text/")


def test_metrics_count_one_all_reduce_a_step(daemon):
    g = Ranks(daemon.client, fresh("count"), 1)
    for step in range(1, 6):
        g.compute(0, step)
        g.compute(0, step)  # replayed: no collective
    assert daemon.metric("lossd_all_reduces_total", group=g.name, engine="local") == 5
    assert g.status().all_reduces == g.status().steps_done == 5
    lines = daemon.metrics().splitlines()
    names = {line.split()[2] for line in lines if line.startswith("# TYPE")}
    samples = {line.split("{")[0].split()[0] for line in lines if line and not line.startswith("#")}
    assert samples and all(any(s.startswith(n) for n in names) for s in samples)


def test_metrics_are_prometheus_text(daemon):
    status, fields, body = daemon.client.http("GET", "/metrics")
    assert status == 200 and fields["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert body.endswith(b"\n") and b"lossd_build_info{" in body


def test_a_waiting_call_does_not_hold_others(daemon):
    g = Ranks(daemon.client, fresh("park"), 2)
    waiting = [background(lambda: g.compute(0, 1))]
    g.wait_for(0, "WAITING")
    start = time.monotonic()
    for _ in range(20):
        daemon.client.call("ListGroups", {})
    assert time.monotonic() - start < 5 and not waiting[0].done()
    g.compute(1, 1)
    waiting[0].result()


def test_unix_and_tcp_are_the_same(daemon):
    g = Ranks(daemon.rpc("json"), fresh("both"), 2)
    other = background(lambda: daemon.rpc("proto", unix=True).call("ComputeLoss",
                                                                   {"group": g.name, "rank": 1, "step": 1, **batch(2)}))
    assert g.compute(0, 1, 6).world.candidates == 8 == other.result().world.candidates
