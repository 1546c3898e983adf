"""Several processes as torchrun starts them, on this machine."""

import os
import socket
import subprocess
import sys

from lossd_process import ROOT


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def run_ranks(world_size, program, arguments, address, timeout=240, package=ROOT / "client" / "python"):
    """
    program as world_size ranks, with torchrun's environment and the address of the daemon; arguments(rank) is what
    each is given. Fails with what a rank has printed where one does.
    """
    common = {
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size),
        "GROUP_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "TORCHELASTIC_RUN_ID": "tests",
        "LOSSD_ADDR": address,
        "PYTHONPATH": str(package),
        "GLOO_SOCKET_IFNAME": "lo",
        "USE_LIBUV": "0",  # Debian's PyTorch 2 is built without
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, "-W", "error", str(program), *map(str, arguments(rank))],
            env={**os.environ, **common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(world_size)
    ]
    try:
        printed = [rank.communicate(timeout=timeout)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    for rank, text in zip(ranks, printed):
        assert rank.returncode == 0, text[-4000:]
    return printed
