"""The simulator against closed forms of mechanics, in float64.

Semi-implicit Euler is a first-order method, so most tests halve the time step a few times, measure that order, and
allow at each step size the error that one step of the exact motion makes up: a first-order method is early or late by
a fraction of a step. Laws that the method reproduces exactly (constant forces, points of rest) are checked to rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import mujoco
import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from trot.sim.load import load_model
from trot.sim.model import Model
from trot.sim.state import State
from trot.sim.step import step

ASSETS = Path(__file__).parents[1] / "trot" / "envs" / "assets"

ROUNDING = 1e-11
"""Relative: a few thousand steps of float64, 1e-16 each, with some to spare."""


def at(q: object, qd: object) -> State:
    """One world."""
    return State(*(torch.tensor(np.atleast_2d(np.asarray(x, float))) for x in (q, qd)))


def advance(model: Model, state: State, duration: float, substeps: int = 1, control: object = None) -> State:
    control = np.zeros(model.num_controls) if control is None else control
    return step(model, state, torch.tensor(np.atleast_2d(np.asarray(control, float))), duration, substeps)


def final(model: Model, q: object, qd: object, duration: float, substeps: int, control: object = None) -> np.ndarray:
    """joint_q and joint_qd after the duration, one after the other."""
    state = advance(model, at(q, qd), duration, substeps, control)
    return np.concatenate([state.joint_q[0].numpy(), state.joint_qd[0].numpy()])


def acceleration(model: Model, q: object, qd: object, control: object = None) -> np.ndarray:
    """What one step adds to joint_qd, per second."""
    dt = 2.0**-10
    return (advance(model, at(q, qd), dt, 1, control).joint_qd[0].numpy() - np.asarray(qd, float)) / dt


def trajectory(
    model: Model, state: State, duration: float, rows: int, substeps: int, control: object = None
) -> np.ndarray:
    """joint_q and joint_qd after each of `rows` equal parts of the duration."""
    result = []
    for _ in range(rows):
        state = advance(model, state, duration / rows, substeps, control)
        result.append(np.concatenate([state.joint_q[0].numpy(), state.joint_qd[0].numpy()]))
    return np.array(result)


def assert_converges(
    simulate: Callable[[int], object],
    exact: object,
    rate: object,
    duration: float,
    *,
    order: int = 1,
    coarsest: int = 500,
    steps: float = 1,
) -> None:
    """Errors shrink like dt ** order, and are within the motion of one step.

    rate: how much the exact result changes per second (its n-th derivative for order n). simulate takes the number of
    steps. steps: how many steps' worth of motion the error may be, where more than one.
    """
    counts = coarsest * 2 ** np.arange(4)
    dt = duration / counts
    rate = np.asarray(rate, float)
    errors = np.abs([np.asarray(simulate(int(count)), float) - exact for count in counts]).reshape(len(counts), -1)
    in_steps = errors / (rate * dt[:, None] ** order)
    assert in_steps.max() < steps, in_steps
    measured = np.polyfit(np.log(dt), np.log(np.linalg.norm(errors / rate, axis=1)), 1)[0]
    assert abs(measured - order) < 0.1, (measured, in_steps)


def agm(a: float, b: float) -> float:
    """Arithmetic-geometric mean. That of 1 and sqrt(1 - k^2) is pi / 2 over the complete elliptic integral K(k)."""
    while abs(a - b) > 1e-15 * a:
        a, b = (a + b) / 2, np.sqrt(a * b)
    return a


def rotation(quat: np.ndarray) -> np.ndarray:
    matrix = np.zeros(9)
    mujoco.mju_quat2Mat(matrix, np.asarray(quat, float))
    return matrix.reshape(3, 3)


def turn(axis: str, angle: float) -> np.ndarray:
    """Quaternion of a rotation about a coordinate axis."""
    quat = np.zeros(4)
    quat[0], quat[1 + "xyz".index(axis)] = np.cos(angle / 2), np.sin(angle / 2)
    return quat


def times(*quats: np.ndarray) -> np.ndarray:
    result = np.array([1.0, 0, 0, 0])
    for quat in quats:
        product = np.zeros(4)
        mujoco.mju_mulQuat(product, result, quat)
        result = product
    return result


# Free bodies.


def free_body(inertia: str = "0.1 0.1 0.1", mass: float = 1, com: str = "0 0 0", gravity: str = "0 0 0") -> Model:
    return load_model(f"""
    <mujoco>
      <option gravity="{gravity}"/>
      <worldbody>
        <body>
          <freejoint/>
          <inertial pos="{com}" mass="{mass}" diaginertia="{inertia}"/>
        </body>
      </worldbody>
    </mujoco>""")


UPRIGHT = (1, 0, 0, 0)


def test_free_fall_in_any_direction():
    """x(t) = x0 + v t + g t^2 / 2. Steps add up to g t (t + dt) / 2 instead: the error is g t dt / 2."""
    gravity, start, velocity, duration = np.array([1.3, -2.7, 8.1]), [4.0, -5, 6], [0.3, 2, -1], 1.5
    model = free_body(gravity="1.3 -2.7 8.1", mass=3)

    def fall(count):
        return final(model, [*start, *UPRIGHT], [*velocity, 0, 0, 0], duration, count)

    exact = start + np.multiply(velocity, duration) + gravity * duration**2 / 2
    assert_converges(lambda count: fall(count)[:3], exact, np.abs(gravity) * duration, duration)
    dt = duration / 300
    assert_allclose(fall(300)[:3] - exact, gravity * duration * dt / 2, rtol=ROUNDING, atol=ROUNDING)
    assert_allclose(fall(300)[7:10], velocity + gravity * duration, rtol=ROUNDING)


def test_centre_of_mass_of_a_tumbling_body_falls_freely():
    """x_com(t) = x_com(0) + v_com t + g t^2 / 2, whatever the body turns like; the origin circles around it."""
    com, gravity, duration = np.array([0.2, -0.1, 0.3]), np.array([0.5, 1, -9]), 1.0
    linear, omega = np.array([1.0, 2, 3]), np.array([3.0, -2, 4])
    model = free_body(gravity="0.5 1 -9", com="0.2 -0.1 0.3", inertia="0.3 0.4 0.2", mass=2)

    def centre(count):
        q = final(model, [0, 0, 0, *UPRIGHT], [*linear, *omega], duration, count)[:7]
        return q[:3] + rotation(q[3:]) @ com

    velocity = linear + np.cross(omega, com)
    exact = com + velocity * duration + gravity * duration**2 / 2
    assert_converges(centre, exact, np.linalg.norm(velocity) + 9 * duration, duration)


def test_torque_free_body_turns_as_jacobi_found():
    """Euler's equations I w' = -w x I w have a closed solution, with a flip over the intermediate axis.

    For I1 < I2 < I3, h = L^2, e = 2 * kinetic energy, h > I2 e, and w2 = 0 at t = 0 it is
        w1 = A cn(p t), w2 = B sn(p t), w3 = C dn(p t),
        A^2 = (I3 e - h) / (I1 (I3 - I1)), B^2 = (I3 e - h) / (I2 (I3 - I2)), C^2 = (h - I1 e) / (I3 (I3 - I1)),
        p^2 = (I3 - I2) (h - I1 e) / (I1 I2 I3), k^2 = (I2 - I1) (I3 e - h) / ((I3 - I2) (h - I1 e)).
    A quarter period K(k) / p later, w = (0, B, C sqrt(1 - k^2)) up to signs: the spin has come over to the
    intermediate axis. After half a period w1 has changed its sign: the body has flipped.
    """
    inertia, w1, w3 = np.array([0.1, 0.2, 0.3]), 2.0, 1.25
    e, h = inertia @ [w1**2, 0, w3**2], inertia**2 @ [w1**2, 0, w3**2]
    i1, i2, i3 = inertia
    assert h > i2 * e
    p = np.sqrt((i3 - i2) * (h - i1 * e) / (i1 * i2 * i3))
    complement = 1 - (i2 - i1) * (i3 * e - h) / ((i3 - i2) * (h - i1 * e))
    quarter = np.pi / (2 * agm(1, np.sqrt(complement))) / p
    b = np.sqrt((i3 * e - h) / (i2 * (i3 - i2)))
    model = free_body(inertia="0.1 0.2 0.3")

    def spin(quarters):
        return lambda count: final(model, [0, 0, 0, *UPRIGHT], [0, 0, 0, w1, 0, w3], quarters * quarter, count)[10:]

    # w2' = (I3 - I1) w3 w1 / I2 is positive at the start.
    assert_converges(spin(1), [0, b, w3 * np.sqrt(complement)], p * w1, quarter)
    assert_converges(spin(2), [-w1, 0, w3], p * w1, 2 * quarter, steps=2)  # each quarter adds its own error


def test_torque_free_body_keeps_angular_momentum_and_energy():
    """L = R I w in world axes and w . I w / 2 are constant."""
    inertia, omega, duration = np.array([0.1, 0.2, 0.3]), np.array([2.0, 1, -1.5]), 3.0
    model = free_body(inertia="0.1 0.2 0.3", com="0.1 0.2 -0.1")

    def conserved(count):
        state = final(model, [0, 0, 0, *UPRIGHT], [*-np.cross(omega, [0.1, 0.2, -0.1]), *omega], duration, count)
        momentum = rotation(state[3:7]) @ (inertia * state[10:])
        return [*momentum, state[10:] @ (inertia * state[10:]) / 2]

    start = [*inertia * omega, omega @ (inertia * omega) / 2]
    # They change by O(dt) a step if R, or w alone, does: |w| |L| and |w| E per second.
    speed = np.linalg.norm(omega)
    rates = speed * np.array([np.linalg.norm(inertia * omega)] * 3 + [start[3]])
    assert_converges(conserved, start, rates, duration, steps=speed * duration)


def steady_top(joint_i1: float, i3: float, tilt: float, precession: float, weight_moment: float) -> tuple[float, float]:
    """Spin along the axis, in all and relative to the precession, of a top that precesses steadily about the vertical.

    Its axis e3 keeps the angle `tilt` to the vertical if precession (I3 w3 - I1 precession cos(tilt)) = m g l.
    """
    w3 = (weight_moment / precession + joint_i1 * precession * np.cos(tilt)) / i3
    return w3, w3 - precession * np.cos(tilt)


def precessed(tilt: float, precession: float, spin: float, time: float) -> np.ndarray:
    return times(turn("z", precession * time), turn("y", tilt), turn("z", spin * time))


def test_symmetric_top_without_torque_precesses_about_its_angular_momentum():
    """The axis goes round L, here along z, at the rate L / I1, and the body spins about its axis at a constant rate."""
    i1, i3, tilt, precession, duration = 0.2, 0.3, 0.4, 5.0, 1.3
    _, spin = steady_top(i1, i3, tilt, precession, weight_moment=0)
    model = free_body(inertia="0.2 0.2 0.3")
    # World angular velocity (0, 0, precession) + spin e3, in body axes.
    omega = precession * np.array([-np.sin(tilt), 0, np.cos(tilt)]) + [0, 0, spin]
    assert_allclose(precession, np.linalg.norm([i1, i1, i3] * omega) / i1)

    def attitude(count):
        return final(model, [0, 0, 0, *turn("y", tilt)], [0, 0, 0, *omega], duration, count)[3:7]

    rate = np.linalg.norm(omega)
    radians = rate * duration  # explicit steps of Euler's equations: errors add up along the way
    assert_converges(attitude, precessed(tilt, precession, spin, duration), rate, duration, steps=radians)


def test_heavy_top_precesses_steadily():
    """On a ball joint, precession (I3 w3 - I1 precession cos(tilt)) = m g l with I1 about the pivot."""
    mass, length, i1, i3, tilt, precession, duration = 0.2, 0.1, 0.02, 0.03, 0.5, 2.0, 1.2
    model = load_model(f"""
    <mujoco>
      <option gravity="0 0 -9.81"/>
      <worldbody>
        <body>
          <joint type="ball"/>
          <inertial pos="0 0 {length}" mass="{mass}" diaginertia="{i1} {i1} {i3}"/>
        </body>
      </worldbody>
    </mujoco>""")
    w3, spin = steady_top(i1 + mass * length**2, i3, tilt, precession, mass * 9.81 * length)
    omega = precession * np.array([-np.sin(tilt), 0, np.cos(tilt)]) + [0, 0, spin]

    def axis(count):
        return rotation(final(model, turn("y", tilt), omega, duration, count)[:4])[:, 2]

    exact = rotation(precessed(tilt, precession, spin, duration))[:, 2]
    assert_converges(axis, exact, precession, duration, steps=w3 * duration)  # errors add up, as above


# One joint.


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


# Several bodies, with MuJoCo summing up energy and momentum.


def momentum(model: Model, q: np.ndarray, qd: np.ndarray) -> np.ndarray:
    """Linear momentum, then angular momentum about the centre of mass, of everything; and where that centre is."""
    data = mujoco.MjData(model.source)
    data.qpos[:], data.qvel[:] = q, qd
    mujoco.mj_forward(model.source, data)
    mujoco.mj_subtreeVel(model.source, data)
    linear = data.subtree_linvel[0] * model.body_mass.sum()
    return np.concatenate([linear, data.subtree_angmom[0], data.subtree_com[0]])


def energy(model: Model, q: np.ndarray, qd: np.ndarray) -> float:
    """Kinetic, of gravity and of springs."""
    data = mujoco.MjData(model.source)
    data.qpos[:], data.qvel[:] = q, qd
    mujoco.mj_fwdPosition(model.source, data)
    mujoco.mj_fwdVelocity(model.source, data)
    mujoco.mj_energyPos(model.source, data)
    mujoco.mj_energyVel(model.source, data)
    return float(data.energy.sum())


FLOATING_CHAIN = """
<mujoco>
  <option gravity="0 0 0"/>
  <worldbody>
    <body>
      <freejoint/>
      <inertial pos="0.05 -0.02 0.03" mass="2" fullinertia="0.05 0.06 0.04 0.01 -0.005 0.008"/>
      <body pos="0.3 0.1 0">
        <joint name="elbow" axis="0.2 1 0.3" pos="0.02 0 0.01" stiffness="5"/>
        <inertial pos="0.1 0.02 -0.1" mass="1" diaginertia="0.01 0.02 0.015"/>
        <body pos="0.2 0 -0.2">
          <joint name="reach" type="slide" axis="1 0.3 -0.5" stiffness="60" springref="0.05"/>
          <inertial pos="0.1 0 0" mass="0.7" diaginertia="0.01 0.005 0.01"/>
        </body>
      </body>
    </body>
  </worldbody>
  <actuator>
    <motor joint="elbow" gear="3"/>
    <motor joint="reach" gear="8"/>
  </actuator>
