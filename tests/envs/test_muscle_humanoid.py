"""The muscle Humanoid against the figures it was written from, and its muscles against MuJoCo."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import groupby, pairwise
from pathlib import Path

import mujoco
import numpy as np
import pytest
import torch
from manifold import lively_states, point_heights
from mujoco_frames import body_frames
from numpy.testing import assert_allclose, assert_array_equal

import trot
from trot.envs.assets.muscle_humanoid.generate import build_xml
from trot.sim.model import WORLD, JointType, Model

FILE = Path(trot.__file__).parent / "envs" / "assets" / "muscle_humanoid.xml"
FREE, BALL, HINGE = JointType.FREE, JointType.BALL, JointType.HINGE
NUM_WORLDS = 20
DT = 1e-3


@pytest.fixture(scope="module")
def robot() -> Model:
    return trot.load_model(FILE)


def test_the_file_is_what_the_script_writes():
    assert FILE.read_text(encoding="utf-8") == build_xml()


def test_sizes(robot):
    assert (robot.num_bodies, robot.num_q, robot.num_dofs) == (11, 29, 24)
    assert (robot.num_controls, robot.num_muscles, robot.num_points) == (152, 152, 88)
    assert robot.body_mass.sum() == pytest.approx(37.0)


# Body: parent, joint, offset of the joint in the parent's frame (m), mass (kg), size of the box (m), its centre (m).
FEMUR, TIBIA, TALUS = (0.1271, 0.4043, 0.1398), (0.1198, 0.4156, 0.1141), (0.0756, 0.0498, 0.1570)
THUMB, PINKY = (0.0407, 0.0262, 0.0563), (0.0422, 0.0238, 0.0529)
BODIES = {
    "pelvis": (None, FREE, (0, 0, 1), 15, (0.2083, 0.1454, 0.1294), (0, 0, 0)),
    "femur_r": ("pelvis", BALL, (-0.0903, -0.0472, 0.0192), 7, FEMUR, (-0.0056, -0.2096, -0.0111)),
    "tibia_r": ("femur_r", HINGE, (-0.0092, -0.3950, 0.0013), 3, TIBIA, (0.0067, -0.2369, -0.0238)),
    "talus_r": ("tibia_r", BALL, (0.0195, -0.4611, -0.0316), 0.6, TALUS, (-0.0026, -0.0373, 0.0177)),
    "foot_thumb_r": ("talus_r", HINGE, (0.0019, -0.0575, 0.1111), 0.2, THUMB, (0.0016, 0.0067, 0.0246)),
    "foot_pinky_r": ("talus_r", HINGE, (-0.0427, -0.0634, 0.0913), 0.2, PINKY, (-0.0017, 0.0127, 0.0316)),
    "femur_l": ("pelvis", BALL, (0.0903, -0.0472, 0.0192), 7, FEMUR, (0.0056, -0.2096, -0.0111)),
    "tibia_l": ("femur_l", HINGE, (0.0092, -0.3950, 0.0013), 3, TIBIA, (-0.0067, -0.2369, -0.0238)),
    "talus_l": ("tibia_l", BALL, (-0.0195, -0.4611, -0.0316), 0.6, TALUS, (0.0026, -0.0373, 0.0177)),
    # The toes of this foot are swapped: the thumb is the outer one.
    "foot_thumb_l": ("talus_l", HINGE, (0.0415, -0.0660, 0.0913), 0.2, THUMB, (0.0029, 0.0153, 0.0316)),
    "foot_pinky_l": ("talus_l", HINGE, (-0.0044, -0.0658, 0.1095), 0.2, PINKY, (0.0009, 0.0150, 0.0262)),
}


def test_bodies(robot):
    names = tuple(BODIES)
    parents, joints, offsets, masses, sizes, centres = zip(*BODIES.values(), strict=True)
    assert robot.body_name == robot.shape_name == names
    assert tuple(None if parent == WORLD else names[parent] for parent in robot.body_parent) == parents
    assert_array_equal(robot.joint_type, joints)
    assert_array_equal(robot.joint_body, np.arange(11))
    assert_array_equal(robot.joint_axis[robot.joint_type == HINGE], [(1, 0, 0)] * 6)
    assert_array_equal(robot.joint_anchor, np.zeros((11, 3)))
    assert_array_equal(robot.body_pos, offsets)
    assert_array_equal(robot.body_quat[1:], [(1, 0, 0, 0)] * 10)
    assert_allclose(robot.body_mass, masses)
    assert_allclose(robot.body_com, centres)
    boxes = robot.source.geom_type == mujoco.mjtGeom.mjGEOM_BOX
    assert_allclose(2 * robot.source.geom_size[boxes], sizes)


# xx, yy, zz, xy, xz, yz about the centre of mass in the body's axes (kg m^2), in the order of BODIES.
INERTIAS = [
    (0.047357, 0.075167, 0.080663, 0, 0, 0),
    (0.10671, 0.020875, 0.10477, -0.00142, -0.00018287, 0.0015209),
    (0.046388, 0.007194, 0.046465, 0.001371, 0.00012106, -0.0034652),
    (0.0013159, 0.0015172, 0.00045137, -9.9246e-06, 0.00019179, 3.1293e-05),
    (6.3508e-05, 8.0421e-05, 3.9826e-05, 7.8792e-08, 4.3214e-06, 7.5598e-07),
    (5.4117e-05, 7.6312e-05, 4.1094e-05, -3.3727e-07, 5.4267e-06, 4.3896e-07),
    (0.10671, 0.020875, 0.10477, 0.00142, 0.00018287, 0.0015209),
    (0.046388, 0.007194, 0.046465, -0.001371, -0.00012106, -0.0034652),
    (0.0013159, 0.0015172, 0.00045137, 9.9246e-06, -0.00019179, 3.1293e-05),
    (6.1347e-05, 8.0427e-05, 4.198e-05, 3.2579e-07, -8.0718e-06, 5.0629e-07),
    (5.557e-05, 7.6306e-05, 3.9647e-05, -1.4352e-07, -2.9078e-06, 6.9231e-07),
]


def test_inertias(robot):
    # Five digits of the largest entry of each.
    for found, (xx, yy, zz, xy, xz, yz) in zip(robot.body_inertia, INERTIAS, strict=True):
        assert_allclose(found, [(xx, xy, xz), (xy, yy, yz), (xz, yz, zz)], atol=5e-5 * max(xx, yy, zz), rtol=0)


def test_joint_constants(robot):
    """Only hinges have limits; all but the root have armature."""
    knee, toe = 2 + 2, 2 + 0.1333
    leg = [2, 2, 2, knee, 2, 2, 2, toe, toe]
    assert_allclose(robot.dof_damping, [0] * 6 + leg + leg, atol=5e-5)
    assert_array_equal(robot.dof_armature, [0] * 6 + [0.05] * 18)
    assert_array_equal(robot.joint_lower, [-np.inf] + 2 * [-np.inf, 0, -np.inf, -0.6, -0.6])
    assert_array_equal(robot.joint_upper, [np.inf] + 2 * [np.inf, 2.3, np.inf, 0.6, 0.6])
    assert_allclose(robot.joint_limit_stiffness[robot.joint_type == HINGE], 2 * [200, 13.33, 13.33], atol=5e-3)


def test_contact_constants(robot):
    assert robot.ground_height == 0
    assert set(robot.shape_stiffness) == {5e3}
    assert set(robot.shape_damping) == {2e3}
    assert set(robot.shape_friction_stiffness) == {1e3}
    assert set(robot.shape_friction) == {0.5}


def test_it_stands_above_the_ground_and_looks_along_x(robot):
    assert_array_equal(robot.q_reference[:7], [0, 0, 1, 0.5, 0.5, 0.5, 0.5])
    assert point_heights(robot, robot.q_reference[None]).min() == pytest.approx(0.031, abs=6e-4)
    positions, rotations = body_frames(robot, robot.q_reference)
    # Columns: where the axes left, up and forward of the bodies point to.
    assert_allclose(rotations, [[(0, 0, 1), (1, 0, 0), (0, 1, 0)]] * 11, atol=1e-15)
    place = dict(zip(robot.body_name, positions, strict=True))
    for side, sign in (("l", 1), ("r", -1)):
        assert sign * place[f"femur_{side}"][1] > 0.05
        assert place["pelvis"][2] > place[f"tibia_{side}"][2] + 0.3 > place[f"talus_{side}"][2] + 0.6
        for toe in ("thumb", "pinky"):
            assert place[f"foot_{toe}_{side}"][0] > place[f"talus_{side}"][0] + 0.05


# Muscles.


def paths(robot: Model) -> dict[str, list[int]]:
    """The sites of every muscle, from one end to the other."""
    source = robot.source
    ends = np.append(source.tendon_adr, len(source.wrap_objid))
    tendons = source.actuator_trnid[:, 0]
    return {
        name: source.wrap_objid[ends[tendon] : ends[tendon + 1]].tolist()
        for name, tendon in zip(robot.actuator_name, tendons, strict=True)
    }


def site_bodies(robot: Model) -> list[str]:
    return [robot.source.body(body).name for body in robot.source.site_bodyid]


def reference_sites(robot: Model) -> np.ndarray:
    """World positions of all sites in the reference pose, by MuJoCo."""
    data = mujoco.MjData(robot.source)
    mujoco.mj_kinematics(robot.source, data)
    return data.site_xpos.copy()


def test_strengths(robot):
    """Peak tension is 0.36 of the isometric strength."""
    peak = robot.muscle_peak_force
    assert peak.sum() == pytest.approx(19.9e3, abs=50)
    assert (peak.min(), peak.max()) == pytest.approx((16, 645), abs=0.5)
    strength = peak / 0.36
    assert strength.sum() == pytest.approx(55.2e3, abs=50)
    assert strength.mean() == pytest.approx(363, abs=0.5)
    assert (strength.min(), strength.max()) == pytest.approx((45, 1793), abs=0.5)
    named = dict(zip(robot.actuator_name, strength, strict=True))
    for side in "lr":
        assert named[f"{side}_soleus"] == pytest.approx(1793, abs=0.5)
        assert named[f"{side}_gastrocnemius_medial_head"] == pytest.approx(1308, abs=0.5)
        assert named[f"{side}_vastus_lateralis"] == pytest.approx(1128, abs=0.5)
    assert_array_equal(robot.control_lower, np.zeros(152))
    assert_array_equal(robot.control_upper, np.ones(152))


def test_numbers_of_waypoints_and_segments(robot):
    lengths = [len(path) for path in paths(robot).values()]
    assert Counter(lengths) == {2: 6, 3: 38, 4: 64, 5: 18, 6: 18, 7: 8}
    assert sum(lengths) == robot.source.nsite == 636
    assert sum(length - 1 for length in lengths) == 484
    assert robot.num_segments == 198


def test_chains_of_bodies(robot):
    bodies = site_bodies(robot)
    chains: Counter[tuple[str, ...]] = Counter()
    for name, path in paths(robot).items():
        chain = [body for body, _ in groupby(bodies[site] for site in path)]
        assert {body[-2:] for body in chain} <= {f"_{name[0]}", "is"}  # its own leg or the pelvis
        chains[tuple(body.removesuffix(f"_{name[0]}") for body in chain)] += 1
    assert chains == {
        ("pelvis", "femur"): 64,
        ("femur", "tibia"): 24,
        ("pelvis", "femur", "tibia"): 22,
        ("tibia", "talus"): 16,
        ("tibia", "talus", "foot_pinky"): 12,
        ("tibia", "talus", "foot_thumb"): 10,
        ("foot_pinky", "talus"): 2,
        ("femur", "tibia", "talus"): 2,
    }


# Waypoint: body, position in the reference pose of the published figures: x left, y up, z forward (m).
WAYPOINTS = {
    "l_adductor_brevis.0": ("pelvis", (0.0319, 0.9196, 0.0416)),
    "l_adductor_brevis.2": ("femur_l", (0.1104, 0.8262, -0.0084)),
    "r_soleus.3": ("tibia_r", (-0.0734, 0.0983, -0.0775)),
    "r_soleus.4": ("talus_r", (-0.0729, 0.0299, -0.0952)),
    "r_extensor_hallucis_longus.5": ("foot_thumb_r", (-0.0606, 0.0129, 0.1128)),
    "l_extensor_hallucis_longus.5": ("foot_thumb_l", (0.0606, 0.0129, 0.1128)),
    "l_flexor_digiti_minimi_brevis_foot.0": ("foot_pinky_l", (0.1364, 0.0112, 0.0496)),
}
PELVIS = np.array([0, 0.9809, -0.0308])
"""Its origin in that pose."""


@pytest.mark.parametrize("name", WAYPOINTS)
def test_some_waypoints(robot, name):
    body, place = WAYPOINTS[name]
    site = robot.source.site(name)
    assert site_bodies(robot)[site.id] == body
    left, up, forward = np.array(place) - PELVIS
    assert_allclose(reference_sites(robot)[site.id], [forward, left, 1 + up], atol=1e-12)


def test_left_and_right_are_mirror_images(robot):
    every_path, place, bodies = paths(robot), reference_sites(robot), site_bodies(robot)
    strength = dict(zip(robot.actuator_name, robot.muscle_peak_force, strict=True))
    left = [name for name in every_path if name.startswith("l_")]
    assert len(left) == 76
    for name in left:
        other = "r_" + name.removeprefix("l_")
        assert strength[name] == strength[other]
        assert_allclose(place[every_path[name]] * [1, -1, 1], place[every_path[other]], atol=1e-12)
        own, mirrored = ([bodies[site] for site in every_path[each]] for each in (name, other))
        assert [body.replace("_l", "_r") for body in own] == mirrored


def test_lengths_agree_with_mujoco(robot):
    """What the Model keeps of a muscle, and what it leaves out because it never changes, are together its length."""
    source, rng = robot.source, np.random.default_rng(0)
    rigid = np.zeros(152)
    for muscle, path in enumerate(paths(robot).values()):
        for start, end in pairwise(path):
            if source.site_bodyid[start] == source.site_bodyid[end]:
                rigid[muscle] += np.linalg.norm(source.site_pos[end] - source.site_pos[start])
    data = mujoco.MjData(source)
    for q in lively_states(robot, NUM_WORLDS, rng)[0]:
        data.qpos[:] = q
        mujoco.mj_fwdPosition(source, data)
        positions, rotations = body_frames(robot, q)
        body, point = robot.segment_body, robot.segment_point
        ends = positions[body] + np.einsum("seij,sej->sei", rotations[body], point)
        moving = np.bincount(robot.segment_muscle, np.linalg.norm(ends[:, 1] - ends[:, 0], axis=1))
        assert_allclose(moving + rigid, data.ten_length[source.actuator_trnid[:, 0]], atol=1e-12)


def joint_force_between(robot: Model, first: torch.Tensor, second: torch.Tensor, q: np.ndarray) -> np.ndarray:
    """The generalised force that makes the difference of two joint velocities after a substep of DT, by MuJoCo's M."""
    source, data, forces = robot.source, mujoco.MjData(robot.source), []
    mass_matrix = np.zeros((source.nv, source.nv))
    for each, acceleration in zip(q, ((second - first) / DT).numpy(), strict=True):
        data.qpos[:] = each
        mujoco.mj_fwdPosition(source, data)
        mujoco.mj_fullM(source, data, mass_matrix)
        forces.append(mass_matrix @ acceleration)
    return np.array(forces)


