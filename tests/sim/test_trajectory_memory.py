"""Memory of trajectories is used again, but never while somebody still reads it."""

import gc
from pathlib import Path

import torch

from trot.sim.load import load_model
from trot.sim.step import step
from trot.sim.trajectory_memory import WORTH_KEEPING, TrajectoryMemory

ANT = Path(__file__).parents[2] / "trot" / "envs" / "assets" / "ant.xml"
NUMBERS = WORTH_KEEPING // 4


def test_memory_comes_home_when_the_last_view_goes():
    memory = TrajectoryMemory()
    first = memory.take((NUMBERS,), torch.float32)
    place, view = first.data_ptr(), first[5:].view(-1)
    del first
    gc.collect()
    second = memory.take((NUMBERS,), torch.float32)
    assert second.data_ptr() != place
    del view
    third = memory.take((2, NUMBERS // 2), torch.float32)
    assert third.data_ptr() == place
    assert third.shape == (2, NUMBERS // 2)


def test_memory_of_another_size_is_given_back():
    memory = TrajectoryMemory()
    small, large = (NUMBERS,), (2 * NUMBERS,)
    lent = memory.take(small, torch.float32)
    del lent
    place = memory.take(large, torch.float64).data_ptr()
    assert memory.take(large, torch.float64).data_ptr() == place
    assert len(memory._idle[1]) == 1
    memory.take(small, torch.float32)
    assert len(memory._idle[1]) == 1


def test_kernels_read_it_in_whole_vectors():
    memory = TrajectoryMemory()
    for size in (NUMBERS, NUMBERS + 16, 3):
        assert memory.take((size,), torch.float32).data_ptr() % 64 == 0


def test_windows_that_overlap_have_gradients_as_one_after_the_other():
    model = load_model(ANT)

    def window(seed):
        generator = torch.Generator().manual_seed(seed)
        controls = [torch.randn(512, 8, generator=generator).requires_grad_() for _ in range(3)]
        state = model.default_state(512)
        for control in controls:
            state = step(model, state, control, 1 / 60, 4)
        return controls, state.joint_q.sum() + state.joint_qd.square().sum()

    def gradients(window):
        controls, loss = window
        return torch.autograd.grad(loss, controls)

    expected = [gradients(window(seed)) for seed in (1, 2, 3)]
    first, second = window(1), window(2)
    found = [gradients(first)]
    del first
    third = window(3)
    found += [gradients(second), gradients(third)]
    for ours, theirs in zip(found, expected, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
