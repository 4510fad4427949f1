"""Ant, Humanoid and muscle Humanoid: every observation, reward and end of an episode, by numbers worked by hand."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
import torch
from closed_forms import UPRIGHT, rotation, times, turn
from numpy.testing import assert_allclose, assert_array_equal
from torch.autograd import gradcheck

import trot

NAMES = ["ant", "humanoid", "muscle_humanoid"]
EXACT = {"rtol": 0, "atol": 1e-12}

# The muscle Humanoid's body frames have x left, y up, z forward: at the start they turn x to y, y to z, z to x.
START_ROTATION = {"ant": UPRIGHT, "humanoid": UPRIGHT, "muscle_humanoid": (0.5, 0.5, 0.5, 0.5)}
TARGET = {"ant": 10_000, "humanoid": 200, "muscle_humanoid": 10_000}
FALLEN = {"ant": 0.27, "humanoid": 0.74, "muscle_humanoid": 0.46}
SUBSTEPS = {"ant": 16, "humanoid": 48, "muscle_humanoid": 48}


def make(name: str, num_worlds: int = 1) -> trot.Env:
    env = trot.make_env(name, num_worlds, dtype=torch.float64, stochastic_start=False)
    env.reset()
    return env


def rows(*values: object) -> torch.Tensor:
    """One world per argument."""
    return torch.tensor(np.array(values, dtype=float))


def copy_of(state: trot.State) -> trot.State:
    return trot.State(state.joint_q.clone(), state.joint_qd.clone())


def cos(degrees: float) -> float:
    return np.cos(np.radians(degrees))


def sin(degrees: float) -> float:
    return np.sin(np.radians(degrees))


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
    assert [env.horizon, *counts] == expected
    assert (env.task.dt, env.task.substeps) == (1 / 60, SUBSTEPS[name])
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


# A state of each task. All are turned 30 degrees about z, then 20 about the new y, then 10 about the new x. So the
# nose points along (cos 30 cos 20, sin 30 cos 20, -sin 20), and the crown's height is cos 20 cos 10.
TURN = times(turn("z", np.radians(30)), turn("y", np.radians(20)), turn("x", np.radians(10)))
UP = cos(20) * cos(10)
LINEAR = (1.5, -0.7, 0.4)
ANGULAR = (0.3, -1.1, 0.8)  # in body axes
PLACE = {"ant": (3, -2, 0.6), "humanoid": (150, 50, 0.9), "muscle_humanoid": (-40, 700, 0.53)}
HEADING = {
    # The way to the target: (9997, 2).
    "ant": cos(20) * (cos(30) * 9997 + sin(30) * 2) / np.hypot(9997, 2),
    # (50, -50): 45 degrees to the right, where the nose is 30 to the left.
    "humanoid": cos(20) * cos(75),
    # (10040, -700).
    "muscle_humanoid": cos(20) * (cos(30) * 10040 - sin(30) * 700) / np.hypot(10040, 700),
}
RIGHT_LEG = [*turn("x", 0.4), 0.5, *turn("z", -0.3), 0.1, -0.2]
LEFT_LEG = [*turn("y", -0.6), 1.5, *turn("x", 0.2), -0.3, 0.4]
JOINTS = {
    "ant": [0.1, 0.9, -0.2, -1.1, 0.3, -0.8, -0.4, 1.2],
    "humanoid": [0.05 * k for k in range(-10, 11)],
    "muscle_humanoid": [*RIGHT_LEG, *LEFT_LEG],
}
RATES = {
    "ant": [1, -2, 3, -4, 5, -6, 7, -8],
    "humanoid": [0.7 * k for k in range(-7, 14)],
    "muscle_humanoid": [0.9 * k for k in range(-5, 13)],
}


def state_of(name: str) -> trot.State:
    quaternion = times(TURN, START_ROTATION[name])
    return trot.State(rows([*PLACE[name], *quaternion, *JOINTS[name]]), rows([*LINEAR, *ANGULAR, *RATES[name]]))


def actions(env: trot.Env) -> torch.Tensor:
    """From -0.5 to 1 in even steps."""
    return rows(np.linspace(-0.5, 1, env.num_actions)).repeat(env.num_worlds, 1)


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


# Rewards.


def squares(values: object) -> float:
    return sum(float(value) ** 2 for value in values)


@pytest.mark.parametrize("name", NAMES)
def test_reward_terms(name):
    env = make(name)
    action = actions(env)
    expected = {"forward": 1.5, "up": 0.1 * UP, "heading": HEADING[name]}
    if name == "ant":
        expected["height"] = 0.33  # 0.6 - 0.27; actions cost nothing
    elif name == "humanoid":
        expected["height"] = 0.6  # 10 (0.9 - 0.84)
        expected["effort"] = -0.002 * squares(action[0])
    else:
        expected["height"] = 0.08  # 4 (0.53 - 0.51)
        expected["effort"] = -0.001 * squares((a + 1) / 2 for a in action[0])
    terms = env.task.reward_terms(env.task.measure(state_of(name)), action)
    assert list(terms) == list(expected)
    for term, value in expected.items():
        assert_allclose(terms[term], [[value]], err_msg=term, **EXACT)


HEIGHTS = [
    ("ant", 1.27, 1),
    ("ant", 0.27, 0),
    ("ant", 0.07, -0.2),  # no kink, no bound
    ("humanoid", 1.5, 1),  # no more than 0.1 above 0.84 counts, ten times
    ("humanoid", 0.94, 1),
    ("humanoid", 0.93, 0.9),
    ("humanoid", 0.9, 0.6),
    ("humanoid", 0.84, 0),
    ("humanoid", 0.83, -0.02),  # below: 200 d^2
    ("humanoid", 0.8, -0.32),
    ("humanoid", 0.74, -2),
    ("humanoid", -0.15, -196.02),  # 200 * 0.99^2
    ("humanoid", -0.16, -200),  # no more than 1 below counts
    ("humanoid", -5, -200),
    ("muscle_humanoid", 1, 0.2),  # no more than 0.05 above 0.51 counts, four times
    ("muscle_humanoid", 0.56, 0.2),
    ("muscle_humanoid", 0.55, 0.16),
    ("muscle_humanoid", 0.53, 0.08),
    ("muscle_humanoid", 0.51, 0),
    ("muscle_humanoid", 0.5, -0.02),
    ("muscle_humanoid", 0.46, -0.5),
    ("muscle_humanoid", -0.48, -196.02),
    ("muscle_humanoid", -0.49, -200),
    ("muscle_humanoid", -3, -200),
]


@pytest.mark.parametrize(("name", "height", "term"), HEIGHTS)
def test_height_term(name, height, term):
    env, state = make(name), state_of(name)
    state.joint_q[0, 2] = height
    terms = env.task.reward_terms(env.task.measure(state), actions(env))
    assert_allclose(terms["height"], [[term]], **EXACT)


@pytest.mark.parametrize(
    ("name", "place", "heading"),
    [
        # The Humanoid is past its target and must turn back; the others' is far ahead.
        ("humanoid", (250, 0), -1),
        ("ant", (250, 0), 1),
        ("muscle_humanoid", (250, 0), 1),
        ("humanoid", (200, 70), 0),  # it lies straight to the right
        ("humanoid", (80, -160), 0.6),  # (120, 160) is (0.6, 0.8) of 200
        ("ant", (9880, 160), 0.6),
        ("muscle_humanoid", (9880, -160), 0.6),
    ],
)
def test_heading_is_the_cosine_of_the_way_to_the_target(name, place, heading):
    env = make(name)
    state = copy_of(env.state)
    state.joint_q[0, :2] = rows(place)
    assert_allclose(env.task.measure(state).heading, [[heading]], **EXACT)


@pytest.mark.parametrize(
    ("axis", "degrees", "up", "heading"),
    [
        ("z", 90, 1, 0),
        ("z", 180, 1, -1),
        ("x", 60, 0.5, 1),  # leaning sideways, still facing x
        ("y", 60, 0.5, 0.5),  # the nose points to the ground: half of it is left ahead
        ("x", 180, -1, 1),
        ("y", 180, -1, -1),
    ],
)
@pytest.mark.parametrize("name", NAMES)
def test_up_and_heading_of_plain_turns(name, axis, degrees, up, heading):
    env = make(name)
    state = copy_of(env.state)
    state.joint_q[0, 3:7] = torch.tensor(times(turn(axis, np.radians(degrees)), START_ROTATION[name]))
    measured = env.task.measure(state)
    assert_allclose([measured.up.item(), measured.heading.item()], [up, heading], **EXACT)


@pytest.mark.parametrize(
    ("action", "effort"),
    [(-1, 0), (0, -0.038), (1, -0.152)],  # 152 muscles, slack, half and fully active: 0.001 * 152 * (0, 0.25, 1)
)
def test_muscle_humanoid_pays_for_the_squares_of_activations(action, effort):
    env = make("muscle_humanoid")
    terms = env.task.reward_terms(env.task.measure(env.state), torch.full((1, 152), action, dtype=torch.float64))
    assert_allclose(terms["effort"], [[effort]], **EXACT)


def test_muscle_humanoid_maps_actions_to_activations():
    control = make("muscle_humanoid").task.control(rows([-1, -0.5, 0, 0.5, 1]))
    assert control.tolist() == [[0, 0.25, 0.5, 0.75, 1]]


# Steps.

# Name: height wanted, how far above it counts, factor on that.
HEIGHT_REWARD = {"humanoid": (0.84, 0.1, 10), "muscle_humanoid": (0.51, 0.05, 4)}


def reward_by_hand(name: str, q: np.ndarray, qd: np.ndarray, action: np.ndarray) -> float:
    """The paper's formulas in plain arithmetic, for one world."""
    back = np.array(START_ROTATION[name]) * [1, -1, -1, -1]
    since_start = rotation(times(q[3:7], back))
    to_target = np.array([TARGET[name] - q[0], -q[1]])
    heading = since_start[:2, 0] @ to_target / np.linalg.norm(to_target)
    common = qd[0] + 0.1 * since_start[2, 2] + heading
    if name == "ant":
        return common + q[2] - 0.27
    wanted, reach, gain = HEIGHT_REWARD[name]
    above = min(max(q[2] - wanted, -1), reach)
    height = -200 * above**2 if above < 0 else gain * above
    effort = 0.002 * squares(action) if name == "humanoid" else 0.001 * squares((action + 1) / 2)
    return common + height - effort


