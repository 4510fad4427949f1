"""SHAC on a task with memory, and what was saved before there was any."""

from dataclasses import replace

from small_shac import SMALL, learner, run
from tasks_with_memory import commanded, without_memory

from trot.learn.algorithms.shac import Shac
from trot.learn.settings import resolve


def test_learners_saved_before_there_was_memory():
    shac = run(learner())
    saved = shac.state_dict()
    old = {**saved, "env": without_memory(saved["env"]), "tensors": dict(saved["tensors"])}
    del old["tensors"]["offending_start.memory"]
    run(shac)
    resumed = learner(seed=7)
    resumed.load_state_dict(old)
    run(resumed)
    assert resumed.metrics.equal(shac.metrics) and resumed.start.joint_q.equal(shac.start.joint_q)


def test_a_learner_of_a_task_with_memory_resumes_bit_for_bit():
    def commanded_learner(seed):
        settings = replace(resolve("hopper"), **SMALL)
        return Shac(commanded(settings.num_worlds, seed=seed), settings, seed)

    shac = run(commanded_learner(0))
    saved = shac.state_dict()
    run(shac)
    resumed = commanded_learner(7)
    resumed.load_state_dict(saved)
    run(resumed)
    assert resumed.metrics.equal(shac.metrics) and resumed.start.memory.equal(shac.start.memory)
    assert shac.start.memory.abs().max() > 0
