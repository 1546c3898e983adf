"""Ranks that join, leave, announce, compute and hang up at random, all at once: every answer is one of the table."""

import json
import random
import threading
import time

import pytest

from harness import PATHS, RpcError, background
from small import BCE, Ranks

SECONDS = 4
QUICK = {"step_timeout_ms": 200, "first_step_timeout_ms": 300}
CONFIGS = [{**BCE, **QUICK}, {"tasks": [{"name": "t", "losses": [{"l2_loss": {}}]}], "global_average": False}]
NEVER = {"INTERNAL", "SHUTTING_DOWN", "OVERLOADED", "MALFORMED_REQUEST"}


class Caller:
    """One thread of calls; the clock chooses the steps, so that callers meet in them."""

    def __init__(self, daemon, seed):
        self.daemon, self.random, self.begin = daemon, random.Random(seed), time.monotonic()
        self.wrong, self.ended = [], 0

    def request(self):
        r = self.random
        base = {"group": r.choice("aab"), "rank": r.choice([0, 0, 1, 1, 2, 3])}
        step = max(0, int((time.monotonic() - self.begin) * 10) + r.choice([0, 0, 0, 1, 2, -1]))
        count = r.choice([0, 1, 3])
        return r.choice(
            [("ComputeLoss", {**base, "step": step, "lengths": [1] * count,
                              "tasks": [{"name": "t", "logits": [r.choice([1.0, 1.0, "NaN"])] * count, "labels": [1] * count}]})] * 12
            + [("AnnounceCounts", {**base, "step": step, "requests": count, "candidates": count})] * 4
            + [("JoinGroup", {**base, "world_size": 3, "config": r.choice(CONFIGS[:1] * 3 + CONFIGS[1:])})] * 3
            + [("LeaveGroup", base), ("GetGroup", {"group": base["group"]}), ("ListGroups", {})])

    def hang_up(self, method, request):
        body = json.dumps(request).encode()
        call = (f"POST {PATHS[method]} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\n\r\n").encode() + body
        sock = self.daemon.client.socket()
        sock.sendall(call[: self.random.choice([len(call), self.random.randrange(len(call))])])
        time.sleep(self.random.choice([0, 0.001, 0.02]))
        sock.close()

    def run(self):
        while time.monotonic() - self.begin < SECONDS:
            method, request = self.request()
            if self.random.random() < 0.1:
                self.hang_up(method, request)
                continue
            try:
                timeout = self.random.choice([None, None, 0, 5, 300])
                self.daemon.client.call(method, request, timeout_ms=timeout)
            except RpcError as error:
                if error.reason in NEVER:
                    self.wrong.append((method, request, str(error)))
            self.ended += 1


@pytest.mark.parametrize("seed", [1, 2])
def test_random_calls_get_an_answer_and_leave_nothing(start, seed):
    daemon = start()
    callers = [Caller(daemon, 100 * seed + i) for i in range(8)]
    threads = [threading.Thread(target=c.run) for c in callers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not sum((c.wrong for c in callers), []) and all(c.ended > 20 for c in callers)
    end = time.monotonic() + 10
    while daemon.metric("lossd_open_calls") + daemon.metric("lossd_memory_bytes") + daemon.metric("lossd_connections") > 1:
        assert time.monotonic() < end, daemon.metrics()
        time.sleep(0.05)


def test_an_answer_has_the_names_of_its_own_generation(start):
    """While it is written, its peer joins again and again, and the config that it is from is gone."""
    daemon = start()
    config = {"tasks": [{"name": n, "losses": [{"l2_loss": {}}]} for n in ("first-task", "second-task")]}
    other = {"tasks": [{"name": n * 20, "losses": [{"l2_loss": {}}]} for n in "xy"]}
    g = Ranks(daemon.client, "g", 2, config)

    def batch(count):
        columns = {"logits": [0.5] * count, "labels": [0] * count}
        return {"lengths": [count], "tasks": [{"name": n, **columns} for n in ("first-task", "second-task")]}

    large = background(lambda: g.compute(0, 1, batch(200000)))
    g.wait_for(0, "WAITING")
    g.compute(1, 1, batch(1))
    for _ in range(5):
        daemon.client.join("g", 1, 2, other)
    assert [task.name for task in large.result(30).tasks] == ["first-task", "second-task"]
