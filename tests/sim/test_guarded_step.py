"""The guarded step beside trot.step: the same bits where worlds are sound, nothing but zeros where they are not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import trot
from trot.sim.guard import BOUND, Guard
from trot.sim.parameters import Parameters
from trot.sim.state import State
from trot.sim.step import Physics, guarded_step, prepare, step

ASSETS = Path(trot.__path__[0]) / "envs" / "assets"
DT, SUBSTEPS = 1 / 60, 4
BAD = 3
SOUND = [0, 1, 2, 4, 5]


@pytest.fixture(scope="module")
def hopper() -> trot.Model:
    return trot.load_model(ASSETS / "hopper.xml")


def drawn(model: trot.Model, spoilt: bool) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(4)
    start = model.default_state(6, dtype=torch.float64)
    inputs = {
        "joint_q": start.joint_q.clone(),
        "joint_qd": torch.randn(start.joint_qd.shape, dtype=torch.float64, generator=generator),
        "control": torch.randn(6, model.num_controls, dtype=torch.float64, generator=generator),
        "friction": torch.full((6, model.num_shapes), 0.2, dtype=torch.float64),
    }
    # The foot in the ground, and sliding.
    inputs["joint_q"][:, 1] -= 0.03
    inputs["joint_qd"][:, 0] += 5
    if spoilt:
        inputs["joint_qd"][BAD, 1] = 10 * BOUND
    return {name: tensor.requires_grad_() for name, tensor in inputs.items()}


def moved(model: trot.Model, inputs: dict[str, torch.Tensor], guarded: bool, shared: bool = False):
    """The next state, which worlds are sound, and the gradients of a sum of squares by all inputs."""
    state = State(inputs["joint_q"], inputs["joint_qd"])
    friction = inputs["friction"]
    parameters = Parameters(friction=friction[0] if shared else friction)
    if guarded:
        packed, run = prepare(model, state, SUBSTEPS, parameters)
        nominal = model.default_state(1, dtype=torch.float64).joint_q
        physics = Physics(run, DT, SUBSTEPS, Guard(nominal, torch.zeros((), dtype=torch.float64)))
        joint_q, joint_qd, _, sound, *_ = guarded_step(
            physics, state.joint_q, state.joint_qd, inputs["control"], packed
        )
    else:
        following = step(model, state, inputs["control"], DT, SUBSTEPS, parameters)
        joint_q, joint_qd, sound = following.joint_q, following.joint_qd, None
    gradients = torch.autograd.grad((joint_q.square().sum() + joint_qd.square().sum()), list(inputs.values()))
    return joint_q, joint_qd, sound, dict(zip(inputs, gradients, strict=True))


def test_sound_worlds_get_what_step_gives_them(hopper: trot.Model) -> None:
    joint_q, joint_qd, sound, gradients = moved(hopper, drawn(hopper, spoilt=False), guarded=True)
    expected_q, expected_qd, _, expected = moved(hopper, drawn(hopper, spoilt=False), guarded=False)
    assert sound.all()
    assert joint_q.equal(expected_q) and joint_qd.equal(expected_qd)
    assert all(gradients[name].equal(expected[name]) for name in expected)
    assert gradients["friction"].abs().sum() > 0


def test_a_world_that_blows_up_is_set_aside(hopper: trot.Model) -> None:
    joint_q, joint_qd, sound, gradients = moved(hopper, drawn(hopper, spoilt=True), guarded=True)
    expected_q, _, _, expected = moved(hopper, drawn(hopper, spoilt=False), guarded=False)
    assert sound.squeeze(1).tolist() == [world != BAD for world in range(6)]
    assert joint_q[BAD].equal(hopper.default_state(1, dtype=torch.float64).joint_q[0])
    assert not joint_qd[BAD].any()
    assert joint_q[SOUND].equal(expected_q[SOUND])
    for name, gradient in gradients.items():
        assert not gradient[BAD].any(), name
        assert gradient[SOUND].equal(expected[name][SOUND]), name


def test_parameters_that_all_worlds_share_get_the_sound_worlds_gradient(hopper: trot.Model) -> None:
    *_, per_world = moved(hopper, drawn(hopper, spoilt=True), guarded=True)
    *_, shared = moved(hopper, drawn(hopper, spoilt=True), guarded=True, shared=True)
    torch.testing.assert_close(shared["friction"][0], per_world["friction"].sum(dim=0))


def test_only_what_is_used_gets_a_gradient(hopper: trot.Model) -> None:
    """A loss of velocities alone, and one input that wants a gradient: PyTorch hands over no derivative by joint_q."""
    state = hopper.default_state(2)
    control = torch.full((2, 3), 0.1, requires_grad=True)
    following = step(hopper, state, control, DT, SUBSTEPS)
    (by_velocity,) = torch.autograd.grad(following.joint_qd.sum(), control, retain_graph=True)
    (by_both,) = torch.autograd.grad(following.joint_qd.sum() + 0 * following.joint_q.sum(), control)
    assert by_velocity.equal(by_both) and by_velocity.any()


def test_second_derivatives_are_refused() -> None:
    env = trot.make_env("cartpole", num_worlds=2)
    env.reset()
    action = torch.zeros(2, 1, requires_grad=True)
    _, reward, *_ = env.step(action)
    with pytest.raises(NotImplementedError, match="first derivatives only"):
        torch.autograd.grad(reward.sum(), action, create_graph=True)
