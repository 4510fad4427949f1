"""Bodies held together, and actuators with activations, against closed forms and MuJoCo (see convergence.py)."""

from __future__ import annotations

from dataclasses import replace

import mujoco
import numpy as np
import pytest
import torch
from bonded_robots import bonded, four_bar
from convergence import ROUNDING, acceleration, advance, assert_converges, at, final, trajectory
from manifold import lively_states
from numpy.testing import assert_allclose

from trot.sim.load import load_model
from trot.sim.model import Model
from trot.sim.state import State
from trot.sim.step import step

MASS, INERTIA = 2.0, 0.3
BODY = """<body name="{0}"><freejoint/>
    <inertial pos="{1}" mass="{2}" diaginertia="{3} {3} {3}"/></body>"""
HERE = "0 0 0"


def test_a_mass_on_a_connect_swings_at_the_stated_rate():
    """By x'' + 2 x' / timeconst + x / (timeconst dampratio)^2 = 0, along each axis."""
    time, ratio, duration = 0.4, 0.25, 0.3
    bond = f'<connect body1="a" anchor="0 0 0" solref="{time} {ratio}"/>'
    model = load_model(bonded(bond, BODY.format("a", HERE, MASS, INERTIA)))
    x0, decay = np.array([0.1, -0.2, 0.05]), 1 / time
    w = np.sqrt(1 / (time * ratio) ** 2 - decay**2)
    envelope, phase = np.exp(-decay * duration) * x0, w * duration
    x = envelope * (np.cos(phase) + decay / w * np.sin(phase))
    v = -envelope * (w + decay**2 / w) * np.sin(phase)

    def state(count):
        found = final(model, [*x0, 1, 0, 0, 0], [0] * 6, duration, count)
        return np.concatenate([found[:3], found[7:10]])

    # A step of the exact motion is late by up to a step: at the rates w and w^2 of the swing.
    rates = np.concatenate([abs(x0) * w, abs(x0) * w**2])
    assert_converges(state, [*x, *v], rates, duration)


def test_the_torque_of_a_weld():
    """Turned by an angle: 2 k sin(angle / 2) back, the short way round beyond half a turn, and c times the rate."""
    k, c = 50.0, 3.0
    bond = f'<weld body1="a" solref="{-k / INERTIA} {-c / INERTIA}"/>'
    model = load_model(bonded(bond, BODY.format("a", HERE, MASS, INERTIA)))
    assert_allclose(model.bond_turn_stiffness, [k])
    axis = np.array([2, -1, 2]) / 3
    # Within 6 degrees of half a turn it falls to zero: sin(angle) / 0.05 there.
    for angle in (3.1, np.pi, 3.2):
        found = acceleration(model, [0, 0, 0, np.cos(angle / 2), *(axis * np.sin(angle / 2))], np.zeros(6))
        assert_allclose(found[3:], -k * np.sin(angle) / 0.05 / INERTIA * axis, atol=1e-8)
    for angle, rate in ((0.3, 0.0), (2.0, 0.7), (3.0, 0.0), (4.0, -0.2), (-1.0, 0.0)):
        q = [0, 0, 0, np.cos(angle / 2), *(axis * np.sin(angle / 2))]
        torque = -2 * k * np.sin(angle / 2) * np.sign(np.cos(angle / 2)) - c * rate
        found = acceleration(model, q, [0, 0, 0, *(rate * axis)])
        assert_allclose(found[3:], torque / INERTIA * axis, atol=ROUNDING * 1e3)
        assert_allclose(found[:3], 0, atol=ROUNDING)


def test_a_welded_cantilever_hangs_by_its_weight():
    """The anchor sinks by m g / k; the beam turns until 2 k' sin(angle / 2) = m g L cos(angle)."""
    k, length, gravity = 4e3, 0.3, 9.81
    bond = f'<weld body1="a" anchor="0 0 0" relpose="0 0 0 1 0 0 0" solref="-{k} -100"/>'
    model = load_model(bonded(bond, BODY.format("a", f"{length} 0 0", MASS, INERTIA), f"0 0 -{gravity}"))
    weight = MASS * gravity
    (spring,), (turning,) = model.bond_stiffness, model.bond_turn_stiffness
    # About the beam's end: least mass 1 / (1 / m + L^2 / I), least moment of inertia that of the beam alone.
    assert_allclose(spring, k / (1 / MASS + length**2 / INERTIA))
    assert_allclose(turning, k * INERTIA)
    angle = 0.0
    for _ in range(200):
        angle = 2 * np.arcsin(weight * length * np.cos(angle) / (2 * turning))
    q = [0, 0, -weight / spring, np.cos(angle / 2), 0, np.sin(angle / 2), 0]
    assert_allclose(acceleration(model, q, np.zeros(6)), 0, atol=1e-9)
    assert_allclose(final(model, [0, 0, 0, 1, 0, 0, 0], np.zeros(6), 2.0, 4000)[:7], q, atol=1e-9)


