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