def test_muscles_pull_as_in_mujoco(robot):
    """Oracle: qfrc_actuator of random activations in random poses."""
    rng = np.random.default_rng(1)
    q, qd = lively_states(robot, NUM_WORLDS, rng)
    activation = rng.uniform(-0.2, 1.2, (NUM_WORLDS, 152))  # some beyond their range
    state = trot.State(torch.tensor(q), torch.tensor(qd))
    slack, tense = (
        trot.step(robot, state, torch.tensor(control), DT).joint_qd for control in (0 * activation, activation)
    )
    data, expected = mujoco.MjData(robot.source), []
    for each_q, control in zip(q, activation, strict=True):
        data.qpos[:], data.ctrl[:] = each_q, control
        mujoco.mj_forward(robot.source, data)
        expected.append(data.qfrc_actuator.copy())
    found = joint_force_between(robot, slack, tense, q)
    assert_allclose(found, expected, atol=1e-9 * np.abs(expected).max())


def test_springs_pull_as_in_the_figures(robot):
    """A ball joint with -k times the imaginary part of its quaternion, a hinge with -k times its angle."""
    q, qd = lively_states(robot, NUM_WORLDS, np.random.default_rng(2))
    state, rest = trot.State(torch.tensor(q), torch.tensor(qd)), torch.zeros(NUM_WORLDS, 152, dtype=torch.float64)
    springless = replace(robot, joint_stiffness=np.zeros(11))
    without, with_springs = (trot.step(each, state, rest, DT).joint_qd for each in (springless, robot))
    found = joint_force_between(robot, without, with_springs, q)
    expected = [np.zeros((NUM_WORLDS, 6))]
    stiffness = 2 * [3.4157, 2.2361, 1.0, 0.5774, 0.5774]
    for kind, start, k in zip(robot.joint_type[1:], robot.joint_q_start[1:], stiffness, strict=True):
        if kind == BALL:
            # A quaternion and its negative are the same pose; the spring turns the shorter way.
            shorter = np.where(q[:, start] < 0, -1, 1)[:, None]
            expected.append(-k * shorter * q[:, start + 1 : start + 4])
        else:
            expected.append(-k * q[:, start : start + 1])
    assert_allclose(found, np.concatenate(expected, axis=1), rtol=1e-4, atol=1e-9)


def test_a_control_step_is_finite(robot):
    state = robot.default_state(4, dtype=torch.float64)
    activation = torch.rand(4, 152, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    after = trot.step(robot, state, activation, control_dt=1 / 60, substeps=48)
    assert after.finite.all()
    assert (after.joint_q - state.joint_q).abs().max() > 1e-3
