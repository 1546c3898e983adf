"""What a trainer on shared memory may do wrong, or on purpose: the daemon goes on, others get their answers, and nothing
is left behind."""

import ctypes
import os
import pathlib
import re
import socket
import subprocess
import threading
import time

import pytest

from harness import BUILD, background, fresh, instrumented, wait_until
from shm_peer import ATTACH, BELL, Attach, Header, Peer, ShmError, Socket, header
from small import BCE, LN2, Ranks, batch
from test_shm import MANY

HEADER = ctypes.sizeof(Header)
ATTACH_BYTES = ctypes.sizeof(Attach)
# The full number under the sanitizer that sees wild accesses; elsewhere what takes a second.
HAS_ASAN = b"__asan_init" in (BUILD / "daemon" / "lossd").read_bytes()
CALLS = int(os.environ.get("LOSSD_SCRIBBLED_CALLS", 1000000 if HAS_ASAN else 30000))
KILLS = int(os.environ.get("LOSSD_KILLS", 500))
RSS_SLACK_KB = 8192


class Trace:
    """What the daemon holds, to be compared with later."""

    def __init__(self, daemon):
        self.daemon = daemon
        self.descriptors, self.regions, self.rss = daemon.descriptors(), self.mappings(), daemon.memory_kb("VmRSS")

    def mappings(self):
        return pathlib.Path(f"/proc/{self.daemon.process.pid}/maps").read_text().count("memfd:lossd")

    def is_back(self):
        d = self.daemon
        return (d.descriptors() <= self.descriptors and self.mappings() == self.regions
                and d.metric("lossd_parked_calls") == 0 and d.metric("lossd_open_calls") == 0
                and (instrumented() or d.memory_kb("VmRSS") < self.rss + RSS_SLACK_KB))

    def check(self):
        """Back where it was, within some seconds: threads of the HTTP library close their sockets in their own time."""
        try:
            wait_until(self.is_back, 15)
        except AssertionError:
            raise AssertionError(f"fds {self.descriptors} {self.daemon.descriptors()}, regions {self.regions} "
                                 f"{self.mappings()}, kB {self.rss} {self.daemon.memory_kb('VmRSS')}") from None
        assert self.daemon.metric("lossd_shared_memory_clients") == self.regions


class Honest:
    """Two ranks that go on meanwhile, one on each transport, and check every answer."""

    def __init__(self, daemon):
        self.ranks = Ranks(daemon.client, fresh("honest"), 2)
        self.peer = Peer(daemon, self.ranks.name, 1, self.ranks.generation, BCE)
        self.step, self.stops, self.wrong = 0, False, []
        self.thread = threading.Thread(target=self.run)

    def one_step(self):
        self.step += 1
        call = background(lambda: self.ranks.compute(0, self.step, 6))
        mine = self.peer.compute({"step": self.step, **batch(2)})
        theirs = call.result()
        if abs(mine["loss"] - LN2 * 0.5) > 1e-9 or abs(theirs.loss - LN2 * 1.5) > 1e-9:
            self.wrong.append((mine, theirs))

    def run(self):
        try:
            while not self.stops:
                self.one_step()
        except Exception as error:
            self.wrong.append(error)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stops = True
        self.thread.join(60)
        assert not self.thread.is_alive() and not self.wrong and self.step > 0, self.wrong
        self.peer.close()


@pytest.fixture
def clean(daemon):
    """The daemon holds after the test what it held before it, and still answers."""
    trace = Trace(daemon)
    yield daemon
    trace.check()
    honest = Honest(daemon)
    honest.one_step()
    honest.peer.close()
    assert not honest.wrong
    trace.check()


