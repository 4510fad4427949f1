"""Equalities of bodies and fixed tendons, mocap bodies, and actuators with activations, as load_model reads them."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
from bonded_robots import FIRST, SECOND, bonded
from numpy.testing import assert_allclose, assert_array_equal
from small_robot import PLANE, mjcf
from small_robot import SECOND as ARM

from trot.sim.load import ModelError, load_model
from trot.sim.model import WORLD, ActKind

BALL = (
    '<body name="ball" pos="0 0 1"><freejoint/><inertial pos="0 0 0" mass="{mass}" diaginertia="0.3 0.2 0.4"/></body>'
)


def test_a_free_bodys_bond_has_its_mass():
    """Of k = m / (timeconst dampratio)^2 and c = 2 m / timeconst; turning, of the least inertia."""
    weld = '<weld body1="ball" solref="0.05 0.8"/>'
    model = load_model(bonded(weld, BALL.format(mass=3)))
    assert_allclose(model.bond_stiffness, [3 / 0.04**2])
    assert_allclose(model.bond_damping, [2 * 3 / 0.05])
    assert_allclose(model.bond_turn_stiffness, [0.2 / 0.04**2])
    assert_allclose(model.bond_turn_damping, [2 * 0.2 / 0.05])
    assert_array_equal(model.bond_body, [[0, WORLD]])
    assert model.notes == (
        "equality 'equality0' (weld) holds bodies 'ball' and 'world' by a spring of 1.87e+03 N/m and a damper of "
        "120 N s/m, 125 N m/rad and 8 N m s/rad, which give way under load.",
    )


def test_a_weld_to_the_world_acts_at_the_body():
    """MuJoCo's anchor is the world's origin there, 1 m away; the two hold the same pose."""
    bodies = BALL.format(mass=3).replace("<freejoint/>", '<freejoint/><site name="s"/>')
    turned = '<weld body1="ball" relpose="1 2 3 0 1 0 0"/>'
    model = load_model(bonded(turned, bodies))
    # The world seen from the ball lies at 1 2 3 and is turned by half a turn about x.
    assert_allclose(model.bond_point[0], [[0, 0, 0], [-1, 2, 3]], atol=1e-12)
    given = load_model(bonded(turned.replace("/>", ' anchor="0 0 0.5"/>'), bodies))
    assert_allclose(given.bond_point[0, 1], [0, 0, 0.5])


def test_off_its_centre_a_body_is_lighter():
    """At a distance r from the centre of mass, across it, 1 / (1 / m + r^2 / I) with the least I."""
    model = load_model(bonded('<connect body1="ball" anchor="0 0 0.5" solref="-1 -1"/>', BALL.format(mass=3)))
    assert_allclose(model.bond_stiffness, [1 / (1 / 3 + 0.25 / 0.2)])
    assert_array_equal(model.bond_turn_stiffness, [0])


def test_between_two_bodies_it_is_the_reduced_mass():
    two = BALL.format(mass=3) + BALL.format(mass=6).replace("ball", "other")
    model = load_model(bonded('<weld body1="ball" body2="other" solref="-100 -7" torquescale="0.5"/>', two))
    assert_allclose(model.bond_stiffness, [100 * 2])
    assert_allclose(model.bond_damping, [7 * 2])
    assert_allclose(model.bond_turn_stiffness, [100 * 0.1 * 0.5])
    assert_allclose(model.bond_turn_damping, [7 * 0.1 * 0.5])


@pytest.mark.parametrize(
    ("solref", "option", "time"),
    [("0.001 1", "", 0.01), ("0.001 1", '<option><flag refsafe="disable"/></option>', 0.001), ("0.1 -1", "", 0.02)],
)
def test_time_constants_that_mujoco_changes(solref, option, time):
    """Not below two of the file's time steps, unless refsafe is disabled; the default where the two signs differ."""
    text = bonded(f'<connect body1="ball" anchor="0 0 0" solref="{solref}"/>', BALL.format(mass=1), timestep=0.005)
    model = load_model(text.replace("<worldbody>", f"{option}<worldbody>"))
    assert_allclose(model.bond_stiffness, [1 / time**2])


