"""One joint with its spring, damping, limits and motor, against closed forms of mechanics (see convergence.py)."""

from __future__ import annotations

import numpy as np
import pytest
from closed_forms import UPRIGHT, agm, turn
from convergence import ROUNDING, acceleration, assert_converges, at, final, trajectory
from numpy.testing import assert_allclose

from trot.sim.load import load_model
from trot.sim.model import Model

# Hinges and slides.


def one_joint(
    joint: str, *, mass: float = 1, com: str = "0 0 0", inertia: float = 0.1, gravity: str = "0 0 0", gear: float = 1
) -> Model:
    return load_model(f"""
    <mujoco>
      <compiler angle="radian"/>
      <option gravity="{gravity}"/>
      <worldbody>
        <body>
          <joint name="joint" {joint}/>
          <inertial pos="{com}" mass="{mass}" diaginertia="{inertia} {inertia} {inertia}"/>
        </body>
      </worldbody>
      <actuator><motor joint="joint" gear="{gear}" ctrlrange="-2 3"/></actuator>
    </mujoco>""")


@pytest.mark.parametrize("amplitude", [0.01, 1.0, 2.8])
def test_pendulum_period(amplitude):
    """T = 2 pi sqrt(I / (m g l)) / agm(1, cos(amplitude / 2)): at the bottom after T / 4, back after T.

    After a whole period only a second-order error is left: the method is leapfrog with the velocity half a step late,
    and what that does to a conservative swing is the same at both ends.
    """
    mass, length, inertia, g = 2.0, 0.7, 0.3, 9.81
    frequency = np.sqrt(mass * g * length / (inertia + mass * length**2))
    period = 2 * np.pi / frequency / agm(1, np.cos(amplitude / 2))
    model = one_joint('axis="0 1 0"', mass=mass, com=f"0 0 -{length}", inertia=inertia, gravity=f"0 0 -{g}")
    fastest = 2 * frequency * np.sin(amplitude / 2)  # m g l (1 - cos(amplitude)) = I speed^2 / 2
    hardest = frequency**2 * min(amplitude, 1)

    def swing(periods):
        return lambda count: final(model, [amplitude], [0], periods * period, count)

    assert_converges(swing(0.25), [0, -fastest], [fastest, hardest], period / 4)
    rates = [fastest * frequency, hardest * frequency]
    assert_converges(swing(1.0), [amplitude, 0], rates, period, order=2)


def test_damped_spring():
    """If m x'' = -k x - c x': x = exp(-d t) (x0 cos(w t) + (v0 + d x0) / w sin(w t)), d = c / 2m, w^2 = k / m - d^2."""
    mass, stiffness, damping, x0, v0, duration = 2.0, 50.0, 3.0, 0.1, -0.4, 1.7
    model = one_joint(f'type="slide" axis="0.6 0 0.8" stiffness="{stiffness}" damping="{damping}"', mass=mass)
    decay = damping / (2 * mass)
    w = np.sqrt(stiffness / mass - decay**2)
    phase, sine = w * duration, (v0 + decay * x0) / w
    x = np.exp(-decay * duration) * (x0 * np.cos(phase) + sine * np.sin(phase))
    v = np.exp(-decay * duration) * w * (sine * np.cos(phase) - x0 * np.sin(phase)) - decay * x
    size = np.hypot(x0, v0 / w)
    assert_converges(lambda count: final(model, [x0], [v0], duration, count), [x, v], [size * w, size * w**2], duration)


def test_hinge_spring_swings_about_its_rest():
    """I q'' = -k (q - rest): q = rest + (q0 - rest) cos(w t), whatever `ref` calls the pose in the file."""
    inertia, stiffness, rest, q0, duration = 0.4, 20.0, 0.7, -0.2, 1.1
    model = one_joint(f'axis="0 0 1" stiffness="{stiffness}" springref="{rest}" ref="0.3"', inertia=inertia)
    w = np.sqrt(stiffness / inertia)
    exact = [rest + (q0 - rest) * np.cos(w * duration), -(q0 - rest) * w * np.sin(w * duration)]
    rates = abs(q0 - rest) * np.array([w, w**2])
    assert_converges(lambda count: final(model, [q0], [0], duration, count), exact, rates, duration)


def test_spring_energy_does_not_drift():
    """Semi-implicit Euler keeps m v^2 / 2 + k x^2 / 2 - dt k x v / 2 exactly, so the energy itself only wavers."""
    mass, stiffness, x0 = 2.0, 50.0, 0.1
    model = one_joint(f'type="slide" stiffness="{stiffness}"', mass=mass)
    dt = 0.01
    x, v = trajectory(model, at([x0], [0]), 5000 * dt, 5000, 1).T
    energy = mass * v**2 / 2 + stiffness * x**2 / 2
    assert_allclose(energy - dt * stiffness * x * v / 2, stiffness * x0**2 / 2, rtol=ROUNDING)


