"""Rest, bounces, friction and slopes on the ground, against closed forms of mechanics (see convergence.py)."""

from __future__ import annotations

import numpy as np
import pytest
from closed_forms import UPRIGHT, turn
from convergence import ROUNDING, acceleration, assert_converges, at, final, trajectory
from numpy.testing import assert_allclose

from trot.sim.load import load_model
from trot.sim.model import Model

# A block slides along x, y and z without turning, on a sphere of radius 1/8 m that touches at z = 0.


def block(
    stiffness: float = 2e4,
    damping: float = 0,
    drag: float = 0,
    friction: float = 0,
    *,
    gravity: str = "0 0 -9.81",
    mass: float = 2,
    joint: str = "",
) -> Model:
    return load_model(f"""
    <mujoco>
      <option gravity="{gravity}"/>
      <worldbody>
        <geom type="plane" size="0 0 1" friction="0"/>
        <body pos="0 0 0.125">
          <joint name="x" type="slide" axis="1 0 0" {joint}/>
          <joint name="y" type="slide" axis="0 1 0" {joint}/>
          <joint name="z" type="slide" axis="0 0 1" {joint}/>
          <geom size="0.125" mass="{mass}" friction="{friction}" user="{stiffness} {damping} {drag}"/>
        </body>
      </worldbody>
      <actuator>
        <motor joint="x"/>
        <motor joint="y"/>
        <motor joint="z"/>
      </actuator>
    </mujoco>""")


def test_contact_law_by_hand():
    """The force at depth d > 0; above there is none.

    normal = max(0, k d - c d u_n), friction = -u_t / |u_t| min(drag |u_t|, mu normal)
    """
    k, c, drag, mu, mass = 2e4, 1e3, 300.0, 0.8, 2.0
    model = block(k, c, drag, mu, mass=mass)
    rng = np.random.default_rng(0)
    slid = stuck = lifted = 0
    for _ in range(200):
        depth, velocity = rng.uniform(-0.002, 0.01), rng.normal(0, [1, 1, 15])
        pushed = depth * (k - c * velocity[2])
        normal = max(pushed, 0) if depth > 0 else 0
        speed = np.hypot(*velocity[:2])
        friction = -velocity[:2] / speed * min(drag * speed * (depth > 0), mu * normal)
        slid += 0 < mu * normal < drag * speed
        stuck += mu * normal > drag * speed
        lifted += depth > 0 > pushed
        expected = np.array([*friction, normal - mass * 9.81]) / mass
        # The acceleration is a difference of two speeds, over a step of 1 ms.
        assert_allclose(acceleration(model, [3, -2, -depth], velocity), expected, rtol=ROUNDING, atol=ROUNDING)
    assert min(slid, stuck, lifted) > 5


def test_ground_never_pulls():
    """Leaving faster than k / c, deep in the ground, a block feels gravity alone."""
    model = block(2e4, 1e3)
    assert_allclose(acceleration(model, [0, 0, -0.03], [0, 0, 2e4 / 1e3]), [0, 0, -9.81], rtol=ROUNDING)
    assert_allclose(acceleration(model, [0, 0, -0.03], [0, 0, 40.0]), [0, 0, -9.81], rtol=ROUNDING)


def test_block_rests_at_its_weight_over_stiffness():
    """Depth = m g / k."""
    model = block(5e3, 0, 100, 0.7, mass=2, joint='damping="200"')
    depth = 2 * 9.81 / 5e3
    assert_allclose(acceleration(model, [0, 0, -depth], [0, 0, 0]), 0, atol=9.81 * ROUNDING)
    # damping / 2 m = 50 /s is critical for sqrt(k / m) = 50 /s; 1 s leaves 50 exp(-50).
    assert_allclose(final(model, [0, 0, 0.01], [0, 0, 0], 1.0, 2000), [0, 0, -depth, 0, 0, 0], atol=ROUNDING)


def test_block_set_down_gently_bobs():
    """Let go where it touches: depth = m g / k (1 - cos(w t)), w^2 = k / m."""
    mass, stiffness = 2.0, 5e3
    model, w, rest = block(stiffness, mass=mass), np.sqrt(stiffness / mass), mass * 9.81 / stiffness
    duration = 2.0 / w
    exact = [-rest * (1 - np.cos(2.0)), -rest * w * np.sin(2.0)]
    assert_converges(
        lambda count: final(model, [0, 0, 0], [0, 0, 0], duration, count)[[2, 5]],
        exact,
        [rest * w, rest * w**2],
        duration,
    )