def rewards_by_hand(name: str, after: trot.State, action: torch.Tensor) -> list[float]:
    worlds = zip(after.joint_q.numpy(), after.joint_qd.numpy(), action.numpy(), strict=True)
    return [reward_by_hand(name, *world) for world in worlds]


def next_state(name: str, env: trot.Env, before: trot.State, action: torch.Tensor) -> trot.State:
    """A motor's control is the action itself, a muscle's its activation."""
    control = (action + 1) / 2 if name == "muscle_humanoid" else action
    return trot.step(env.task.model, before, control, 1 / 60, SUBSTEPS[name])


@pytest.mark.parametrize("name", NAMES)
def test_step_from_rest_with_a_known_action(name):
    env = make(name)
    start, action = env.state, actions(env)
    _, reward, _, _, info = env.step(action)
    after = next_state(name, env, start, action)
    assert torch.equal(env.state.joint_q, after.joint_q)
    assert torch.equal(env.state.joint_qd, after.joint_qd)
    assert_allclose(reward, rewards_by_hand(name, after, action), **EXACT)
    assert_allclose(sum(info["reward_terms"].values()), reward, **EXACT)


@pytest.mark.parametrize("name", NAMES)
def test_step_pays_for_the_state_after_it(name, rng):
    """Lively worlds, far apart, on every branch of the height's reward."""
    env = make(name, num_worlds=4)
    state = state_of(name)
    before = trot.State(state.joint_q.repeat(4, 1), state.joint_qd.repeat(4, 1))
    before.joint_q[:, :2] = rows((0, 0), (30, -40), (120, 160), (-500, 900))
    before.joint_q[:, 2] = FALLEN[name] + torch.tensor([0.04, 0.08, 0.12, 0.5])
    before.joint_qd[:] = torch.tensor(rng.uniform(-1, 1, before.joint_qd.shape))
    env.place(before)
    action = torch.tensor(rng.uniform(-1, 1, (4, env.num_actions)))
    observation, reward, terminated, truncated, _ = env.step(action)
    assert not terminated.any() and not truncated.any()
    after = next_state(name, env, before, action)
    assert torch.equal(env.state.joint_q, after.joint_q)
    if name != "ant":
        wanted, reach, _ = HEIGHT_REWARD[name]
        heights = after.joint_q[:, 2] - wanted
        assert heights[0] < 0 < heights[1] < reach < heights[3]
    assert_allclose(reward, rewards_by_hand(name, after, action), **EXACT)
    assert torch.equal(observation, env.place(after, action))