def test_pendulum_energy_does_not_drift():
    """With a constant mass matrix semi-implicit Euler is symplectic.

    So I qd^2 / 2 - m g l cos(q) wavers by O(dt), but is as good after 50 swings as after 5.
    """
    mass, length, g, dt = 2.0, 0.7, 9.81, 0.005
    inertia = 0.3 + mass * length**2
    model = one_joint('axis="0 1 0"', mass=mass, com=f"0 0 -{length}", inertia=0.3, gravity=f"0 0 -{g}")
    q, qd = trajectory(model, at([2.0], [0]), 24000 * dt, 24000 // 4, 4).T
    error = np.abs(inertia * qd**2 / 2 - mass * g * length * (np.cos(q) - np.cos(2.0)))
    early, late = error[: len(error) // 10].max(), error[-len(error) // 10 :].max()
    # The energy that half a step of the largest torque changes: dt / 2 * m g l sin(q) * qd.
    assert early < dt / 2 * mass * g * length * np.abs(qd).max()
    assert abs(late - early) < 0.05 * early


@pytest.mark.parametrize("side", [-1, 1])
def test_limit_holds_a_weight(side):
    """A slide rests m g / limit_stiffness beyond its limit."""
    mass, stiffness, g = 3.0, 700.0, 9.81
    limits = 'type="slide" axis="0 0 1" range="-0.2 0.3" user="700" damping="60"'
    model = one_joint(limits, mass=mass, gravity=f"0 0 {side * g}")
    rest = (0.3 if side > 0 else -0.2) + side * mass * g / stiffness
    assert_allclose(acceleration(model, [rest], [0]), 0, atol=g * ROUNDING)
    # With damping / 2 m = 10 /s, 4 s of settling leave exp(-40).
    assert_allclose(final(model, [0.0], [0], 4.0, 4000), [rest, 0], atol=ROUNDING)


def test_limit_is_a_spring():
    """Driven into the limit with speed v: q - upper = v / w sin(w t), w^2 = limit_stiffness / I, and out after pi / w.

    There and back again only a second-order error is left, as for the pendulum.
    """
    inertia, stiffness, speed = 0.5, 800.0, 2.0
    model = one_joint('axis="0 1 0" range="-1 0.25" user="800"', inertia=inertia)
    w = np.sqrt(stiffness / inertia)

    def driven(duration):
        return lambda count: final(model, [0.25], [speed], duration, count)

    rates = speed * np.array([1, w])
    assert_converges(driven(1 / w), [0.25 + speed / w * np.sin(1), speed * np.cos(1)], rates, 1 / w)
    assert_converges(driven(np.pi / w), [0.25, -speed], rates * w, np.pi / w, order=2)


def test_motor_gear_range_and_armature():
    """Acceleration = gear * clamp(control) / (inertia + armature)."""
    slide = one_joint('type="slide" axis="0 1 0" armature="0.5"', mass=2, gear=-30)
    hinge = one_joint('axis="0 1 0" armature="0.05"', mass=2, com="0.3 0 0", inertia=0.1, gear=7)
    for model, gear, inertia in ((slide, -30, 2 + 0.5), (hinge, 7, 0.1 + 2 * 0.3**2 + 0.05)):
        for control, force in ((0.5, 0.5), (-1.7, -1.7), (-5.0, -2.0), (3.0, 3.0), (1e6, 3.0)):
            assert_allclose(acceleration(model, [0.2], [0], [control]), [gear * force / inertia], rtol=ROUNDING)


def test_armature_has_inertia_but_no_weight():
    """A falling weight with a rotor geared to it: a = m g / (m + armature)."""
    model = one_joint('type="slide" axis="0 0 1" armature="1.5"', mass=2, gravity="0 0 -9.81")
    assert_allclose(acceleration(model, [0.0], [0]), [-9.81 * 2 / 3.5], rtol=ROUNDING)


# Ball joints.


def ball_joint(joint: str, inertia: str = "0.1 0.2 0.3") -> Model:
    return load_model(f"""
    <mujoco>
      <compiler angle="radian"/>
      <option gravity="0 0 0"/>
      <worldbody>
        <body>
          <joint name="ball" type="ball" {joint}/>
          <inertial pos="0 0 0" mass="1" diaginertia="{inertia}"/>
        </body>
      </worldbody>
      <actuator><motor joint="ball" gear="0 2 0"/></actuator>
    </mujoco>""")


@pytest.mark.parametrize("amplitude", [0.01, 3.0])
@pytest.mark.parametrize("axis", ["x", "y", "z"])
def test_ball_spring_period(axis, amplitude):
    """About a principal axis I angle'' = -2 k sin(angle / 2), a pendulum in angle / 2.

    So T = 2 pi sqrt(I / k) / agm(1, cos(amplitude / 4)), and 2 pi sqrt(I / k) for small amplitudes.
    """
    inertia, stiffness = {"x": 0.1, "y": 0.2, "z": 0.3}[axis], 6.0
    w = np.sqrt(stiffness / inertia)
    quarter = np.pi / 2 / w / agm(1, np.cos(amplitude / 4))
    model = ball_joint(f'stiffness="{stiffness}"')
    fastest = 4 * w * np.sin(amplitude / 4)
    index = "xyz".index(axis)

    def swing(count):
        state = final(model, turn(axis, amplitude), [0, 0, 0], quarter, count)
        return [2 * state[1 + index], state[4 + index]]

    assert_converges(swing, [0, -fastest], [fastest, fastest * w], quarter)


def test_ball_limit_holds_a_torque():
    """Beyond its largest angle the joint pushes back by limit_stiffness * (2 sin(angle / 2) - 2 sin(largest / 2))."""
    model = ball_joint('range="0 0.6" user="40" damping="2"')
    torque = 2 * 1.5
    angle = 2 * np.arcsin(torque / 40 / 2 + np.sin(0.3))
    assert_allclose(acceleration(model, turn("y", angle), [0, 0, 0], [1.5]), 0, atol=torque / 0.2 * ROUNDING)
    # The spring is 40 N m/rad, so with damping / 2 I = 5 /s, 6 s leave exp(-30).
    settled = final(model, UPRIGHT, [0, 0, 0], 6.0, 6000, [1.5])
    assert_allclose(settled, [*turn("y", angle), 0, 0, 0], atol=ROUNDING)
    inside = final(model, turn("y", 0.5), [0, 0, 0], 0.1, 10)
    assert_allclose(inside, [*turn("y", 0.5), 0, 0, 0], atol=ROUNDING)
