"""A world's motion and gradients depend on that world alone: not on its neighbours, on threads, or on the run.

On one device all comparisons are exact. Between CPU and GPU the same numbers are added in another order, so there only
rounding may differ.
"""

from __future__ import annotations

import re
from pathlib import Path

import mujoco
import numpy as np
import pytest
import torch
from random_robots import random_robot
from torch import Tensor

from trot.sim.build import HEADERS
from trot.sim.linearize import linearize
from trot.sim.load import load_model
from trot.sim.manifold import retract
from trot.sim.model import Model
from trot.sim.parameters import Parameters
from trot.sim.state import State
from trot.sim.step import step
from trot.sim.threads import set_num_threads

ROOT = Path(__file__).parents[2]
ROBOTS = {
    "ant": ROOT / "trot" / "envs" / "assets" / "ant.xml",
    "every_joint": ROOT / "tests" / "robots" / "every_joint.xml",
    "every_pair": ROOT / "tests" / "robots" / "every_pair.xml",
    "muscle_humanoid": ROOT / "trot" / "envs" / "assets" / "muscle_humanoid.xml",
}
DT, SUBSTEPS = 1 / 60, 16

ATOMIC = re.compile(r"\batomic\w*|\b__sync_fetch\w*|\bwp::atomic\w*")

Inputs = tuple[Tensor, ...]
"""joint_q, joint_qd, control, and for the gradient what to multiply the next joint_q and joint_qd by."""


@pytest.fixture(scope="module", params=ROBOTS)
def model(request) -> Model:
    return load_model(ROBOTS[request.param], self_collision=request.param == "every_pair")


@pytest.fixture(params=[torch.float32, torch.float64], ids=["float32", "float64"])
def dtype(request) -> torch.dtype:
    return request.param


def lively_inputs(model: Model, num_worlds: int, dtype: torch.dtype, device: str = "cpu") -> Inputs:
    """Worlds flung about for a third of a second, every other one let go close to the ground."""
    generator = torch.Generator().manual_seed(num_worlds)

    def normal(columns):
        return torch.randn(num_worlds, columns, generator=generator, dtype=torch.float64).to(device)

    state = model.default_state(num_worlds, device, torch.float64)
    state.joint_q[::2, 2] += 3.0
    state = State(state.joint_q, normal(model.num_dofs))
    for _ in range(20):
        state = step(model, state, 0.5 * normal(model.num_controls), DT, SUBSTEPS)
    inputs = (
        state.joint_q,
        state.joint_qd,
        0.5 * normal(model.num_controls),
        normal(model.num_q),
        normal(model.num_dofs),
    )
    return tuple(tensor.to(dtype) for tensor in inputs)


def take(inputs: Inputs, worlds: slice | list[int]) -> Inputs:
    return tuple(tensor[worlds].clone() for tensor in inputs)


def step_and_gradient(model: Model, inputs: Inputs, dt: float = DT, substeps: int = SUBSTEPS) -> list[Tensor]:
    """Next joint_q and joint_qd, then the gradients by joint_q, joint_qd and control."""
    leaves = [tensor.clone().requires_grad_() for tensor in inputs[:3]]
    following = step(model, State(*leaves[:2]), leaves[2], dt, substeps)
    results = [following.joint_q, following.joint_qd]
    return [*(tensor.detach() for tensor in results), *torch.autograd.grad(results, leaves, inputs[3:])]


def assert_same(found: list[Tensor], expected: list[Tensor]) -> None:
    for name, a, b in zip(("q", "qd", "grad q", "grad qd", "grad control"), found, expected, strict=True):
        assert torch.equal(a, b), f"{name} differs by up to {(a - b).abs().max()}"


def touching(model: Model, joint_q: Tensor) -> list[bool]:
    """Whether a world is in contact, by MuJoCo's collision detection."""
    data, result = mujoco.MjData(model.source), []
    for q in joint_q:
        data.qpos[:] = q.numpy()
        mujoco.mj_kinematics(model.source, data)
        mujoco.mj_comPos(model.source, data)
        mujoco.mj_collision(model.source, data)
        kinds = model.source.geom_type[data.contact.geom]
        result.append(bool((kinds == mujoco.mjtGeom.mjGEOM_PLANE).any()))
    return result


def test_no_kernel_adds_in_an_order_that_may_change():
    """Every number has one owner: an atomic addition would add in whatever order the threads arrive."""
    headers = sorted(HEADERS.glob("*.h"))
    assert len(headers) > 10
    code = {header.name: re.sub(r"//.*", "", header.read_text(encoding="utf-8")) for header in headers}
    assert {name: ATOMIC.findall(text) for name, text in code.items() if ATOMIC.search(text)} == {}


def test_some_worlds_touch_the_ground_and_some_do_not(model):
    """What the other tests are worth: contact branches differ within a block of worlds."""
    contact = touching(model, lively_inputs(model, 64, torch.float64)[0])
    for block in range(0, 64, 16):
        assert 0 < sum(contact[block : block + 16]) < 16


