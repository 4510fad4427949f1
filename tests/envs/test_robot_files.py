"""Our robot files against the figures they were written from."""

from __future__ import annotations

from pathlib import Path

import mujoco
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import trot
from trot.sim.load import load_model
from trot.sim.model import WORLD, JointType, Model

ASSETS = Path(trot.__file__).parent / "envs" / "assets"
PATHS = {path.stem: path for path in sorted(ASSETS.glob("*.xml"))}


@pytest.fixture(scope="module")
def robots() -> dict[str, Model]:
    return {name: load_model(path) for name, path in PATHS.items()}


# Name: mass (kg), dofs, contact points, controls.
SIZES = {
    "cartpole": (52.5, 2, 0, 1),
    "hopper": (15.82, 6, 8, 3),
    "half_cheetah": (21.18, 9, 16, 6),
    "ant": (182.18, 14, 25, 8),
    "humanoid": (40.84, 27, 35, 21),
}


@pytest.mark.parametrize("name", SIZES)
def test_sizes(robots, name):
    model, (mass, num_dofs, num_points, num_controls) = robots[name], SIZES[name]
    assert model.body_mass.sum() == pytest.approx(mass, abs=5e-3)
    assert (model.num_dofs, model.num_points, model.num_controls) == (num_dofs, num_points, num_controls)
    assert_array_equal(model.control_lower, -np.ones(num_controls))
    assert_array_equal(model.control_upper, np.ones(num_controls))


BODY_MASSES = {
    "cartpole": [50, 2.5],
    "hopper": [3.6652, 4.0579, 2.7814, 5.3156],
    "half_cheetah": [9.4573, 2.3355, 2.402, 1.6575, 2.176, 1.817, 1.3384],
    "ant": [96.776] + 4 * [7.8316, 13.5184],
    "humanoid": [8.9075, 2.2619, 6.6162] + 2 * [4.7518, 2.7557, 1.1311] + 2 * [1.6611, 1.2295],
}


@pytest.mark.parametrize("name", BODY_MASSES)
def test_body_masses(robots, name):
    assert_allclose(robots[name].body_mass, BODY_MASSES[name], atol=6e-4)


# Name: body, the parent's name, joint offset in the parent's frame (m), centre of mass (m).
BODIES = {
    "half_cheetah": [
        ("torso", None, (0, 0, 1), (0.1524, 0, 0.0254)),
        ("bthigh", "torso", (-0.5, 0, 0), (0.1, 0, -0.13)),
        ("bshin", "bthigh", (0.16, 0, -0.25), (-0.14, 0, -0.07)),
        ("bfoot", "bshin", (-0.28, 0, -0.14), (0.03, 0, -0.097)),
        ("fthigh", "torso", (0.5, 0, 0), (-0.07, 0, -0.12)),
        ("fshin", "fthigh", (-0.14, 0, -0.24), (0.065, 0, -0.09)),
        ("ffoot", "fshin", (0.13, 0, -0.18), (0.045, 0, -0.07)),
    ],
    "humanoid": [
        ("torso", None, (0, 0, 1.35), (-0.0025, 0, 0.0347)),
        ("lower_waist", "torso", (-0.01, 0, -0.195), (0, 0, -0.065)),
        ("pelvis", "lower_waist", (0, 0, -0.13), (-0.02, 0, -0.1)),
        ("right_thigh", "pelvis", (0, -0.1, -0.14), (0, 0.005, -0.17)),
        ("right_shin", "right_thigh", (0, 0.01, -0.383), (0, 0, -0.17)),
        ("right_foot", "right_shin", (0, 0, -0.33), (0.035, -0.01, -0.08)),
        ("left_thigh", "pelvis", (0, 0.1, -0.14), (0, -0.005, -0.17)),
        ("left_shin", "left_thigh", (0, -0.01, -0.383), (0, 0, -0.17)),
        ("left_foot", "left_shin", (0, 0, -0.33), (0.035, 0.01, -0.08)),
        ("right_upper_arm", "torso", (0, -0.17, 0.06), (0.08, -0.08, -0.08)),
        ("right_lower_arm", "right_upper_arm", (0.18, -0.18, -0.18), (0.1096, 0.1096, 0.1096)),
        ("left_upper_arm", "torso", (0, 0.17, 0.06), (0.08, 0.08, -0.08)),
        ("left_lower_arm", "left_upper_arm", (0.18, 0.18, -0.18), (0.1096, -0.1096, 0.1096)),
    ],
}