@pytest.mark.parametrize("name", NAMES)
def test_actions_beyond_their_range_are_clipped(name, rng):
    """Costs, motors and the observation's last slots all get the clipped one."""
    env, twin = make(name, num_worlds=2), make(name, num_worlds=2)
    action = torch.tensor(rng.uniform(-3, 3, (2, env.num_actions)))
    action[:, 0], action[:, 1] = 1.7, -2.5
    clipped = torch.tensor(np.clip(action.numpy(), -1, 1))
    start = env.state
    observation, reward, _, _, _ = env.step(action)
    expected_observation, expected_reward, _, _, _ = twin.step(clipped)
    assert torch.equal(observation, expected_observation)
    assert torch.equal(reward, expected_reward)
    assert_allclose(reward, rewards_by_hand(name, next_state(name, env, start, clipped), clipped), **EXACT)
    assert torch.equal(env.worlds.previous_action, clipped)
    if name != "muscle_humanoid":
        assert torch.equal(observation[:, -env.num_actions :], clipped)


# Name: force of each motor at action 1 (N m). Trunk, two legs, two arms of the Humanoid: 0.35 times its strengths.
LEG, ARM = [70, 70, 210, 140, 35, 35], [35, 35, 70]
PEAK_TORQUE = {"ant": [200] * 8, "humanoid": [70, 70, 70, *LEG, *LEG, *ARM, *ARM]}


