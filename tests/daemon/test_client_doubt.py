"""What liblossd makes of a daemon that does not know its rank as it should, and of answers that can't be so."""

import base64
import http.server
import json
import threading

import pytest

from client_program import BCE, JSON, Trainer
from harness import error_pb2

DIGEST = "0123456789abcdef" * 4


class Said(Exception):
    """An error that the daemon is to answer with."""

    def __init__(self, code, reason):
        self.code, self.reason = code, reason


class ToldDaemon(http.server.ThreadingHTTPServer):
    """A daemon of a group with one rank, in JSON. `answers` has lists of what it says next to a method, by its name."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server_address[1]}"
        self.calls = []
        self.answers = {}
        self.generation = 1
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def answer(self, method):
        self.calls.append(method)
        told = self.answers.get(method)
        if told:
            answer = told.pop(0)
            if isinstance(answer, Said):
                raise answer
            return answer
        if method == "JoinGroup":
            return {"generation": self.generation, "configDigest": DIGEST}
        if method == "GetGroup":
            ranks = [{"rank": 0, "state": "RANK_STATE_IDLE"}]
            return {"group": {"name": "g", "generation": self.generation, "worldSize": 1, "ranks": ranks}}
        return {}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        status = 200
        try:
            said = self.server.answer(self.path.rsplit("/", 1)[1])
        except Said as error:
            info = error_pb2.ErrorInfo(reason=error.reason, domain="lossd").SerializeToString()
            value = base64.b64encode(info).decode().rstrip("=")
            said = {"code": error.code, "message": "as told", "details": [{"type": "google.rpc.ErrorInfo", "value": value}]}
            status = 400
        body = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def told():
    with ToldDaemon() as daemon:
        yield daemon
        daemon.shutdown()


@pytest.fixture
def trainer(told):
    with Trainer(told.address, JSON, reconnect_ms=300) as one:
        one.join("g", 0, 1, BCE)
        yield one


NOT_JOINED = Said("failed_precondition", "RANK_NOT_JOINED")


def test_a_doubt_is_over_with_the_call_that_had_it(told, trainer):
    """The rank is a member, says the daemon when it is asked: the failure is this call's, and no other's."""
    told.answers["AnnounceCounts"] = [NOT_JOINED, Said("aborted", "STEP_OUT_OF_ORDER"), NOT_JOINED]
    reasons = [trainer.refused("announce", step, 1, 1).reason for step in range(3)]
    assert reasons == ["RANK_NOT_JOINED", "STEP_OUT_OF_ORDER", "RANK_NOT_JOINED"]
    trainer.tell("announce", 3, 1, 1)
    assert told.calls.count("AnnounceCounts") == 4 and told.calls.count("JoinGroup") == 1


def test_a_doubt_that_could_not_be_settled_is_not_told_again(told, trainer):
    told.answers["AnnounceCounts"] = [NOT_JOINED]
    told.answers["GetGroup"] = [Said("resource_exhausted", "LIMIT_EXCEEDED")]
    assert trainer.refused("announce", 0, 1, 1).reason == "LIMIT_EXCEEDED"
    trainer.tell("announce", 1, 1, 1)
    assert told.calls.count("AnnounceCounts") == 2


def test_a_daemon_that_does_not_know_the_group_is_joined_when_it_can_be(told, trainer):
    told.answers["AnnounceCounts"] = [Said("not_found", "GROUP_NOT_FOUND")]
    told.answers["GetGroup"] = [Said("not_found", "GROUP_NOT_FOUND")] * 2
    told.answers["JoinGroup"] = [Said("resource_exhausted", "LIMIT_EXCEEDED")]
    assert trainer.refused("announce", 0, 1, 1).reason == "LIMIT_EXCEEDED"
    trainer.tell("announce", 1, 1, 1)
    assert told.calls.count("JoinGroup") == 3


@pytest.mark.parametrize("code, reason", [
    ("aborted", "STALE_GENERATION"), ("not_found", "GROUP_NOT_FOUND"), ("failed_precondition", "RANK_NOT_JOINED"),
])
def test_who_is_no_member_has_left(told, trainer, code, reason):
    told.answers["LeaveGroup"] = [Said(code, reason)] * 2
    trainer.tell("leave")
    assert trainer.refused("leave").reason == "BAD_CALL"
    told.generation = 5
    assert trainer.join_opened("g", 0, 1, BCE)["generation"] == 5


def test_who_is_a_member_for_all_that_is_known_has_not_left(told, trainer):
    told.answers["LeaveGroup"] = [Said("internal", "INTERNAL")]
    assert trainer.refused("leave").reason == "INTERNAL"
    trainer.tell("leave")