RECORDS = {
    "empty header": b"\0" * HEADER, "one byte": b"x", "short header": b"x" * (HEADER - 1),
    "magic": bytes(header(BELL, HEADER, magic=0x12345678)), "magic of the other end": bytes(header(BELL, HEADER))[::-1],
    "unknown type": bytes(header(99, HEADER)), "type of the daemon": bytes(header(2, HEADER)),
    "size of a BELL": bytes(header(BELL, HEADER + 1)), "a BELL with more": bytes(header(BELL, HEADER + 8)) + b"\0" * 8,
    "reserved": bytes(header(BELL, HEADER, reserved=1)), "ATTACH cut": bytes(header(ATTACH, HEADER)),
    "ATTACH cut and lying": bytes(header(ATTACH, ATTACH_BYTES)) + b"\0" * 40,
    "ATTACH too long": bytes(header(ATTACH, ATTACH_BYTES + 1)) + b"\0" * (ATTACH_BYTES + 1 - HEADER),
    "oversized": bytes(header(ATTACH, 100000)) + b"\xff" * (100000 - HEADER), "garbage": os.urandom(777),
}


@pytest.mark.parametrize("what", RECORDS)
def test_a_record_that_is_none_ends_the_connection_with_a_reason(clean, what):
    connection = Socket(clean)
    connection.send(RECORDS[what])
    with pytest.raises(ShmError) as refused:
        connection.answered()
    assert refused.value.reason == "MALFORMED_REQUEST" and connection.is_closed()
    connection.close()


@pytest.mark.parametrize("version", [0, 2, 0xFFFF])
def test_another_version_is_refused_in_ours(clean, version):
    connection = Socket(clean)
    connection.ask("g", 0, 1, version=version, size=ATTACH_BYTES)
    with pytest.raises(ShmError) as refused:
        connection.answered()
    assert (refused.value.reason, refused.value.field) == ("NOT_SUPPORTED", "version")
    assert connection.is_closed()
    connection.close()


def test_a_group_without_an_end_is_refused(clean):
    connection = Socket(clean)
    record = bytearray(Attach(header(ATTACH, ATTACH_BYTES), b"", 1, 0, 1, 64))
    record[HEADER:HEADER + 64] = b"g" * 64
    connection.send(record)
    with pytest.raises(ShmError) as refused:
        connection.answered()
    assert (refused.value.reason, refused.value.field) == ("INVALID_ARGUMENT", "group")
    connection.close()


def test_descriptors_that_are_sent_along_are_not_kept(clean):
    name = fresh()
    generation = clean.client.join_all(name, 1, BCE)
    connection = Socket(clean)
    ends = os.pipe()
    before = clean.descriptors()
    for _ in range(50):
        connection.send(header(BELL, HEADER), [ends[0]] * 200)
    connection.send(Attach(header(ATTACH, ATTACH_BYTES), name.encode(), generation, 0, 1, 4096), [ends[0]] * 250)
    _, fd = connection.answered()
    assert clean.descriptors() <= before + 2  # the connection, and its process
    os.close(ends[0])
    with pytest.raises(BrokenPipeError):  # nobody else has the reading end
        os.write(ends[1], b"x")
    os.close(ends[1])
    os.close(fd)
    connection.close()


BAD_WORDS = {
    "logits": [("logits", 8), ("logits", 1 << 40), ("logits", (1 << 64) - 4), ("logits_stride", 0), ("logits_type", 7)],
    "gradient": [("gradient", 64), ("gradient", (1 << 63) + 4), ("gradient_stride", 0xFFFFFFFF), ("gradient_type", 1)],
    "labels": [("labels", 3), ("labels", 1 << 33)], "weights": [("weights", 1 << 60)],
    "task_space": [("task_space", 12)], "sessions": [("sessions", 1 << 50)],
}


@pytest.mark.parametrize("column", BAD_WORDS)
def test_a_column_elsewhere_is_the_fault_of_its_sender_alone(clean, column):
    name = fresh()
    ranks = Ranks(clean.client, name, 2)
    peer = Peer(clean, name, 1, ranks.generation, BCE)
    call = background(lambda: ranks.compute(0, 1, 6))
    ranks.wait_for(0, "WAITING")
    for word, value in BAD_WORDS[column]:
        peer.columns({"step": 1, **batch(2)})
        setattr(peer.task(0), word, value)
        peer.submit()
        with pytest.raises(ShmError) as refused:
            peer.wait()
        assert (refused.value.reason, refused.value.code) == ("MALFORMED_REQUEST", "invalid_argument")
        assert refused.value.field.startswith("tasks[0]." + column)
    assert not call.done()
    peer.compute({"step": 1, **batch(2)})
    assert call.result().world.candidates == 8
    peer.close()