def test_same_bits_twice(model, dtype):
    inputs = lively_inputs(model, 64, dtype)
    first = step_and_gradient(model, inputs)
    assert all(tensor.isfinite().all() for tensor in first)
    assert_same(step_and_gradient(model, inputs), first)


def test_same_bits_for_any_number_of_threads(model, dtype, threads):
    inputs = lively_inputs(model, 64, dtype)
    set_num_threads(1)
    alone = step_and_gradient(model, inputs)
    for count in (2, 3):
        set_num_threads(count)
        assert_same(step_and_gradient(model, inputs), alone)


def test_same_bits_with_and_without_gradient(model, dtype):
    inputs = lively_inputs(model, 17, dtype)
    following = step(model, State(*inputs[:2]), inputs[2], DT, SUBSTEPS)
    expected = step_and_gradient(model, inputs)
    assert torch.equal(following.joint_q, expected[0])
    assert torch.equal(following.joint_qd, expected[1])


@pytest.mark.parametrize("num_worlds", [17, 33, 64])
def test_a_world_alone_moves_as_among_others(model, dtype, num_worlds):
    """17 and 33 worlds leave the last block incomplete."""
    inputs = lively_inputs(model, num_worlds, dtype)
    together = step_and_gradient(model, inputs)
    for world in {0, 5, 15, 16, num_worlds - 1}:
        alone = step_and_gradient(model, take(inputs, [world]))
        assert_same(alone, [tensor[world : world + 1] for tensor in together])


def test_order_of_worlds_does_not_matter(model, dtype):
    inputs = lively_inputs(model, 33, dtype)
    order = torch.randperm(33, generator=torch.Generator().manual_seed(0))
    shuffled = step_and_gradient(model, tuple(tensor[order] for tensor in inputs))
    assert_same(shuffled, [tensor[order] for tensor in step_and_gradient(model, inputs)])


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_nan_stays_in_its_world(model, dtype, bad):
    """Worlds that share a block with a broken one, and the broken one itself, which must not look well."""
    inputs = lively_inputs(model, 64, dtype)
    whole = step_and_gradient(model, inputs)
    broken = take(inputs, slice(None))
    broken[1][3, 0] = bad  # a speed
    broken[0][40, 1] = bad  # a position
    found = step_and_gradient(model, broken)
    others = [world for world in range(64) if world not in (3, 40)]
    assert_same([tensor[others] for tensor in found], [tensor[others] for tensor in whole])
    assert not State(*found[:2]).finite[[3, 40]].any()


def test_a_nan_gradient_stays_in_its_world(model, dtype):
    inputs = lively_inputs(model, 17, dtype)
    whole = step_and_gradient(model, inputs)
    broken = take(inputs, slice(None))
    broken[4][3, 0] = float("nan")
    found = step_and_gradient(model, broken)
    others = [world for world in range(17) if world != 3]
    assert_same([tensor[others] for tensor in found], [tensor[others] for tensor in whole])
    assert found[2][3].isnan().any()


