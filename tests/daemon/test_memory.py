"""Memory of calls: kept for the next one, so that it need not be new pages, and given back when none comes."""

import pytest

from harness import fresh, page_faults, wait_until
from small import BCE

CANDIDATES = 1_000_000


@pytest.mark.plain
def test_large_calls_cost_no_new_pages_and_their_memory_goes_after_ten_quiet_seconds(start):
    daemon = start({"http_threads": 1})
    client = daemon.rpc("proto", unix=True)
    idle = daemon.memory_kb("VmRSS")
    group = fresh()
    client.join(group, 0, 1, BCE)
    task = {"name": "t", "logits": [0.25] * CANDIDATES, "labels": [1.0] * CANDIDATES}
    body = client.encode("ComputeLoss", {"group": group, "rank": 0, "lengths": [CANDIDATES], "tasks": [task]})
    for _ in range(4):
        client.call("ComputeLoss", body)
    faults = page_faults(daemon.process.pid)["minor"]
    client.call("ComputeLoss", body)
    assert page_faults(daemon.process.pid)["minor"] - faults < len(body) // 4096 // 10

    kept = daemon.memory_kb("VmRSS") - idle
    assert kept > len(body) // 1024
    wait_until(lambda: daemon.memory_kb("VmRSS") - idle <= kept // 10, 20)