def added_force(env: trot.Env, action: torch.Tensor, idle: torch.Tensor) -> np.ndarray:
    """What the action adds to the generalised momentum in one short substep from rest, over the time."""
    model, rest, dt = env.task.model, env.state, 1e-4
    after, after_idle = (
        trot.step(model, rest, env.task.control(each), dt, 1).joint_qd[0].numpy() for each in (action, idle)
    )
    data = mujoco.MjData(model.source)
    data.qpos[:] = rest.joint_q[0]
    mujoco.mj_forward(model.source, data)
    mass_matrix = np.zeros((model.num_dofs, model.num_dofs))
    mujoco.mj_fullM(model.source, data, mass_matrix)
    return mass_matrix @ (after - after_idle) / dt


@pytest.mark.parametrize("name", PEAK_TORQUE)
def test_motor_torques(name):
    env = make(name)
    action = actions(env)
    expected = [0] * 6 + [peak * a for peak, a in zip(PEAK_TORQUE[name], action[0].tolist(), strict=True)]
    assert_allclose(added_force(env, action, torch.zeros_like(action)), expected, rtol=0, atol=1e-7)
    assert_array_equal(env.task.model.motor_gear, PEAK_TORQUE[name])


def test_muscle_tensions():
    """0.36 of the strengths: 45 N to 1793 N (soleus), 363 N on average, 55.2 kN together."""
    env = make("muscle_humanoid")
    model, peak = env.task.model, env.task.model.muscle_peak_force
    assert peak.min() == pytest.approx(0.36 * 45, abs=0.36 * 0.5)
    assert peak.max() == pytest.approx(0.36 * 1793, abs=0.36 * 0.5)
    assert peak.mean() == pytest.approx(0.36 * 363, abs=0.36 * 0.5)
    assert peak.sum() == pytest.approx(0.36 * 55.2e3, abs=0.36 * 50)
    assert "soleus" in model.actuator_name[model.muscle_actuator[np.argmax(peak)]]

    # Muscles pull along straight lines with activation times that: the loss of length per dof times it.
    action = actions(env)
    data = mujoco.MjData(model.source)
    data.qpos[:] = env.state.joint_q[0]
    data.ctrl[:] = (action[0] + 1) / 2
    mujoco.mj_forward(model.source, data)
    found = added_force(env, action, torch.full_like(action, -1))
    assert_allclose(found, data.qfrc_actuator, rtol=0, atol=1e-7)


