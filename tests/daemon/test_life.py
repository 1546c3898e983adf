"""Starting, draining and stopping; slow and many clients; a thousand steps without growth."""

import os
import pathlib
import resource
import shutil
import signal
import subprocess
import time

import pytest

from harness import BUILD, RpcError, background, instrumented, together
from small import BCE, Ranks, batch

LOSSD = str(BUILD / "daemon" / "lossd")


def lossd(*args, **options):
    return subprocess.run([LOSSD, *args], capture_output=True, text=True, timeout=30, **options)


@pytest.mark.parametrize("args", [["--nothing"], ["extra"], ["--listen"], ["--log-level", "loud"], ["--config"]])
def test_wrong_usage_exits_with_64(args):
    result = lossd(*args)
    assert result.returncode == 64 and result.stderr, result


@pytest.mark.parametrize("text, field", [
    ("{", ""), ('{"listen": ["127.0.0.1:0"], "unknown": 1}', "unknown"), ('{"listen": ["nonsense"]}', "listen[0]"),
    ('{"logLevel": "loud"}', "log"), ('{"httpThreads": 0}', "http"),
    ('{"groups": [{"name": "g", "config": {"tasks": [{"name": "t", "weight": -1, "losses": [{"l2Loss": {}}]}]}}]}',
     "groups[0].config.tasks[0].weight"),
    ('{"groups": [{"name": "g"}]}', "groups[0].config"), ('{"limits": {"jsonDepth": -1}}', "limits"),
])
def test_a_wrong_configuration_exits_with_78_and_names_the_field(tmp_path, text, field):
    file = tmp_path / "config.json"
    file.write_text(text)
    for args in (["--config", str(file)], ["--check", "--config", str(file)]):
        result = lossd(*args)
        assert result.returncode == 78 and field in result.stderr, result
        assert "event=config_invalid " in result.stderr, result
        assert result.stderr.count(str(file)) == 1, "the file is named once"


def test_check_and_version(tmp_path):
    file = tmp_path / "config.json"
    file.write_text('{"listen": ["127.0.0.1:0"]}')
    assert lossd("--check", "--config", str(file)).returncode == 0
    result = lossd("--version")
    assert result.returncode == 0 and "lossd" in result.stdout + result.stderr
    missing = lossd("--config", str(tmp_path / "missing"))
    assert missing.returncode == 78 and missing.stderr.count("missing") == 1, missing


def test_other_addresses_need_insecure(tmp_path):
    file = tmp_path / "config.json"
    file.write_text('{"listen": ["0.0.0.0:0"]}')
    for args in (["--listen", "0.0.0.0:0"], ["--config", str(file)], ["--listen", "[::]:0"]):
        result = lossd(*args)
        assert result.returncode == (64 if "--listen" in args else 78) and "insecure" in result.stderr, result
        assert ("--listen: " if "--listen" in args else "listen[0]: ") in result.stderr, result


def test_listen_replaces_the_configured_addresses(start, tmp_path):
    """The two addresses that come up are those of the command line."""
    daemon = start(args=["--listen", "127.0.0.1:0", "--listen", f"unix:{tmp_path}/other"])
    assert daemon._addresses()[1] == f"unix:{tmp_path}/other"


def test_sigterm_while_calls_wait_answers_them(start):
    daemon = start({"drain_timeout_ms": 1500})
    g = Ranks(daemon.client, "drain", 2)
    waiting = background(lambda: g.compute(0, 1))
    g.wait_for(0, "WAITING")
    daemon.process.send_signal(signal.SIGTERM)
    error = waiting.result(15)
    assert isinstance(error, RpcError) and (error.code, error.reason) == ("unavailable", "SHUTTING_DOWN")
    assert "google.rpc.RetryInfo" in error.details
    daemon.stop()


def test_while_draining_steps_finish_and_joins_are_refused(start):
    daemon = start({"drain_timeout_ms": 20000})
    g = Ranks(daemon.client, "drain", 2)
    waiting = background(lambda: g.compute(0, 1))
    g.wait_for(0, "WAITING")
    daemon.process.send_signal(signal.SIGTERM)
    end = time.monotonic() + 10
    while daemon.client.http("GET", "/readyz")[0] == 200 and time.monotonic() < end:
        time.sleep(0.02)
    assert daemon.client.http("GET", "/readyz")[0] == 503
    assert daemon.client.http("GET", "/livez")[0] == 200
    assert daemon.client.call("Check", {}).status == 2  # NOT_SERVING
    error = daemon.client.refused("JoinGroup", {"group": "new", "world_size": 1, "config": BCE})
    assert (error.code, error.reason) == ("unavailable", "SHUTTING_DOWN")
    assert g.compute(1, 1).world.candidates == 4 == waiting.result(15).world.candidates
    start_of_end = time.monotonic()
    daemon.stop()
    assert time.monotonic() - start_of_end < 10  # idle: no need to wait for the timeout


