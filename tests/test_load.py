"""What load_model makes of a file, against MuJoCo and hand-worked numbers; what it refuses and what it ignores."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import mujoco
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from random_robots import random_robot

from trot.sim.load import LIMIT_STIFFNESS, ModelError, load_model
from trot.sim.model import WORLD, JointType, Model
from trot.sim.shapes import CONTACT_DAMPING, CONTACT_STIFFNESS, FRICTION_STIFFNESS

ROBOTS = Path(__file__).parent / "robots"

PLANE = '<geom name="ground" type="plane" size="0 0 1"/>'


def mjcf(
    body: str = "",
    *,
    joint: str = '<joint name="knee"/>',
    geom: str = '<geom name="ball" size="0.1"/>',
    world: str = PLANE,
    top: str = "",
    actuator: str = "",
    tendon: str = "",
) -> str:
    """One jointed body over the ground, with places to put what a test is about."""
    return f"""
    <mujoco>
      <compiler angle="radian"/>
      {top}
      <worldbody>
        {world}
        <site name="post" pos="0.1 0.2 1"/>
        <body name="leg" pos="0 0 1">
          {joint}
          {geom}
          <site name="a" pos="0.3 0 0"/>
          <site name="b" pos="0 0.4 0"/>
          {body}
        </body>
      </worldbody>
      <tendon>{tendon}</tendon>
      <actuator>{actuator}</actuator>
    </mujoco>"""


def body_frames(model: Model, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """World position and rotation matrix of every Model body, by MuJoCo."""
    data = mujoco.MjData(model.source)
    data.qpos[:] = q
    mujoco.mj_kinematics(model.source, data)
    index = [model.source.body(name).id for name in model.body_name]
    return data.xpos[index], data.xmat[index].reshape(-1, 3, 3)


def random_q(model: Model, rng: np.random.Generator) -> np.ndarray:
    q = model.q_reference.copy()
    mujoco.mj_integratePos(model.source, q, rng.normal(0, 0.5, model.num_dofs), 1.0)
    return q


@pytest.fixture(scope="module")
def every_joint() -> Model:
    return load_model(ROBOTS / "every_joint.xml")


def some_robots() -> list[Model]:
    robots = [random_robot(np.random.default_rng(seed), 1 + seed, welded=0.5) for seed in range(8)]
    return [load_model(ROBOTS / "every_joint.xml"), *(load_model(text) for text in robots)]


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
    with pytest.raises(ModelError, match=r"(?s)density.*frictionloss"):
        load_model(mjcf(top='<option density="1.2"/>', joint='<joint frictionloss="1"/>'))


# Bodies.


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


# Ground and shapes.


def test_ground_height_comes_from_the_welded_pose():
    world = '<body pos="1 2 3" euler="0 0 0.3"><geom type="plane" size="0 0 1" pos="0.1 0 0.5"/></body>'
    assert load_model(mjcf(world=world)).ground_height == pytest.approx(3.5)


def test_no_plane_no_shapes():
    model = load_model(mjcf(world="", geom='<geom type="cylinder" size="0.1 0.1"/>'))
    assert model.ground_height is None
    assert model.num_shapes == model.num_points == 0


def test_ground_can_be_added():
    model = load_model(mjcf(world="", geom='<geom size="0.1" contype="4" conaffinity="0"/>'), ground=True)
    assert model.ground_height == 0
    assert model.num_points == 1
    raised = '<geom type="plane" size="0 0 1" pos="0 0 0.5"/>'
    assert load_model(mjcf(world=raised), ground=True).ground_height == 0.5


def test_points_of_a_rotated_capsule():
    """Turned by 90 degrees about y, the segment of half length 0.3 lies along x."""
    geom = f'<geom type="capsule" size="0.05 0.3" pos="1 2 3" euler="0 {np.pi / 2} 0"/>'
    model = load_model(mjcf(geom=geom))
    assert_allclose(model.point_pos, [[0.7, 2, 3], [1.3, 2, 3]], atol=1e-12)
    assert_array_equal(model.point_radius, [0.05, 0.05])
    assert_array_equal(model.point_shape, [0, 0])


def test_points_of_a_rotated_box():
    """Turned by 90 degrees about z, the half extents 0.1 and 0.2 change places."""
    geom = f'<geom type="box" size="0.1 0.2 0.3" pos="1 0 0" euler="0 0 {np.pi / 2}"/>'
    model = load_model(mjcf(geom=geom))
    corners = np.array(list(product((0.8, 1.2), (-0.1, 0.1), (-0.3, 0.3))))
    order = np.lexsort(model.point_pos.round(9).T[::-1])
    assert_allclose(model.point_pos[order], corners, atol=1e-12)
    assert_array_equal(model.point_radius, np.zeros(8))


def test_points_are_sorted_by_body_and_in_the_right_frame(every_joint):
    assert every_joint.shape_name.index("saddle") == 1  # Stands in the file behind the neck's body.
    assert np.all(np.diff(every_joint.shape_body) >= 0)
    assert np.all(np.diff(every_joint.point_shape) >= 0)
    assert every_joint.num_points == 2 * 1 + 5 * 2 + 3 * 8
    source, data = every_joint.source, mujoco.MjData(every_joint.source)
    mujoco.mj_kinematics(source, data)
    pos, rot = body_frames(every_joint, every_joint.q_reference)
    for shape, name in enumerate(every_joint.shape_name):
        body, points = every_joint.shape_body[shape], every_joint.point_pos[every_joint.point_shape == shape]
        world = pos[body] + points @ rot[body].T
        local = (world - data.geom(name).xpos) @ data.geom(name).xmat.reshape(3, 3)
        size = source.geom(name).size
        extent = {1: np.zeros(3), 2: np.array([0, 0, size[1]]), 8: size}[len(points)]
        assert_allclose(np.abs(local), np.tile(extent, (len(points), 1)), atol=1e-12)


def test_contact_constants(every_joint):
    shape = every_joint.shape_name.index
    for name, expected in {
        "saddle": (1.7e4, 1.3e3, 7e2, 0.8),
        "head": (1.7e4, 1.3e3, 7e2, 0.5),
        "knee_cap": (9e3, 4e2, 1.1e3, 0.8),
        "foot": (1.7e4, 1.3e3, 7e2, 0.0),
    }.items():
        at = shape(name)
        found = (
            every_joint.shape_stiffness[at],
            every_joint.shape_damping[at],
            every_joint.shape_friction_stiffness[at],
            every_joint.shape_friction[at],
        )
        assert found == expected, name


def test_contact_constants_without_user():
    model = load_model(mjcf())
    assert model.shape_stiffness == [CONTACT_STIFFNESS]
    assert model.shape_damping == [CONTACT_DAMPING]
    assert model.shape_friction_stiffness == [FRICTION_STIFFNESS]
    assert model.shape_friction == [1]


def test_a_contact_constant_may_be_zero():
    assert load_model(mjcf(geom='<geom size="0.1" user="5e3 0 0"/>')).shape_damping == [0]


# Motors and muscles.


def test_motors_push_as_in_mujoco(every_joint):
    source, rng = every_joint.source, np.random.default_rng(3)
    muscles = every_joint.muscle_actuator
    control = rng.uniform(-2, 2, every_joint.num_controls)
    rest = np.zeros_like(control)
    rest[muscles] = control[muscles]
    forces = []
    for each in (control, rest):
        data = mujoco.MjData(source)
        data.qpos[:] = random_q(every_joint, np.random.default_rng(4))
        data.ctrl[:] = each
        mujoco.mj_forward(source, data)
        forces.append(data.qfrc_actuator.copy())
    clamped = np.clip(control, every_joint.control_lower, every_joint.control_upper)
    expected = np.zeros(every_joint.num_dofs)
    np.add.at(expected, every_joint.motor_dof, every_joint.motor_gear * clamped[every_joint.motor_actuator])
    assert_allclose(forces[0] - forces[1], expected, atol=1e-9)
    assert len(every_joint.motor_gear) == 4 + 2 * 3 + 4


def test_muscles_pull_as_in_mujoco(every_joint):
    source, rng = every_joint.source, np.random.default_rng(5)
    data = mujoco.MjData(source)
    data.ctrl[:] = rng.uniform(0, 2, every_joint.num_controls)
    mujoco.mj_forward(source, data)
    muscles = every_joint.muscle_actuator
    clamped = np.clip(data.ctrl, every_joint.control_lower, every_joint.control_upper)[muscles]
    tension = -data.actuator_force[muscles] * source.actuator_gear[muscles, 0]
    assert_allclose(every_joint.muscle_peak_force * clamped, tension)
    assert_allclose(every_joint.muscle_peak_force, [140, 0.9 * 320, 60, 75 * 1.1])


def test_segments_change_length_as_in_mujoco(every_joint):
    source, rng = every_joint.source, np.random.default_rng(6)
    lengths, ours = [], []
    for _ in range(2):
        q = random_q(every_joint, rng)
        data = mujoco.MjData(source)
        data.qpos[:] = q
        mujoco.mj_fwdPosition(source, data)
        lengths.append([data.ten_length[source.actuator_trnid[a, 0]] for a in every_joint.muscle_actuator])
        pos, rot = body_frames(every_joint, q)
        pos, rot = np.vstack([pos, np.zeros(3)]), np.concatenate([rot, np.eye(3)[None]])
        ends = pos[every_joint.segment_body] + np.einsum(
            "sebj,sej->seb", rot[every_joint.segment_body], every_joint.segment_point
        )
        length = np.linalg.norm(ends[:, 1] - ends[:, 0], axis=1)
        ours.append(np.bincount(every_joint.segment_muscle, length))
    assert_allclose(ours[1] - ours[0], np.subtract(lengths[1], lengths[0]), atol=1e-12)


def test_segments_within_a_body_are_dropped():
    """Of post, a, b, c only the ends are on different bodies; c sits on a welded body and so on the leg too."""
    tendon = '<spatial name="t"><site site="post"/><site site="a"/><site site="b"/><site site="c"/></spatial>'
    weld = '<body pos="0 0 0.5"><site name="c"/></body>'
    model = load_model(mjcf(weld, tendon=tendon, actuator='<motor name="m" tendon="t" gear="-5"/>'))
    assert_array_equal(model.segment_body, [[WORLD, 0]])
    assert_allclose(model.segment_point, [[[0.1, 0.2, 1], [0.3, 0, 0]]])


TENDON = '<spatial name="t"><site site="post"/><site site="a"/></spatial>'


@pytest.mark.parametrize(
    ("actuator", "lower", "upper"),
    [
        ('<motor joint="knee"/>', -np.inf, np.inf),
        ('<motor joint="knee" ctrlrange="-1 2"/>', -1, 2),
        ('<motor joint="knee" ctrlrange="-1 2" gear="50"/>', -1, 2),
        ('<general joint="knee" gainprm="10" forcerange="-5 8"/>', -0.5, 0.8),
        ('<general joint="knee" gainprm="-10" forcerange="-5 8" ctrlrange="-0.6 3"/>', -0.6, 0.5),
        ('<motor tendon="t" gear="-20" ctrlrange="-1 0.7"/>', 0, 0.7),
        ('<motor tendon="t" gear="-20"/>', 0, np.inf),
        ('<general tendon="t" gainprm="-20" forcerange="-30 0"/>', 0, 1.5),
        ('<muscle tendon="t" force="300" lengthrange="0.1 3"/>', 0, 1),
        ('<muscle tendon="t" force="300" lengthrange="0.1 3" ctrlrange="0.1 2"/>', 0.1, 1),
    ],
)
def test_control_range(actuator, lower, upper):
    model = load_model(mjcf(tendon=TENDON, actuator=actuator))
    assert model.control_lower == pytest.approx([lower])
    assert model.control_upper == pytest.approx([upper])


def test_muscle_element_gives_its_peak_force():
    muscle = '<muscle tendon="t" force="300" gear="0.5" lengthrange="0.1 3"/>'
    assert load_model(mjcf(tendon=TENDON, actuator=muscle)).muscle_peak_force == [150]


def test_joint_force_range_narrows_the_control_of_its_only_motor():
    joint = '<joint name="knee" actuatorfrcrange="-30 60"/>'
    model = load_model(mjcf(joint=joint, actuator='<motor joint="knee" gear="-20" ctrlrange="-1 1"/>'))
    assert model.control_lower == [-1]
    assert model.control_upper == [1]
    model = load_model(mjcf(joint=joint, actuator='<motor joint="knee" gear="-40" ctrlrange="-2 2"/>'))
    assert model.control_lower == pytest.approx([-1.5])
    assert model.control_upper == pytest.approx([0.75])
    assert load_model(mjcf(joint=joint)).num_controls == 0


# Refused.

KNEE_MOTOR = '<motor name="m" joint="knee"/>'
SECOND = '<body name="arm"><joint name="elbow"/><geom size="0.1"/></body>'

REFUSED = {
    "no body": ("<mujoco/>", "no body moves.*floating_base"),
    "only welded": (mjcf(joint=""), "no body moves"),
    # Options.
    "density": (mjcf(top='<option density="1.2"/>'), "option density.*fluid"),
    "viscosity": (mjcf(top='<option viscosity="0.1"/>'), "option viscosity.*fluid"),
    "actuation": (mjcf(top='<option><flag actuation="disable"/></option>'), "actuation is disabled"),
    "override": (mjcf(top='<option><flag override="enable"/></option>'), "flag override"),
    "group": (
        mjcf(top='<option actuatorgroupdisable="2"/>', actuator='<motor name="m" joint="knee" group="2"/>'),
        "'m' is in a disabled group",
    ),
    # Bodies and joints.
    "mocap": (mjcf(world=f'{PLANE}<body name="hand" mocap="true"/>'), "'hand' is a mocap"),
    "gravcomp": (mjcf('<body name="balloon" gravcomp="1"><geom size="0.1"/></body>'), "'balloon' has gravcomp"),
    "flex": (
        mjcf(
            world='<flexcomp name="cloth" type="grid" count="3 3 1" spacing="0.1 0.1 0.1" dim="2" mass="1">'
            '<edge equality="true"/></flexcomp>'
        ),
        "flex.*deformable",
    ),
    "frictionloss": (mjcf(joint='<joint name="knee" frictionloss="1"/>'), "'knee' has frictionloss.*damping"),
    "free stiffness": (mjcf(joint='<joint name="root" type="free" stiffness="1"/>'), "'root' has stiffness"),
    "dampingpoly": (mjcf(joint='<joint name="knee" damping="1 0.5"/>'), "'knee' has damping of higher order"),
    "stiffnesspoly": (mjcf(joint='<joint name="knee" stiffness="1 0.5"/>'), "'knee' has stiffness of higher order"),
    "springyield": (mjcf(joint='<joint name="knee" stiffness="1" springyield="0.5"/>'), "'knee' has springyield"),
    "joint user": (mjcf(joint='<joint name="knee" user="1 2"/>'), "'knee' has user.*one number"),
    "negative joint user": (mjcf(joint='<joint name="knee" user="-1"/>'), "'knee' has user.*>= 0"),
    # Constraints.
    "equality": (
        mjcf(SECOND, top='<equality><joint name="mimic" joint1="knee" joint2="elbow"/></equality>'),
        r"'mimic' \(joint\).*tree",
    ),
    "pair": (
        mjcf(top='<contact><pair geom1="ground" geom2="ball"/></contact>'),
        "pair '(ball|ground)' and '(ball|ground)'.*contype",
    ),
    # Ground and shapes.
    "tilted": (mjcf(world='<geom name="slope" type="plane" size="0 0 1" euler="0.1 0 0"/>'), "'slope'.*Tilt gravity"),
    "upside down": (mjcf(world='<geom type="plane" size="0 0 1" euler="3.14159265359 0 0"/>'), "Tilt gravity"),
    "second plane": (mjcf(world=f'{PLANE}<geom name="step" type="plane" size="0 0 1"/>'), "'ground' and 'step'.*one"),
    "cylinder": (mjcf(geom='<geom name="drum" type="cylinder" size="0.1 0.1"/>'), "'drum' is of type cylinder.*sphere"),
    "ellipsoid": (mjcf(geom='<geom name="egg" type="ellipsoid" size="0.1 0.1 0.2"/>'), "'egg' is of type ellipsoid"),
    "mesh": (
        mjcf(
            top='<asset><mesh name="tet" vertex="0 0 0 1 0 0 0 1 0 0 0 1"/></asset>',
            geom='<geom name="shell" type="mesh" mesh="tet"/>',
        ),
        "'shell' is of type mesh.*contype",
    ),
    "condim 4": (mjcf(geom='<geom name="ball" size="0.1" condim="4"/>'), "'ball' has condim=4.*condim=\"3\""),
    "condim 6": (mjcf(geom='<geom name="ball" size="0.1" condim="6"/>'), "'ball' has condim=6.*condim=\"3\""),
    "partial user": (mjcf(geom='<geom name="ball" size="0.1" user="2e4"/>'), "'ball' has 1 user.*all three"),
    "long user": (mjcf(geom='<geom name="ball" size="0.1" user="1 2 3 4"/>'), "'ball' has 4 user.*all three"),
    "negative user": (mjcf(geom='<geom name="ball" size="0.1" user="1 -2 3"/>'), "'ball' has a negative"),
    "surface velocity": (
        mjcf(world='<geom type="plane" size="0 0 1" surfacevel="1 0 0 0 0 0"/>'),
        "surfacevel, which is not simulated",
    ),
    "obstacle": (mjcf(world=f'{PLANE}<geom name="stone" size="0.1"/>'), r"'stone' \(sphere\) is fixed to the world"),
    "obstacle, no plane": (mjcf(world='<body><geom name="stone" size="0.1"/></body>'), "'stone'.*only a plane"),
    # Actuators.
    "position": (mjcf(actuator='<position name="servo" joint="knee" kp="9"/>'), "'servo' is neither.*biastype affine"),
    "velocity": (mjcf(actuator='<velocity name="servo" joint="knee" kv="9"/>'), "'servo' is neither.*biastype affine"),
    "damper": (
        mjcf(actuator='<damper name="d" joint="knee" kv="9" ctrlrange="0 1"/>'),
        "'d' is neither.*gaintype affine",
    ),
    "cylinder actuator": (mjcf(actuator='<cylinder name="c" joint="knee"/>'), "'c' is neither.*dyntype filter"),
    "intvelocity": (
        mjcf(actuator='<intvelocity name="i" joint="knee" kp="9" actrange="-1 1"/>'),
        "'i' is neither.*integrator",
    ),
    "adhesion": (mjcf(actuator='<adhesion name="glue" body="leg" ctrlrange="0 1"/>'), "'glue' acts through body"),
    "jointinparent": (mjcf(actuator='<motor name="m" jointinparent="knee"/>'), "'m' acts through jointinparent"),
    "site": (mjcf(actuator='<motor name="m" site="a"/>'), "'m' acts through site.*Attach it to a joint"),
    "slidercrank": (
        mjcf(actuator='<motor name="m" cranksite="a" slidersite="post" cranklength="0.5"/>'),
        "'m' acts through slidercrank",
    ),
    "fixed tendon": (
        mjcf(
            tendon='<fixed name="f"><joint joint="knee" coef="1"/></fixed>',
            actuator='<motor name="m" tendon="f" gear="-1"/>',
        ),
        "'f' is fixed",
    ),
    "wrapping": (
        mjcf(
            tendon='<spatial name="w"><site site="post"/><geom geom="ball"/><site site="a"/></spatial>',
            actuator='<motor name="m" tendon="w" gear="-1"/>',
        ),
        "'w' wraps a sphere.*more sites",
    ),
    "pulley": (
        mjcf(
            tendon='<spatial name="w"><site site="post"/><site site="a"/><pulley divisor="2"/><site site="post"/>'
            '<site site="b"/></spatial>',
            actuator='<motor name="m" tendon="w" gear="-1"/>',
        ),
        "'w' wraps a pulley",
    ),
    "pushing muscle": (mjcf(tendon=TENDON, actuator='<motor name="m" tendon="t"/>'), "'m' pushes.*'t'.*negative"),
    "muscle without force": (
        mjcf(tendon=TENDON, actuator='<muscle name="m" tendon="t" lengthrange="0.1 3"/>'),
        "'m' has no peak force",
    ),
    "muscle on a joint": (
        mjcf(actuator='<muscle name="m" joint="knee" force="9" lengthrange="-1 1"/>'),
        "'m' does not act on a tendon",
    ),
    "empty range": (
        mjcf(actuator='<motor name="m" joint="knee" ctrlrange="1 2" forcerange="-1 0.5"/>'),
        "'m' has no admissible",
    ),
    "actuator damping": (mjcf(actuator='<motor name="m" joint="knee" damping="1"/>'), "'m' has damping.*on the joint"),
    "actuator armature": (mjcf(actuator='<motor name="m" joint="knee" armature="1"/>'), "'m' has armature.*the joint"),
    "delay": (mjcf(actuator='<motor name="m" joint="knee" delay="0.02" nsample="20"/>'), "'m' has delay"),
    "tendon force range": (
        mjcf(
            tendon='<spatial name="t" actuatorfrcrange="-1 0"><site site="post"/><site site="a"/></spatial>',
            actuator='<motor name="m" tendon="t" gear="-1"/>',
        ),
        "'t' has actuatorfrcrange",
    ),
    "two motors in one joint range": (
        mjcf(joint='<joint name="knee" actuatorfrcrange="-1 1"/>', actuator=KNEE_MOTOR + '<motor joint="knee"/>'),
        "'knee' has actuatorfrcrange",
    ),
    "muscle in a joint range": (
        mjcf(
            joint='<joint name="knee" actuatorfrcrange="-1 1"/>',
            tendon=TENDON,
            actuator='<motor tendon="t" gear="-1"/>',
        ),
        "'knee' has actuatorfrcrange",
    ),
}
TENDON_FORCES = ("stiffness", "damping", "armature", "frictionloss")
REFUSED |= {
    f"tendon {force}": (mjcf(tendon=TENDON.replace('"t"', f'"t" {force}="1"')), f"'t' has {force}.*Remove")
    for force in TENDON_FORCES
}
REFUSED["tendon limit"] = (mjcf(tendon=TENDON.replace('"t"', '"t" range="0 1"')), "'t' has limited")


@pytest.mark.parametrize(("text", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_refused(text, words):
    with pytest.raises(ModelError, match=f"(?s){words}"):
        load_model(text)


# Ignored.

IGNORED = {
    "camera, light and looks": mjcf(
        "<camera/><light/>",
        top='<asset><texture name="x" type="2d" builtin="flat" width="4" height="4"/><material name="x" texture="x"/>'
        "</asset>",
    ),
    "sensor": mjcf(top='<sensor><jointpos joint="knee"/></sensor>'),
    "keyframe": mjcf(top='<keyframe><key qpos="1"/></keyframe>'),
    "solver": mjcf(
        top='<option timestep="0.01" integrator="RK4" solver="PGS"/><default><geom solref="0.1 1" margin="0.01"/>'
        "</default>"
    ),
    "exclude between bodies": mjcf(SECOND, top='<contact><exclude body1="leg" body2="arm"/></contact>'),
    "drawn cylinder": mjcf('<geom type="cylinder" size="0.1 0.1" contype="0" conaffinity="0"/>'),
    "drawn plane": mjcf(world=f'{PLANE}<geom type="plane" size="1 1 1" euler="1 0 0" contype="0" conaffinity="0"/>'),
    "drawn stone": mjcf(world=f'{PLANE}<geom size="0.1" contype="0" conaffinity="0"/>'),
    "inactive equality": mjcf(SECOND, top='<equality><joint joint1="knee" active="false"/></equality>'),
    "idle tendon": mjcf(tendon='<fixed><joint joint="knee" coef="1"/></fixed>'),
    "idle wrapping tendon": mjcf(tendon='<spatial><site site="post"/><geom geom="ball"/><site site="a"/></spatial>'),
    "friction of the plane": mjcf(world='<geom type="plane" size="0 0 1" friction="3" condim="6"/>'),
}


@pytest.mark.parametrize("text", IGNORED.values(), ids=IGNORED.keys())
def test_ignored(text):
    model = load_model(text)
    assert model.body_name[0] == "leg"
    assert model.shape_name[0] == "ball"
    assert model.shape_friction[0] == 1
    assert model.num_controls == 0


def test_body_excluded_from_the_ground_has_no_shape():
    exclude = '<contact><exclude body1="world" body2="arm"/></contact>'
    assert load_model(mjcf(SECOND, top=exclude)).shape_name == ("ball",)


# URDF and floating bases.

URDF = """
<?xml version="1.0"?>
<!-- <mujoco> is no root here -->
<robot name="arm">
  <link name="base">
    <inertial><mass value="2"/><inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0" ixz="0" iyz="0"/></inertial>
    <collision><origin xyz="0 0 0.1"/><geometry><box size="0.2 0.4 0.6"/></geometry></collision>
  </link>
  <link name="upper">
    <inertial>
      <origin xyz="0 0 0.5"/><mass value="1"/><inertia ixx="0.1" iyy="0.1" izz="0.02" ixy="0" ixz="0" iyz="0"/>
    </inertial>
  </link>
  <link name="tip">
    <inertial><mass value="3"/><inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0" ixz="0" iyz="0"/></inertial>
    <collision><geometry><sphere radius="0.05"/></geometry></collision>
  </link>
  <link name="slider">
    <inertial><mass value="0.5"/><inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0" ixz="0" iyz="0"/></inertial>
  </link>
  <joint name="shoulder" type="revolute">
    <parent link="base"/><child link="upper"/><origin xyz="0 0 0.3"/><axis xyz="0 1 0"/>
    <limit lower="-1" upper="2" effort="40" velocity="1"/><dynamics damping="0.3"/>
  </joint>
  <joint name="weld" type="fixed"><parent link="upper"/><child link="tip"/><origin xyz="0 0 1"/></joint>
  <joint name="rail" type="prismatic">
    <parent link="upper"/><child link="slider"/><axis xyz="1 0 0"/>
    <limit lower="-0.1" upper="0.2" effort="0" velocity="1"/>
  </joint>
