"""Ant, Humanoid and muscle Humanoid: settings, and every number of an observation, worked by hand or by MuJoCo."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
from closed_forms import times
from exact_tasks import EXACT, make
from floating_tasks import (
    ANGULAR,
    HEADING,
    JOINTS,
    LEFT_LEG,
    LINEAR,
    NAMES,
    PLACE,
    RATES,
    RIGHT_LEG,
    START_ROTATION,
    SUBSTEPS,
    TURN,
    UP,
    actions,
    state_of,
)
from numpy.testing import assert_allclose, assert_array_equal

# Settings that the paper's tasks are defined by: episode length, observations, actions, joint_q, joint_qd, contact
# points, total mass (kg).
SETTINGS = {
    "ant": (1000, 37, 8, 15, 14, 25, 182.18),
    "humanoid": (1000, 76, 21, 28, 27, 35, 40.84),
    "muscle_humanoid": (1000, 53, 152, 29, 24, 88, 37.0),
}


@pytest.mark.parametrize("name", NAMES)
def test_settings(name):
    env = make(name)
    model = env.task.model
    counts = (env.num_observations, env.num_actions, model.num_q, model.num_dofs, model.num_points)
    *expected, mass = SETTINGS[name]
    assert [env.episode_length, *counts] == expected
    assert (env.task.control_dt, env.task.substeps) == (1 / 60, SUBSTEPS[name])
    assert model.body_mass.sum() == pytest.approx(mass, abs=0.005)
    assert_array_equal(model.gravity, [0, 0, -9.81])
    assert model.ground_height == 0


ROOT = {"height": (0, 0), "rotation": (1, 4), "velocity": (5, 7), "angular_velocity": (8, 10)}
# Name: part of the observation: its first and last index.
LAYOUTS = {
    "ant": {
        **ROOT,
        **{"joints": (11, 18), "joint_rates": (19, 26), "up": (27, 27), "heading": (28, 28)},
        "previous_action": (29, 36),
    },
    "humanoid": {
        **ROOT,
        **{"joints": (11, 31), "joint_rates": (32, 52), "up": (53, 53), "heading": (54, 54)},
        "previous_action": (55, 75),
    },
    "muscle_humanoid": {
        **ROOT,
        **{"joints": (11, 32), "joint_rates": (33, 50), "up": (51, 51), "heading": (52, 52)},
    },
}


@pytest.mark.parametrize("name", NAMES)
def test_observation_layout(name):
    layout = make(name).observation_layout
    assert {part: (columns.start, columns.stop - 1) for part, columns in layout.items()} == LAYOUTS[name]
    assert list(layout) == list(LAYOUTS[name])


@pytest.mark.parametrize("name", NAMES)
def test_observation(name):
    env = make(name)
    previous_action = actions(env)
    quaternion = times(TURN, START_ROTATION[name])
    world_angular = np.zeros(3)
    mujoco.mju_rotVecQuat(world_angular, np.array(ANGULAR), quaternion)
    expected = [
        PLACE[name][2],
        *quaternion,
        *LINEAR,
        *world_angular,
        *JOINTS[name],
        *(0.1 * rate for rate in RATES[name]),
        UP,
        HEADING[name],
    ]
    if name != "muscle_humanoid":
        expected += previous_action[0].tolist()
    assert_allclose(env.place(state_of(name), previous_action), [expected], **EXACT)


@pytest.mark.parametrize("name", NAMES)
def test_observed_root_is_where_mujoco_sees_it(name):
    """Height, both velocities in world axes and their point, which is the body's origin, not its centre of mass."""
    env, state = make(name), state_of(name)
    observation = env.place(state)[0]
    source = env.task.model.source
    data = mujoco.MjData(source)
    data.qpos[:], data.qvel[:] = state.joint_q[0], state.joint_qd[0]
    mujoco.mj_forward(source, data)
    velocity = np.zeros(6)
    mujoco.mj_objectVelocity(source, data, mujoco.mjtObj.mjOBJ_XBODY, 1, velocity, 0)
    assert_allclose(observation[0], data.xpos[1, 2], **EXACT)
    assert_allclose(observation[5:8], velocity[3:], **EXACT)
    assert_allclose(observation[8:11], velocity[:3], **EXACT)


def test_muscle_humanoid_sees_the_right_leg_first():
    env = make("muscle_humanoid")
    observation = env.place(state_of("muscle_humanoid"))[0]
    order = ["femur", "tibia", "talus", "foot_thumb", "foot_pinky"]
    assert env.task.model.joint_name[1:] == tuple(f"{part}_{side}" for side in "rl" for part in order)
    assert_allclose(observation[11:22], RIGHT_LEG, **EXACT)
    assert_allclose(observation[22:33], LEFT_LEG, **EXACT)


@pytest.mark.parametrize("name", NAMES)
def test_upright_and_facing_the_target_at_the_start(name):
    observation, _ = make(name).reset()
    layout = LAYOUTS[name]
    assert_allclose(observation[0, [layout["up"][0], layout["heading"][0]]], [1, 1], **EXACT)