# Ends of episodes.


@pytest.mark.parametrize("name", NAMES)
def test_fallen_is_below_the_height_and_nothing_else(name):
    env = make(name)
    border = FALLEN[name]
    state = state_of(name)
    for height, fallen in [
        (border + 1e-4, False),
        (border, False),
        (np.nextafter(border, 0), True),
        (border - 1e-4, True),
    ]:
        state.joint_q[0, 2] = height
        assert env.task.fallen(env.task.measure(state)).tolist() == [[fallen]]
    # Upside down, but high up.
    state.joint_q[0, 2:7] = torch.tensor([border + 1, *times(turn("x", np.pi), START_ROTATION[name])])
    assert env.task.fallen(env.task.measure(state)).tolist() == [[False]]


@pytest.mark.parametrize("name", NAMES)
def test_world_that_falls_is_paid_for_the_fall_and_starts_anew(name):
    """One world sinks through the limit within the step, the other is above it and rises."""
    env = make(name, num_worlds=2)
    start = env.state
    before = copy_of(start)
    if name == "ant":
        before.joint_q[:, 7:] = 0  # legs level
    else:
        before.joint_q[:, 3:7] = torch.tensor(times(turn("y", np.pi / 2), START_ROTATION[name]))  # lying in the air
    before.joint_q[:, 2] = FALLEN[name] + 1e-3
    before.joint_qd[:, 2] = torch.tensor([-2.0, 2.0])
    env.place(before)
    action = 1.5 * actions(env)
    clipped = action.clamp(-1, 1)
    observation, reward, terminated, truncated, info = env.step(action)
    assert terminated.tolist() == [True, False]
    assert not truncated.any()
    after = next_state(name, env, before, clipped)
    assert after.joint_q[0, 2] < FALLEN[name] < after.joint_q[1, 2]
    assert_allclose(reward, rewards_by_hand(name, after, clipped), **EXACT)
    assert_allclose(info["final_obs"][:, 0], after.joint_q[:, 2], **EXACT)
    assert torch.equal(env.state.joint_q[0], start.joint_q[0])
    assert torch.equal(env.worlds.previous_action, torch.stack([torch.zeros_like(clipped[0]), clipped[1]]))
    if name != "muscle_humanoid":
        # The new episode has no previous action; the old one's last observation has.
        assert_array_equal(observation[0, -env.num_actions :], np.zeros(env.num_actions))
        assert torch.equal(info["final_obs"][:, -env.num_actions :], clipped)
        assert torch.equal(observation[1], info["final_obs"][1])


@pytest.mark.parametrize("name", NAMES)
def test_no_previous_action_after_a_reset(name):
    env = make(name)
    env.step(actions(env))
    observation, _ = env.reset()
    assert_array_equal(env.worlds.previous_action, np.zeros((1, env.num_actions)))
    if name != "muscle_humanoid":
        assert_array_equal(observation[0, -env.num_actions :], np.zeros(env.num_actions))


@pytest.mark.parametrize("name", NAMES)
def test_derivatives_of_observation_and_reward(name):
    """At heights on every branch of the height's reward; quaternions count as four free numbers."""
    env, state = make(name, num_worlds=3), state_of(name)
    joint_q, joint_qd = state.joint_q.repeat(3, 1), state.joint_qd.repeat(3, 1)
    joint_q[:, 2] = HEIGHT_REWARD.get(name, (0.6,))[0] + torch.tensor([-0.03, 0.03, 0.3])

    def seen_and_paid(joint_q, joint_qd, action):
        measured = env.task.measure(trot.State(joint_q, joint_qd))
        parts = [*env.task.observation(measured, action).values(), *env.task.reward_terms(measured, action).values()]
        return torch.cat(parts, dim=1)

    inputs = [tensor.requires_grad_() for tensor in (joint_q, joint_qd, actions(env))]
    assert gradcheck(seen_and_paid, inputs, atol=1e-6, rtol=1e-6)
