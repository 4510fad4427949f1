"""What is kept of every substep for the backward pass: keeping more of it changes times and bytes, and no gradient."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from probe import PLACES
from torch import Tensor

from trot.sim import step
from trot.sim.build import Variant
from trot.sim.launch import Launcher, launcher, launcher_for
from trot.sim.load import load_model
from trot.sim.model import Model
from trot.sim.state import State

HUMANOID = Path(__file__).parents[2] / "trot" / "envs" / "assets" / "humanoid.xml"
WORLDS, SUBSTEPS, CONTROL_DT = 11, 4, 0.002
LEAST = Variant(torch.float64)


@pytest.fixture(params=["every_joint", "every_pair", "every_law", "every_bond", "every_muscle", "humanoid"])
def model(request: pytest.FixtureRequest) -> Model:
    if request.param == "humanoid":
        return load_model(HUMANOID)
    found: Model = request.getfixturevalue(request.param)
    return found


def after_and_gradients(model: Model, place: str) -> list[Tensor]:
    """Two steps of worlds flung about, and the derivatives of a number made of where they end."""
    draw = torch.Generator().manual_seed(3)

    def drawn(shape: torch.Size) -> Tensor:
        return torch.randn(shape, generator=draw, dtype=torch.float64).to(place)

    start = model.default_state(WORLDS, place, torch.float64)
    q, qd = start.joint_q.requires_grad_(), drawn(start.joint_qd.shape).requires_grad_()
    controls = [drawn(torch.Size((WORLDS, model.num_controls))).requires_grad_() for _ in range(2)]
    state = State(q, qd, activation=start.activation)
    for control in controls:
        state = step.step(model, state, control, CONTROL_DT, SUBSTEPS)
    weights = [drawn(state.joint_q.shape), drawn(state.joint_qd.shape)]
    return [
        state.joint_q, state.joint_qd,
        *torch.autograd.grad([state.joint_q, state.joint_qd], [q, qd, *controls], weights),
    ]  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_same_bits_whatever_is_kept(model: Model, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    device = torch.zeros(0, device=place).device
    # The factor that is built again may differ in rounding from the one that went through the solve on its way.
    kinds = [LEAST, replace(LEAST, store_motion=True)]
    kinds += [replace(kind, store_factor=True) for kind in kinds]
    found = []
    for kind in kinds:
        run = launcher(model, kind, device)
        monkeypatch.setattr(step, "launcher_for", lambda *_, run=run: run)
        found.append(after_and_gradients(model, place))
    for other in found[1:]:
        for first, second in zip(found[0], other, strict=True):
            torch.testing.assert_close(second, first, rtol=1e-11, atol=1e-11)
    for pair in (found[:2], found[2:]):
        for first, second in zip(*pair, strict=True):
            assert second.equal(first)


def test_numbers_of_a_substep(every_joint: Model) -> None:
    bodies, dofs = every_joint.num_bodies, every_joint.num_dofs
    least = every_joint.num_q + 2 * dofs + every_joint.num_acts
    # Rotation, position, inertia and velocity of a body; a dof's axis and how it changes; the origin.
    motion = bodies * (9 + 3 + 10 + 6) + dofs * (6 + 6) + 3
    cpu = torch.device("cpu")
    assert launcher(every_joint, LEAST, cpu).kernels.sizes.record == least
    assert launcher(every_joint, replace(LEAST, store_motion=True), cpu).kernels.sizes.record == least + motion


def test_as_long_as_there_is_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    # 32 control steps of 4 substeps, 1000 float32 numbers each, are 512,000 bytes of a world; a quarter may be used.
    gpu = SimpleNamespace(total_memory=10 * 4 * 512_000)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: gpu)
    run = object.__new__(Launcher)
    run.device, run.dtype = torch.device("cuda"), torch.float32
    run.kernels = SimpleNamespace(sizes=SimpleNamespace(record=1000))  # type: ignore[assignment]
    assert [run.may_keep(worlds, 4) for worlds in (1, 10, 11)] == [True, True, False]


@pytest.mark.gpu
def test_a_gpu_keeps_motion_while_it_has_memory(every_joint: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = torch.device("cuda", 0)
    assert launcher_for(every_joint, LEAST, cuda, 64, SUBSTEPS).variant.store_motion
    monkeypatch.setattr(Launcher, "may_keep", lambda *_: False)
    variant = launcher_for(every_joint, LEAST, cuda, 64, SUBSTEPS).variant
    assert variant.store_factor
    assert not variant.store_motion