def test_a_second_sigterm_ends_at_once(start):
    daemon = start({"drain_timeout_ms": 60000})
    g = Ranks(daemon.client, "drain", 2)
    waiting = background(lambda: g.compute(0, 1))
    g.wait_for(0, "WAITING")
    begin = time.monotonic()
    daemon.process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    daemon.process.send_signal(signal.SIGTERM)
    assert waiting.result(15).reason == "SHUTTING_DOWN"
    daemon.stop()
    assert time.monotonic() - begin < 15


def test_sigint_is_sigterm(start):
    daemon = start()
    daemon.process.send_signal(signal.SIGINT)
    daemon.stop()


def test_the_socket_file_goes_with_the_daemon_and_a_dead_one_is_replaced(tmp_path, start):
    path = tmp_path / "s"
    daemon = start({"listen": ["127.0.0.1:0", f"unix:{path}"]})
    assert path.is_socket()
    daemon.process.kill()
    daemon.process.wait()
    assert path.is_socket()
    daemon.process.returncode = 0  # killed on purpose
    again = start({"listen": ["127.0.0.1:0", f"unix:{path}"]})
    again.stop()
    assert not path.exists()


def test_slow_senders_are_cut_and_others_served(start):
    resource.setrlimit(resource.RLIMIT_NOFILE, (8192, max(8192, resource.getrlimit(resource.RLIMIT_NOFILE)[1])))
    daemon = start({"limits": {"upload_timeout_ms": 2000, "connections": 4096}})
    head = b"POST /lossd.v1.GroupService/ListGroups HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    begin = time.monotonic()
    slow = []
    for i in range(2000):
        sock = daemon.client.socket()
        sock.sendall(head[: 40 + i % 30] if i % 2 else head + b"Content-Length: 1000\r\n\r\n{")
        slow.append(sock)
    calls = []
    while time.monotonic() - begin < 7:
        for sock in slow[::100]:
            try:
                sock.send(b" ")  # a byte now and then does not buy more time
            except OSError:
                pass
        before = time.monotonic()
        daemon.client.call("ListGroups", {})
        calls.append(time.monotonic() - before)
        time.sleep(0.1)
    assert sorted(calls)[len(calls) // 2] < 0.5 and max(calls) < 5, max(calls)
    still_open = 0
    for sock in slow:
        sock.setblocking(False)
        try:
            while sock.recv(4096):
                pass
        except BlockingIOError:
            still_open += 1
        except OSError:
            pass
        sock.close()
    assert still_open == 0


def test_clients_that_go_in_mid_body_are_gone_by_the_upload_timeout(start):
    daemon = start({"limits": {"upload_timeout_ms": 1000}})
    before = daemon.descriptors()
    for _ in range(50):
        sock = daemon.client.socket()
        sock.sendall(b"POST /lossd.v1.GroupService/ListGroups HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                     b"Content-Length: 60000\r\n\r\n" + b"{" * 30000)
        sock.close()
    time.sleep(1)  # all are accepted by now
    end = time.monotonic() + 10
    while daemon.descriptors() > before or daemon.metric("lossd_open_calls") > 0:
        assert time.monotonic() < end, daemon.metrics()
        time.sleep(0.02)


def is_open(sock):
    sock.settimeout(0.01)
    try:
        return sock.recv(1) != b""
    except TimeoutError:
        return True


def test_connections_more_than_64_past_the_limit_are_closed_and_calls_go_on_when_there_are_fewer(start):
    """Those past the limit are closed after a second, when they send nothing; those past the 64 at once."""
    daemon = start({"limits": {"connections": 20}})
    client = daemon.client
    for _ in range(10):  # where the machine is too slow to open so many in a second
        begin = time.monotonic()
        held = [client.socket() for _ in range(20 + 64)]
        more = client.socket()
        closed, seconds = more.recv(1) == b"", time.monotonic() - begin
        within = [is_open(sock) for sock in held[:20]]
        for sock in [*held, more]:
            sock.close()
        end = time.monotonic() + 10
        while True:
            try:
                if daemon.metric("lossd_connections") == 1:
                    break
            except (OSError, ConnectionError):
                pass
            assert time.monotonic() < end
            time.sleep(0.05)
        if seconds < 0.9:
            break
    assert closed and seconds < 0.9 and all(within)
    client.call("ListGroups", {})


def test_open_calls_are_bounded(start):
    daemon = start({"limits": {"open_calls": 4}, "drain_timeout_ms": 200})
    names = [f"g{i}" for i in range(4)]
    groups = [Ranks(daemon.client, n, 2) for n in names]
    waiting = [background(lambda g=g: g.compute(0, 1)) for g in groups]
    end = time.monotonic() + 10
    while daemon.metric("lossd_open_calls") < 4 and time.monotonic() < end:
        time.sleep(0.02)
    error = daemon.client.refused("ComputeLoss", {"group": "g0", "rank": 1, "step": 1, **batch(2)})
    assert (error.code, error.reason) == ("unavailable", "OVERLOADED"), error
    assert "google.rpc.RetryInfo" in error.details
    assert not any(w.done() for w in waiting)


def test_clients_that_die_while_they_wait_leave_nothing(start):
    """200 clients hang up at the barrier: no descriptor, no memory, no parked call; their contribution stays."""
    daemon = start()
    g = Ranks(daemon.rpc("proto"), "dead", 2)
    body = g.client.encode("ComputeLoss", {"group": "dead", "rank": 0, "step": 1, **batch(500)})
    call = (f"POST /lossd.v1.LossService/ComputeLoss HTTP/1.1\r\nHost: x\r\nContent-Type: application/proto\r\n"
            f"Content-Length: {len(body)}\r\n\r\n").encode() + body

    def die(times):
        for _ in range(times):
            sock = daemon.client.socket()
            sock.sendall(call)
            end = time.monotonic() + 10
            while daemon.metric("lossd_parked_calls") == 0 and time.monotonic() < end:
                time.sleep(0.001)
            sock.close()
        end = time.monotonic() + 10
        while daemon.metric("lossd_parked_calls") + daemon.descriptors() > quiet and time.monotonic() < end:
            time.sleep(0.02)

    quiet = daemon.descriptors()
    die(20)
    memory, files = daemon.memory_kb("VmRSS"), daemon.descriptors()
    die(180)
    time.sleep(0.2)
    assert daemon.descriptors() <= files and daemon.metric("lossd_parked_calls") == 0
    if not instrumented():
        assert daemon.memory_kb("VmRSS") - memory < 1024
    assert g.compute(1, 1).world.candidates == 502
    assert g.status().all_reduces == 1


@pytest.mark.plain
def test_a_thousand_steps_leave_no_memory_and_no_descriptors(start):
    daemon = start()
    g = Ranks(daemon.rpc("proto"), "soak", 2)

    def steps(first, count):
        for step in range(first, first + count):
            together(lambda: g.compute(0, step, 50), lambda: g.compute(1, step, 7))

    steps(1, 300)
    memory, files = daemon.memory_kb("VmRSS"), daemon.descriptors()
    steps(301, 1000)
    assert daemon.memory_kb("VmRSS") - memory < 1024 and daemon.descriptors() <= files
    assert g.status().steps_done == 1300 == daemon.metric("lossd_all_reduces_total", group="soak")


@pytest.mark.plain
def test_valgrind_finds_nothing_in_a_thousand_steps_and_a_drain(start, tmp_path):
    assert shutil.which("valgrind")
    log = tmp_path / "valgrind"
    daemon = start(wrapper=["valgrind", "--leak-check=full", "--errors-for-leak-kinds=definite,indirect,possible",
                            "--error-exitcode=99", "--track-fds=no", f"--log-file={log}"])
    g = Ranks(daemon.rpc("proto"), "grind", 2)
    for step in range(1, 1001):
        g.announce(1, step, 7)
        g.compute(0, step, 50)
        g.compute(1, step, 7)
    daemon.rpc("json").refused("ComputeLoss", b'{"group":')
    waiting = background(lambda: g.compute(0, 2000))
    g.wait_for(0, "WAITING")
    os.kill(daemon.process.pid, signal.SIGTERM)
    os.kill(daemon.process.pid, signal.SIGTERM)
    assert waiting.result(30).reason == "SHUTTING_DOWN"
    daemon.stop(60)
    text = pathlib.Path(log).read_text()
    assert "ERROR SUMMARY: 0 errors" in text, text
