"""Which shapes may touch, and their constants, as load_model reads them: MuJoCo's collisions, and numbers by hand."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import mujoco
import numpy as np
import pytest
from numpy.testing import assert_allclose
from random_robots import random_robot
from small_robot import PLANE, SECOND, mjcf

from trot.sim.load import ModelError, load_model
from trot.sim.model import Model, PairKind

EVERY_PAIR = Path(__file__).parents[1] / "robots" / "every_pair.xml"
STONE = '<geom name="stone" size="0.1" pos="0 0 0.9"/>'


def names(model: Model) -> set[frozenset[str]]:
    return {frozenset(name.split(", ")) for name in model.pair_name}


def collisions(model: Model) -> set[frozenset[str]]:
    """By MuJoCo's own detection, where everything is a ball and nothing is too far from anything else."""
    source = model.source
    name = [source.geom(geom).name for geom in range(source.ngeom)]
    source.geom_type[:] = mujoco.mjtGeom.mjGEOM_SPHERE
    source.geom_size[:], source.geom_rbound[:] = 1e3, 1e3
    source.geom_aabb[:] = [0, 0, 0, 1e3, 1e3, 1e3]
    source.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_MIDPHASE
    data = mujoco.MjData(source)
    mujoco.mj_forward(source, data)
    return {frozenset(name[geom] for geom in contact.geom) for contact in data.contact}


def is_on_own_base(model: Model, pair: frozenset[str]) -> bool:
    """Whether one of the two is fixed to the world in the tree of the other."""
    bodies = [model.source.body(model.source.geom(name).bodyid[0]) for name in pair]
    return any(body.weldid[0] == 0 for body in bodies) and bodies[0].rootid[0] == bodies[1].rootid[0]


@pytest.mark.parametrize("seed", range(12))
def test_what_may_collide_is_what_mujoco_lets_collide(seed: int) -> None:
    rng = np.random.default_rng(seed)
    robot = ElementTree.fromstring(random_robot(rng, 7, num_muscles=0, welded=0.5, ground=False))
    world = robot.find("worldbody")
    for index in range(2):
        fixed = {"name": f"fixed{index}", "type": "box", "size": "0.1 0.1 0.1", "pos": f"{index} 0 0"}
        ElementTree.SubElement(world, "geom", fixed)
    for geom in robot.iter("geom"):
        if geom.get("type") in ("cylinder", "ellipsoid"):
            geom.set("type", "sphere")
        geom.set("contype", str(rng.integers(4)))
        geom.set("conaffinity", str(rng.integers(4)))
    bodies, geoms = ([part.get("name") for part in robot.iter(tag)] for tag in ("body", "geom"))
    contact = ElementTree.SubElement(robot, "contact")
    for first, second in rng.choice(bodies, (4, 2)):
        if first != second:
            ElementTree.SubElement(contact, "exclude", body1=first, body2=second)
    if seed % 2:
        ElementTree.SubElement(contact, "pair", geom1=geoms[2], geom2="fixed0")
    if seed % 3 == 0:
        option = robot.find("option")
        ElementTree.SubElement(option, "flag", filterparent="disable")
    model = load_model(ElementTree.tostring(robot, encoding="unicode"), self_collision=True)
    expected = {pair for pair in collisions(model) if not is_on_own_base(model, pair)}
    assert names(model) == expected
    assert len(expected) > 3


def test_nothing_but_the_ground_touches_unless_asked_for() -> None:
    model = load_model(mjcf(SECOND))
    assert model.num_pairs == 0 and model.num_feelers == 0
    apart = mjcf(world=PLANE + '<body name="other" pos="1 0 1"><joint/><geom name="other" size="0.1"/></body>')
    assert load_model(apart).num_pairs == 0
    (note,) = load_model(apart).notes
    assert "1 pair of shapes collide" in note and "self_collision=True" in note
    assert load_model(apart, self_collision=True).pair_name == ("other, ball",)
    assert load_model(apart, self_collision=True).notes == ()


def test_obstacles_touch_without_being_asked() -> None:
    assert load_model(mjcf(world=PLANE + STONE)).pair_name == ("stone, ball",)
    assert load_model(mjcf(world=f"<body>{STONE}</body>")).pair_name == ("stone, ball",)


def test_a_listed_pair_counts_whatever_the_masks() -> None:
    drawn = STONE.replace("/>", ' contype="0" conaffinity="0"/>')
    listed = '<contact><pair geom1="stone" geom2="ball" friction="0.4 0.4 0.1 0.1 0.1"/></contact>'
    model = load_model(mjcf(world=PLANE + drawn, top=listed))
    assert model.pair_friction == [0.4]
    frictionless = listed.replace("friction", 'condim="1" friction')
    assert load_model(mjcf(world=PLANE + drawn, top=frictionless)).pair_friction == [0]


def test_a_listed_pair_with_the_ground_takes_the_place_of_its_points() -> None:
    listed = '<contact><pair geom1="ground" geom2="ball" friction="0.4 0.4 0.1 0.1 0.1"/></contact>'
    model = load_model(mjcf(top=listed))
    assert model.num_points == 0 and model.num_pairs == 1
    assert model.pair_kind == [PairKind.PLANE] and model.pair_friction == [0.4]
    negative = listed.replace("0.4 0.4", "-1 -1")
    with pytest.raises(ModelError, match=r"has friction=-1\.0"):
        load_model(mjcf(top=negative))


