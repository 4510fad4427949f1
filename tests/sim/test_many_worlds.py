"""Kernels for more worlds than a GPU's shared memory holds with the robot's constants beside each: the same bits."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from trot.sim.build import Variant
from trot.sim.launch import Launcher, launcher, launcher_for
from trot.sim.model import Model
from trot.sim.programs import BACKWARD, FORWARD
from trot.sim.step import step


def test_rounds_by_the_room_in_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    # Two multiprocessors of 100 KB. A world takes 12,000 bytes of workspace and 2 KiB: seven of them each; with 10,000
    # of constants, four.
    gpu = SimpleNamespace(multi_processor_count=2, shared_memory_per_multiprocessor=100_000)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: gpu)
    run = object.__new__(Launcher)
    run.device = torch.device("cuda")
    run.kernels = SimpleNamespace(sizes=SimpleNamespace(model=10_000, workspace=12_000))  # type: ignore[assignment]
    assert [run.rounds(worlds, True) for worlds in (1, 8, 9, 17)] == [1, 1, 2, 3]
    assert [run.rounds(worlds, False) for worlds in (1, 14, 15, 28)] == [1, 1, 2, 2]


def test_the_cpu_has_one_kind_of_kernels(every_joint: Model) -> None:
    variant, cpu = Variant(torch.float32), torch.device("cpu")
    assert launcher_for(every_joint, variant, cpu, 10**6, 16) is launcher(
        every_joint, variant, cpu, (FORWARD, BACKWARD)
    )


@pytest.mark.gpu
@pytest.mark.parametrize("robot", ["every_joint", "every_pair", "every_muscle"])
def test_same_bits_wherever_the_constants_lie(
    robot: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    model: Model = request.getfixturevalue(robot)
    found = []
    for rounds in (1, 2):
        # As many either way, or fewer without the constants.
        monkeypatch.setattr(Launcher, "rounds", lambda self, worlds, model, rounds=rounds: rounds if model else 1)
        state = model.default_state(3, device="cuda")
        draw = torch.Generator("cuda").manual_seed(4)
        speed = torch.randn(state.joint_qd.shape, generator=draw, device="cuda", requires_grad=True)
        control = torch.rand(3, model.num_controls, generator=draw, device="cuda", requires_grad=True)
        after = step(model, replace(state, joint_qd=speed), control, control_dt=0.02, substeps=4)
        (after.joint_q.sum() + after.joint_qd.square().sum()).backward()  # type: ignore[no-untyped-call]
        found.append([after.joint_q, after.joint_qd, speed.grad, control.grad])
    for first, second in zip(*found, strict=True):
        assert first.equal(second)