@pytest.mark.parametrize("name", BODIES)
def test_bodies(robots, name):
    model = robots[name]
    bodies, parents, offsets, centres = zip(*BODIES[name], strict=True)
    assert model.body_name == bodies
    assert tuple(None if parent == WORLD else bodies[parent] for parent in model.body_parent) == parents
    assert_array_equal(model.body_pos, offsets)
    assert_array_equal(model.body_quat, np.tile([1, 0, 0, 0], (len(bodies), 1)))
    assert_array_equal(model.joint_anchor, np.zeros((model.num_joints, 3)))
    assert_allclose(model.body_com, centres, atol=6e-5)


# Name: shape, body, radius, centre of a sphere or both ends of a capsule in the body's frame (m).
SHAPES = {
    "half_cheetah": [
        ("torso", "torso", 0.046, [(-0.5, 0, 0), (0.5, 0, 0)]),
        ("head", "torso", 0.046, [(0.4854, 0, 0.0033), (0.7146, 0, 0.1967)]),
        ("bthigh", "bthigh", 0.046, [(0.0113, 0, -0.0153), (0.1887, 0, -0.2447)]),
        ("bshin", "bshin", 0.046, [(-0.0055, 0, -0.0035), (-0.2745, 0, -0.1365)]),
        ("bfoot", "bfoot", 0.046, [(0.0551, 0, -0.1876), (0.0049, 0, -0.0064)]),
        ("fthigh", "fthigh", 0.046, [(-0.1361, 0, -0.2354), (-0.0039, 0, -0.0046)]),
        ("fshin", "fshin", 0.046, [(0.1249, 0, -0.1775), (0.0051, 0, -0.0025)]),
        ("ffoot", "ffoot", 0.046, [(0.0845, 0, -0.1278), (0.0055, 0, -0.0122)]),
    ],
    "humanoid": [
        ("torso", "torso", 0.07, [(0, -0.07, 0), (0, 0.07, 0)]),
        ("upper_waist", "torso", 0.06, [(-0.01, -0.06, -0.12), (-0.01, 0.06, -0.12)]),
        ("head", "torso", 0.09, [(0, 0, 0.19)]),
        ("lower_waist", "lower_waist", 0.06, [(0, -0.06, -0.065), (0, 0.06, -0.065)]),
        ("butt", "pelvis", 0.09, [(-0.02, -0.07, -0.1), (-0.02, 0.07, -0.1)]),
        ("right_thigh", "right_thigh", 0.06, [(0, 0, 0), (0, 0.01, -0.34)]),
        ("right_shin", "right_shin", 0.049, [(0, 0, -0.02), (0, 0, -0.32)]),
        ("right_right_foot", "right_foot", 0.027, [(-0.07, -0.02, -0.08), (0.14, -0.04, -0.08)]),
        ("left_right_foot", "right_foot", 0.027, [(-0.07, 0, -0.08), (0.14, 0.02, -0.08)]),
        ("left_thigh", "left_thigh", 0.06, [(0, 0, 0), (0, -0.01, -0.34)]),
        ("left_shin", "left_shin", 0.049, [(0, 0, -0.02), (0, 0, -0.32)]),
        ("left_left_foot", "left_foot", 0.027, [(-0.07, 0.02, -0.08), (0.14, 0.04, -0.08)]),
        ("right_left_foot", "left_foot", 0.027, [(-0.07, 0, -0.08), (0.14, -0.02, -0.08)]),
        ("right_upper_arm", "right_upper_arm", 0.04, [(0, 0, 0), (0.16, -0.16, -0.16)]),
        ("right_lower_arm", "right_lower_arm", 0.031, [(0.01, 0.01, 0.01), (0.17, 0.17, 0.17)]),
        ("right_hand", "right_lower_arm", 0.04, [(0.18, 0.18, 0.18)]),
        ("left_upper_arm", "left_upper_arm", 0.04, [(0, 0, 0), (0.16, 0.16, -0.16)]),
        ("left_lower_arm", "left_lower_arm", 0.031, [(0.01, -0.01, 0.01), (0.17, -0.17, 0.17)]),
        ("left_hand", "left_lower_arm", 0.04, [(0.18, -0.18, 0.18)]),
    ],
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes(robots, name):
    model = robots[name]
    assert model.shape_name == tuple(shape for shape, *_ in SHAPES[name])
    for shape, (_, body, radius, points) in enumerate(SHAPES[name]):
        assert model.body_name[model.shape_body[shape]] == body
        own = model.point_shape == shape
        assert_array_equal(model.point_radius[own], np.full(len(points), radius))
        # A capsule's ends may come in either order.
        found, expected = (sorted(np.round(each, 6).tolist()) for each in (model.point_pos[own], points))
        assert_allclose(found, expected, atol=6e-5)


def symmetric(xx: float, yy: float, zz: float, xy: float, xz: float, yz: float) -> np.ndarray:
    return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])


