"""Laws exchanged between trot and MuJoCo: with all of trot's the motion is trot's, with all of MuJoCo's MuJoCo's."""

from dataclasses import fields, replace

import mujoco
import numpy as np
import pytest
import torch

from bench.swapped_laws import Instant, Laws, SwappedEnv, Touches
from bench.transfer import every_choice, figures, other_constants, run_race
from trot.envs.env import Env
from trot.envs.mujoco_env import MujocoEnv
from trot.envs.registry import make_env, make_task
from trot.learn.packaged_policy import load_packaged

LOW = 0.3
"""How much lower than it starts the Ant is put, m: its feet are in the ground."""


def low_start(env: Env) -> None:
    """Feet in the ground, joints about their limits, everything in motion."""
    env.reset()
    lift = torch.zeros_like(env.worlds.joint_q)
    lift[:, 2] = -LOW
    random = torch.Generator().manual_seed(0)
    speed = torch.randn(env.worlds.joint_qd.shape, generator=random)
    env.worlds = replace(env.worlds, joint_q=env.worlds.joint_q + lift, joint_qd=speed)


def full_effort(worlds: int, step: int) -> torch.Tensor:
    random = torch.Generator().manual_seed(step)
    return torch.rand(worlds, 8, generator=random).sub(0.5).sign()


@pytest.fixture(scope="module")
def ant():
    return make_task("ant")


def test_with_all_of_trots_laws_it_moves_as_trot_does(ant):
    """Twelve steps, each from where trot is, so that what differs cannot grow: single precision is all that does."""
    seen: list[Instant] = []
    ours, theirs = make_env("ant", 4, seed=3), SwappedEnv(ant, 4, Laws(), 3, seen.append)
    low_start(ours)
    theirs.reset()
    for step in range(12):
        theirs.worlds = ours.worlds.clone()
        for env in (ours, theirs):
            env.step(full_effort(4, step))
        torch.testing.assert_close(theirs.state.joint_q, ours.state.joint_q, rtol=0, atol=1e-5)
        torch.testing.assert_close(theirs.state.joint_qd, ours.state.joint_qd, rtol=0, atol=2e-4)
    assert any(len(at.normal) > 1 for at in seen) and any((at.beyond != 0).any() for at in seen)
    sliding = [at.drag < at.touches.friction_stiffness for at in seen]
    assert 0 < np.concatenate(sliding).mean() < 1


def test_with_all_of_mujocos_it_moves_as_mujoco_does(ant):
    theirs = MujocoEnv(ant, 4, 3, longest_step=ant.control_dt / ant.substeps)
    swapped = SwappedEnv(ant, 4, Laws("MuJoCo", "MuJoCo", "MuJoCo"), 3)
    theirs._mujoco.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_EULERDAMP
    for env in (theirs, swapped):
        low_start(env)
        env.step(full_effort(4, 0))
    torch.testing.assert_close(swapped.state.joint_qd, theirs.state.joint_qd, rtol=0, atol=1e-5)


def one_foot_down(env: SwappedEnv, speed: float) -> mujoco.MjData:
    """MuJoCo with its own contact and an elliptic cone; the Ant stands on the tip of a foot, which slides along x."""
    model, own, data = env.task.model, env._mujoco, env._data[0]
    data.qpos[:] = env.task.start.pose(model)
    data.qpos[8] += 0.3
    mujoco.mj_kinematics(own, data)
    bodies = [own.body(model.body_name[model.shape_body[shape]]).id for shape in model.point_shape]
    places = [
        data.xmat[body].reshape(3, 3) @ at + data.xpos[body] for body, at in zip(bodies, model.point_pos, strict=True)
    ]
    data.qpos[2] -= min(place[2] - radius for place, radius in zip(places, model.point_radius, strict=True)) + 0.002
    data.qvel[0] = speed
    return data


@pytest.mark.parametrize("speed", [0.001, 1.0])
def test_friction_as_mujoco_has_it(ant, speed):
    """Against MuJoCo's own: where it sticks, and where it slides."""
    env = SwappedEnv(ant, 1, Laws("trot", "MuJoCo", "trot"))
    env.reset()
    own, data = env._mujoco, one_foot_down(env, speed)
    own.opt.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
    own.opt.disableflags &= ~mujoco.mjtDisableBit.mjDSBL_CONTACT.value
    mujoco.mj_forward(own, data)
    assert data.ncon == 1
    force = np.zeros(6)
    mujoco.mj_contactForce(own, data, 0, force)
    normal, tangent = force[0], force[1:3]
    expected = tangent @ data.contact[0].frame.reshape(3, 3)[1:]

    own.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONTACT
    mujoco.mj_step1(own, data)
    touches = env._touches(data)
    assert len(touches.depth) == 1
    env._accelerate(data, normal * touches.jacobian[0, 2])
    found = env._mujocos_friction(data, touches, np.array([normal]))
    # On the free body's own three axes stands the force itself.
    np.testing.assert_allclose(found[:2], expected[:2], rtol=0.2, atol=0.02 * normal)
    if speed == 1.0:
        assert np.linalg.norm(found[:2]) == pytest.approx(0.75 * normal)


def test_a_force_on_a_body_that_trot_does_not_see_touch_goes_to_no_other(ant):
    """The Ant stands on four feet; where the point of one is left out, its force is, and the others' stay."""
    env = SwappedEnv(ant, 1, Laws("MuJoCo", "trot", "trot"))
    env.reset()
    data = env._data[0]
    data.qpos[:] = ant.start.pose(ant.model)
    data.qpos[2] -= LOW
    mujoco.mj_step1(env._mujoco, data)
    touches = env._touches(data)
    env._accelerate(data, np.zeros(env._mujoco.nv))
    normal = env._mujocos_normal(data, touches)
    assert data.ncon == len(normal) == 4 and normal.min() > 100
    three = Touches(*(getattr(touches, field.name)[1:] for field in fields(touches)))
    np.testing.assert_array_equal(env._mujocos_normal(data, three), normal[1:])


def test_every_choice_comes_once():
    told = [str(laws) for laws in every_choice()]
    assert told[0] == "none" and told[-1] == "normal and friction and limits" and len(set(told)) == 8


def test_other_constants_leave_the_task_as_it_is(ant):
    before = ant.model.shape_stiffness.copy()
    changed = dict(other_constants(ant))
    assert changed["contact stiffness times 2"].model.shape_stiffness == pytest.approx(2 * before)
    assert changed["64 substeps"].model is ant.model and ant.substeps == 16
    np.testing.assert_array_equal(ant.model.shape_stiffness, before)


def test_a_race_and_its_figures(ant):
    """The packaged Ant for a quarter of a second, by hand where a number can be."""
    seen: list[Instant] = []
    env = SwappedEnv(ant, 2, Laws(), 1000, seen.append)
    race = run_race(env, load_packaged("ant").agent, 15)
    assert len(race.distances) == 2 and race.falls == 0 and 0 <= race.saturated <= 1
    assert len(seen) == 2 * 15 * ant.substeps
    told = dict(figures(ant, seen))
    motor = np.mean([(at.motor_force * at.rates).clip(0).sum() for at in seen])
    assert told["motors give, take"].startswith(f"{motor / 1000:.2f} kW")
    assert told["largest force of a motor"] == "200 N m"