</mujoco>"""


def test_floating_chain_keeps_its_momentum():
    """Motors and springs inside the chain change neither P nor L; its centre of mass moves by P t / m."""
    model, duration = load_model(FLOATING_CHAIN), 0.8
    q = [0.1, 0.2, 0.3, *times(turn("x", 0.4), turn("z", 1.0)), 0.5, -0.1]
    qd = np.array([0.3, -0.5, 0.2, 1.0, -0.7, 0.8, 2.0, 0.5])

    def end(count):
        state = final(model, q, qd, duration, count, [1.0, -1.0])
        return momentum(model, state[: model.num_q], state[model.num_q :])

    start = momentum(model, np.array(q), qd)
    exact = start.copy()
    exact[6:] += start[:3] / model.body_mass.sum() * duration
    # The motors' own scale: forces up to 8 N on the slide, torques of up to 3 N m, speeds of 1 m/s.
    rates = np.repeat([8.0, 3.0, 1.0], 3)
    assert_converges(end, exact, rates, duration)


DOUBLE_PENDULUM = """
<mujoco>
  <option gravity="0 0 -9.81"/>
  <worldbody>
    <body>
      <joint axis="0 1 0"/>
      <inertial pos="0 0 -0.5" mass="1" diaginertia="0.05 0.05 0.05"/>
      <body pos="0 0 -1">
        <joint axis="0 1 0"/>
        <inertial pos="0 0 -0.4" mass="0.8" diaginertia="0.04 0.04 0.04"/>
      </body>
    </body>
  </worldbody>
