"""Shapes against each other, slopes and hills, against closed forms of mechanics."""

from __future__ import annotations

from pathlib import Path

import mujoco
import numpy as np
import pytest
import torch
from campaign import in_a_campaign
from closed_forms import UPRIGHT, rotation, times, turn
from convergence import ROUNDING, acceleration, at, final, trajectory
from numpy.testing import assert_allclose
from shape_pairs import BOX, CAPSULE, CYLINDER, ELLIPSOID, SPHERE

from trot.sim.load import load_model
from trot.sim.model import Model
from trot.sim.step import step

ASSETS = Path(__file__).parents[2] / "trot" / "envs" / "assets"


def two_spheres(k: float = 2e4, c: float = 0.0, drag: float = 0.0, friction: float = 0.0) -> Model:
    """Radii 0.1 and 0.2, 2 and 3 kg, free in space; the springs of both in series have these constants."""
    springs = f'friction="{friction}" user="{2 * k} {2 * c} {2 * drag}"'
    return load_model(
        f"""
    <mujoco>
      <option gravity="0 0 0"/>
      <worldbody>
        <body><freejoint/><geom size="0.1" mass="2" {springs}/></body>
        <body><freejoint/><geom size="0.2" mass="3" {springs}/></body>
      </worldbody>
    </mujoco>""",
        self_collision=True,
    )


def test_two_spheres_in_one_line_by_hand() -> None:
    """At depth d and speed of separation u_n both feel d (k - c u_n), each away from the other."""
    k, c, depth = 2e4, 1e3, 0.013
    model = two_spheres(k, c)
    q = [0.5, 0, 0, *UPRIGHT, 0.5 + 0.3 - depth, 0, 0, *UPRIGHT]
    for speeds in ([0.0, 0.0], [0.7, -0.4], [-3.0, 2.0], [-30.0, 20.0]):
        qd = np.zeros(12)
        qd[[0, 6]] = speeds
        force = max(depth * (k - c * (speeds[1] - speeds[0])), 0)
        expected = np.zeros(12)
        expected[[0, 6]] = -force / 2, force / 3
        assert_allclose(acceleration(model, q, qd), expected, atol=1e-9 * max(force, 1))
    apart = [0.5, 0, 0, *UPRIGHT, 0.5 + 0.3 + 1e-9, 0, 0, *UPRIGHT]
    assert (acceleration(model, apart, np.zeros(12)) == 0).all()


def test_an_elastic_hit_in_one_line() -> None:
    """A spring between two masses: the hit takes pi sqrt(m / k), m = 2 * 3 / 5, and turns the relative speed round."""
    model, gap = two_spheres(2e4), 0.05
    qd = np.zeros(12)
    qd[[0, 6]] = 1.5, -0.5
    q = [0, 0, 0, *UPRIGHT, 0.3 + gap, 0, 0, *UPRIGHT]
    hit = np.pi * np.sqrt(1.2 / 2e4)
    before, after = gap / 2, 0.06
    middle = (2 * 1.5 - 3 * 0.5) / 5
    speeds = middle - (np.array([1.5, -0.5]) - middle)
    ends = np.array([0, 0.3 + gap]) + np.array([1.5, -0.5]) * before + middle * hit + speeds * after

    def simulate(steps: int) -> np.ndarray:
        return final(model, q, qd, before + hit + after, steps)[[0, 7, 14, 20]]

    assert_allclose(simulate(200_000), [*ends, *speeds], atol=1e-4)


def momenta(model: Model, rows: np.ndarray) -> np.ndarray:
    """Linear and angular momentum of two free bodies whose frames lie in their centres of mass."""
    result = []
    for row in rows:
        total = np.zeros(6)
        for body, mass in enumerate(model.body_mass):
            pos, quat = row[7 * body : 7 * body + 3], row[7 * body + 3 : 7 * body + 7]
            velocity, spin = np.split(row[14 + 6 * body : 20 + 6 * body], 2)
            turned = rotation(quat) @ (model.body_inertia[body] @ spin)
            total += np.concatenate([mass * velocity, np.cross(pos, mass * velocity) + turned])
        result.append(total)
    return np.array(result)