def test_parameters_of_a_world_alone_and_among_others():
    """Per-world masses and contact constants, and their gradients."""
    model, num_worlds = load_model(ROBOTS["ant"]), 33
    inputs = lively_inputs(model, num_worlds, torch.float64)
    scale = 1 + 0.1 * torch.rand(num_worlds, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    mass, friction = scale * torch.tensor(model.body_mass), scale * torch.tensor(model.shape_friction)

    def gradients(worlds):
        leaves = [mass[worlds].clone().requires_grad_(), friction[worlds].clone().requires_grad_()]
        joint_q, joint_qd, control, weight_q, weight_qd = take(inputs, worlds)
        parameters = Parameters(body_mass=leaves[0], friction=leaves[1])
        following = step(model, State(joint_q, joint_qd), control, DT, SUBSTEPS, parameters)
        return torch.autograd.grad([following.joint_q, following.joint_qd], leaves, [weight_q, weight_qd])

    together = gradients(slice(None))
    assert together[1].abs().max() > 0
    for world in (0, 16, 32):
        for alone, all_worlds in zip(gradients([world]), together, strict=True):
            assert torch.equal(alone[0], all_worlds[world])


# On the GPU.


@pytest.mark.gpu
def test_gpu_agrees_with_cpu(model, dtype):
    """16 substeps from lively states, relative to the largest number of a world's result.

    Rounding is 1e-7 in float32 and 1e-16 in float64. Contact stiffens it: 1e-4 and 1e-10 are a thousand and a million
    roundings; gradients pass twice through every substep and get ten times that.
    """
    forward = {torch.float32: 1e-4, torch.float64: 1e-10}[dtype]
    inputs = lively_inputs(model, 64, dtype, "cuda")
    found = step_and_gradient(model, inputs)
    expected = step_and_gradient(model, tuple(tensor.cpu() for tensor in inputs))
    for k, (gpu, cpu) in enumerate(zip(found, expected, strict=True)):
        error = (gpu.cpu() - cpu).abs() / cpu.abs().amax(dim=1, keepdim=True)
        assert error.max() < (forward if k < 2 else 10 * forward), (k, float(error.max()))


@pytest.mark.gpu
def test_gpu_agrees_with_cpu_for_more_dofs_than_lanes(dtype):
    """54 dofs do not fit the 32 lanes that hold a row each; in float64 they do not fit shared memory either."""
    model = load_model(random_robot(np.random.default_rng(0), 14))
    assert model.num_dofs > 32
    generator = torch.Generator().manual_seed(0)

    def normal(columns):
        return torch.randn(20, columns, generator=generator, dtype=torch.float64)

    joint_q = retract(model, model.default_state(20, dtype=torch.float64).joint_q, 0.3 * normal(model.num_dofs))
    rest = (normal(model.num_dofs), 0.5 * normal(model.num_controls), normal(model.num_q), normal(model.num_dofs))
    inputs = tuple(tensor.to(dtype) for tensor in (joint_q, *rest))
    found = step_and_gradient(model, tuple(tensor.cuda() for tensor in inputs), 1e-4, 4)
    expected = step_and_gradient(model, inputs, 1e-4, 4)
    tolerance = {torch.float32: 1e-3, torch.float64: 1e-10}[dtype]
    for gpu, cpu in zip(found, expected, strict=True):
        assert ((gpu.cpu() - cpu).abs() / cpu.abs().amax(dim=1, keepdim=True)).max() < tolerance


@pytest.mark.gpu
def test_gpu_jacobians_and_parameter_gradients_agree_with_cpu():
    model = load_model(ROBOTS["every_joint"])
    inputs = lively_inputs(model, 5, torch.float64, "cuda")

    def results(joint_q, joint_qd, control, weight_q, weight_qd):
        state = State(joint_q, joint_qd)
        mass = torch.tensor(model.body_mass, device=joint_q.device, requires_grad=True)
        friction = torch.full(
            (5, model.num_shapes), 0.7, dtype=joint_q.dtype, device=joint_q.device, requires_grad=True
        )
        following = step(model, state, control, DT, SUBSTEPS, Parameters(body_mass=mass, friction=friction))
        outputs, weights = [following.joint_q, following.joint_qd], [weight_q, weight_qd]
        return [
            *linearize(model, state, control, DT, SUBSTEPS),
            *torch.autograd.grad(outputs, [mass, friction], weights),
        ]

    for gpu, cpu in zip(results(*inputs), results(*(tensor.cpu() for tensor in inputs)), strict=True):
        assert ((gpu.cpu() - cpu).abs() / cpu.abs().max()).max() < 1e-9


@pytest.mark.gpu
def test_gpu_same_bits_twice(model, dtype):
    inputs = lively_inputs(model, 64, dtype, "cuda")
    assert_same(step_and_gradient(model, inputs), step_and_gradient(model, inputs))


@pytest.mark.gpu
def test_gpu_world_alone_moves_as_among_others(model, dtype):
    inputs = lively_inputs(model, 64, dtype, "cuda")
    together = step_and_gradient(model, inputs)
    for world in (0, 5, 31, 32, 63):
        alone = step_and_gradient(model, take(inputs, [world]))
        assert_same(alone, [tensor[world : world + 1] for tensor in together])


@pytest.mark.gpu
def test_gpu_nan_stays_in_its_world(model, dtype):
    inputs = lively_inputs(model, 64, dtype, "cuda")
    whole = step_and_gradient(model, inputs)
    broken = take(inputs, slice(None))
    broken[1][3, 0] = float("nan")
    found = step_and_gradient(model, broken)
    others = [world for world in range(64) if world != 3]
    assert_same([tensor[others] for tensor in found], [tensor[others] for tensor in whole])
    assert not State(*found[:2]).finite[3]


@pytest.mark.gpu
def test_gpu_graph_replays_step_and_gradient(model):
    """Forward and backward captured once, replayed with other numbers: what eager PyTorch gives, bit by bit."""
    inputs = lively_inputs(model, 64, torch.float32, "cuda")
    first, second = take(inputs, slice(32)), take(inputs, slice(32, 64))
    fixed = tuple(tensor.clone() for tensor in first)
    for tensor in fixed[:3]:
        tensor.requires_grad_()

    def run():
        following = step(model, State(*fixed[:2]), fixed[2], DT, SUBSTEPS)
        results = [following.joint_q, following.joint_qd]
        return [*results, *torch.autograd.grad(results, fixed[:3], fixed[3:])]

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = run()

    for inputs in (second, first):
        with torch.no_grad():
            for tensor, value in zip(fixed, inputs, strict=True):
                tensor.copy_(value)
        graph.replay()
        torch.cuda.synchronize()
        assert_same([tensor.detach() for tensor in captured], step_and_gradient(model, inputs))
