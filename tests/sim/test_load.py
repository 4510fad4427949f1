"""What load_model makes of a file, its bodies and its joints, against MuJoCo and hand-worked numbers."""

from __future__ import annotations

from pathlib import Path

import mujoco
import numpy as np
import pytest
from mujoco_frames import body_frames
from numpy.testing import assert_allclose, assert_array_equal
from random_robots import random_robot
from small_robot import PLANE, mjcf

from trot.sim.axis_constants import LIMIT_STIFFNESS
from trot.sim.load import ModelError, load_model
from trot.sim.model import WORLD, JointType, Model

ROBOTS = Path(__file__).parents[1] / "robots"


# Reading.


def test_missing_file_is_named():
    with pytest.raises(FileNotFoundError, match=r"nowhere/robot\.xml"):
        load_model("nowhere/robot.xml")


@pytest.mark.parametrize("text", ["<mujoco><worldbod/></mujoco>", "<mujoco>", "<house/>"])
def test_what_mujoco_rejects_is_a_model_error(text):
    with pytest.raises(ModelError, match="XML"):
        load_model(text)


def test_error_names_the_file(tmp_path):
    path = tmp_path / "robot.xml"
    path.write_text("<mujoco/>")
    with pytest.raises(ModelError, match=r"robot\.xml: no body moves"):
        load_model(path)


def test_text_and_path_give_the_same_model(every_joint):
    model = load_model((ROBOTS / "every_joint.xml").read_text())
    for name, value in vars(every_joint).items():
        if name != "source":
            assert_array_equal(getattr(model, name), value, err_msg=name)


def test_arrays_are_read_only_and_typed(every_joint):
    for name, value in vars(every_joint).items():
        if isinstance(value, np.ndarray):
            assert value.dtype in (np.float64, np.int32), name
            assert not value.flags.writeable, name


def test_every_problem_is_told_at_once():
    wrong = mjcf(
        top='<option density="1.2"/>',
        joint='<joint name="knee" springyield="1" stiffness="1" user="-1"/>',
        tendon='<fixed name="f" stiffness="1" user="-1"><joint joint="knee" coef="1"/></fixed>',
        actuator='<general name="c" joint="knee" gaintype="user"/><motor name="m" site="a"/>',
    )
    with pytest.raises(
        ModelError, match=r"(?s)density.*springyield.*'c' is.*'m' acts.*joint 'knee' has.*tendon 'f' has"
    ):
        load_model(wrong)


def test_example_of_the_manual_loads():
    manual = (Path(__file__).parents[2] / "docs" / "robots.md").read_text(encoding="utf-8")
    example = manual.split("```xml\n")[1].split("```")[0]
    assert_array_equal(load_model(example).shape_stiffness, [2e4, 1e4])


# Bodies.


def some_robots() -> list[Model]:
    robots = [random_robot(np.random.default_rng(seed), 1 + seed, welded=0.5) for seed in range(8)]
    return [load_model(ROBOTS / "every_joint.xml"), *(load_model(text) for text in robots)]


def test_bodies_of_every_joint(every_joint):
    assert every_joint.body_name == ("trunk", "neck", "thigh", "shin", "foot", "tail", "pendulum")
    assert_array_equal(every_joint.body_parent, [WORLD, 0, 0, 2, 3, 0, WORLD])
    assert every_joint.num_dofs == 19
    assert every_joint.num_q == 22
    assert set(every_joint.joint_type) == set(JointType)


@pytest.mark.parametrize("model", some_robots(), ids=lambda model: f"{model.num_bodies} bodies")
def test_frames_at_the_reference_pose(model):
    pos, rot = body_frames(model, model.q_reference)
    free = model.joint_body[model.joint_type == JointType.FREE]
    for body, parent in enumerate(model.body_parent):
        if body in free:
            continue
        local = np.zeros(9)
        mujoco.mju_quat2Mat(local, model.body_quat[body])
        parent_pos, parent_rot = (np.zeros(3), np.eye(3)) if parent == WORLD else (pos[parent], rot[parent])
        assert_allclose(parent_pos + parent_rot @ model.body_pos[body], pos[body], atol=1e-12)
        assert_allclose(parent_rot @ local.reshape(3, 3), rot[body], atol=1e-12)


@pytest.mark.parametrize("model", some_robots(), ids=lambda model: f"{model.num_bodies} bodies")
def test_folding_keeps_mass_centre_and_inertia(model):
    """Sum MuJoCo's bodies in world axes, where MuJoCo has done the geometry."""
    source, data = model.source, mujoco.MjData(model.source)
    mujoco.mj_kinematics(source, data)
    mujoco.mj_comPos(source, data)
    pos, rot = body_frames(model, model.q_reference)
    for body, name in enumerate(model.body_name):
        parts = np.flatnonzero(source.body_weldid == source.body(name).id)
        mass, centres = source.body_mass[parts], data.xipos[parts]
        com = mass @ centres / mass.sum()
        inertia = np.zeros((3, 3))
        for part in parts:
            axes, offset = data.ximat[part].reshape(3, 3), data.xipos[part] - com
            inertia += axes @ np.diag(source.body_inertia[part]) @ axes.T
            inertia += source.body_mass[part] * (offset @ offset * np.eye(3) - np.outer(offset, offset))
        assert_allclose(model.body_mass[body], mass.sum())
        assert_allclose(pos[body] + rot[body] @ model.body_com[body], com, atol=1e-12)
        assert_allclose(rot[body] @ model.body_inertia[body] @ rot[body].T, inertia, atol=1e-12)
    for root in np.flatnonzero(model.body_parent == WORLD):
        tree = [body for body in range(model.num_bodies) if root_of(model, body) == root]
        mass = model.body_mass[tree]
        com = mass @ (pos[tree] + np.einsum("bij,bj->bi", rot[tree], model.body_com[tree])) / mass.sum()
        assert_allclose(com, data.subtree_com[source.body(model.body_name[root]).id], atol=1e-12)


