"""URDF files, and floating bases of URDF and MJCF files."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from small_robot import SECOND, mjcf

from trot.sim.load import ModelError, load_model
from trot.sim.model import JointType

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


# Actuators that loading adds.


def test_position_servos_of_a_urdf():
    """Targets within the joint's range, forces within its effort, where there is one."""
    model = load_model(URDF.strip(), actuators="position", kp=50, kd=2)
    assert model.actuator_name == ("shoulder", "rail")
    assert_array_equal(model.servo_gain, [[50, 0, 0]] * 2)
    assert_array_equal(model.servo_bias, [[0, -50, -2]] * 2)
    assert_allclose(model.control_lower, [-1, -0.1])
    assert_allclose(model.control_upper, [2, 0.2])
    assert_array_equal(model.servo_lower, [-40, -np.inf])
    assert_array_equal(model.servo_upper, [40, np.inf])


def test_velocity_servos_for_the_joints_that_are_named():
    model = load_model(URDF.strip(), actuators="velocity", kd={"rail": 3.0})
    assert model.actuator_name == ("rail",)
    assert_array_equal(model.servo_gain, [[3, 0, 0]])
    assert_array_equal(model.servo_bias, [[0, 0, -3]])
    assert_array_equal(model.control_upper, [np.inf])


@pytest.mark.parametrize("kind", ["motor", "position"])
def test_actuators_for_mjcf_without_any(kind):
    gains = {} if kind == "motor" else {"kp": 5.0}
    two = SECOND + '<body><joint range="-1 2"/><geom size="0.1"/></body>'
    model = load_model(mjcf(two), actuators=kind, **gains)
    assert model.actuator_name == ("knee", "elbow", "joint2")
    assert model.num_servos == (0 if kind == "motor" else 3)
    assert model.control_upper[2] == (np.inf if kind == "motor" else 2)
    assert load_model(mjcf(two)).num_controls == 0


def test_a_joint_that_mimics_another_gets_no_actuator():
    """Rail = 0.25 shoulder + 0.1, as the spring between them says."""
    mimic = URDF.replace(
        '<axis xyz="1 0 0"/>', '<axis xyz="1 0 0"/><mimic joint="shoulder" multiplier="0.25" offset="0.1"/>'
    )
    model = load_model(mimic.strip())
    assert model.actuator_name == ("shoulder",)
    assert_array_equal(model.strand_joint, [0, 1])
    assert_allclose(model.strand_coefficient, [[0, -0.25, 0, 0, 0], [-0.1, 1, 0, 0, 0]])
    assert "holds joint 'rail' to 'shoulder'" in model.notes[0]


def test_urdf_friction():
    model = load_model(URDF.strip().replace('damping="0.3"', 'damping="0.3" friction="0.7"'))
    assert_array_equal(model.dof_friction, [0.7, 0])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"actuators": "muscle"}, "actuators is 'muscle'; choose among motor"),
        ({"actuators": "position"}, "actuators='position' needs kp"),
        ({"actuators": "velocity", "kp": 1.0}, "kp is given, but actuators='velocity' has none"),
        ({"kp": 1.0}, "kp is given, but actuators=None has none"),
        ({"actuators": "velocity"}, "actuators='velocity' needs kd"),
        ({"actuators": "motor", "kd": 1.0}, "kd is given"),
        ({"actuators": "position", "kp": -1.0}, "kp is -1.0; a gain"),
        ({"actuators": "position", "kp": float("nan")}, "kp is nan; a gain"),
        ({"actuators": "position", "kp": {}}, "kp names no joint"),
        ({"actuators": "position", "kp": {"hip": 1.0}}, "gains for 'hip', but no hinge or slide"),
        ({"actuators": "position", "kp": {"rail": 1.0}, "kd": {"shoulder": 1.0}}, "only one of kp and kd names .*rail"),
    ],
)
def test_actuators_refused(options, words):
    with pytest.raises(ValueError, match=words):
        load_model(URDF.strip(), **options)


def test_actuators_refused_where_the_file_has_some():
    with pytest.raises(ModelError, match="the file has actuators of its own"):
        load_model(mjcf(actuator='<motor joint="knee"/>'), actuators="motor")
