"""The viewer's scene: bodies, geoms and tendons against MuJoCo, colours, several worlds."""

from pathlib import Path

import mujoco
import numpy as np
import pytest

pytest.importorskip("viser", reason='needs viser: pip install "trot[view]"')

from trot.view.browser.geoms import _outline, _revolved, add_geom, shown_geoms
from trot.view.browser.nodes import FULL_RGB, REST_RGB, RobotScene
from trot.view.browser.page import quiet_server
from trot.view.browser.poses import Kinematics

ROOT = Path(__file__).parents[2]
ASSETS = ROOT / "trot" / "envs" / "assets"
ROBOTS = [*sorted(ASSETS.glob("*.xml")), ROOT / "tests" / "robots" / "every_joint.xml"]


@pytest.fixture
def server():
    with quiet_server(0) as running:
        yield running


WRAPPED = """<mujoco><worldbody><site name="a" pos="0 0 1"/><site name="b" pos="0.5 0 1"/><body>
  <joint name="shoulder" axis="0 1 0"/><geom name="ball" size="0.1"/><site name="c" pos="0 0 -0.5"/>
  <body pos="0 0 -0.5"><joint axis="0 1 0"/><geom size="0.05"/><site name="d" pos="0.3 0 -0.2"/></body>
  </body></worldbody>
  <tendon><spatial name="around"><site site="a"/><geom geom="ball"/><site site="c"/><site site="d"/></spatial>
  <fixed name="coupling"><joint joint="shoulder" coef="1"/></fixed><spatial name="pulley"><site site="a"/>
  <site site="c"/><pulley divisor="2"/><site site="b"/><site site="d"/></spatial></tendon></mujoco>"""


def random_q(model, rng):
    q = model.qpos0 + rng.uniform(-1, 1, model.nq)
    mujoco.mj_normalizeQuat(model, q)
    return q


def rotation(wxyz):
    matrix = np.zeros(9)
    mujoco.mju_quat2Mat(matrix, np.asarray(wxyz, float))
    return matrix.reshape(3, 3)


def test_tendons_end_at_pulleys_and_run_from_site_to_site(rng):
    model = mujoco.MjModel.from_xml_string(WRAPPED)
    data = mujoco.MjData(model)
    for _ in range(20):
        data.qpos[:] = random_q(model, rng)
        mujoco.mj_forward(model, data)
        poses = Kinematics(model).poses(data.qpos)
        assert poses.segment_tendon.tolist() == [0, 0, 2, 2]
        turn, position = data.xmat[poses.segment_body].reshape(-1, 3, 3), data.xpos[poses.segment_body]
        ends = position[:, None] + np.einsum("sij,spj->spi", turn, poses.segments)
        expected = [[data.site(name).xpos for name in pair] for pair in ("ac", "cd", "ac", "bd")]
        np.testing.assert_allclose(ends, expected, atol=1e-9)


@pytest.mark.parametrize("path", ROBOTS, ids=lambda path: path.stem)
def test_bodies_geoms_and_tendons_are_where_mujoco_has_them(server, rng, path):
    model = mujoco.MjModel.from_xml_path(str(path))
    data = mujoco.MjData(model)
    scene = RobotScene(server.scene, model, model.qpos0[None])
    for _ in range(3):
        data.qpos[:] = random_q(model, rng)
        mujoco.mj_forward(model, data)
        scene.show(data.qpos[None], np.zeros((1, model.nu)))
        frames = [(rotation(node.wxyz), node.position) for node in scene.bodies[0]]
        for body, (turn, position) in enumerate(frames):
            np.testing.assert_allclose(position, data.xpos[body], atol=2e-5)
            np.testing.assert_allclose(turn, data.xmat[body].reshape(3, 3), atol=1e-4)
        for geom in shown_geoms(model):
            node = add_geom(server.scene, f"/alone/{geom}", model, geom)
            turn, position = frames[model.geom_bodyid[geom]]
            np.testing.assert_allclose(position + turn @ node.position, data.geom_xpos[geom], atol=1e-4)
            np.testing.assert_allclose(turn @ rotation(node.wxyz), data.geom_xmat[geom].reshape(3, 3), atol=2e-4)
        length, count = np.zeros(model.ntendon), 0
        tendon = scene.kinematics.poses(data.qpos)
        for body, tubes in scene.muscles[0].items():
            turn, position = frames[body]
            ends = position + tubes.points.astype(float) @ turn.T
            here = tendon.segment_body == body
            np.add.at(length, tendon.segment_tendon[here], np.linalg.norm(ends[:, 1] - ends[:, 0], axis=1))
            count += len(ends)
            first = ends[:, 0][:, None] - data.wrap_xpos.reshape(-1, 3)
            assert np.linalg.norm(first, axis=2).min(axis=1).max() < 1e-4
        if count:
            np.testing.assert_allclose(length, data.ten_length, atol=1e-3)