def test_welded_parts_belong_to_the_body_that_carries_them():
    """A part 0.2 m beside the body's origin, turned by 90 degrees: anchors and frames are the body's own."""
    part = '<body name="part" pos="0.2 0 0" euler="0 0 90"/>'
    body = BALL.format(mass=2).replace("</body>", part + "</body>")
    model = load_model(bonded('<weld body1="world" body2="part" anchor="0.1 0 0"/>', body))
    assert_array_equal(model.bond_body, [[WORLD, 0]])
    assert_allclose(model.bond_point[0], [[0.2, 0.1, 1], [0.2, 0.1, 0]], atol=1e-12)
    half = np.sqrt(0.5)
    assert_allclose(model.bond_quat[0], [[half, 0, 0, half]] * 2, atol=1e-12)


def test_what_does_nothing_is_told():
    still = '<body name="post"><geom size="0.1"/></body><body name="stone"><geom size="0.1"/></body>'
    part = '<body name="part"/></body>'
    bodies = FIRST.replace("</body>", part) + SECOND + still
    bonds = (
        '<weld name="a" body1="post" body2="stone"/><connect name="b" body1="first" body2="part" anchor="0 0 0"/>'
        '<weld name="c" body1="first" body2="second" active="false"/><joint name="d" joint1="x" active="false"/>'
    )
    bodies += '<body><joint name="x"/><geom size="0.1" contype="0" conaffinity="0"/></body>'
    model = load_model(bonded(bonds, bodies))
    assert model.num_bonds == 0
    for sentence in (
        "equalities 'c' and 'd' are not active in the file and left out.",
        "equality 'a' (weld) does nothing: bodies 'post' and 'stone' are both fixed to the world.",
        "equality 'b' (connect) does nothing: bodies 'first' and 'part' are parts of one body.",
    ):
        assert sentence in model.notes


def test_switched_off_in_the_file():
    text = bonded('<weld body1="first" body2="second"/>')
    for flag in ("equality", "constraint"):
        option = f'<option><flag {flag}="disable"/></option><worldbody>'
        assert load_model(text.replace("<worldbody>", option)).num_bonds == 0


def test_ends_that_begin_apart_are_told():
    model = load_model(bonded('<connect name="pull" site1="first" site2="second"/>'))
    (gap,) = [note for note in model.notes if "begins" in note]
    assert gap.startswith("equality 'pull' (connect) begins 0.") and gap.endswith("pull from the start.")


def test_a_mocap_body_stays_and_is_touched():
    hand = '<body name="hand" mocap="true" pos="0.3 0 0"><geom name="palm" size="0.1"/></body>'
    model = load_model(mjcf(world=PLANE + hand))
    assert "mocap body 'hand' stays where the file puts it." in model.notes
    assert model.pair_name == ("palm, ball",)
    assert_allclose(model.feeler_pos[model.feeler_body == WORLD], [[0.3, 0, 0]])


def test_an_equality_of_fixed_tendons():
    """(2 q1 + 3 q2) - its reference = 0.1 + 0.5 times the other's."""
    tendon = (
        '<fixed name="f"><joint joint="knee" coef="2"/><joint joint="elbow" coef="3"/></fixed>'
        '<fixed name="g"><joint joint="elbow" coef="4"/></fixed>'
    )
    equality = '<equality><tendon name="same" tendon1="f" tendon2="g" polycoef="0.1 0.5 0 0 0"/></equality>'
    model = load_model(mjcf(ARM, joint='<joint name="knee" ref="0.7"/>', tendon=tendon, top=equality))
    assert_array_equal(model.strand_joint, [0, 1, 1])
    assert_allclose(model.strand_coefficient[:, :2], [[-0.1, 2], [0, 3], [0, -2]])
    assert_allclose(model.strand_reference, model.q_reference[[0, 1, 1]])
    assert any(note.startswith("equality 'same' holds tendon 'f' to 'g' by a spring of") for note in model.notes)