def test_the_first_horizontal_plane_is_the_ground() -> None:
    slope = '<geom name="slope" type="plane" size="0 0 1" pos="0 0 1" euler="0.3 0 0"/>'
    higher = '<geom name="higher" type="plane" size="0 0 1" pos="0 0 0.5"/>'
    model = load_model(mjcf(world=slope + PLANE + higher))
    assert model.ground_height == 0 and model.num_points == 1
    assert set(model.pair_name) == {"ball, slope", "ball, higher"}
    tilted = load_model(mjcf(world=slope))
    assert tilted.ground_height is None and tilted.num_points == 0
    assert_allclose(tilted.plane_normal, [[0, -np.sin(0.3), np.cos(0.3)]], atol=1e-12)


@pytest.mark.parametrize(
    ("ball", "stone", "friction"),
    [
        ('friction="0.3"', 'friction="0.9"', 0.9),
        ('friction="0.3" priority="2"', 'friction="0.9" priority="1"', 0.3),
        ('condim="1"', 'friction="0.9"', 1.0),
        ('condim="1" priority="1"', 'friction="0.9"', 0.0),
        ('condim="1"', 'condim="1"', 0.0),
    ],
)
def test_friction_is_the_larger_or_that_of_the_higher_priority(ball: str, stone: str, friction: float) -> None:
    """As MuJoCo combines them: the first number of its contact, and none with condim 1."""
    text = mjcf(geom=f'<geom name="ball" size="0.1" {ball}/>', world=STONE.replace("/>", f" {stone}/>"))
    model = load_model(text)
    assert model.pair_friction == [friction]
    data = mujoco.MjData(model.source)
    mujoco.mj_forward(model.source, data)
    assert data.contact[0].friction[0] * (data.contact[0].dim > 1) == friction


def test_springs_are_in_series_and_what_is_fixed_without_numbers_is_rigid() -> None:
    ball = '<geom name="ball" size="0.1" user="2e4 1e3 900"/>'
    rigid = load_model(mjcf(geom=ball, world=STONE))
    soft = load_model(mjcf(geom=ball, world=STONE.replace("/>", ' user="3e4 4e3 0"/>')))
    found = [
        (model.pair_stiffness[0], model.pair_damping[0], model.pair_friction_stiffness[0]) for model in (rigid, soft)
    ]
    assert_allclose(found, [(2e4, 1e3, 900), (1.2e4, 800, 0)])


def test_every_kind_is_in_the_robot_for_tests() -> None:
    model = load_model(EVERY_PAIR, self_collision=True)
    kinds = {PairKind(kind): int((model.pair_kind == kind).sum()) for kind in PairKind}
    assert min(kinds.values()) > 5
    assert names(model) | {frozenset({"ground", name}) for name in model.shape_name} == collisions(model)


def test_what_passes_through_is_told() -> None:
    drum = '<geom name="drum" type="cylinder" size="0.1 0.1"/>'
    model = load_model(mjcf(geom='<geom name="ball" size="0.1"/>', world=PLANE + drum))
    assert model.num_pairs == 0
    assert any("'drum' is of type cylinder and passes through geom 'ball'" in note for note in model.notes)
    boxes = mjcf(geom='<geom name="cube" type="box" size="1 1 1"/>', world='<geom type="box" size="1 1 1"/>')
    assert any("of boxes touches by corners" in note for note in load_model(boxes).notes)
    rolling = STONE.replace("/>", ' condim="6"/>')
    assert any("condim 6 of geom 'stone' is taken as 3" in note for note in load_model(mjcf(world=rolling)).notes)


def test_other_shapes_touch_slopes_by_their_points() -> None:
    drum = '<geom name="drum" type="cylinder" size="0.1 0.1"/>'
    slope = '<geom name="slope" type="plane" size="0 0 1" pos="0 0 1" euler="0.3 0 0"/>'
    model = load_model(mjcf(geom=drum, world=slope))
    assert model.pair_name == ("drum, slope",) and model.num_feelers == 16
    assert_allclose(np.hypot(*model.feeler_pos[:, :2].T), 0.1)
    assert not model.feeler_radius.any()
    assert model.notes == ("geom 'drum' is a cylinder: 16 points of its rims touch planes and height fields.",)


def test_a_fixed_base_of_a_urdf_stands_in_nobodys_way() -> None:
    urdf = """
    <robot name="arm">
      <link name="base"><collision><geometry><sphere radius="0.1"/></geometry></collision></link>
      <link name="tip">
        <inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>
        <collision><geometry><sphere radius="0.1"/></geometry></collision>
      </link>
      <joint name="j" type="revolute"><parent link="base"/><child link="tip"/><limit lower="-1" upper="1" effort="1"
        velocity="1"/></joint>
    </robot>"""
    assert load_model(urdf, self_collision=True).num_pairs == 0


@pytest.mark.parametrize(
    ("stone", "words"),
    [
        ('size="inf"', "geoms stone, ball: "),
        ('size="0.1" friction="-1"', "'stone' has friction"),
        ('size="0.1" user="9 -2 1"', "'stone' has user"),
        ('size="0.1" surfacevel="1 0 0 0 0 0"', "'stone' has surfacevel"),
    ],
)
def test_refused(stone: str, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        load_model(mjcf(world=f'{PLANE}<geom name="stone" {stone}/>'))
