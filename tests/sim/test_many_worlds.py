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


def test_there_is_room_for_as_many_worlds_as_blocks_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    # Two multiprocessors of 100 KB; a world takes 10,000 bytes of constants, 12,000 of workspace and 2 KiB: four each.
    gpu = SimpleNamespace(multi_processor_count=2, shared_memory_per_multiprocessor=100_000)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: gpu)
    run = object.__new__(Launcher)
    run.device = torch.device("cuda")
    run.kernels = SimpleNamespace(sizes=SimpleNamespace(model=10_000, workspace=12_000))  # type: ignore[assignment]
    assert run.at_once(8)
    assert not run.at_once(9)


def test_the_cpu_has_one_kind_of_kernels(every_joint: Model) -> None:
    variant, cpu = Variant(torch.float32), torch.device("cpu")
    assert launcher_for(every_joint, variant, cpu, 10**6) is launcher(every_joint, variant, cpu, (FORWARD, BACKWARD))


@pytest.mark.gpu
@pytest.mark.parametrize("robot", ["every_joint", "every_pair", "every_muscle"])
def test_same_bits_wherever_the_constants_lie(
    robot: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    model: Model = request.getfixturevalue(robot)
    found = []
    for room in (True, False):
        monkeypatch.setattr(Launcher, "at_once", lambda self, num_worlds, room=room: room)
        state = model.default_state(3, device="cuda")
        draw = torch.Generator("cuda").manual_seed(4)
        speed = torch.randn(state.joint_qd.shape, generator=draw, device="cuda", requires_grad=True)
        control = torch.rand(3, model.num_controls, generator=draw, device="cuda", requires_grad=True)
        after = step(model, replace(state, joint_qd=speed), control, control_dt=0.02, substeps=4)
        (after.joint_q.sum() + after.joint_qd.square().sum()).backward()  # type: ignore[no-untyped-call]
        found.append([after.joint_q, after.joint_qd, speed.grad, control.grad])
    for first, second in zip(*found, strict=True):
        assert first.equal(second)
