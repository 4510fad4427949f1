"""How many substeps a robot takes: bounds worked by hand, and motions that grow just beyond them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from trot.sim.drop_test import drop_test
from trot.sim.load import load_model
from trot.sim.model import Model
from trot.sim.state import State
from trot.sim.step import step
from trot.sim.substep_advice import COMFORTABLE, tell_stiff_friction, tell_stiff_terms
from trot.sim.substeps import BOUNCE, LEAST, SAFETY, Substeps, suggest_substeps

DT = 1 / 60

SLED = """
<mujoco>
  <option gravity="0 0 {gravity}"/>
  <worldbody>
    {ground}
    <body name="sled" pos="0 0 {height}">
      <joint name="lift" type="slide" axis="0 0 1" {lift}/>
      <joint name="run" type="slide" axis="1 0 0" {run}/>
      <geom name="ball" size="0.1" mass="2" condim="{condim}" user="{user}"/>
    </body>
  </worldbody>
</mujoco>"""


GROUND = '<geom type="plane" size="0 0 1"/>'


def sled(
    user: str = "", condim: int = 1, gravity: float = 0, height: float = 0.1, lift: str = "", run: str = ""
) -> Model:
    """A ball of 2 kg that may rise and run, but not turn; over the ground if it has constants for that."""
    ground = GROUND if user else ""
    return load_model(
        SLED.format(ground=ground, user=user, condim=condim, gravity=gravity, height=height, lift=lift, run=run)
    )


PENDULUM = """
<mujoco>
  <option gravity="0 0 0"/>
  <worldbody>
    <body>
      <joint name="swing" axis="0 1 0" armature="0.1"/>
      <inertial pos="0 0 -0.5" mass="2" diaginertia="0.01 0.02 0.01"/>
      <geom size="0.1" contype="0" conaffinity="0"/>
    </body>
  </worldbody>
  <actuator><position joint="swing" gear="2" kp="{kp}" kv="{kv}"/></actuator>