def test_bodies_whose_names_have_slashes_do_not_move_each_other(server):
    """As MuJoCo's <attach> names them: viser moves a node along with that whose name is the part before a slash."""
    model = mujoco.MjModel.from_xml_string(
        """<mujoco><worldbody><body name="dog"><freejoint/><geom size="0.1"/><body name="dog/head" pos="1 0 0">
        <joint axis="0 1 0"/><geom size="0.1"/></body></body></worldbody></mujoco>"""
    )
    scene = RobotScene(server.scene, model, model.qpos0[None])
    assert [node.name for node in scene.bodies[0]] == [f"/trot/world_0/{name}" for name in ("world", "dog", "dog|head")]
    for body, geom in scene.geoms:
        assert geom.name.rpartition("/")[0] == scene.bodies[0][body].name


def test_round_shapes_have_their_volume_and_face_outward():
    for round_ends, volume in ((True, np.pi * 0.3**2 * (0.8 + 4 / 3 * 0.3)), (False, np.pi * 0.3**2 * 0.8)):
        vertices, faces = _revolved(_outline(0.3, 0.4, round_ends=round_ends))
        corners = vertices[faces]
        signed = np.einsum("fi,fi->f", corners[:, 0], np.cross(corners[:, 1], corners[:, 2])).sum() / 6
        assert signed == pytest.approx(volume, rel=0.03)


def test_every_kind_of_geom_is_drawn_with_its_colour(server):
    model = mujoco.MjModel.from_xml_string(
        """<mujoco><asset><mesh name="m" vertex="0 0 0 1 0 0 0 1 0 0 0 1"/>
        <material name="green" rgba="0 1 0 0.5"/></asset><worldbody><geom type="plane" size="1 2 1"/><body>
        <geom type="sphere" size="0.1" material="green"/><geom type="ellipsoid" size="0.1 0.2 0.3" rgba="1 0 0 1"/>
        <geom type="box" size="0.1 0.2 0.3"/><geom type="cylinder" size="0.1 0.2"/><geom type="mesh" mesh="m"/>
        <geom type="capsule" size="0.1 0.2" group="3"/><geom type="sphere" size="1" rgba="0 0 0 0"/>
        </body></worldbody></mujoco>"""
    )
    assert shown_geoms(model) == [1, 2, 3, 4, 5]
    RobotScene(server.scene, model, np.zeros((1, 0)))
    sphere, ellipsoid = (add_geom(server.scene, f"/alone/{geom}", model, geom) for geom in (1, 2))
    assert (sphere.color, sphere.opacity) == ((0, 255, 0), 0.5)
    assert (ellipsoid.color, ellipsoid.opacity) == ((255, 0, 0), None)
    np.testing.assert_allclose(ellipsoid.scale, (0.1, 0.2, 0.3), rtol=0.02)


def test_muscles_are_blue_at_rest_and_red_at_full_activation(server):
    model = mujoco.MjModel.from_xml_path(str(ASSETS / "muscle_humanoid.xml"))
    scene = RobotScene(server.scene, model, model.qpos0[None])
    for activation, rgb in ((0.0, REST_RGB), (1.0, FULL_RGB)):
        scene.show(model.qpos0[None], np.full((1, model.nu), activation))
        assert all((tubes.colors == rgb.astype(np.uint8)).all() for tubes in scene.muscles[0].values())
    assert sum(len(tubes.points) for tubes in scene.muscles[0].values()) >= 152