def test_a_glancing_hit_with_friction_keeps_both_momenta() -> None:
    """Balls: their inertia does not turn with them, so that the method keeps the angular momentum to rounding."""
    model = two_spheres(2e4, 2e3, 300, 0.6)
    qd = [1.5, 0.2, -0.1, 3, -2, 5, -0.5, 0.1, 0.3, 1, 4, -3]
    rows = trajectory(model, at([0, 0, 0, *UPRIGHT, 0.32, 0.12, 0.05, *UPRIGHT], qd), 0.2, 40, 50)
    start = momenta(model, np.array([[0, 0, 0, *UPRIGHT, 0.32, 0.12, 0.05, *UPRIGHT, *qd]]))
    assert_allclose(momenta(model, rows), np.broadcast_to(start, (40, 6)), atol=ROUNDING)
    assert abs(rows[-1, 14:] - qd).max() > 0.5


# At rest on each other.


def stack(*geoms: str, gravity: str = "0 0 -9.81") -> Model:
    """Free bodies of 2 kg, over a fixed box whose top is at z = 0."""
    bodies = "".join(f'<body><freejoint/><geom mass="2" friction="0.6" {geom}/></body>' for geom in geoms)
    return load_model(
        f"""
    <mujoco>
      <option gravity="{gravity}"/>
      <worldbody><geom type="box" size="1 1 0.5" pos="0 0 -0.5" friction="0.6"/>{bodies}</worldbody>
    </mujoco>""",
        self_collision=True,
    )


def test_a_stack_of_spheres_at_rest() -> None:
    """A fixed box is rigid: the lower sphere's own spring bears both; between the spheres two are in series."""
    k, weight = 2e4, 2 * 9.81
    model = stack(f'size="0.1" user="{k} 1e4 500"', f'size="0.1" user="{k} 1e4 500"')
    lower = 0.1 - 2 * weight / k
    upper = lower + 0.2 - weight / (k / 2)
    q = [0, 0, lower, *UPRIGHT, 0, 0, upper, *UPRIGHT]
    assert_allclose(acceleration(model, q, np.zeros(12)), 0, atol=10 * ROUNDING)


@pytest.mark.parametrize(("lower", "corners"), [("0.2 0.2 0.1", 4), ("0.1 0.1 0.1", 8)])
def test_a_stack_of_boxes_at_rest(lower: str, corners: int) -> None:
    """A smaller box stands on its four corners; of two alike, one on the other, the corners of both touch."""
    k, weight = 5e3, 2 * 9.81
    user = f'user="{k} 1e4 200"'
    model = stack(f'type="box" size="{lower}" {user}', f'type="box" size="0.1 0.1 0.1" {user}')
    low = 0.1 - 2 * weight / (4 * k)
    high = low + 0.2 - weight / (corners * k / 2)
    rest = [0, 0, low, *UPRIGHT, 0, 0, high, *UPRIGHT]
    assert_allclose(acceleration(model, rest, np.zeros(12)), 0, atol=10 * ROUNDING)
    settled = final(model, [0, 0, 0.105, *UPRIGHT, 0, 0, 0.31, *UPRIGHT], np.zeros(12), 4.0, 8000)
    assert_allclose(settled, [*rest, *np.zeros(12)], atol=1e-9)


