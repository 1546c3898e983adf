"""What the tests of the running daemon share: the daemon as a process, and a client that checks every error it gets."""

import base64
import http.client
import importlib
import itertools
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

from google.protobuf import json_format

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from lossd_process import BUILD, ROOT, LossdProcess  # noqa: E402

GOLDEN = ROOT / "tests" / "golden"

HTTP_STATUS = {
    "canceled": 499,
    "unknown": 500,
    "invalid_argument": 400,
    "deadline_exceeded": 504,
    "not_found": 404,
    "already_exists": 409,
    "permission_denied": 403,
    "resource_exhausted": 429,
    "failed_precondition": 400,
    "aborted": 409,
    "out_of_range": 400,
    "unimplemented": 501,
    "internal": 500,
    "unavailable": 503,
    "data_loss": 500,
    "unauthenticated": 401,
}


def compile_schema():
    """The schema as Python modules, made by protoc in a folder that lives as long as this process."""
    folder = tempfile.TemporaryDirectory(prefix="lossd-schema-")
    protos = sorted(str(p.relative_to(ROOT / "proto")) for p in (ROOT / "proto").rglob("*.proto"))
    subprocess.run(["protoc", "-I", ROOT / "proto", f"--python_out={folder.name}", *protos], check=True)
    sys.path.insert(0, folder.name)
    return folder


_schema = compile_schema()
config_pb2 = importlib.import_module("lossd.v1.config_pb2")
loss_pb2 = importlib.import_module("lossd.v1.loss_pb2")
group_pb2 = importlib.import_module("lossd.v1.group_pb2")
error_pb2 = importlib.import_module("lossd.v1.error_pb2")
health_pb2 = importlib.import_module("grpc.health.v1.health_pb2")

METHODS = {
    "lossd.v1.LossService": (loss_pb2, ["AnnounceCounts", "ComputeLoss"]),
    "lossd.v1.GroupService": (group_pb2, ["JoinGroup", "LeaveGroup", "GetGroup", "ListGroups"]),
}
REQUESTS, RESPONSES, PATHS = {}, {}, {}
for _service, (_module, _names) in METHODS.items():
    for _name in _names:
        REQUESTS[_name] = getattr(_module, _name + "Request")
        RESPONSES[_name] = getattr(_module, _name + "Response")
        PATHS[_name] = f"/{_service}/{_name}"
REQUESTS["Check"], RESPONSES["Check"] = health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse
PATHS["Check"] = "/grpc.health.v1.Health/Check"


class RpcError(Exception):
    """A Connect error. Making one checks everything that the protocol says about its form."""

    def __init__(self, status, headers, body):
        media_type = headers.get("Content-Type", "")
        assert media_type.split(";")[0].strip() == "application/json", f"{status} {media_type}: {body[:200]!r}"
        fields = json.loads(body, parse_constant=refuse_constant)
        assert set(fields) <= {"code", "message", "details"}, fields
        self.status, self.code, self.message = status, fields["code"], fields.get("message", "")
        self.headers = headers
        self.details = {}
        for detail in fields.get("details", []):
            assert set(detail) <= {"type", "value", "debug"} and "=" not in detail["value"], detail
            value = base64.b64decode(detail["value"] + "=" * (-len(detail["value"]) % 4), validate=True)
            self.details[detail["type"]] = value
        assert fields["details"][0]["type"] == "google.rpc.ErrorInfo", fields
        info = error_pb2.ErrorInfo.FromString(self.details["google.rpc.ErrorInfo"])
        assert info.domain == "lossd"
        assert re.fullmatch(r"[A-Z][A-Z0-9_]{0,62}", info.reason), info.reason
        self.reason = info.reason
        self.metadata = {entry.key: entry.value for entry in info.metadata}
        debug = {detail["type"]: detail["debug"] for detail in fields["details"]}
        assert debug["google.rpc.ErrorInfo"].get("metadata", {}) == self.metadata, debug
        assert ("google.rpc.RetryInfo" in self.details) == (self.code == "unavailable"), fields
        assert debug.get("google.rpc.RetryInfo", {"retryDelay": "1s"}) == {"retryDelay": "1s"}, debug
        self.field = ""
        if "google.rpc.BadRequest" in self.details:
            bad = error_pb2.BadRequest.FromString(self.details["google.rpc.BadRequest"])
            self.field = bad.field_violations[0].field
        if self.code == "unimplemented":
            assert status in (404, 415, 501), status
        elif self.code != "invalid_argument" or status not in (405, 415):
            assert status == HTTP_STATUS[self.code], (status, self.code)
        super().__init__(f"{status} {self.code} {self.reason} {self.field}: {self.message} {self.metadata}")