def rebound_speed(speed: float, ratio: float) -> float:
    """The s between 0 and 1 / ratio with -r s - log(1 - r s) = r v - log(1 + r v), r = ratio, by bisection."""
    target = ratio * speed - np.log1p(ratio * speed)
    low, high = 0.0, 1 / ratio
    for _ in range(100):
        middle = (low + high) / 2
        below = -ratio * middle - np.log1p(-ratio * middle) < target
        low, high = (middle, high) if below else (low, middle)
    return low


def test_bounce_loses_what_damping_takes():
    """Without weight, m v' = -d (k + c v) and d' = v: d^2 / 2 + m k / c^2 (r v - log(1 + r v)) is constant, r = c / k.

    A speed v of impact comes back as the s that solves r v - log(1 + r v) = -r s - log(1 - r s).
    """
    stiffness, mass, speed = 2e4, 2.0, 3.0
    w = np.sqrt(stiffness / mass)
    leaving = []
    for damping in (1e2, 1e3, 5e3, 2e4):
        model, r = block(stiffness, damping, mass=mass, gravity="0 0 0"), damping / stiffness

        def invariant(state, damping=damping, r=r):
            depth, v = -state[2], -state[5]
            return depth**2 / 2 + mass * stiffness / damping**2 * (r * v - np.log1p(r * v))

        def inside(count, model=model, invariant=invariant):
            return invariant(final(model, [0, 0, 0], [0, 0, -speed], 0.5 / w, count))

        exact = invariant(np.array([0, 0, 0, 0, 0, -speed]))
        assert_converges(inside, exact, exact * w, 0.5 / w)

        # Over the whole bounce the first-order error cancels, as for any swing there and back: it is left at depth 0.
        count, duration = 1000, 1.5 * np.pi / w
        leaving.append(final(model, [0, 0, 0], [0, 0, -speed], duration, count)[5])
        assert_allclose(leaving[-1], rebound_speed(speed, r), atol=speed * (w * duration / count) ** 2)
    assert leaving == sorted(leaving, reverse=True)
    assert leaving[0] < speed


def test_undamped_bounces_keep_the_energy():
    """The energy m g z + m v^2 / 2 is the same in every flight."""
    stiffness, mass, height = 2e4, 2.0, 0.3
    model = block(stiffness, mass=mass)
    z, v = trajectory(model, at([0, 0, height], [0, 0, 0]), 4.0, 4096, 4)[:, [2, 5]].T
    bounces = np.count_nonzero((z[1:] > 0) & (z[:-1] < 0))
    assert bounces == 8  # one in 0.53 s, of which 0.03 s on the ground
    energy = (mass * 9.81 * z + mass * v**2 / 2)[z > 0]
    # A step that crosses the surface knows its spring before it only: up to the energy of one step's depth, twice per
    # bounce. In flight z is half a step of v ahead.
    fastest = np.sqrt(2 * 9.81 * height)
    dt = 4.0 / 4096 / 4
    crossing = stiffness * (fastest * dt) ** 2 / 2
    assert_allclose(energy, mass * 9.81 * height, atol=mass * 9.81 * fastest * dt / 2 + 2 * bounces * crossing)


def test_sticking_block_creeps():
    """Below the friction bound, m v' = F - drag v: v = F / drag (1 - exp(-drag t / m))."""
    mass, drag, mu, force = 2.0, 30.0, 0.9, np.array([8.0, -6.0])
    rest = [0, 0, -mass * 9.81 / 2e4]
    model = block(2e4, 0, drag, mu, mass=mass)
    duration = 0.1
    grown = 1 - np.exp(-drag * duration / mass)
    x = force / drag * (duration - grown * mass / drag)
    exact = np.concatenate([x, force / drag * grown])
    rates = np.concatenate([np.abs(force) / drag, np.abs(force) / mass])

    def creep(count):
        return final(model, rest, [0, 0, 0], duration, count, [*force, 0])[[0, 1, 3, 4]]

    assert np.linalg.norm(force) < mu * mass * 9.81
    assert_converges(creep, exact, rates, duration)
    # 200 times m / drag later only the creep is left.
    assert_allclose(final(model, rest, [0, 0, 0], 10.0, 5000, [*force, 0])[3:5], force / drag, rtol=ROUNDING)