</mujoco>"""


def test_double_pendulum_keeps_its_energy():
    """Without motors and damping, kinetic plus potential energy is constant."""
    model, q, qd, duration = load_model(DOUBLE_PENDULUM), [0.9, -0.4], [0.3, 0.5], 5.0
    start = energy(model, q, qd)

    def end(count):
        state = final(model, q, qd, duration, count)
        return energy(model, state[:2], state[2:])

    # Velocity-dependent forces are taken explicitly, so errors of each swing add up. In all they stay a fraction of the
    # power with which gravity and motion exchange energy, m g times speed.
    assert_converges(end, start, 1.8 * 9.81 * 3.0, duration)


# The ground. A block slides along x, y and z without turning, on a sphere of radius 1/8 m that touches at z = 0.


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
        <geom type="plane" size="0 0 1"/>
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


def free_shape(geom: str, inertial: str, push: str = "1 0 0 0 0 0") -> Model:
    return load_model(f"""
    <mujoco>
      <worldbody>
        <geom type="plane" size="0 0 1"/>
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


# Muscles. Two carts on parallel rails along x, 0.3 m apart in y and 0.4 m in z.


CARTS = """
<mujoco>
  <option gravity="0 0 0"/>
  <worldbody>
    <body name="low">
      <joint type="slide" axis="1 0 0"/>
      <inertial pos="0 0 0" mass="2" diaginertia="1 1 1"/>
      <site name="low_back" pos="-0.7 0.5 0.1"/>
      <site name="low" pos="0.1 0 0"/>
    </body>
    <body name="high" pos="0 0.3 0.4">
      <joint type="slide" axis="1 0 0"/>
      <inertial pos="0 0 0" mass="3" diaginertia="1 1 1"/>
      <site name="high"/>
      <site name="high_back" pos="0.4 -0.2 0.6"/>
    </body>
  </worldbody>
  <tendon>
    <spatial name="muscle">
      <site site="low_back"/>
      <site site="low"/>
      <site site="high"/>
      <site site="high_back"/>
    </spatial>
  </tendon>
  <actuator>
    <motor tendon="muscle" gear="-50" ctrlrange="{range}"/>
  </actuator>
</mujoco>"""


