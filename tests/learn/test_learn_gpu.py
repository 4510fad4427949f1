"""SHAC on CUDA: graphs give the bits of eager PyTorch, nothing waits for the GPU, and runs resume."""

from dataclasses import replace

import pytest
import torch

import trot
from trot.cli import main
from trot.learn.algorithms import find_algorithm
from trot.learn.capture import fast_phases
from trot.runs.folder import RunFolder

pytestmark = pytest.mark.gpu


def learner(task, seed=0, **changes):
    shac = find_algorithm("shac")
    settings = replace(shac.resolve(task), num_worlds=32, iterations=20, **changes)
    return shac.learner(trot.make_env(task, settings.num_worlds, "cuda", seed), settings, seed)


def tensors(shac):
    torch.cuda.synchronize()
    return {name: tensor.clone() for name, tensor in shac.state_dict().items() if isinstance(tensor, torch.Tensor)} | {
        "metrics": shac.metrics.clone()
    }


def same(first, second):
    return [name for name in first if not first[name].equal(second[name])] == []


@pytest.mark.parametrize("task", ["cartpole", "hopper", "ant", "muscle_humanoid"])
def test_graphs_give_the_bits_of_eager_iterations(task):
    eager, captured = learner(task), learner(task)
    phases = fast_phases(captured)
    for iteration in range(3):
        eager.iterate()
        for phase in phases.values():
            phase(iteration)
        assert same(tensors(eager), tensors(captured))


def test_an_iteration_never_waits_for_the_gpu():
    shac = learner("ant")
    shac.iterate()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        shac.iterate()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_a_captured_run_goes_on_from_a_saved_state():
    whole, parts = learner("ant"), learner("ant")
    phases = fast_phases(whole)
    for iteration in range(3):
        for phase in phases.values():
            phase(iteration)
    saved = whole.state_dict()
    resumed = fast_phases(parts)
    parts.load_state_dict(saved)
    for iteration in range(3, 6):
        for both in (phases, resumed):
            for phase in both.values():
                phase(iteration)
    assert same(tensors(whole), tensors(parts))


def test_same_seed_same_metrics_to_the_bit(tmp_path):
    options = ["--num-worlds", "16", "--horizon", "8", "--save-every", "10", "--runs", str(tmp_path)]
    assert main(["train", "hopper", "--iterations", "40", "--name", "whole", *options]) == 0
    assert main(["train", "hopper", "--iterations", "40", "--name", "again", *options]) == 0
    runs = [RunFolder.open(tmp_path / name) for name in ("whole", "again")]
    rows = [[{k: v for k, v in row.items() if k != "seconds"} for row in run.read_metrics()] for run in runs]
    assert rows[0] == rows[1] and len(rows[0]) == 40