def test_words_that_count_too_much_are_refused(clean):
    name = fresh()
    peer = Peer(clean, name, 0, clean.client.join_all(name, 1, BCE), BCE)
    for word, value, field in [("num_candidates", 0xFFFFFFFF, "tasks[0].logits"), ("num_requests", 0xFFFFFFFF, "lengths"),
                               ("num_tasks", 2, "num_tasks"), ("num_tasks", 0xFFFFFFFF, "num_tasks"), ("call", 3, "call"),
                               ("flags", 16, "flags"), ("lengths", 0, "lengths"), ("lengths", 1 << 48, "lengths"),
                               ("label_bits", 8, "label_bits")]:
        peer.columns({"step": 1, **batch(2)})
        setattr(peer.submission(), word, value)
        peer.submit()
        with pytest.raises(ShmError) as refused:
            peer.wait()
        assert (refused.value.reason, refused.value.field) == ("MALFORMED_REQUEST", field)
    peer.close()


def test_a_busy_slot_that_is_submitted_again_ends_the_connection(clean):
    name = fresh()
    ranks = Ranks(clean.client, name, 2)
    peer = Peer(clean, name, 1, ranks.generation, BCE)
    peer.columns({"step": 1, **batch(2)})
    peer.submit()
    ranks.wait_for(1, "WAITING")
    peer.submit()
    with pytest.raises(ShmError) as refused:
        peer.answered()
    assert refused.value.reason == "MALFORMED_REQUEST" and peer.is_closed()
    wait_until(lambda: ranks.state(1) == "DEAD")
    assert ranks.compute(0, 1, 6).world.candidates == 8  # what it had sent stays
    peer.close()


def test_a_region_can_not_be_taken_from_under_the_daemon(clean):
    name = fresh()
    peer = Peer(clean, name, 0, clean.client.join_all(name, 1, BCE), BCE)
    libc = ctypes.CDLL(None, use_errno=True)
    for size in (0, 4096, peer.layout.region_bytes * 2):
        with pytest.raises(PermissionError):
            os.ftruncate(peer.fd, size)
    for step in range(20):
        peer.columns({"step": step, **batch(2)})
        data = peer.layout.data_offset
        length = ctypes.c_longlong(peer.layout.region_bytes - data)
        assert libc.fallocate(peer.fd, 3, ctypes.c_longlong(data), length) == 0  # a hole: zeros for everything
        peer.submit()
        with pytest.raises(ShmError) as empty:  # the lengths are zeros, too
            peer.wait()
        assert empty.value.reason == "SHAPE_MISMATCH"
    assert libc.fallocate(peer.fd, 3, ctypes.c_longlong(0), ctypes.c_longlong(peer.layout.region_bytes)) == 0
    assert peer.compute({"step": 100, **batch(2)})["world"] == (1.0, 2.0, 1)
    peer.close()


def test_who_never_reads_is_answered_and_who_asks_for_more_is_let_go(clean):
    name = fresh()
    peer = Peer(clean, name, 0, clean.client.join_all(name, 1, BCE), BCE)
    peer.columns({"step": 0, **batch(2)})
    peer.control.client_sleeps = 1  # a BELL for each answer, none of which is read
    for step in range(3000):
        peer.submission().step = step
        peer.submit()
        while not peer.is_answered():
            time.sleep(0)
    peer.control.client_sleeps = 0
    peer.sock.setblocking(False)
    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        while True:
            try:
                peer.ask("nobody", 0, 1)
            except BlockingIOError:
                time.sleep(0.001)
    peer.close()


def test_ten_thousand_connections_come_and_go(clean):
    address = clean.unix[5:] + ".shm"
    for number in range(10000):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
            sock.connect(address)
            if number % 3 == 0:
                sock.send(bytes(header(BELL, HEADER)))