# Body: xx, yy, zz, xy, xz, yz about the centre of mass (kg m^2).
INERTIAS = {
    "cartpole": {0: (1.2083, 1.2083, 2.0833, 0, 0, 0), 1: (0.20885, 0.20885, 0.00104, 0, 0, 0)},
    "ant": {
        0: (2.2241, 2.2241, 2.7171, 0, 0, 0),
        1: (0.068641, 0.068641, 0.11359, -0.044952, 0, 0),
        2: (0.28842, 0.28842, 0.53496, -0.24654, 0, 0),
        3: (0.068641, 0.068641, 0.11359, 0.044952, 0, 0),
        4: (0.28842, 0.28842, 0.53496, 0.24654, 0, 0),
        5: (0.068641, 0.068641, 0.11359, -0.044952, 0, 0),
        6: (0.28842, 0.28842, 0.53496, -0.24654, 0, 0),
        7: (0.068641, 0.068641, 0.11359, 0.044952, 0, 0),
        8: (0.28842, 0.28842, 0.53496, 0.24654, 0, 0),
    },
    "humanoid": {
        0: (0.17315, 0.15401, 0.041212, 0, -0.0034984, 0),
        1: (0.009853, 0.0037458, 0.009853, 0, 0, 0),
        2: (0.052318, 0.024322, 0.052318, 0, 0, 0),
        3: (0.074952, 0.074894, 0.0082851, 0, 0, 0.0019608),
        4: (0.032608, 0.032608, 0.0031899, 0, 0, 0),
        5: (0.00090302, 0.0059437, 0.0064465, 0, 0, 0),
        6: (0.074952, 0.074894, 0.0082851, 0, 0, -0.0019608),
        7: (0.032608, 0.032608, 0.0031899, 0, 0, 0),
        8: (0.00090302, 0.0059437, 0.0064465, 0, 0, 0),
        9: (0.011032, 0.011032, 0.011032, 0.0048732, 0.0048732, -0.0048732),
        10: (0.0093187, 0.0093187, 0.0093187, -0.0043486, -0.0043486, -0.0043486),
        11: (0.011032, 0.011032, 0.011032, -0.0048732, 0.0048732, 0.0048732),
        12: (0.0093187, 0.0093187, 0.0093187, 0.0043486, -0.0043486, 0.0043486),
    },
}


@pytest.mark.parametrize(("name", "body"), [(name, body) for name in INERTIAS for body in INERTIAS[name]])
def test_inertias(robots, name, body):
    # The figures have five digits, so the off-diagonal zeros are checked relative to the largest entry.
    expected = symmetric(*INERTIAS[name][body])
    tolerance = 5e-5 * np.abs(expected).max() + 5e-6
    assert_allclose(robots[name].body_inertia[body], expected, atol=tolerance)


# Name: start pose, height of the lowest contact point there (m).
STARTS = {
    "hopper": ([0] * 6, 0.040),
    "half_cheetah": ([0, -0.2] + [0] * 7, 0.176),
    "ant": ([0, 0, 0.75, 1, 0, 0, 0, 0, 1, 0, -1, 0, -1, 0, 1], 0.194),
    "humanoid": ([0, 0, 1.35, 1, 0, 0, 0] + [0] * 21, 0.065),
}


@pytest.mark.parametrize("name", STARTS)
def test_clearance_at_the_start(robots, name):
    model, (q, clearance) = robots[name], STARTS[name]
    data = mujoco.MjData(model.source)
    data.qpos[:] = q
    mujoco.mj_kinematics(model.source, data)
    lowest = np.inf
    for shape, pos, radius in zip(model.point_shape, model.point_pos, model.point_radius, strict=True):
        body = data.body(model.body_name[model.shape_body[shape]])
        lowest = min(lowest, (body.xpos + body.xmat.reshape(3, 3) @ pos)[2] - radius)
    assert lowest == pytest.approx(clearance, abs=6e-4)


