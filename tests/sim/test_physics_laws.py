"""Servos, dry friction, damped limits and coupled joints against closed forms of mechanics (see convergence.py)."""

from __future__ import annotations

import numpy as np
from convergence import ROUNDING, acceleration, assert_converges, at, final, trajectory
from numpy.testing import assert_allclose

from trot.sim.load import load_model
from trot.sim.model import Model

MASS = 2.0


def slide(attributes: str, actuator: str = "", gravity: str = "0 0 0") -> Model:
    return load_model(f"""
    <mujoco>
      <option gravity="{gravity}"/>
      <worldbody>
        <body>
          <joint name="joint" type="slide" axis="0 0 1" {attributes}/>
          <inertial pos="0 0 0" mass="{MASS}" diaginertia="0.1 0.1 0.1"/>
        </body>
      </worldbody>
      <actuator>{actuator}</actuator>
    </mujoco>""")


def test_position_servo_swings_about_its_target():
    """With m x'' = kp (u - x) - kv x': x = u + exp(-d t) (a cos(w t) + (d a / w) sin(w t)), a = x0 - u."""
    kp, kv, target, x0, duration = 50.0, 3.0, 0.3, -0.1, 1.3
    model = slide("", f'<position joint="joint" kp="{kp}" kv="{kv}"/>')
    decay = kv / (2 * MASS)
    w, a = np.sqrt(kp / MASS - decay**2), x0 - target
    envelope, phase = np.exp(-decay * duration) * a, w * duration
    x = target + envelope * (np.cos(phase) + decay / w * np.sin(phase))
    v = -envelope * (w + decay**2 / w) * np.sin(phase)
    rates = abs(a) * np.array([w, w**2])
    assert_converges(lambda count: final(model, [x0], [0], duration, count, [target]), [x, v], rates, duration)


def test_velocity_servo_approaches_its_speed():
    """With m v' = kv (u - v): v = u (1 - exp(-kv t / m))."""
    kv, target, duration = 5.0, 1.5, 0.8
    model = slide("", f'<velocity joint="joint" kv="{kv}"/>')
    rate, share = kv / MASS, 1 - np.exp(-kv / MASS * duration)
    exact = [target * (duration - share / rate), target * share]
    assert_converges(
        lambda count: final(model, [0], [0], duration, count, [target]), exact, [target, target * rate], duration
    )


def test_force_ranges_hold_each_actuator_and_their_sum():
    """Servo 9 (u - x) within 4; motor 3 u; both within -5 and 6 on the joint."""
    servo = '<position joint="joint" kp="9" forcerange="-4 4"/><motor joint="joint" gear="3"/>'
    model = slide('actuatorfrcrange="-5 6"', servo)
    for controls, force in (
        ((0.3, 0.2), 9 * 0.3 + 0.6), ((5, 0.2), 4.6), ((5, 3), 6), ((-5, -1), -5), ((-5, 1), -1), ((0.3, -9), -5),
    ):  # fmt: skip
        assert_allclose(acceleration(model, [0.0], [0], controls), [force / MASS], rtol=ROUNDING)


def test_a_sliding_joint_slows_down_evenly():
    """By v = v0 - friction / m t, down to the speed at which friction begins to fade."""
    friction, v0, dt = 3.0, 2.0, 0.001
    model = slide(f'frictionloss="{friction}" user="1e3 0 0.05"')
    v = trajectory(model, at([0], [v0]), 1.2, 1200, 1)[:, 1]
    assert_allclose(v, v0 - friction / MASS * dt * np.arange(1, 1201), rtol=1e-10)


def test_a_loaded_joint_creeps_at_the_speed_where_friction_carries_the_load():
    """11 / 16 of the friction at half the full speed; a load beyond the friction slides."""
    friction, full = 8.0, 0.2
    weight = 11 / 16 * friction
    model = slide(f'frictionloss="{friction}" user="1e3 0 {full}"', gravity=f"0 0 {-weight / MASS}")
    assert_allclose(acceleration(model, [0], [-full / 2]), 0, atol=ROUNDING)
    assert_allclose(final(model, [0], [0], 4.0, 8000)[1], -full / 2, rtol=1e-9)
    sliding = slide(f'frictionloss="{friction}"', gravity=f"0 0 {-2 * friction / MASS}")
    assert_allclose(acceleration(sliding, [0], [-1]), -friction / MASS, rtol=ROUNDING)


def test_a_damped_limit_takes_energy_and_never_pulls():
    """A mass that hits the limit comes back slower; the limit's rest under load is that of its spring."""
    weight = 20.0
    model = slide('range="-9 0.1" user="5e3 2e3"', gravity=f"0 0 {weight / MASS}")
    assert_allclose(acceleration(model, [0.1 + weight / 5e3], [0]), 0, atol=1e-9)
    elastic, damped = (slide(f'range="-9 0.1" user="5e3 {damping}"') for damping in (0, 2e3))
    speeds = [final(each, [0.1], [1.5], 0.2, 4000)[1] for each in (elastic, damped)]
    assert_allclose(speeds[0], -1.5, rtol=1e-2)
    assert -1.45 < speeds[1] < -0.1
    # Torn back faster than the spring pushes, 5e3 / 2e3 m/s, it feels nothing.
    assert_allclose(acceleration(damped, [0.3], [-2.6]), 0, atol=ROUNDING)


def test_a_coupled_joint_catches_up_critically_damped():
    """With r = q1 - 2 q2: r(t) = r0 (1 + w t) exp(-w t), whatever the two do together."""
    model = load_model("""
    <mujoco>
      <option gravity="0 0 0"/>
      <worldbody>
        <body><joint name="a" type="slide"/><inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/></body>
        <body><joint name="b" type="slide"/><inertial pos="0 0 0" mass="3" diaginertia="1 1 1"/></body>
      </worldbody>
      <equality><joint joint1="a" joint2="b" polycoef="0 2 0 0 0"/></equality>
    </mujoco>""")
    w, r0, duration = 100.0, 0.2, 0.02
    share = (1 + w * duration) * np.exp(-w * duration)

    def residual(count):
        q = final(model, [r0, 0], [0.3, 0.15], duration, count)
        return [q[0] - 2 * q[1], q[2] - 2 * q[3]]

    exact = [r0 * share, -r0 * w**2 * duration * np.exp(-w * duration)]
    assert_converges(residual, exact, [r0 * w, r0 * w**2], duration)


def test_a_fixed_tendons_spring_has_a_slack_range():
    """Length 2 x between 0.1 and 0.3 at rest: beyond, x feels -2 * 40 * (2 x - 0.3)."""
    model = load_model(f"""
    <mujoco>
      <option gravity="0 0 0"/>
      <worldbody>
        <body><joint name="a" type="slide"/><inertial pos="0 0 0" mass="{MASS}" diaginertia="1 1 1"/></body>
      </worldbody>
      <tendon><fixed stiffness="40" springlength="0.1 0.3" damping="3"><joint joint="a" coef="2"/></fixed></tendon>
    </mujoco>""")
    for x, v, force in ((0.1, 0, 0), (0.4, 0, -80 * 0.5), (-0.2, 0, 80 * 0.5), (0.1, 0.7, -12 * 0.7)):
        assert_allclose(acceleration(model, [x], [v]), [force / MASS], atol=ROUNDING * 40)
