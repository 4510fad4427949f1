"""SHAC on a task with memory."""

from dataclasses import replace

from small_shac import SMALL, run
from tasks_with_memory import commanded

from trot.learn.algorithms import find_algorithm


def test_a_learner_of_a_task_with_memory_resumes_bit_for_bit():
    def commanded_learner(seed):
        shac = find_algorithm("shac")
        settings = replace(shac.resolve("hopper"), **SMALL)
        return shac.learner(commanded(settings.num_worlds, seed=seed), settings, seed)

    shac = run(commanded_learner(0))
    saved = shac.state_dict()
    run(shac)
    resumed = commanded_learner(7)
    resumed.load_state_dict(saved)
    run(resumed)
    memory = shac.env.window_start.memory
    assert resumed.metrics.equal(shac.metrics) and resumed.env.window_start.memory.equal(memory)
    assert memory.abs().max() > 0