def test_muscle_pulls_along_its_line():
    """Each end feels peak * activation along the line to the other; of it the rail leaves the part along x.

    The parts of the tendon within one body do nothing, and nothing pushes: activation counts from 0 to 1.
    """
    model = load_model(CARTS.format(range="-1 1"))
    for low, high in ((0.0, 2.0), (0.3, -1.2), (-4.0, 0.5)):
        span = np.array([high - (low + 0.1), 0.3, 0.4])
        along = span[0] / np.linalg.norm(span)
        for activation, tension in ((0.3, 15.0), (1.0, 50.0), (2.0, 50.0), (0.0, 0.0), (-0.4, 0.0)):
            expected = tension * along * np.array([1 / 2, -1 / 3])
            assert_allclose(acceleration(model, [low, high], [0, 0], [activation]), expected, atol=50 * ROUNDING)


def test_muscle_conserves_momentum_and_does_work():
    """The carts keep 2 v1 + 3 v2, to rounding, and gain peak * activation * (how much shorter the muscle is)."""
    model, activation, duration = load_model(CARTS.format(range="0 1")), 0.6, 0.3
    q, qd = np.array([0.0, 1.5]), np.array([0.4, -0.2])

    def length(q):
        return np.linalg.norm([q[1] - q[0] - 0.1, 0.3, 0.4])

    def gain(count):
        state = final(model, q, qd, duration, count, [activation])
        assert_allclose([2, 3] @ state[2:], [2, 3] @ qd, rtol=ROUNDING)
        gained = [1, 1.5] @ (state[2:] ** 2 - qd**2)
        return gained - 50 * activation * (length(q) - length(state[:2]))

    assert_converges(gain, 0, 50 * activation * 6.0, duration)  # the tension times the speed of closing