@pytest.mark.parametrize("force", [20.0, 0.0])
def test_sliding_block_accelerates_by_the_rest_of_the_force(force):
    """Above the friction bound, v = v0 + (F - mu m g) / m t: a constant force, so the velocity is exact."""
    mass, mu, v0, duration = 2.0, 0.6, 1.5, 0.2
    model = block(2e4, 0, 500, mu, mass=mass)
    direction = np.array([0.6, -0.8])
    rest = [0, 0, -mass * 9.81 / 2e4]
    speed = v0 + (force / mass - mu * 9.81) * duration
    assert 500 * speed > mu * mass * 9.81
    state = final(model, rest, [*v0 * direction, 0], duration, 200, [*force * direction, 0])
    assert_allclose(state[3:], [*speed * direction, 0], atol=ROUNDING)


def test_stopping_distance():
    """A sliding block loses speed at mu g until friction sticks at vs = mu m g / drag, then v' = -drag v / m.

    It comes to rest after (v0^2 - vs^2) / (2 mu g) + vs m / drag = (v0^2 + vs^2) / (2 mu g).
    """
    mass, mu, drag, v0 = 2.0, 0.5, 40.0, 2.0
    model = block(2e4, 0, drag, mu, mass=mass)
    rest = [0, 0, -mass * 9.81 / 2e4]
    distance = (v0**2 + (mu * mass * 9.81 / drag) ** 2) / (2 * mu * 9.81)
    # 0.4 s of sliding, then 1.6 s at m / drag = 0.05 s leave exp(-32).
    assert_converges(lambda count: final(model, rest, [v0, 0, 0], 2.0, count)[0], distance, v0, 2.0)


@pytest.mark.parametrize("slope", [0.2, 0.9])
def test_slope(slope):
    """Gravity tilted by an angle with tan below mu: creep at m g sin / drag; above: slide with g (sin - mu cos).

    The depth is m g cos / k either way.
    """
    mass, mu, drag, stiffness = 2.0, 0.5, 40.0, 2e4
    sine, cosine = 9.81 * np.sin(slope), 9.81 * np.cos(slope)
    model = block(stiffness, 0, drag, mu, mass=mass, gravity=f"{0.6 * sine} {0.8 * sine} {-cosine}")
    depth = mass * cosine / stiffness
    if np.tan(slope) < mu:
        speed = mass * sine / drag
        state = final(model, [0, 0, -depth], [0, 0, 0], 2.0, 2000)  # exp(-40) from its limit
    else:
        speed = 1.0 + (sine - mu * cosine) * 0.5
        state = final(model, [0, 0, -depth], [0.6, 0.8, 0], 0.5, 500)
    assert_allclose(state[2:], [-depth, 0.6 * speed, 0.8 * speed, 0], atol=10 * ROUNDING)


# Shapes that turn freely and touch at several points.


def free_shape(geom: str, inertial: str, push: str = "1 0 0 0 0 0") -> Model:
    return load_model(f"""
    <mujoco>
      <worldbody>
        <geom type="plane" size="0 0 1" friction="0"/>
        <body>
          <freejoint name="free"/>
          {inertial}
          <geom {geom}/>
        </body>
      </worldbody>
      <actuator><motor joint="free" gear="{push}"/></actuator>
    </mujoco>""")


@pytest.mark.parametrize("offset", [0.0, 0.15])
def test_capsule_rests_on_its_two_ends(offset):
    """By the lever rule the ends at x = +-l carry m g (l +- offset) / 2 l: half each without an offset."""
    mass, stiffness, half, radius = 3.0, 4e3, 0.4, 0.0625
    inertial = f'<inertial pos="{offset} 0 0" mass="{mass}" diaginertia="0.01 0.2 0.2"/>'
    geom = f'type="capsule" size="{radius}" fromto="{-half} 0 0 {half} 0 0" user="{stiffness} 1e4 100"'
    model = free_shape(geom, inertial)
    share = (half + np.array([-offset, offset])) / (2 * half)
    depth = share * mass * 9.81 / stiffness
    pitch = np.arcsin((depth[1] - depth[0]) / (2 * half))
    pose = [0, 0, radius - depth.mean(), *turn("y", pitch)]
    assert_allclose(acceleration(model, pose, np.zeros(6)), 0, atol=10 * ROUNDING)
    # Damping 1e4 * depth, in all 1e4 m g / k = 74 N s/m, over 2 m: 12 /s, so 3 s leave exp(-36). x is free to creep.
    settled = final(model, [0, 0, radius, *UPRIGHT], np.zeros(6), 3.0, 6000)
    assert_allclose(settled[1:], [*pose[1:], *np.zeros(6)], atol=ROUNDING)