</mujoco>"""
INERTIA = 0.1 + 0.02 + 2 * 0.5**2


def one_mass(inertia: float, stiffness: float, damping: float) -> float:
    """The longest substep: both roots of z^2 - (2 - a - b) z + 1 - a lie in the unit circle while 2 a + b < 4."""
    rate, square = damping / inertia, stiffness / inertia
    return 4 / (rate + math.sqrt(rate**2 + 4 * square))


def term(found: Substeps, name: str) -> float:
    return next(term.longest for term in found.terms if term.name == name)


def test_a_mass_on_a_contact_spring() -> None:
    found = suggest_substeps(sled("1e4 0 0"))
    assert [term.name for term in found.terms] == ["contact of geom 'ball'"]
    assert_allclose(found.longest, 2 / math.sqrt(1e4 / 2), rtol=1e-6)
    assert_allclose(found.terms[0].longest, found.longest)
    stiff = suggest_substeps(sled("1e7 0 0"))
    assert stiff.count == math.ceil(BOUNCE * DT * math.sqrt(1e7 / 2) / 2) == stiff.without_friction == 112


def test_contact_damping_counts_at_the_depth_of_a_hard_landing() -> None:
    """Three times the weight of 2 kg sinks in by 3 * 2 * 10 / 1e4 m."""
    found = suggest_substeps(sled("1e4 5e5 0", gravity=-10))
    assert_allclose(found.longest, one_mass(2, 1e4, 5e5 * 6e-3), rtol=1e-6)


def test_a_servo_on_a_pendulum() -> None:
    """A gear of 2 counts twice: in the length, and in the force."""
    found = suggest_substeps(load_model(PENDULUM.format(kp=5e4, kv=30)), 0.02)
    expected = one_mass(INERTIA, 4 * 5e4, 4 * 30)
    assert_allclose(found.longest, expected, rtol=1e-9)
    assert found.terms[0].name == "servo 'actuator0'"
    assert found.count == math.ceil(SAFETY * 0.02 / expected)


@pytest.mark.parametrize(
    ("attributes", "name", "stiffness", "damping"),
    [
        ('damping="400"', "damping of joint 'run'", 0, 400),
        ('stiffness="3e6"', "spring of joint 'run'", 3e6, 0),
        ('range="-1 1" limited="true" user="4e6"', "limit of joint 'run'", 4e6, 0),
        ('range="-1 1" limited="true" user="4e6 5e3"', "limit of joint 'run'", 4e6, 0.1 * 5e3),
        ('frictionloss="7" user="1e3 0 0.02"', "dry friction of joint 'run'", 0, 1.5 * 7 / 0.02),
        ('damping="100" armature="6"', "damping of joint 'run'", 0, 100 / 4),
    ],
    ids=["damping", "spring", "limit", "damped limit", "dry friction", "armature"],
)
def test_what_acts_on_a_joint(attributes: str, name: str, stiffness: float, damping: float) -> None:
    found = suggest_substeps(sled(run=attributes))
    assert_allclose(term(found, name), one_mass(2, stiffness, damping), rtol=1e-9)
    assert found.terms[0].name == name


def advised(model: Model) -> str:
    told = tell_stiff_terms(suggest_substeps(model))
    assert told is not None
    return told


def test_what_is_too_stiff_is_told_with_numbers_that_do() -> None:
    """A damper c on a mass m bears substeps of 2 m / c, of which 1.5 are to be in each of COMFORTABLE ones."""
    told = advised(sled(run='damping="1e6"', lift='damping="1e5"'))
    most = 2 * 2 / (SAFETY * DT / COMFORTABLE)
    assert f"damping of joint 'run' has damping 1e+06 (at most {most:.2g})" in told
    assert f"damping of joint 'lift' has damping 1e+05 (at most {most:.2g})" in told
    assert "implicitly" in told
    calm = f'damping="{most}"'
    assert suggest_substeps(sled(run=calm, lift=calm)).count == COMFORTABLE
    # The armature, too, is what the sentence says.
    armature = told.partition("armature of about ")[2].split()[0]
    heavy = suggest_substeps(sled(run=f'damping="1e6" armature="{armature}"'))
    assert heavy.count == pytest.approx(COMFORTABLE, rel=0.05)


def test_limits_are_advised_with_the_margin_of_what_bounces() -> None:
    told = advised(sled(run='range="-1 1" limited="true" user="4e7"'))
    most = 4 * 2 / (BOUNCE * DT / COMFORTABLE) ** 2
    assert f"limit of joint 'run' has stiffness 4e+07 (at most {most:.2g})" in told
    assert "implicitly" not in told
    armature = float(told.partition("armature of about ")[2].split()[0])
    heavy = suggest_substeps(sled(run=f'range="-1 1" limited="true" user="4e7" armature="{armature}"'))
    assert heavy.count == pytest.approx(COMFORTABLE, rel=0.05)


def test_dry_friction_is_less_steep_at_a_larger_speed() -> None:
    told = advised(sled(run='frictionloss="70" user="1e3 0 0.001"'))
    assert "dry friction of joint 'run' has damping 1.05e+05" in told and "third user number" in told
    assert suggest_substeps(sled(run='frictionloss="70" user="1e3 0 1"')).count < COMFORTABLE


def test_a_gear_counts_in_the_armature_that_is_advised() -> None:
    text = PENDULUM.format(kp=1e7, kv=0)
    armature = float(advised(load_model(text)).partition("armature of about ")[2].split()[0])
    assert "for 'swing'" in advised(load_model(text))
    heavy = load_model(text.replace('armature="0.1"', f'armature="{0.1 + armature}"'))
    assert suggest_substeps(heavy).count == pytest.approx(COMFORTABLE, rel=0.05)


def test_nothing_is_advised_where_few_substeps_do_or_a_contact_decides() -> None:
    assert tell_stiff_terms(suggest_substeps(sled(run='damping="400"'))) is None
    assert tell_stiff_terms(suggest_substeps(sled("1e9 0 0"))) is None


def test_friction_of_a_contact() -> None:
    found = suggest_substeps(sled("1e4 0 500", condim=3))
    assert_allclose(term(found, "friction of geom 'ball'"), 2 * 2 / 500, rtol=1e-9)
    assert found.terms[0].name == "friction of geom 'ball'"
    slippery = suggest_substeps(sled("1e4 0 0"))
    assert found.without_friction == slippery.count


def test_points_of_a_body_push_together() -> None:
    """A crate that cannot turn stands on four corners; tilted, on one: the four decide."""
    crate = SLED.replace('size="0.1"', 'type="box" size="0.1 0.1 0.1"')
    model = load_model(crate.format(ground=GROUND, user="1e5 0 0", condim=1, gravity=0, height=0.1, lift="", run=""))
    assert_allclose(suggest_substeps(model).longest, 2 / math.sqrt(4 * 1e5 / 2), rtol=1e-6)


def test_a_tendon_between_two_carts() -> None:
    """It moves the reduced mass: 1 kg and 3 kg are 0.75 kg."""
    model = load_model("""
    <mujoco>
      <worldbody>
        <body><joint name="a" type="slide"/><geom size="0.1" mass="1"/></body>
        <body><joint name="b" type="slide"/><geom size="0.1" mass="3"/></body>
      </worldbody>
      <tendon>
        <fixed name="link" stiffness="6e6" damping="20"><joint joint="a" coef="1"/><joint joint="b" coef="-1"/></fixed>
      </tendon>
    </mujoco>""")
    found = suggest_substeps(model)
    assert_allclose(found.longest, one_mass(0.75, 6e6, 20), rtol=1e-9)
    assert found.terms[0].name == "tendon 'link'"


def test_springs_that_add_up_are_taken_together() -> None:
    found = suggest_substeps(sled(run='stiffness="3e6" damping="400"'))
    assert_allclose(found.longest, one_mass(2, 3e6, 400), rtol=1e-9)
    assert found.longest < min(term.longest for term in found.terms)


def test_nothing_stiff() -> None:
    found = suggest_substeps(sled(user="10 0 0"))
    assert found.count == LEAST
    assert found.sentence() == "4 for a control step of 16.7 ms; nothing is stiff enough to ask for more"


def test_the_sentence_names_what_decides_and_one_of_each_other_kind() -> None:
    found = suggest_substeps(sled("2e4 0 900", condim=3, run='damping="100"', lift='damping="50"'))
    assert found.sentence() == (
        "7 for a control step of 16.7 ms. What decides, with the longest substep that it bears alone: friction of geom "
        "'ball', 4.4 ms; next: contact of geom 'ball', 20 ms; damping of joint 'run', 40 ms"
    )


def test_stiff_friction_of_a_light_robot_is_told_with_what_helps() -> None:
    model = sled("1e4 0 5e4", condim=3)
    found = suggest_substeps(model)
    assert found.count == math.ceil(SAFETY * DT * 5e4 / 4) == 313
    advice = tell_stiff_friction(model, found)
    assert advice is not None and "--contact 10000 0 5100" in advice
    assert suggest_substeps(sled("1e4 0 5.1e3", condim=3)).count == pytest.approx(32, abs=1)
    assert tell_stiff_friction(sled(), suggest_substeps(sled())) is None


def growth(model: Model, count: int, pushed: str, substep: float) -> float:
    """How much farther than at first a motion swings at the end, from a push of 1e-6."""
    state = model.default_state(1, dtype=torch.float64)
    state.joint_qd[:, model.dof_name.index(pushed)] = 1e-6
    control = torch.zeros(1, model.num_controls, dtype=torch.float64)
    swings = []
    for _ in range(count):
        state = step(model, state, control, substep, 1)
        swings.append(float(state.joint_qd.abs().max()))
    return max(swings[-20:]) / max(swings[:20])


def resting(model: Model, depth: float) -> Model:
    model.default_q.setflags(write=True)
    model.default_q[0] = -depth
    return model


@pytest.mark.parametrize(
    ("model", "pushed"),
    [
        (lambda: resting(sled("1e4 0 0", gravity=-10), 2 * 10 / 1e4), "lift"),
        (lambda: sled(run='damping="400"'), "run"),
        (lambda: load_model(PENDULUM.format(kp=5e4, kv=30)), "swing"),
    ],
    ids=["contact", "damping", "servo"],
)
def test_motions_grow_beyond_the_longest_substep_and_not_below(model, pushed: str) -> None:
    """Two hundredths to either side of the bound."""
    robot = model()
    longest = suggest_substeps(robot).longest
    assert growth(robot, 400, pushed, 0.98 * longest) < 1.01
    assert growth(robot, 400, pushed, 1.02 * longest) > 100


@pytest.mark.parametrize("user", ["1e7 0 0", "1e7 1e5 0"])
def test_a_drop_is_calm_with_the_substeps_suggested_and_not_with_a_quarter(user: str) -> None:
    robot = sled(user, gravity=-10, height=0.2)
    count = suggest_substeps(robot, DT).count
    assert drop_test(robot, DT, count).passes
    assert not drop_test(robot, DT, count // 4).passes


def test_a_damper_blows_up_with_a_quarter() -> None:
    robot = sled(run='damping="4000"')
    count = suggest_substeps(robot, DT).count
    state = State(torch.zeros(1, 2, dtype=torch.float64), torch.tensor([[0.0, 1.0]], dtype=torch.float64))
    control = torch.zeros(1, 0, dtype=torch.float64)
    calm = wild = state
    for _ in range(120):
        calm, wild = step(robot, calm, control, DT, count), step(robot, wild, control, DT, count // 4)
    assert np.abs(calm.joint_qd.numpy()).max() < 1e-6
    assert not np.abs(wild.joint_qd.numpy()).max() < 1e6


def test_a_mass_held_by_a_bond() -> None:
    """At its centre, so that the spring moves 2 kg; it turns by an inertia of 0.05, the least, that the weld holds."""
    text = """
    <mujoco>
      <option gravity="0 0 0"/>
      <worldbody>
        <body name="box"><freejoint/><inertial pos="0 0 0" mass="2" diaginertia="0.05 0.06 0.07"/></body>
      </worldbody>
      <equality>{}</equality>
    </mujoco>"""
    held = load_model(text.format('<connect body1="box" anchor="0 0 0" solref="-6e5 -300"/>'))
    stiffness, damping = held.bond_stiffness[0], held.bond_damping[0]
    found = suggest_substeps(held)
    assert_allclose(found.longest, one_mass(2, stiffness, damping), rtol=1e-9)
    assert found.terms[0].name.endswith("(connect)") and found.count == math.ceil(SAFETY * DT / found.longest) > LEAST
    welded = load_model(text.format('<weld body1="box" solref="-6e5 -300" torquescale="3"/>'))
    by_turning = one_mass(0.05, welded.bond_turn_stiffness[0], welded.bond_turn_damping[0])
    assert_allclose(suggest_substeps(welded).longest, by_turning, rtol=1e-9)
    assert by_turning < one_mass(2, welded.bond_stiffness[0], welded.bond_damping[0])


def test_a_filter_that_is_exact_bears_any_substep() -> None:
    text = """
    <mujoco>
      <worldbody><body><joint name="j" axis="0 1 0"/><geom size="0.1" contype="0" conaffinity="0"/></body></worldbody>
      <actuator><general name="motor" joint="j" dyntype="{}" dynprm="0.001"/></actuator>
    </mujoco>"""
    assert term(suggest_substeps(load_model(text.format("filter"))), "activation of 'motor'") == 0.001
    assert suggest_substeps(load_model(text.format("filterexact"))).count == LEAST