def test_two_free_bodies_keep_their_momentum():
    """To rounding: forces are equal and opposite at one point, and balls turn about what they turn about already."""
    masses, inertias = np.array([2.0, 0.7]), np.array([0.3, 0.05])
    bodies = "".join(BODY.format(name, HERE, m, i) for name, m, i in zip("ab", masses, inertias, strict=True))
    bonds = '<weld body1="a" body2="b" solref="0.05 0.5"/><connect body1="a" body2="b" anchor="0.1 0.2 0"/>'
    model = load_model(bonded(bonds, bodies))
    rng = np.random.default_rng(3)
    q = [0.1, 0, 0, 1, 0, 0, 0, *rng.normal(0, 0.2, 3), *np.array([1, 0.5, -0.4, 0.7]) / np.sqrt(1.9)]
    qd = rng.normal(size=12)

    def momenta(joint_q, joint_qd):
        linear, angular = np.zeros(3), np.zeros(3)
        for body, (mass, inertia) in enumerate(zip(masses, inertias, strict=True)):
            pos, quat = joint_q[7 * body : 7 * body + 3], joint_q[7 * body + 3 : 7 * body + 7]
            velocity, turn = joint_qd[6 * body : 6 * body + 3], np.zeros(3)
            mujoco.mju_rotVecQuat(turn, joint_qd[6 * body + 3 : 6 * body + 6], quat)
            linear += mass * velocity
            angular += inertia * turn + mass * np.cross(pos, velocity)
        return linear, angular

    linear, angular = momenta(np.array(q), qd)
    found = final(model, q, qd, 0.5, 500)
    assert abs(found[14:] - qd).max() > 0.5
    after, turned = momenta(found[:14], found[14:])
    assert_allclose(after, linear, rtol=0, atol=1e-12)
    assert_allclose(turned, angular, rtol=0, atol=1e-12)


def crank_of_mujoco(duration: float, rows: int) -> np.ndarray:
    """With a constraint as hard as it goes, in steps of 0.05 ms."""
    timestep = 5e-5
    source = mujoco.MjModel.from_xml_string(four_bar(2 * timestep, timestep))
    data, found = mujoco.MjData(source), []
    for _ in range(rows):
        mujoco.mj_step(source, data, round(duration / rows / timestep))
        found.append(data.qpos.copy())
    return np.array(found)


def test_a_four_bar_moves_as_mujocos_when_its_bond_stiffens():
    """Joint angles over 0.2 s: the error falls about with the square of the time constant, as the sag does."""
    duration, rows = 0.2, 10
    expected = crank_of_mujoco(duration, rows)
    assert np.ptp(expected[:, 0]) > 0.4, "it swings"
    errors = []
    for time in (0.016, 0.008, 0.004, 0.002):
        model = load_model(four_bar(time))
        state = at(model.q_reference, np.zeros(model.num_dofs))
        found = trajectory(model, state, duration, rows, 2000)[:, : model.num_q]
        errors.append(abs(found - expected).max())
    assert errors[-1] < 2e-3
    assert_allclose(np.divide(errors[1:-1], errors[2:]), 4, rtol=0.3)


# Activations.


def actuated(actuator: str) -> Model:
    return load_model(f"""
    <mujoco>
      <option gravity="0 0 0"/>
      <worldbody>
        <body>
          <joint name="joint" type="slide"/><inertial pos="0 0 0" mass="{MASS}" diaginertia="1 1 1"/>
        </body>
      </worldbody>
      <actuator>{actuator}</actuator>
    </mujoco>""")