def root_of(model: Model, body: int) -> int:
    while model.body_parent[body] != WORLD:
        body = model.body_parent[body]
    return body


def test_two_welded_spheres_by_hand():
    """1 kg at the origin and 3 kg at x = 0.4, both of radius 0.1: centre at 0.3, 1 * 0.3^2 + 3 * 0.1^2 = 0.12."""
    weld = '<body pos="0.4 0 0" euler="0.3 0.2 0.1"><geom size="0.1" mass="3"/></body>'
    model = load_model(mjcf(weld, geom='<geom size="0.1" mass="1"/>'))
    sphere = 0.4 * 4 * 0.1**2
    assert model.body_name == ("leg",)
    assert_allclose(model.body_mass, [4])
    assert_allclose(model.body_com, [[0.3, 0, 0]], atol=1e-15)
    assert_allclose(model.body_inertia, [np.diag([sphere, sphere + 0.12, sphere + 0.12])], atol=1e-15)


def test_bodies_welded_to_the_world_become_the_world():
    """A quarter turn about z at (1, 2, 3) puts the arm's (0.5, 0, 0) at (1, 2.5, 3)."""
    arm = '<body name="arm" pos="0.5 0 0"><joint/><geom size="0.1"/></body>'
    stand = f'<body name="stand" pos="1 2 3" euler="0 0 {np.pi / 2}"><geom size="0.2" contype="0" conaffinity="0"/>'
    model = load_model(mjcf(world=f"{PLANE}{stand}{arm}</body>"))
    assert model.body_name == ("arm", "leg")
    assert_allclose(model.body_pos[0], [1, 2.5, 3])
    assert_allclose(model.body_quat[0], [np.sqrt(0.5), 0, 0, np.sqrt(0.5)])


def test_unnamed_elements_are_numbered():
    model = load_model(mjcf('<body><joint/><geom size="0.1"/></body>', actuator='<motor joint="knee"/>'))
    assert model.body_name == ("leg", "body2")
    assert model.joint_name == ("knee", "joint1")
    assert model.shape_name == ("ball", "geom2")
    assert model.actuator_name == ("actuator0",)


# Joints.


def test_joint_fields_of_every_joint(every_joint):
    joint = every_joint.joint_name.index
    assert_allclose(every_joint.joint_anchor[joint("hip_turn")], [-0.03, 0.02, -0.01])
    assert_allclose(np.linalg.norm(every_joint.joint_axis, axis=1), 1)
    assert every_joint.joint_stiffness[joint("hip_reach")] == 900
    assert every_joint.q_spring[every_joint.joint_q_start[joint("hip_reach")]] == 0.02
    assert every_joint.q_reference[every_joint.joint_q_start[joint("knee")]] == -0.3
    assert every_joint.dof_armature[every_joint.joint_dof_start[joint("trunk")]] == 0.02
    assert_array_equal(every_joint.dof_damping[:6], np.full(6, 0.4))
    assert_array_equal(every_joint.joint_limit_stiffness[[joint("knee"), joint("neck")]], [650, 800])


def test_limits(every_joint):
    joint = every_joint.joint_name.index
    lower, upper = every_joint.joint_lower, every_joint.joint_upper
    assert (lower[joint("hip_swing")], upper[joint("hip_swing")]) == (-0.8, 0.5)
    assert (lower[joint("neck")], upper[joint("neck")]) == (-np.inf, 0.6)
    assert (lower[joint("hip_turn")], upper[joint("hip_turn")]) == (-np.inf, np.inf)


def test_limit_stiffness_without_user():
    assert load_model(mjcf()).joint_limit_stiffness == [LIMIT_STIFFNESS]


def test_switched_off_in_the_file():
    joint = '<joint name="knee" range="-1 1" stiffness="3" damping="2"/>'

    def load(flag: str) -> Model:
        return load_model(mjcf(joint=joint, top=f'<option><flag {flag}="disable"/></option>'))

    assert_array_equal(load("gravity").gravity, np.zeros(3))
    assert load("contact").num_shapes == 0
    assert_array_equal(load("limit").joint_upper, [np.inf])
    assert_array_equal(load("spring").joint_stiffness, [0])
    assert_array_equal(load("damper").dof_damping, [0])
    everything = load("warmstart")
    assert everything.gravity[2] == -9.81
    assert everything.num_shapes == 1
    assert everything.joint_upper[0] == 1
    assert everything.joint_stiffness[0] == 3
    assert everything.dof_damping[0] == 2


# Random robots.


def test_random_robots_are_reproducible():
    first, second = (random_robot(np.random.default_rng(7), 5) for _ in range(2))
    assert first == second
    assert first != random_robot(np.random.default_rng(8), 5)


def test_random_robots_cover_every_joint_type():
    kinds: set[int] = set()
    for seed in range(20):
        model = load_model(random_robot(np.random.default_rng(seed), 6))
        assert model.num_bodies == 6
        assert model.num_muscles == 2
        kinds |= set(model.joint_type)
    assert kinds == set(JointType)


def test_a_file_of_another_kind_is_named(tmp_path):
    path = tmp_path / "robot.json"
    path.write_text("{}")
    with pytest.raises(ModelError, match=r"robot\.json: .*\.xml or \.urdf"):
        load_model(path)


def test_an_empty_name_is_named():
    with pytest.raises(FileNotFoundError, match="no robot file ''"):
        load_model("")