</robot>"""


def test_urdf():
    model = load_model(URDF.strip())
    assert model.body_name == ("upper", "slider")
    assert_allclose(model.body_mass, [4, 0.5])
    assert_allclose(model.body_com[0], [0, 0, (0.5 + 3) / 4])
    assert model.actuator_name == ("shoulder", "rail")
    assert_array_equal(model.control_lower, [-40, -np.inf])
    assert_array_equal(model.control_upper, [40, np.inf])
    assert_array_equal(model.motor_gear, [1, 1])
    assert_array_equal(model.joint_lower, [-1, -0.1])
    assert_array_equal(model.joint_upper, [2, 0.2])
    assert_array_equal(model.dof_damping, [0.3, 0])
    assert model.ground_height is None


def test_urdf_with_floating_base_and_ground(tmp_path):
    path = tmp_path / "arm.urdf"
    path.write_text(URDF.strip())
    model = load_model(path, floating_base=True, ground=True)
    assert model.body_name == ("base", "upper", "slider")
    assert_array_equal(model.joint_type, [JointType.FREE, JointType.HINGE, JointType.SLIDE])
    assert_array_equal(model.motor_dof, [6, 7])
    assert model.ground_height == 0
    assert_array_equal(model.shape_body, [0, 1])
    assert_allclose(model.point_pos[:8].max(axis=0), [0.1, 0.2, 0.4])
    assert_allclose(model.point_pos[8], [0, 0, 1])


def test_floating_base_of_mjcf():
    model = load_model(mjcf(joint="", body=SECOND), floating_base=True)
    assert_array_equal(model.joint_type, [JointType.FREE, JointType.HINGE])
    assert_allclose(model.q_reference, [0, 0, 1, 1, 0, 0, 0, 0])


def test_floating_base_refused():
    with pytest.raises(ModelError, match="'leg' already has a joint"):
        load_model(mjcf(), floating_base=True)
    with pytest.raises(ModelError, match="needs a body"):
        load_model("<mujoco/>", floating_base=True)


def test_example_of_the_manual_loads():
    manual = (Path(__file__).parents[1] / "docs" / "robots.md").read_text(encoding="utf-8")
    example = manual.split("```xml\n")[1].split("```")[0]
    assert_array_equal(load_model(example).shape_stiffness, [2e4, 1e4])


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