def test_a_capsule_lies_on_a_box_and_on_a_capsule() -> None:
    """Alongside, the touch is in the middle, and a tilt moves it to the lower end: it lies still, and comes back."""
    lying = f'type="capsule" size="0.05 0.2" quat="{" ".join(map(str, turn("y", np.pi / 2)))}" user="1e4 2e4 100"'
    model = stack(lying)
    depth = 2 * 9.81 / 1e4
    rest = [0, 0, 0.05 - depth, *UPRIGHT]
    assert_allclose(acceleration(model, rest, np.zeros(6)), 0, atol=1e-9)
    tilted = final(model, [0, 0, 0.055, *turn("y", 0.01)], np.zeros(6), 3.0, 20_000)
    assert_allclose(tilted[2:7], rest[2:], atol=1e-4)
    on_capsule = load_model(
        f"""<mujoco><worldbody><geom {lying} friction="0.6"/><body><freejoint/>
        <geom {lying} mass="2"/></body></worldbody></mujoco>"""
    )
    q = [0.1, 0, 0.1 - 2 * 9.81 / 5e3, *UPRIGHT]
    found = acceleration(on_capsule, q, np.zeros(6))
    # The overlap reaches from x = -0.1 to 0.2: its middle lies 5 cm behind that of the upper one.
    inertia = on_capsule.body_inertia[0, 1, 1]
    assert_allclose(found, [0, 0, 0, 0, 0.05 * 2 * 9.81 / inertia, 0], atol=2e-2)


# Slopes and hills.


def on_a_slope(ground: str, shape: str, gravity: np.ndarray, assets: str = "") -> Model:
    return load_model(f"""
    <mujoco>
      <option gravity="{" ".join(map(repr, gravity.tolist()))}"/>
      {assets}
      <worldbody>
        {ground}
        <body><freejoint/><geom {shape} mass="2" friction="0.7" user="1e4 2e3 300"/></body>
      </worldbody>
    </mujoco>""")


TILT = times(turn("x", 0.3), turn("y", -0.2))
PLACE = np.array([0.2, -0.1, 0.3])


def tilted_states(rng: np.random.Generator, height: float) -> tuple[np.ndarray, np.ndarray]:
    """Poses and velocities about so high above level ground."""
    position = np.append(rng.uniform(-0.3, 0.3, 2), height + rng.uniform(-0.05, 0.05))
    return np.array([*position, *times(turn("x", rng.normal()), turn("z", rng.normal()))]), rng.normal(size=6)


@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        *[("plane", shape) for shape in (CAPSULE, BOX)],
        *[("field", shape) for shape in (SPHERE, CYLINDER, ELLIPSOID)],
        *[in_a_campaign("plane", shape) for shape in (SPHERE, CYLINDER, ELLIPSOID)],
        *[in_a_campaign("field", shape) for shape in (CAPSULE, BOX)],
    ],
)
def test_a_tilted_world_is_the_level_one_turned(kind: str, shape: str, rng: np.random.Generator) -> None:
    """The ground as a tilted plane, or as a height field that is one, against the level ground and tilted gravity."""
    turned, down = rotation(TILT), np.array([0, 0, -9.81])
    level = on_a_slope('<geom type="plane" size="0 0 1" friction="0.1"/>', shape, turned.T @ down)
    pose = f'pos="{" ".join(map(str, PLACE))}"'
    if kind == "plane":
        ground, assets = f'<geom type="plane" size="0 0 1" {pose} quat="{" ".join(map(repr, TILT.tolist()))}"/>', ""
    else:
        # z = normal . (x, y) / -normal_z over the grid, as shares of the highest. MJCF begins with the largest y.
        normal = turned[:, 2]
        x, y = np.meshgrid(np.linspace(-1, 1, 9), np.linspace(-0.8, 0.8, 6))
        heights = -(normal[0] * x + normal[1] * y) / normal[2]
        low, span = float(heights.min()), float(np.ptp(heights))
        shares = " ".join(map(repr, ((heights - low) / span)[::-1].ravel().tolist()))
        assets = f'<asset><hfield name="h" nrow="6" ncol="9" size="1 0.8 {span!r} 0.1" elevation="{shares}"/></asset>'
        pose = f'pos="{PLACE[0]} {PLACE[1]} {PLACE[2] + low}"'
        ground = f'<geom type="hfield" hfield="h" {pose}/>'
    # Friction by MuJoCo's rule: the larger of the two.
    tilted = on_a_slope(ground.replace("/>", ' friction="0.7"/>'), shape, down, assets)
    touched = 0
    for _ in range(40):
        q, qd = tilted_states(rng, 0.12)
        moved = np.array([*(PLACE + turned @ q[:3]), *times(TILT, q[3:])])
        expected = acceleration(level, q, qd)
        found = acceleration(tilted, moved, np.array([*(turned @ qd[:3]), *qd[3:]]))
        found[:3] = turned.T @ found[:3]
        assert_allclose(found, expected, atol=1e-9 if kind == "plane" else 2e-4 * max(1, abs(expected).max()))
        touched += abs(expected[:3] - turned.T @ down).max() > 1
    assert 5 < touched < 40