@pytest.mark.parametrize("kind", ["filter", "filterexact", "integrator"])
def test_activation_follows_its_control(kind):
    """To u (1 - exp(-t / tau)), to rounding where exact; u t of an integrator; held to its range."""
    tau, control, duration = 0.1, 0.8, 0.17
    model = actuated(f'<general joint="joint" gainprm="3" dyntype="{kind}" dynprm="{tau}"/>')

    def activation(count):
        state = State(*(torch.zeros(1, 1, dtype=torch.float64),) * 2, activation=torch.zeros(1, 1, dtype=torch.float64))
        return advance(model, state, duration, count, [control]).activation.numpy()[0]

    if kind == "filter":
        exact = control * (1 - np.exp(-duration / tau))
        assert_converges(activation, [exact], [control / tau], duration)
    else:
        exact = control * (1 - np.exp(-duration / tau)) if kind == "filterexact" else control * duration
        assert_allclose(activation(7), exact, rtol=ROUNDING)
    held = actuated(
        f'<general joint="joint" gainprm="3" dyntype="{kind}" dynprm="{tau}" actlimited="true" actrange="-1 0.1"/>'
    )
    state = State(*(torch.zeros(1, 1, dtype=torch.float64),) * 2, activation=torch.zeros(1, 1, dtype=torch.float64))
    assert advance(held, state, 0.5, 50, [control]).activation.item() == 0.1


def test_substeps_with_activations_are_mujocos(every_bond: Model, rng: np.random.Generator):
    """Semi-implicit Euler as mj_step does it, actuators alone acting: forces, rates and ranges of every kind."""
    source, dt, worlds = every_bond.source, 2.0**-9, 8
    source.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONSTRAINT | mujoco.mjtDisableBit.mjDSBL_SPRING
    source.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_EULERDAMP
    source.opt.timestep = dt
    model = without_other_laws(every_bond)
    joint_q, joint_qd = lively_states(model, worlds, rng)
    activation = rng.uniform(-0.6, 0.6, (worlds, model.num_acts))
    control = rng.uniform(model.control_lower - 0.2, model.control_upper + 0.2)
    given = [torch.tensor(x) for x in (joint_q, joint_qd, activation)]
    state = State(given[0], given[1], activation=given[2])
    found = step(model, state, torch.tensor(np.tile(control, (worlds, 1))), 3 * dt, 3)
    data = mujoco.MjData(source)
    for world in range(worlds):
        mujoco.mj_resetData(source, data)
        data.qpos[:], data.qvel[:], data.act[:] = joint_q[world], joint_qd[world], activation[world]
        data.ctrl[:] = control
        mujoco.mj_step(source, data, 3)
        assert_allclose(found.activation[world], data.act, rtol=1e-12, atol=1e-12)
        assert_allclose(found.joint_qd[world], data.qvel, rtol=1e-9, atol=1e-9 * abs(data.qvel).max())


def without_other_laws(model: Model) -> Model:
    """Without what MuJoCo simulates by another law or not at all: contact, limits, springs, ties, bonds."""
    zero = np.zeros(model.num_joints)
    none = np.zeros(model.num_bonds)
    return replace(
        model, ground_height=None, joint_stiffness=zero, joint_limit_stiffness=zero,
        tie_stiffness=np.zeros(model.num_ties), tie_damping=np.zeros(model.num_ties), bond_stiffness=none,
        bond_damping=none, bond_turn_stiffness=none, bond_turn_damping=none,
    )  # fmt: skip


# Gravity compensation.


def test_a_borne_body_accelerates_as_in_mujoco():
    """One and a half times its weight: up by half of g, by hand, in whatever attitude."""
    body = BODY.format("a", "0.3 0 0", MASS, INERTIA).replace('name="a"', 'name="a" gravcomp="1.5"')
    model = load_model(bonded("", body.replace("</body>", '<body pos="0 0.2 0"/></body>'), "0 0 -9.81"))
    data = mujoco.MjData(model.source)
    data.qpos[:] = [0, 0, 0, 0.6, 0, 0.8, 0]
    mujoco.mj_forward(model.source, data)
    found = acceleration(model, data.qpos, np.zeros(6))
    assert_allclose(found, data.qacc, rtol=1e-9, atol=1e-9)
    assert_allclose(found, [0, 0, 0.5 * 9.81, 0, 0, 0], atol=1e-9)