# Name: contact stiffness, damping, friction stiffness, friction coefficient, limit stiffness.
CONSTANTS = {
    "hopper": (2e4, 1e3, 1e3, 0.9, 1e3),
    "half_cheetah": (2e4, 1e3, 1e3, 1.0, 1e3),
    "ant": (4e4, 1e4, 3e3, 0.75, 1e3),
    "humanoid": (2e4, 5e3, 1e3, 0.75, 1e3),
}


@pytest.mark.parametrize("name", CONSTANTS)
def test_contact_and_limit_constants(robots, name):
    model, (stiffness, damping, friction_stiffness, friction, limit) = robots[name], CONSTANTS[name]
    assert model.ground_height == 0
    assert set(model.shape_stiffness) == {stiffness}
    assert set(model.shape_damping) == {damping}
    assert set(model.shape_friction_stiffness) == {friction_stiffness}
    assert set(model.shape_friction) == {friction}
    assert set(model.joint_limit_stiffness[model.joint_type != JointType.FREE]) == {limit}


def test_cartpole_joints(robots):
    model = robots["cartpole"]
    assert_array_equal(model.joint_limit_stiffness, [100, 100])
    assert_array_equal(model.joint_lower, [-4, -np.inf])
    assert_array_equal(model.dof_damping, [1, 1])
    assert_array_equal(model.dof_armature, [0.01, 0.01])
    assert_array_equal(model.motor_gear, [1000])
    assert model.ground_height is None
    assert model.body_pos[0, 2] == 2.5


def test_hopper_joints(robots):
    model = robots["hopper"]
    assert_array_equal(model.dof_damping, [10, 10, 10, 12, 12, 12])
    assert_array_equal(model.dof_armature, np.ones(6))
    assert_array_equal(model.joint_lower[3:], [-2.618, -2.618, -0.7854])
    assert_array_equal(model.joint_upper[3:], [0, 0, 0.7854])
    assert_array_equal(model.motor_dof, [3, 4, 5])
    assert_array_equal(model.motor_gear, [200, 200, 200])
    assert_array_equal(model.q_reference, np.zeros(6))
    assert model.body_pos[0, 2] == 1.25


@pytest.mark.parametrize(("name", "joint"), [("cartpole", 1), ("hopper", 2), ("half_cheetah", 2)])
def test_positive_angle_tips_the_top_forward(robots, name, joint):
    """A point above the hinge moves along axis x up."""
    axis = robots[name].joint_axis[joint]
    assert_array_equal(np.cross(axis, [0, 0, 1]), [1, 0, 0])


def test_half_cheetah_joints(robots):
    model, open_end = robots["half_cheetah"], [np.inf] * 3
    assert_array_equal(model.joint_type, [JointType.SLIDE] * 2 + [JointType.HINGE] * 7)
    assert_array_equal(model.joint_axis, [(1, 0, 0), (0, 0, 1)] + [(0, 1, 0)] * 7)
    assert_array_equal(model.joint_lower, [*np.negative(open_end), -0.52, -0.785, -0.4, -1.5, -1.2, -3.1])
    assert_array_equal(model.joint_upper, [*open_end, 1.05, 0.785, 0.785, 0.8, 1.1, -0.3])
    assert_array_equal(model.joint_stiffness, [0, 0, 0, 240, 180, 120, 180, 120, 60])
    assert_array_equal(model.dof_damping, [10, 10, 10, 16, 14.5, 13, 14.5, 13, 11.5])
    assert_array_equal(model.dof_armature, np.full(9, 0.1))
    assert_array_equal(model.q_reference, np.zeros(9))
    assert_array_equal(model.q_spring, np.zeros(9))
    assert_array_equal(model.motor_dof, np.arange(3, 9))
    assert_array_equal(model.motor_gear, np.full(6, 200))


def test_ant_joints(robots):
    model = robots["ant"]
    assert_array_equal(model.dof_damping, [0] * 6 + [11] * 8)
    assert_array_equal(model.dof_armature, [0] * 6 + [0.05] * 8)
    hip, bent, straight = 0.6981, 1.7453, 0.5236
    assert_array_equal(model.joint_lower[1:], [-hip, straight, -hip, -bent, -hip, -bent, -hip, straight])
    assert_array_equal(model.joint_upper[1:], [hip, bent, hip, -straight, hip, -straight, hip, bent])
    assert model.actuator_name == tuple(f"{joint}_{leg}" for leg in (1, 2, 3, 4) for joint in ("hip", "ankle"))
    assert_array_equal(model.motor_gear, np.full(8, 200))