def test_connections_that_do_not_attach_are_closed_and_those_above_the_limit_refused(start):
    daemon = start({"limits": {"upload_timeout_ms": 400, "shared_memory_clients": 100}})
    trace = Trace(daemon)
    ranks = Ranks(daemon.client, "g", 2)
    silent = [Socket(daemon) for _ in range(300)]
    for one in silent[100:]:
        with pytest.raises(ShmError) as refused:
            one.answered()
        assert refused.value.metadata["limit"] == "shared_memory_clients"
    begin = time.monotonic()
    for one in silent[:100]:
        with pytest.raises(ShmError) as refused:
            one.answered()
        assert refused.value.metadata["limit"] == "upload_timeout_ms" and one.is_closed()
    assert time.monotonic() - begin < 10
    peer = Peer(daemon, "g", 1, ranks.generation, BCE)
    time.sleep(0.6)  # who has attached has all the time there is
    call = background(lambda: ranks.compute(0, 1, 6))
    assert peer.compute({"step": 1, **batch(2)})["world"] == (2.0, 8.0, 2)
    assert call.result().world.candidates == 8
    for one in [*silent, peer]:
        one.close()
    trace.check()


def test_when_descriptors_are_out_it_goes_on_later(start):
    daemon = start(wrapper=("prlimit", "--nofile=70:70"))
    generation = daemon.client.join_all("g", 1, BCE)
    many = [Socket(daemon) for _ in range(150)]  # the rest waits in the backlog
    for one in many:
        one.close()

    def can_attach():
        peer = Peer(daemon, "g", 0, generation, BCE)
        result = peer.compute({"step": can_attach.step, **batch(2)})
        can_attach.step += 1
        peer.close()
        return result["world"] == (1.0, 2.0, 1)

    can_attach.step = 0
    wait_until(can_attach)


def support(name, *arguments):
    result = subprocess.run([BUILD / "tests" / "daemon" / name, *map(str, arguments)], capture_output=True, text=True,
                            timeout=1800)
    assert result.returncode == 0, result.stderr
    return [int(word) for word in result.stdout.split()]


@pytest.mark.parametrize("how, calls", [("values", CALLS), ("all", CALLS // 50)])
def test_a_thread_that_rewrites_the_region_hurts_nobody_else(clean, how, calls):
    name = fresh()
    generation = clean.client.join_all(name, 1, {"tasks": MANY["tasks"][:4], "on_nonfinite": "ON_NONFINITE_ZERO"})
    with Honest(clean):
        ended = support("shm_scribbler", clean.unix[5:] + ".shm", name, generation, "1,1,3,2", 1 << 3, calls, how)
    answered, failed, broken_off, wrong = ended
    assert answered + failed == calls or broken_off >= calls, ended
    assert wrong == 0
    if how == "values":  # both ways out have been gone, many times: the program sees to that
        assert answered >= calls // 256 and failed >= calls // 256 and broken_off == 0, ended


def test_who_is_killed_leaves_nothing_behind(clean):
    name = fresh()
    generation = clean.client.join_all(name, 2, BCE)
    alone = clean.client.join_all(name + "-alone", 1, BCE)
    with Honest(clean):
        assert support("shm_victims", clean.unix[5:] + ".shm", name, generation, alone, KILLS) == [KILLS]
    wait_until(lambda: clean.metric("lossd_region_bytes") == 0)
    wait_until(lambda: {r.state for r in clean.client.group(name).ranks} & {7})
    assert re.search(r"^lossd_shared_memory_clients 0$", clean.metrics(), re.M)


def test_a_flood_of_bells_holds_up_nobody(clean):
    name = fresh()
    generation = clean.client.join_all(name, 1, BCE)
    noisy = Peer(clean, name, 0, generation, BCE)
    stops = threading.Event()

    def flood():
        noisy.sock.setblocking(False)
        while not stops.is_set():
            noisy.control.bell += 1
            try:
                noisy.ring()
            except BlockingIOError:
                pass

    thread = threading.Thread(target=flood)
    thread.start()
    with Honest(clean) as honest:
        wait_until(lambda: honest.step > 50, 30)
    stops.set()
    thread.join()
    noisy.close()
