"""What may touch the ground, with which friction and through which points: against MuJoCo and hand-worked numbers."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from small_robot import PLANE, mjcf

from trot.sim.contact_points import contact_points, thin_out
from trot.sim.load import ModelError, load_model
from trot.sim.load_options import CONTACT
from trot.sim.model import Model

# Friction of a pair.

FRICTION = st.sampled_from(["0", "0.3", "0.8", "1", "2"])
SIDE = st.fixed_dictionaries(
    {"friction": FRICTION, "condim": st.sampled_from("1346"), "priority": st.sampled_from("01")}
)


def attributes(values: dict[str, str]) -> str:
    return " ".join(f'{name}="{value}"' for name, value in values.items())


def mujoco_friction(model: Model) -> float:
    """Of the one contact that MuJoCo finds at the reference pose."""
    data = mujoco.MjData(model.source)
    mujoco.mj_forward(model.source, data)
    assert data.ncon == 1
    return 0.0 if data.contact.dim[0] == 1 else float(data.contact.friction[0, 0])


@settings(max_examples=60, deadline=None)
@given(SIDE, SIDE)
def test_friction_of_shape_and_plane_is_mujocos(shape, plane):
    world = f'<geom type="plane" size="0 0 1" pos="0 0 0.95" {attributes(plane)}/>'
    model = load_model(mjcf(geom=f'<geom name="ball" size="0.1" {attributes(shape)}/>', world=world))
    # MuJoCo bounds friction from below.
    assert_allclose(model.shape_friction, [mujoco_friction(model)], atol=1.1e-5)


def test_a_ground_that_is_added_leaves_the_friction_to_the_shapes():
    geom = '<geom size="0.1" friction="0.3" priority="-9"/><geom size="0.1" friction="2"/><geom size="0.1" condim="1"/>'
    assert_array_equal(load_model(mjcf(geom=geom, world=""), ground=True).shape_friction, [0.3, 2, 0])


@pytest.mark.parametrize("condim", [4, 6])
def test_condim_beyond_3_is_taken_as_3_and_told(condim):
    model = load_model(mjcf(geom=f'<geom name="ball" size="0.1" condim="{condim}" friction="0.7"/>'))
    assert model.shape_friction == [1]
    (note,) = model.notes
    assert f"condim {condim} of geom 'ball'" in note and "taken as 3" in note


# Points.


def test_points_of_a_cylinder_lie_on_its_rims():
    model = load_model(mjcf(geom='<geom name="drum" type="cylinder" size="0.1 0.3" pos="1 2 3"/>'))
    offset = model.point_pos - [1, 2, 3]
    assert_allclose(np.hypot(offset[:, 0], offset[:, 1]), 0.1)
    assert sorted(offset[:, 2].round(9)) == [-0.3] * 8 + [0.3] * 8
    angles = np.sort(np.degrees(np.arctan2(offset[:8, 1], offset[:8, 0])) % 360)
    assert_allclose(angles, 45 * np.arange(8), atol=1e-9)
    assert not model.point_radius.any()
    assert model.notes == ("geom 'drum' is a cylinder: 16 points of its rims touch the ground.",)


def test_a_geom_without_a_name_is_told_with_its_body():
    geom = '<geom type="cylinder" size="0.1 0.3"/>' * 6
    (note,) = load_model(mjcf(geom=geom)).notes
    names = "'geom1 of leg', 'geom2 of leg', 'geom3 of leg', 'geom4 of leg' and 2 more"
    assert note == f"geoms {names} are each a cylinder: 16 points of its rims touch the ground."


def test_points_of_an_ellipsoid_lie_on_it_and_reach_its_extent():
    size = np.array([0.1, 0.2, 0.05])
    model = load_model(mjcf(geom='<geom name="egg" type="ellipsoid" size="0.1 0.2 0.05"/>'))
    assert_allclose(((model.point_pos / size) ** 2).sum(axis=1), 1)
    assert_allclose(model.point_pos.max(axis=0), size)
    assert_allclose(model.point_pos.min(axis=0), -size)
    assert model.notes == ("geom 'egg' is an ellipsoid: 26 points of its surface touch the ground.",)


@pytest.mark.parametrize("geom", ['type="cylinder" size="0.1 0.3"', 'type="ellipsoid" size="0.1 0.3 0.2"'])
def test_a_turned_shape_reaches_down_as_far_as_it_is_told(geom):
    """In no direction does the surface reach much farther than the points.

    Of a cylinder's rim they miss at most 1 - cos(22.5 degrees). Of an ellipsoid they miss most in the direction that is
    as far from the nearest middle of a face, of an edge and corner of a cube, in coordinates that make it a sphere:
    n = a (1, sqrt(2) - 1, sqrt(3) - sqrt(2)) of length 1.
    """
    model = load_model(mjcf(geom=f"<geom {geom}/>"))
    directions = np.random.default_rng(0).normal(size=(2000, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    reached = (directions @ model.point_pos.T).max(axis=1)
    if "cylinder" in geom:
        full = 0.1 * np.hypot(directions[:, 0], directions[:, 1]) + 0.3 * np.abs(directions[:, 2])
        least = np.cos(np.pi / 8)
    else:
        full = np.linalg.norm(directions * [0.1, 0.3, 0.2], axis=1)
        least = 1 / np.linalg.norm([1, np.sqrt(2) - 1, np.sqrt(3) - np.sqrt(2)])
    assert (reached <= full + 1e-12).all()
    assert (reached >= least * full).all()


CUBE = " ".join(f"{x} {y} {z}" for x in (-1, 1) for y in (-1, 1) for z in (-1, 1))
MESH = '<asset><mesh name="cube" scale="0.1 0.2 0.3" vertex="{}"/></asset>'
SHELL = '<geom name="shell" type="mesh" mesh="cube" pos="1 2 3" euler="0 0 0.5"/>'


def test_points_of_a_mesh_are_the_corners_of_its_hull():
    """A cube with points inside: MuJoCo turns and moves the mesh, the points must not move."""
    inner = " ".join(str(number) for number in np.random.default_rng(0).uniform(-0.9, 0.9, 60).round(3))
    model = load_model(mjcf(geom=SHELL, top=MESH.format(f"{CUBE} {inner}")))
    cosine, sine = np.cos(0.5), np.sin(0.5)
    turn = np.array([[cosine, -sine, 0], [sine, cosine, 0], [0, 0, 1]])
    corners = (np.array(CUBE.split(), float).reshape(-1, 3) * [0.1, 0.2, 0.3]) @ turn.T + [1, 2, 3]
    distance = np.linalg.norm(model.point_pos[:, None] - corners[None], axis=2)
    assert model.num_points == 8
    assert_allclose(distance.min(axis=0), 0, atol=1e-6)
    assert model.notes == ("geom 'shell' is a mesh: 8 points of its convex hull touch the ground.",)


def test_points_of_a_fine_mesh_are_thinned_to_the_stated_number():
    rng = np.random.default_rng(1)
    ball = rng.normal(size=(400, 3))
    ball /= np.linalg.norm(ball, axis=1, keepdims=True)
    text = mjcf(geom=SHELL, top=MESH.format(" ".join(f"{number:.5f}" for number in ball.ravel())))
    assert load_model(text).num_points == 16
    model = load_model(text, mesh_points=40)
    assert model.num_points == 40
    assert_array_equal(model.point_pos, load_model(text, mesh_points=40).point_pos)
    hull = contact_points(model.source, 1, 1000)
    kept = contact_points(model.source, 1, 40)
    assert set(map(tuple, kept)) <= set(map(tuple, hull))


def test_thinning_keeps_what_is_far_apart():
    """Of eleven points in a line the ends come first, then the middle."""
    line = np.stack([np.arange(11.0), np.zeros(11), np.zeros(11)], axis=1)
    assert_array_equal(thin_out(line, 3)[:, 0], [0, 5, 10])
    assert_array_equal(thin_out(line, 11), line)


@pytest.mark.parametrize("count", [0, -1, 2.5, True])
def test_an_impossible_number_of_points_is_refused(count):
    with pytest.raises(ValueError, match="mesh_points must be a whole number"):
        load_model(mjcf(), mesh_points=count)


# What is fixed to the world.

ARM = '<body name="arm"><joint/><geom name="hand" size="0.1"/></body>'
STAND = f'<body name="stand"><geom name="plinth" size="0.1"/>{ARM}</body>'


def test_the_fixed_base_of_a_robot_is_its_own():
    """The arm that stands on it passes through, the other robot does not."""
    model = load_model(mjcf(world=PLANE + STAND), self_collision=True)
    assert model.shape_name == ("hand", "ball")
    assert set(model.pair_name) == {"plinth, ball", "hand, ball"}
    assert model.notes == ("geom 'plinth' of the robot's fixed base is not touched by its other parts.",)


@pytest.mark.parametrize("masks", ['contype="0" conaffinity="0"', 'contype="2" conaffinity="2"'])
def test_what_no_mask_lets_touch_is_not_told(masks):
    assert load_model(mjcf(world=f'{PLANE}<geom size="0.1" {masks}/>')).notes == ()


# The user attribute.


@pytest.mark.parametrize("user", ["7", "1 2", "1 2 3 4", "0.5 3 2"])
def test_user_numbers_of_other_programs_are_not_read(user):
    model = load_model(mjcf(geom=f'<geom name="ball" size="0.1" user="{user}"/>'))
    assert model.shape_stiffness == [CONTACT[0]]
    (note,) = model.notes
    assert note.startswith("user of geom 'ball' is not read")


@pytest.mark.parametrize("user", ["0.5 2", "0 0 7", "1 2 3 4"])
def test_user_numbers_of_a_joint_by_other_programs_are_not_read(user):
    model = load_model(mjcf(joint=f'<joint name="knee" user="{user}"/>'))
    assert (model.joint_limit_stiffness, model.joint_limit_damping, model.joint_friction_speed) == ([1e3], [0], [0.1])
    (note,) = model.notes
    assert note.startswith("user of joint 'knee' is not read: it is not a limit's stiffness")


# Errors.


def test_reasons_of_every_kind_are_told_at_once_a_line_each():
    text = mjcf(
        geom='<geom name="ball" size="0.1" friction="-1" user="1 -2 3"/>',
        joint='<joint name="knee" user="-1"/>',
        top='<option density="1.2"/><keyframe><key name="up"/></keyframe>',
        actuator='<motor name="glue" site="a"/>',
        world=f'{PLANE}<geom name="stone" size="0.1" friction="-2" pos="0 0 5"/>',
    )
    with pytest.raises(ModelError) as caught:
        load_model(text, keyframe="home")
    lines = str(caught.value).split("\n  ")
    words = (
        "option density",
        "'knee' has user",
        "'ball' has friction=[-1.0",
        "'ball' has user=[1.0, -2.0",
        "'stone' has friction=[-2.0",
        "acts through site",
        "no keyframe 'home'",
    )
    assert len(lines) == len(words)
    for word in words:
        assert sum(word in line for line in lines) == 1, word