def refuse_constant(word):
    raise AssertionError(f"bare {word} in a JSON answer")


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Client:
    """One address and one codec. Each call has a connection of its own."""

    def __init__(self, address, codec="json", timeout=60):
        self.address, self.codec, self.timeout = address, codec, timeout

    def connection(self):
        if self.address.startswith("unix:"):
            return UnixConnection(self.address[5:], self.timeout)
        host, port = self.address.rsplit(":", 1)
        return http.client.HTTPConnection(host, int(port), timeout=self.timeout)

    def socket(self):
        """A bare connected socket."""
        if self.address.startswith("unix:"):
            sock = socket.socket(socket.AF_UNIX)
            sock.settimeout(self.timeout)
            sock.connect(self.address[5:])
            return sock
        host, port = self.address.rsplit(":", 1)
        return socket.create_connection((host, int(port)), timeout=self.timeout)

    def http(self, method, path, body=None, headers=()):
        connection = self.connection()
        try:
            connection.request(method, path, body=body, headers=dict(headers))
            response = connection.getresponse()
            return response.status, response.headers, response.read()
        finally:
            connection.close()

    def encode(self, method, request):
        if isinstance(request, bytes):
            return request
        if self.codec == "json":
            return json.dumps(request).encode()
        return json_format.ParseDict(request, REQUESTS[method]()).SerializeToString()

    def call(self, method, request, timeout_ms=None, headers=()):
        """The answer as a message, or RpcError. request: a dict in the schema's names, or bytes to send as they are."""
        headers = {"Content-Type": "application/" + self.codec, **dict(headers)}
        if timeout_ms is not None:
            headers["Connect-Timeout-Ms"] = str(timeout_ms)
        status, got, body = self.http("POST", PATHS[method], self.encode(method, request), headers)
        if status != 200:
            raise RpcError(status, got, body)
        assert got["Content-Type"] == "application/" + self.codec, got["Content-Type"]
        return self.decode(method, body)

    def decode(self, method, body):
        if self.codec == "proto":
            return RESPONSES[method].FromString(body)
        json.loads(body, parse_constant=refuse_constant)
        return json_format.Parse(body, RESPONSES[method]())

    def refused(self, method, request, **options):
        """The error of a call that has to fail."""
        try:
            answer = self.call(method, request, **options)
        except RpcError as error:
            return error
        raise AssertionError(f"{method} was answered: {answer}")

    def join(self, group, rank, world_size, config, **more):
        request = {"group": group, "rank": rank, "world_size": world_size, "config": config, **more}
        return self.call("JoinGroup", request)

    def join_all(self, group, world_size, config, **more):
        """All ranks join. The generation."""
        answers = [self.join(group, rank, world_size, config, **more) for rank in range(world_size)]
        assert len({a.config_digest for a in answers}) == 1
        return answers[-1].generation

    def leave_all(self, group, world_size):
        for rank in range(world_size):
            self.call("LeaveGroup", {"group": group, "rank": rank})

    def group(self, name):
        return self.call("GetGroup", {"group": name}).group


def together(*calls):
    """Run functions at the same time: their results, or the RpcErrors that they ended with."""

    def run(call):
        try:
            return call()
        except RpcError as error:
            return error

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


def background(call):
    """Start a call; the future's result is its answer or its RpcError."""
    pool = ThreadPoolExecutor(1)

    def run():
        try:
            return call()
        except RpcError as error:
            return error

    future = pool.submit(run)
    pool.shutdown(wait=False)
    return future


def wait_until(check, seconds=10):
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end, "never became true"
        time.sleep(0.01)


_names = itertools.count()


def fresh(prefix="g"):
    """A group name that no other test has."""
    return f"{prefix}{next(_names)}"


def instrumented():
    """Whether the build has a sanitizer: those keep freed memory."""
    program = (BUILD / "daemon" / "lossd").read_bytes()
    return b"__asan_init" in program or b"__tsan_init" in program


def page_faults(pid):
    """Minor and major ones of all threads of a process, up to now."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return {"minor": int(fields[7]), "major": int(fields[9])}


class Daemon(LossdProcess):
    """With `client`, a client in JSON, and what its process and its counters say."""

    def start(self):
        super().start()
        self.client = Client(self.tcp)

    def rpc(self, codec="json", unix=False, timeout=60):
        return Client(self.unix if unix else self.tcp, codec, timeout)

    def memory_kb(self, key="VmHWM"):
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(rf"^{key}:\s+(\d+) kB", text, re.M).group(1))

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def metrics(self):
        status, _, body = self.client.http("GET", "/metrics")
        assert status == 200
        return body.decode()

    def metric(self, name, **labels):
        """The value of one series; 0 where it is not there."""
        for line in self.metrics().splitlines():
            match = re.fullmatch(rf"{name}(?:\{{(.*)\}})? (\S+)", line)
            if match and all(f'{k}="{v}"' in (match.group(1) or "") for k, v in labels.items()):
                return float(match.group(2))
        return 0.0