# Far from the origin.


@pytest.mark.parametrize(
    ("file", "start", "lowered"),
    [
        ("ant.xml", [0.0, 0, 0.75, 1, 0, 0, 0, 0, 1, 0, -1, 0, -1, 0, 1], 0.2),
        ("hopper.xml", [0.0] * 6, 0.05),
    ],
)
def test_far_runner_moves_like_one_at_the_origin(file, start, lowered):
    """Physics does not depend on where along the ground it happens.

    In float32 neighbouring positions at x = 500 m are 3e-5 m apart; forces are computed relative to the first body, so
    joint angles and velocities are those of x = 0. The start is lowered until the robot touches the ground.
    """
    model, steps, substeps, dt = load_model(ASSETS / file), 10, 16, 1 / 60
    generator = torch.Generator().manual_seed(1)
    joint_q = torch.tensor(start).repeat(16, 1)
    joint_q[:, 2 if file == "ant.xml" else 1] -= lowered
    joint_qd = torch.randn(16, model.num_dofs, generator=generator)
    far_away = torch.zeros_like(joint_q)
    far_away[:, 0] = 500
    near, far = State(joint_q, joint_qd), State(joint_q + far_away, joint_qd)
    for _ in range(steps):
        control = torch.rand(16, model.num_controls, generator=generator) * 2 - 1
        near, far = (step(model, state, control, dt, substeps) for state in (near, far))
    torch.testing.assert_close(far.joint_q[:, 1:], near.joint_q[:, 1:], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(far.joint_qd, near.joint_qd, rtol=1e-6, atol=1e-6)
    # Each substep rounds the position by half the distance to its neighbour at most.
    travelled = (far.joint_q - far_away)[:, 0]
    torch.testing.assert_close(travelled, near.joint_q[:, 0], rtol=0, atol=steps * substeps * 2**-16)