def box() -> Model:
    """2 kg, half as high as wide, 1 kN/m at each of the corners."""
    inertial = '<inertial pos="0 0 0" mass="2" diaginertia="0.05 0.05 0.08"/>'
    return free_shape('type="box" size="0.25 0.25 0.0625" friction="0.5" user="1e3 1e4 50"', inertial)


def test_box_rests_on_four_corners():
    """Depth = m g / 4 k."""
    depth = 2 * 9.81 / 4e3
    height = 0.0625 - depth
    assert_allclose(acceleration(box(), [1, 2, height, *turn("z", 0.3)], np.zeros(6)), 0, atol=10 * ROUNDING)
    # Damping 1e4 * depth, in all 196 N s/m, and 4 kN/m: the slower decay is at 29 /s, so 3 s leave exp(-87).
    settled = final(box(), [1, 2, 0.07, *UPRIGHT], np.zeros(6), 3.0, 6000)
    assert_allclose(settled, [1, 2, height, *UPRIGHT, *np.zeros(6)], atol=ROUNDING)


ROOF = "0 0 0.1 0.25 0 0 -0.25 0 0 0 0.25 0 0 -0.25 0"


@pytest.mark.parametrize(
    ("geom", "points", "stiffness"),
    [
        ('type="cylinder" size="0.25 0.0625"', 8, 1e3),
        ('type="ellipsoid" size="0.25 0.25 0.0625"', 1, 1e4),
        ('type="mesh" mesh="roof" pos="0 0 -0.0625"', 4, 1e3),
    ],
    ids=["cylinder", "ellipsoid", "mesh"],
)
def test_other_shapes_rest_on_their_lowest_points(geom, points, stiffness):
    """Depth = m g / k per point: a rim of a cylinder, a pole of an ellipsoid, the four feet of a roof."""
    text = f"""
    <mujoco>
      <asset><mesh name="roof" vertex="{ROOF}"/></asset>
      <worldbody>
        <geom type="plane" size="0 0 1" friction="0"/>
        <body>
          <freejoint/>
          <inertial pos="0 0 0" mass="2" diaginertia="0.05 0.05 0.08"/>
          <geom {geom} friction="0.5" user="{stiffness} 1e4 50"/>
        </body>
      </worldbody>
    </mujoco>"""
    model = load_model(text)
    height = 0.0625 - 2 * 9.81 / (points * stiffness)
    # Vertices of a mesh have single precision.
    assert_allclose(acceleration(model, [1, 2, height, *turn("z", 0.3)], np.zeros(6)), 0, atol=1e-6)
    if points > 1:
        settled = final(model, [1, 2, 0.07, *UPRIGHT], np.zeros(6), 3.0, 6000)
        assert_allclose(settled, [1, 2, height, *UPRIGHT, *np.zeros(6)], atol=1e-7)


@pytest.mark.parametrize("push", [4.0, 15.0])
def test_pushed_box(push):
    """Below mu m g it creeps at F / (4 drag), one drag per corner on the ground; above it gains (F - mu m g) / m."""
    model, mu, mass = box(), 0.5, 2.0
    height = 0.0625 - mass * 9.81 / 4e3
    early, late = (
        final(model, [0, 0, height, *UPRIGHT], np.zeros(6), duration, int(2000 * duration), [push])[7:]
        for duration in (3.0, 3.5)
    )
    # The box settles as in the test above; then both are exact, the acceleration as a difference over half a second.
    assert_allclose(late[1:], 0, atol=ROUNDING)
    if push < mu * mass * 9.81:
        assert_allclose([early[0], late[0]], push / (4 * 50), atol=ROUNDING)
    else:
        assert_allclose((late[0] - early[0]) / 0.5, (push - mu * mass * 9.81) / mass, atol=ROUNDING)