def test_humanoid_joints(robots):
    model = robots["humanoid"]
    leg, arm = [70, 70, 210, 140, 35, 35], [35, 35, 70]
    assert_array_equal(model.motor_gear, [70, 70, 70, *leg, *leg, *arm, *arm])
    assert_array_equal(model.motor_dof, np.arange(6, 27))
    leg, arm = [15, 15, 15, 10.1, 11, 11], [15, 15, 11]
    assert_array_equal(model.dof_damping, [0] * 6 + [15, 15, 15, *leg, *leg, *arm, *arm])
    leg, arm = [10, 10, 20, 5, 2, 2], [10, 10, 2]
    assert_array_equal(model.joint_stiffness, [0, 20, 20, 10, *leg, *leg, *arm, *arm])
    leg, arm = [0.01, 0.01, 0.01, 0.007, 0.006, 0.006], [0.01, 0.01, 0.006]
    assert_array_equal(model.dof_armature, [0] * 6 + [0.02, 0.01, 0.01, *leg, *leg, *arm, *arm])
    leg, arm = [-0.4363, -1.0472, -1.3963, -2.7925, -0.8727, -0.8727], [-1.0472, -1.0472, -1.5708]
    assert_array_equal(model.joint_lower[1:], [-0.7854, -1.309, -0.6109, *leg, *leg, *arm, *arm])
    leg, arm = [0.0873, 0.6109, 0.3491, 0.0349, 0.8727, 0.8727], [1.0472, 1.0472, 0.8727]
    assert_array_equal(model.joint_upper[1:], [0.7854, 0.5236, 0.6109, *leg, *leg, *arm, *arm])
    assert_array_equal(model.q_spring[7:], np.zeros(21))


# Joint of the humanoid: its body and its axis.
HUMANOID_AXES = {
    "abdomen_z": ("lower_waist", (0, 0, 1)),
    "abdomen_y": ("lower_waist", (0, 1, 0)),
    "abdomen_x": ("pelvis", (1, 0, 0)),
    "right_hip_x": ("right_thigh", (1, 0, 0)),
    "right_hip_z": ("right_thigh", (0, 0, 1)),
    "right_hip_y": ("right_thigh", (0, 1, 0)),
    "right_knee": ("right_shin", (0, -1, 0)),
    "right_ankle_y": ("right_foot", (0, 1, 0)),
    "right_ankle_x": ("right_foot", (0.8944, 0, 0.4472)),
    "left_hip_x": ("left_thigh", (-1, 0, 0)),
    "left_hip_z": ("left_thigh", (0, 0, -1)),
    "left_hip_y": ("left_thigh", (0, 1, 0)),
    "left_knee": ("left_shin", (0, -1, 0)),
    "left_ankle_y": ("left_foot", (0, 1, 0)),
    "left_ankle_x": ("left_foot", (0.8944, 0, 0.4472)),
    "right_shoulder1": ("right_upper_arm", (0.8165, 0.4082, 0.4082)),
    "right_shoulder2": ("right_upper_arm", (0, -0.7071, 0.7071)),
    "right_elbow": ("right_lower_arm", (0, -0.7071, 0.7071)),
    "left_shoulder1": ("left_upper_arm", (-0.8165, 0.4082, -0.4082)),
    "left_shoulder2": ("left_upper_arm", (0, -0.7071, -0.7071)),
    "left_elbow": ("left_lower_arm", (0, -0.7071, -0.7071)),
}


def test_humanoid_axes(robots):
    model = robots["humanoid"]
    assert_array_equal(model.joint_type, [JointType.FREE] + [JointType.HINGE] * 21)
    assert model.joint_name == ("root", *HUMANOID_AXES)
    assert model.actuator_name == tuple(HUMANOID_AXES)
    bodies, axes = zip(*HUMANOID_AXES.values(), strict=True)
    assert tuple(model.body_name[body] for body in model.joint_body[1:]) == bodies
    assert_allclose(model.joint_axis[1:], axes, atol=6e-5)


@pytest.mark.parametrize("name", PATHS)
def test_only_the_ground_is_touched_in_plain_mujoco(robots, name):
    source = robots[name].source
    moving = source.geom_bodyid > 0
    contype, conaffinity = source.geom_contype[moving], source.geom_conaffinity[moving]
    assert not np.any(contype[:, None] & conaffinity[None, :])