# Activations.


@pytest.mark.parametrize(
    ("actuator", "kind", "time", "bounds"),
    [
        ('<position joint="knee" kp="9" timeconst="0.1"/>', ActKind.EXACT_FILTER, 0.1, (-np.inf, np.inf)),
        ('<cylinder joint="knee" timeconst="0.2"/>', ActKind.FILTER, 0.2, (-np.inf, np.inf)),
        ('<intvelocity joint="knee" kp="9" actrange="-1 2"/>', ActKind.INTEGRATOR, 0, (-1, 2)),
        ('<general joint="knee" dyntype="filter" dynprm="0.3"/>', ActKind.FILTER, 0.3, (-np.inf, np.inf)),
    ],
)
def test_activations(actuator, kind, time, bounds):
    model = load_model(mjcf(actuator=actuator))
    assert (model.act_kind, model.servo_act, model.act_actuator) == ([kind], [0], [0])
    assert_array_equal(model.act_time, [[time, time, 0]])
    assert_array_equal(model.act_range, [bounds])
    assert len(model.motor_dof) == 0 and model.default_state(2).activation.tolist() == [[0], [0]]


def test_a_keyframes_activation_is_not_read():
    keys = '<keyframe><key name="home" qpos="0.5" act="0.3"/></keyframe>'
    actuator = '<general joint="knee" dyntype="integrator"/>'
    model = load_model(mjcf(actuator=actuator, top=keys), keyframe="home")
    assert "act of keyframe 'home' is not read: activations begin at 0." in model.notes


def test_jointinparent_of_a_hinge_is_the_joint():
    model = load_model(mjcf(actuator='<motor name="m" jointinparent="knee" gear="3"/>'))
    assert (model.motor_dof, model.motor_gear) == ([0], [3])


def test_a_body_without_mass_is_refused_with_its_bond():
    with pytest.raises(ModelError):
        load_model(bonded('<weld body1="first" body2="second"/>', FIRST.replace('mass="2"', 'mass="nan"') + SECOND))


# Gravity compensation.


def test_the_weight_of_welded_parts_is_borne_where_they_are():
    """0.5 of 2 kg at the body's own origin, and all of 3 kg beside it."""
    parts = '<body name="part" pos="0.2 0 0" gravcomp="1"><inertial pos="0 0.1 0" mass="3" diaginertia="1 1 1"/></body>'
    body = (
        BALL.format(mass=2).replace('name="ball"', 'name="ball" gravcomp="0.5"').replace("</body>", parts + "</body>")
    )
    model = load_model(bonded("", body))
    assert_allclose(model.body_lift, [1 + 3])
    assert_allclose(model.body_lift_pos, [[0.6 / 4, 0.3 / 4, 0]])


@pytest.mark.parametrize(("flags", "lift"), [('spring="disable"', 1), ('spring="disable" damper="disable"', 0)])
def test_no_passive_forces_no_gravcomp(flags, lift):
    """As MuJoCo has it."""
    body = BALL.format(mass=1).replace('name="ball"', 'name="ball" gravcomp="1"')
    model = load_model(f"<mujoco><option><flag {flags}/></option><worldbody>{body}</worldbody></mujoco>")
    assert_allclose(model.body_lift, [lift])


@pytest.mark.parametrize("shares", [(-0.5, 0.0), (-0.5, 0.25), (0.5, 0.25)])
def test_weight_is_added_only_where_some_is_borne(shares):
    """As MuJoCo has it, which looks for shares above 0 first."""
    bodies = "".join(
        BALL.format(mass=2).replace('name="ball"', f'name="ball{k}" gravcomp="{share}"')
        for k, share in enumerate(shares)
    )
    model = load_model(f"<mujoco><worldbody>{bodies}</worldbody></mujoco>")
    data = mujoco.MjData(model.source)
    mujoco.mj_forward(model.source, data)
    assert_allclose(model.body_lift * 9.81, data.qfrc_gravcomp.reshape(2, 6)[:, 2])
