"""Bodies that fly, tumble and swing, against closed forms of mechanics and conservation laws (see convergence.py)."""

from __future__ import annotations

from pathlib import Path

import mujoco
import numpy as np
import pytest
import torch
from closed_forms import UPRIGHT, agm, rotation, times, turn
from convergence import ROUNDING, assert_converges, final
from numpy.testing import assert_allclose

from trot.sim.load import load_model
from trot.sim.model import Model
from trot.sim.state import State
from trot.sim.step import step

ASSETS = Path(__file__).parents[2] / "trot" / "envs" / "assets"


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
