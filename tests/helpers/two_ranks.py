"""Two processes that learn together, started as torchrun starts them."""

import os
import socket
import subprocess
import sys

SIZE = 2


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def start(*command):
    """The same Python command on every rank, as torchrun starts it."""
    port = str(free_port())
    common = {"WORLD_SIZE": str(SIZE), "LOCAL_WORLD_SIZE": str(SIZE), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return [
        subprocess.Popen(
            [sys.executable, *map(str, command)],
            env={**os.environ, **common, "RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(SIZE)
    ]


def finish(processes, seconds=120):
    """Exit codes, what was printed, and what was complained of, by rank."""
    said = [process.communicate(timeout=seconds) for process in processes]
    return [process.returncode for process in processes], [out for out, _ in said], [error for _, error in said]