def test_a_listed_pair_with_the_ground_is_the_ground(rng: np.random.Generator) -> None:
    ground = '<geom name="g" type="plane" size="0 0 1"/>'
    level = on_a_slope(ground.replace("/>", ' friction="0"/>'), f'name="s" {BOX}', np.array([0, 0, -9.81]))
    listed = load_model(
        f"""<mujoco><contact><pair geom1="g" geom2="s" friction="0.7 0.7 0.1 0.1 0.1"/></contact><worldbody>{ground}
        <body><freejoint/><geom name="s" {BOX} mass="2" user="1e4 2e3 300"/></body></worldbody></mujoco>"""
    )
    assert listed.num_points == 0 and listed.num_pairs == 1
    for _ in range(20):
        q, qd = tilted_states(rng, 0.1)
        assert_allclose(acceleration(listed, q, qd), acceleration(level, q, qd), atol=1e-9)


def test_nothing_is_touched_beyond_the_edge_of_a_field() -> None:
    assets = '<asset><hfield name="h" nrow="2" ncol="2" size="1 1 0.5 0.1" elevation="0 0 1 1"/></asset>'
    model = on_a_slope('<geom type="hfield" hfield="h"/>', SPHERE, np.zeros(3), assets)
    over, beyond = ([x, 0, 0.2, *UPRIGHT] for x in (0.99, 1.01))
    assert abs(acceleration(model, over, np.zeros(6))).max() > 1
    assert (acceleration(model, beyond, np.zeros(6)) == 0).all()


# A robot.


@pytest.mark.parametrize("self_collision", [False, True])
def test_legs_of_an_ant_cannot_pass_through_each_other(self_collision: bool) -> None:
    """Two hips of a wide range are driven against each other, as far as they go."""
    text = (ASSETS / "ant.xml").read_text().replace('contype="0"', 'contype="1"')
    text = text.replace('range="-0.6981 0.6981"', 'range="-1.6 1.6"')
    model = load_model(text, self_collision=self_collision)
    control = torch.zeros(1, model.num_controls, dtype=torch.float64)
    names = model.actuator_name
    control[0, names.index("hip_1")], control[0, names.index("hip_2")] = 0.15, -0.15
    state = model.default_state(1, dtype=torch.float64)
    for name, angle in (("ankle_1", 0.55), ("ankle_2", -0.55), ("ankle_3", -0.55), ("ankle_4", 0.55)):
        state.joint_q[0, model.joint_q_start[model.joint_name.index(name)]] = angle
    state.joint_q[0, 2] = 3
    data, deepest = mujoco.MjData(model.source), 0.0
    for _ in range(90):
        state = step(model, state, control, 1 / 60, 32)
        data.qpos[:] = state.joint_q[0].numpy()
        mujoco.mj_kinematics(model.source, data)
        distances = [
            mujoco.mj_geomDistance(model.source, data, model.source.geom(a).id, model.source.geom(b).id, 1.0, None)
            for a in ("leg_1", "foot_1")
            for b in ("leg_2", "foot_2")
        ]
        deepest = max(deepest, -min(distances))
    hips = [float(state.joint_q[0, model.joint_q_start[model.joint_name.index(name)]]) for name in ("hip_1", "hip_2")]
    if self_collision:
        assert 0.001 < deepest < 0.04
        assert hips[0] - hips[1] < 2.2
    else:
        assert deepest > 0.08
        assert hips[0] - hips[1] > 2.8
