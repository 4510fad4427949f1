"""Threads that share the blocks of a kernel: each block once, each thread with scratch of its own, whatever happens."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from counting_blocks import count_blocks

from trot.sim import crew
from trot.sim.threads import get_num_threads, run_beside, set_num_threads

LONG = 20_000_000
"""Rounds of a block that takes some hundredths of a second."""
linux = pytest.mark.skipif(not crew.HAS_CREW, reason="the crew is for Linux")


@pytest.fixture(params=[pytest.param(True, marks=linux), False], ids=["crew", "python"])
def way(request, monkeypatch):
    """As on Linux, and as elsewhere."""
    monkeypatch.setattr(crew, "HAS_CREW", request.param)


@pytest.fixture(autouse=True)
def threads():
    before = get_num_threads()
    set_num_threads(4)
    yield
    set_num_threads(before)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("number", [1, 2, 4, 7])
@pytest.mark.parametrize("count", [1, 3, 64, 1000])
def test_each_block_runs_once(number, count):
    ran = torch.zeros(count, dtype=torch.int32)
    for repetition in range(1, 30):
        assert (count_blocks(count, number, ran=ran) == repetition).all()


@pytest.mark.usefixtures("way")
def test_each_block_runs_once_for_many_callers():
    """More than are helped at once."""
    found = []

    def call():
        found.extend(count_blocks(50, 4, delay=1000) for _ in range(100))

    callers = [threading.Thread(target=call) for _ in range(6)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(found) == 600
    assert all((ran == 1).all() for ran in found)


@pytest.mark.usefixtures("way")
def test_beside_another_job():
    go_on = threading.Event()
    beside = []

    def job():
        while not go_on.is_set():
            beside.append(count_blocks(20, 4))

    wait = run_beside(job)
    ours = [count_blocks(20, 4) for _ in range(200)]
    go_on.set()
    wait()
    assert all((ran == 1).all() for ran in (*ours, *beside))


@pytest.mark.usefixtures("way")
def test_more_threads_and_fewer():
    for number in (2, 5, 1, 3, 8, 2):
        set_num_threads(number)
        assert (count_blocks(100, number) == 1).all()


@linux
def test_threads_are_made_once():
    count_blocks(50, 5)
    before = threading.active_count()
    for number in (5, 2, 5):
        count_blocks(50, number)
    assert threading.active_count() == before


@pytest.mark.usefixtures("way")
@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="signals cannot be sent to a thread here")
def test_ctrl_c_waits_for_the_others():
    """They write into memory of the caller, who would give it back."""
    count_blocks(2, 2)
    ran = torch.zeros(8, dtype=torch.int32)
    main = threading.main_thread().ident
    began = []

    def interrupt():
        while not ran.any():
            time.sleep(0.001)
        began.append(int(ran.sum()))
        signal.pthread_kill(main, signal.SIGINT)

    watcher = threading.Thread(target=interrupt)
    watcher.start()
    with pytest.raises(KeyboardInterrupt):
        count_blocks(8, 2, LONG, ran)
        watcher.join()
    watcher.join()
    assert began[0] < 8, "the signal came in the middle"
    assert (ran == 1).all()


@linux
def test_the_crew_sleeps_when_there_is_nothing_to_do():
    count_blocks(50, 4)
    members = {thread.native_id for thread in crew.of_this_process()._threads}
    assert len(members) >= 3

    def asleep(member):
        # The letter behind the command's name.
        return Path(f"/proc/self/task/{member}/stat").read_text().rpartition(")")[2].split()[0] == "S"

    deadline = time.monotonic() + 30
    while not all(map(asleep, members)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert all(map(asleep, members))


FORK = """
import os, sys
from counting_blocks import count_blocks
from trot.sim.threads import set_num_threads
set_num_threads(3)
count_blocks(50, 3)
child = os.fork()
fine = all(bool((count_blocks(50, 3) == 1).all()) for _ in range(20))
if child == 0:
    os._exit(0 if fine else 3)
_, status = os.waitpid(child, 0)
print(fine, os.waitstatus_to_exitcode(status))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_has_a_crew_of_its_own():
    assert _run(FORK) == "True 0\n"


def test_a_process_ends_with_a_crew():
    """Also while another thread has it at work."""
    program = (
        "import threading\nfrom counting_blocks import count_blocks\n"
        # No operation of PyTorch in the thread: one that waits for Python's lock at the end takes the process down.
        "ran = count_blocks(50, 4)\n"
        "at_work = threading.Event()\n"
        "def work():\n    while True:\n        count_blocks(50, 4, 1000, ran)\n        at_work.set()\n"
        "threading.Thread(target=work, daemon=True).start()\n"
        "at_work.wait()\ncount_blocks(50, 4)\nprint('done')\n"
    )
    assert _run(program) == "done\n"


def _run(program: str) -> str:
    helpers = Path(__file__).parents[1] / "helpers"
    path = os.pathsep.join([str(helpers), str(Path(crew.__file__).parents[2])])
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        capture_output=True, text=True, timeout=120, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert ended.returncode == 0, (ended.returncode, ended.stderr)
    assert "rror" not in ended.stderr, ended.stderr
    return ended.stdout
