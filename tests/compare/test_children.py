"""Child processes side by side: exit codes, logs, how many at a time, and none left behind."""

import os

import pytest

from trot.compare.children import Children, Job, last_line, run_side_by_side


def test_a_job_that_fails_does_not_end_the_others_and_each_has_a_log(tmp_path):
    jobs = [Job(name, (name,), tmp_path / "logs" / f"{name}.log") for name in ("--version", "nonsense", "tasks-of")]
    seen = []

    def watch(children):
        seen.append(len(children.running))

    codes, interruption = run_side_by_side([*jobs, Job("last", ("--version",), tmp_path / "last.log")], 2, False, watch)
    assert codes == {"--version": 0, "nonsense": 2, "tasks-of": 2, "last": 0} and not interruption
    assert max(seen) == 2 and seen[-1] == 0
    assert (tmp_path / "last.log").read_text().splitlines()[0] == "$ trot --version"
    assert last_line(tmp_path / "last.log").startswith("trot 0.")
    assert "nonsense" in (tmp_path / "logs" / "nonsense.log").read_text()


def test_an_error_leaves_no_process_behind(tmp_path):
    with pytest.raises(ZeroDivisionError), Children([Job("a", ("tasks",), tmp_path / "log")], 1, False) as children:
        assert children.advance()
        ((process, _),) = children._running.values()
        raise ZeroDivisionError
    assert process.returncode is not None and process.returncode != 0


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system shares out no cores")
def test_cores_are_shared_where_there_are_enough(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 2, 3, 5, 7})
    assert Children([], 2, True)._cores == {0: {0, 3, 7}, 1: {2, 5}}
    assert Children([], 6, True)._cores == Children([], 1, True)._cores == Children([], 2, False)._cores == {}


def test_side_by_side_pytorch_gets_one_thread_unless_the_user_says_otherwise(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert Children([], 2, False)._environment["OMP_NUM_THREADS"] == "1"
    assert "OMP_NUM_THREADS" not in Children([], 1, False)._environment
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert Children([], 2, False)._environment["OMP_NUM_THREADS"] == "3"
