"""The ground and the shapes that touch it, as load_model reads them, against MuJoCo and hand-worked numbers."""

from __future__ import annotations

from itertools import product

import mujoco
import numpy as np
import pytest
from mujoco_frames import body_frames
from numpy.testing import assert_allclose, assert_array_equal
from small_robot import mjcf

from trot.sim.load import load_model
from trot.sim.load_options import CONTACT


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
    assert model.shape_stiffness == [CONTACT[0]]
    assert model.shape_damping == [CONTACT[1]]
    assert model.shape_friction_stiffness == [CONTACT[2]]
    assert model.shape_friction == [1]


def test_a_contact_constant_may_be_zero():
    assert load_model(mjcf(geom='<geom size="0.1" user="5e3 0 0"/>')).shape_damping == [0]
