"""The crew of threads that share the worlds of a step."""

import signal
import threading
import time

import pytest
import torch

from trot.sim.load import load_model
from trot.sim.step import step
from trot.sim.threads import run_beside, run_together

ROBOT = """
<mujoco>
  <worldbody>
    <body><joint name="{name}" axis="0 1 0"/><geom type="sphere" pos="0.1 0 0" size="0.1"/></body>
  </worldbody>
</mujoco>"""


def test_every_job_runs_and_the_caller_takes_the_first():
    ran: dict[int, str] = {}
    jobs = [lambda i=i: ran.update({i: threading.current_thread().name}) for i in range(5)]
    run_together(jobs)
    assert sorted(ran) == [0, 1, 2, 3, 4]
    assert ran[0] == threading.current_thread().name
    assert {ran[i] for i in range(1, 5)} == {"trot"}


def test_an_error_comes_out_when_all_are_done():
    done = threading.Event()

    def slow():
        time.sleep(0.2)
        done.set()

    def fail():
        raise ArithmeticError("third")

    with pytest.raises(ArithmeticError, match="third"):
        run_together([lambda: None, slow, fail])
    assert done.is_set()


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="signals cannot be sent to a thread here")
def test_ctrl_c_waits_for_the_others():
    """They write into memory of the caller, who would give it back."""
    done = threading.Event()

    def slow():
        time.sleep(0.5)
        done.set()

    main = threading.main_thread().ident
    threading.Timer(0.1, signal.pthread_kill, [main, signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        run_together([lambda: None, slow])
    assert done.is_set()


def test_a_job_runs_beside_until_it_is_waited_for():
    go_on, ran = threading.Event(), []

    def job():
        go_on.wait(10)
        ran.append(threading.current_thread().name)

    wait = run_beside(job)
    assert ran == []
    go_on.set()
    wait()
    assert ran == ["trot"]


def test_an_error_beside_comes_out_where_it_is_waited_for():
    def fail():
        raise ArithmeticError("beside")

    wait = run_beside(fail)
    with pytest.raises(ArithmeticError, match="beside"):
        wait()


def test_jobs_that_find_the_crew_at_work_are_the_callers():
    """Or they would wait for as long as the other job takes."""
    go_on, ran = threading.Event(), []
    run_together([lambda: None] * 3)
    busy = [run_beside(lambda: go_on.wait(10)) for _ in range(threading.active_count())]
    run_together([lambda: ran.append(threading.current_thread().name)] * 3)
    assert ran == [threading.current_thread().name] * 3
    go_on.set()
    for wait in busy:
        wait()
    ran.clear()
    run_together([lambda: ran.append(threading.current_thread().name)] * 3)
    assert sorted(ran) == sorted([threading.current_thread().name, "trot", "trot"])


def test_threads_are_made_once():
    run_together([lambda: None] * 4)
    before = threading.active_count()
    for _ in range(3):
        run_together([lambda: None] * 4)
        run_together([lambda: None] * 2)
    assert threading.active_count() == before


def test_first_steps_from_several_threads():
    """Kernels are built on first use; four threads that want them at once must not disturb each other."""
    model = load_model(ROBOT.format(name="first"))
    barrier = threading.Barrier(4)
    found: list[float] = []

    def take_a_step():
        barrier.wait()
        following = step(model, model.default_state(2), torch.zeros(2, 0), 0.01)
        found.append(float(following.joint_qd[0, 0]))

    threads = [threading.Thread(target=take_a_step) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(found)) == 1