@pytest.fixture
def ants(server):
    model = mujoco.MjModel.from_xml_path(str(ASSETS / "ant.xml"))
    return RobotScene(server.scene, model, np.stack([model.qpos0] * 2))


def test_worlds_stand_side_by_side_and_one_is_followed(ants):
    scene, control = ants, np.zeros((2, 8))
    assert np.ptp(scene.offset[:, 1]) > 1.5
    assert not scene.offset[:, [0, 2]].any()
    joint_q = np.stack([scene.model.qpos0] * 2)
    joint_q[1, :2] = 7.0, -2.0
    scene.show(joint_q, control, follow=1)
    np.testing.assert_allclose(scene.root.position, (-7.0, 2.0, 0.0), atol=1e-4)
    scene.show(joint_q, control)
    assert not np.any(scene.root.position)


def test_force_of_the_weight_is_as_long_as_the_robot_and_hangs_on_the_body_that_is_pushed(ants):
    scene, model = ants, ants.model
    joint_q, control, nothing = np.stack([model.qpos0] * 2), np.zeros((2, 8)), np.zeros((0, 3))
    joint_q[1, :3] = 4.0, -1.0, 1.0
    # The torso of the second lies on its side.
    joint_q[1, 3:7] = np.sqrt(0.5), np.sqrt(0.5), 0, 0
    data = mujoco.MjData(model)
    data.qpos[:] = joint_q[1]
    mujoco.mj_kinematics(model, data)
    foot = max(range(1, model.nbody), key=lambda body: np.linalg.norm(data.xpos[body] - data.xpos[1]))
    point = data.geom_xpos[model.geom_bodyid == foot]
    scene.show(joint_q, control, 0, [(nothing, nothing), (point, np.array([[0.0, 0.0, scene.weight]]))])
    (((world, body), arrows),) = scene.forces.items()
    assert (world, body, arrows.visible) == (1, foot, True)
    assert arrows.name == f"{scene.bodies[1][foot].name}/forces"
    begin, end = arrows.points[0] @ data.xmat[foot].reshape(3, 3).T + data.xpos[foot]
    np.testing.assert_allclose(begin, point[0], atol=1e-4)
    np.testing.assert_allclose(end, point[0] + [0, 0, scene.size], atol=1e-4)
    scene.show(joint_q, control)
    assert not arrows.visible


def test_a_motion_is_framed_whole_and_lanes_do_not_touch(server):
    model = mujoco.MjModel.from_xml_path(str(ASSETS / "ant.xml"))
    # Three Ants that drift sideways by 0, 2 and -3 m while they run 5 m and hop 1 m high.
    joint_q = np.tile(model.qpos0, (30, 3, 1))
    share = np.linspace(0, 1, 30)[:, None]
    joint_q[:, :, 0] += 5 * share
    joint_q[:, :, 1] += share * [0, 2, -3]
    joint_q[15, :, 2] += 1
    scene = RobotScene(server.scene, model, joint_q[0])
    scene.spread(joint_q)
    low, high = scene.kinematics.extent(model.qpos0)
    half = (high - low)[1] / 2
    lanes = scene.offset[:, 1, None] + np.array([[-half, half], [-half, 2 + half], [-3 - half, half]])
    assert lanes[1, 0] - lanes[0, 1] == pytest.approx(0.5) and lanes[2, 0] - lanes[1, 1] == pytest.approx(0.5)
    np.testing.assert_allclose([place.position for place in scene.places], scene.offset)
    # Followed, the robot stays at x = y = 0; the hop is in the picture.
    np.testing.assert_allclose(scene.camera()[1], [0, 0, (low[2] + high[2] + 1) / 2], atol=1e-6)
    alone = RobotScene(server.scene, model, joint_q[0, :1])
    alone.spread(joint_q[:, :1])
    position, target = alone.camera()
    # All corners of what it does lie within viser's 75 degrees.
    corners = np.array(np.meshgrid(*zip(low, high + np.array([0, 0, 1]), strict=True))).reshape(3, -1).T
    ahead = (target - position) / np.linalg.norm(target - position)
    away = (corners - position) @ ahead
    aside = np.linalg.norm(corners - position - away[:, None] * ahead, axis=1)
    assert (np.degrees(np.arctan2(aside, away)) < 37.5).all()
