"""Actuators, their ranges, and ties between joints, as load_model reads them: MuJoCo and hand-worked numbers."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
from mujoco_frames import body_frames
from numpy.testing import assert_allclose, assert_array_equal
from small_robot import SECOND, TENDON, mjcf

from trot.sim.axis_constants import FRICTION_SPEED, LIMIT_STIFFNESS
from trot.sim.errors import ModelError
from trot.sim.load import load_model
from trot.sim.model import WORLD, Model
from trot.sim.ties import COUPLING_RATE


def random_q(model: Model, rng: np.random.Generator) -> np.ndarray:
    q = model.q_reference.copy()
    mujoco.mj_integratePos(model.source, q, rng.normal(0, 0.5, model.num_dofs), 1.0)
    return q


def test_motors_push_as_in_mujoco(every_joint):
    source, rng = every_joint.source, np.random.default_rng(3)
    muscles = every_joint.muscle_actuator
    control = rng.uniform(-2, 2, every_joint.num_controls)
    rest = np.zeros_like(control)
    rest[muscles] = control[muscles]
    forces = []
    for each in (control, rest):
        data = mujoco.MjData(source)
        data.qpos[:] = random_q(every_joint, np.random.default_rng(4))
        data.ctrl[:] = each
        mujoco.mj_forward(source, data)
        forces.append(data.qfrc_actuator.copy())
    clamped = np.clip(control, every_joint.control_lower, every_joint.control_upper)
    expected = np.zeros(every_joint.num_dofs)
    np.add.at(expected, every_joint.motor_dof, every_joint.motor_gear * clamped[every_joint.motor_actuator])
    assert_allclose(forces[0] - forces[1], expected, atol=1e-9)
    assert len(every_joint.motor_gear) == 4 + 2 * 3 + 4


def test_muscles_pull_as_in_mujoco(every_joint):
    source, rng = every_joint.source, np.random.default_rng(5)
    data = mujoco.MjData(source)
    data.ctrl[:] = rng.uniform(0, 2, every_joint.num_controls)
    mujoco.mj_forward(source, data)
    muscles = every_joint.muscle_actuator
    clamped = np.clip(data.ctrl, every_joint.control_lower, every_joint.control_upper)[muscles]
    tension = -data.actuator_force[muscles] * source.actuator_gear[muscles, 0]
    assert_allclose(every_joint.muscle_peak_force * clamped, tension)
    assert_allclose(every_joint.muscle_peak_force, [140, 0.9 * 320, 60, 75 * 1.1])


def test_segments_change_length_as_in_mujoco(every_joint):
    source, rng = every_joint.source, np.random.default_rng(6)
    lengths, ours = [], []
    for _ in range(2):
        q = random_q(every_joint, rng)
        data = mujoco.MjData(source)
        data.qpos[:] = q
        mujoco.mj_fwdPosition(source, data)
        lengths.append([data.ten_length[source.actuator_trnid[a, 0]] for a in every_joint.muscle_actuator])
        pos, rot = body_frames(every_joint, q)
        pos, rot = np.vstack([pos, np.zeros(3)]), np.concatenate([rot, np.eye(3)[None]])
        ends = pos[every_joint.segment_body] + np.einsum(
            "sebj,sej->seb", rot[every_joint.segment_body], every_joint.segment_point
        )
        length = np.linalg.norm(ends[:, 1] - ends[:, 0], axis=1)
        ours.append(np.bincount(every_joint.segment_muscle, length))
    assert_allclose(ours[1] - ours[0], np.subtract(lengths[1], lengths[0]), atol=1e-12)


def test_segments_within_a_body_are_dropped():
    """Of post, a, b, c only the ends are on different bodies; c sits on a welded body and so on the leg too."""
    tendon = '<spatial name="t"><site site="post"/><site site="a"/><site site="b"/><site site="c"/></spatial>'
    weld = '<body pos="0 0 0.5"><site name="c"/></body>'
    model = load_model(mjcf(weld, tendon=tendon, actuator='<motor name="m" tendon="t" gear="-5"/>'))
    assert_array_equal(model.segment_body, [[WORLD, 0]])
    assert_allclose(model.segment_point, [[[0.1, 0.2, 1], [0.3, 0, 0]]])


@pytest.mark.parametrize(
    ("actuator", "lower", "upper"),
    [
        ('<motor joint="knee"/>', -np.inf, np.inf),
        ('<motor joint="knee" ctrlrange="-1 2"/>', -1, 2),
        ('<motor joint="knee" ctrlrange="-1 2" gear="50"/>', -1, 2),
        ('<general joint="knee" gainprm="10" forcerange="-5 8"/>', -0.5, 0.8),
        ('<general joint="knee" gainprm="-10" forcerange="-5 8" ctrlrange="-0.6 3"/>', -0.6, 0.5),
        ('<motor tendon="t" gear="-20" ctrlrange="-1 0.7"/>', 0, 0.7),
        ('<motor tendon="t" gear="-20"/>', 0, 1),
        ('<motor tendon="t" gear="-20" ctrlrange="0 1.5"/>', 0, 1.5),
        ('<general tendon="t" gainprm="-20" forcerange="-30 0"/>', 0, 1.5),
        ('<muscle tendon="t" force="300" lengthrange="0.1 3"/>', 0, 1),
        ('<muscle tendon="t" force="300" lengthrange="0.1 3" ctrlrange="0.1 2"/>', 0.1, 1),
    ],
)
def test_control_range(actuator, lower, upper):
    model = load_model(mjcf(tendon=TENDON, actuator=actuator))
    assert model.control_lower == pytest.approx([lower])
    assert model.control_upper == pytest.approx([upper])


def test_force_range_of_a_tendon_is_that_of_its_only_muscle():
    tendon = TENDON.replace('"t"', '"t" actuatorfrcrange="-30 0"')
    model = load_model(mjcf(tendon=tendon, actuator='<general tendon="t" gainprm="-20" ctrlrange="0 9"/>'))
    assert (model.control_lower, model.control_upper) == ([0], [1.5])


def test_muscle_element_gives_its_peak_force():
    muscle = '<muscle tendon="t" force="300" gear="0.5" lengthrange="0.1 3"/>'
    model = load_model(mjcf(tendon=TENDON, actuator=muscle), muscles="tension")
    assert model.muscle_peak_force == [150] and model.num_hills == model.num_acts == 0
    (note,) = model.notes
    assert "without curves" in note


def test_a_muscle_keeps_its_curves():
    muscle = '<muscle name="m" tendon="t" force="300" gear="0.5" lengthrange="0.1 0.4" timeconst="0.02 0.05"/>'
    model = load_model(mjcf(tendon=TENDON, actuator=muscle))
    assert model.num_muscles == 0 and model.notes == ()
    assert_allclose(model.hill_peak_force, [300])
    assert_allclose(model.hill_gear, [0.5])
    assert_allclose(model.hill_best_length, [0.3 / (1.05 - 0.75)])
    assert_allclose(model.hill_curve, [[0.5, 1.6, 1.5, 1.3, 1.2]])
    assert_allclose(model.act_time, [[0.02, 0.05, 0]])
    assert model.default_state(3).activation.tolist() == [[0]] * 3


def test_peak_force_from_the_scale():
    model = load_model(mjcf(tendon=TENDON, actuator='<muscle tendon="t" scale="200" lengthrange="0.1 3"/>'))
    assert_allclose(model.hill_peak_force, [200 / model.source.actuator_acc0[0]])


def test_a_constant_tension_must_be_given():
    muscle = '<muscle name="m" tendon="t" lengthrange="0.1 3"/>'
    with pytest.raises(ModelError, match="'m' has no peak force"):
        load_model(mjcf(tendon=TENDON, actuator=muscle), muscles="tension")


def test_muscles_are_of_two_kinds():
    with pytest.raises(ValueError, match="muscles must be one of"):
        load_model(mjcf(), muscles="soft")


def test_joint_force_range_narrows_the_control_of_its_only_motor():
    joint = '<joint name="knee" actuatorfrcrange="-30 60"/>'
    model = load_model(mjcf(joint=joint, actuator='<motor joint="knee" gear="-20" ctrlrange="-1 1"/>'))
    assert model.control_lower == [-1]
    assert model.control_upper == [1]
    model = load_model(mjcf(joint=joint, actuator='<motor joint="knee" gear="-40" ctrlrange="-2 2"/>'))
    assert model.control_lower == pytest.approx([-1.5])
    assert model.control_upper == pytest.approx([0.75])
    assert load_model(mjcf(joint=joint)).num_controls == 0


def test_a_group_without_a_number_of_its_own_is_never_disabled():
    model = load_model(mjcf(top='<option actuatorgroupdisable="2"/>', actuator='<motor joint="knee" group="-1"/>'))
    assert model.num_controls == 1


def test_joint_force_range_narrows_the_force_of_its_only_servo():
    joint = '<joint name="knee" actuatorfrcrange="-30 60"/>'
    servo = '<position joint="knee" kp="9" gear="-20" forcerange="-2 5" ctrlrange="-7 8"/>'
    model = load_model(mjcf(joint=joint, actuator=servo))
    assert (model.servo_lower, model.servo_upper) == ([-2], [1.5])
    assert (model.control_lower, model.control_upper) == ([-7], [8])
    assert_array_equal(model.dof_force_lower, [-np.inf])


def test_joint_force_range_of_several_actuators_is_that_of_their_sum():
    joint = '<joint name="knee" actuatorfrcrange="-30 60"/>'
    model = load_model(mjcf(joint=joint, actuator='<motor joint="knee"/><position joint="knee" kp="9"/>'))
    assert (model.dof_force_lower, model.dof_force_upper) == ([-30], [60])
    assert_array_equal(model.control_upper, [np.inf, np.inf])


def test_servos_of_every_kind():
    """As gain and bias in MuJoCo's manual; dampratio 1 is 2 sqrt(kp I)."""
    actuators = """
      <position joint="knee" kp="9" kv="2"/><velocity joint="knee" kv="3"/><damper joint="knee" kv="4" ctrlrange="0 1"/>
      <position joint="knee" kp="9" dampratio="1"/><general joint="knee" biastype="affine" biasprm="1"/>
      <general joint="knee" biastype="affine" gaintype="affine" gainprm="7"/>"""
    model = load_model(mjcf(joint='<joint name="knee" armature="0.3"/>', actuator=actuators))
    inertia = 0.3 + model.body_inertia[0, 2, 2]
    assert_array_equal(model.servo_gain, [[9, 0, 0], [3, 0, 0], [0, 0, -4], [9, 0, 0], [1, 0, 0]])
    assert_allclose(model.servo_bias, [[0, -9, -2], [0, 0, -3], [0, 0, 0], [0, -9, -6 * np.sqrt(inertia)], [1, 0, 0]])
    assert_array_equal(model.motor_gear, [7])
    assert_array_equal(model.motor_actuator, [5])


def test_actuators_of_a_fixed_tendon_drive_its_joints():
    tendon = '<fixed name="f"><joint joint="knee" coef="2"/><joint joint="elbow" coef="-3"/></fixed>'
    actuators = '<motor tendon="f" gear="5" forcerange="-1 2"/><velocity tendon="f" kv="7" gear="0.5"/>'
    model = load_model(mjcf(SECOND, tendon=tendon, actuator=actuators))
    assert_array_equal(model.motor_gear, [10, -15])
    assert_array_equal(model.control_lower, [-1, -np.inf])
    assert_array_equal(model.drive_gear, [1, -1.5])
    assert_array_equal(model.drive_dof, [0, 1])
    assert model.num_ties == 0


# Ties.


def test_user_numbers_of_joints_and_tendons():
    tendon = '<fixed name="f" range="-1 2" user="5 6 7"><joint joint="knee" coef="2"/></fixed>'
    model = load_model(mjcf(SECOND, joint='<joint name="knee" user="3 4"/>', tendon=tendon))
    assert_array_equal(model.joint_limit_stiffness, [3, LIMIT_STIFFNESS])
    assert_array_equal(model.joint_limit_damping, [4, 0])
    assert_array_equal(model.joint_friction_speed, [FRICTION_SPEED, FRICTION_SPEED])
    assert (model.tie_limit_stiffness, model.tie_limit_damping, model.tie_friction_speed) == ([5], [6], [7])
    assert_array_equal(model.tie_limits, [[-1, 2]])


def test_equality_is_a_critically_damped_spring_on_its_inertia():
    """The leg alone carries the arm: moving the elbow against a held knee takes the arm's inertia I.

    Both are free to turn about one axis, so 1 / (J M^-1 J^T) with M = [[A + I, I], [I, I]] and J = (-2, 1), A being
    the leg's: M^-1 = [[1, -1], [-1, 1 + A / I]] / A.
    """
    equality = '<equality><joint name="gear" joint1="elbow" joint2="knee" polycoef="0.1 2 0 0 0"/></equality>'
    model = load_model(mjcf(SECOND, top=equality, world=""))
    leg, arm = model.body_inertia[:, 2, 2]
    inertia = leg / (4 + 4 + 1 + leg / arm)
    assert_allclose(model.tie_stiffness, [inertia * COUPLING_RATE**2])
    assert_allclose(model.tie_damping, [inertia * COUPLING_RATE * 2])
    spring, damper = (f"{value:.3g}" for value in (inertia * COUPLING_RATE**2, inertia * COUPLING_RATE * 2))
    assert model.notes == (
        f"equality 'gear' holds joint 'elbow' to 'knee' by a spring of {spring} and a damper of {damper}, which give "
        "way under load.",
    )


@pytest.mark.parametrize("flag", ["frictionloss", "equality", "limit", "constraint"])
def test_ties_and_friction_switched_off_in_the_file(flag):
    tendon = '<fixed name="f" range="-1 2" frictionloss="2"><joint joint="knee" coef="2"/></fixed>'
    top = f'<option><flag {flag}="disable"/></option><equality><joint joint1="elbow" joint2="knee"/></equality>'
    model = load_model(mjcf(SECOND, joint='<joint name="knee" frictionloss="1"/>', tendon=tendon, top=top))
    rubs, couples, ends = (flag not in (name, "constraint") for name in ("frictionloss", "equality", "limit"))
    assert ((model.dof_friction[0] == 1), (model.num_ties == (rubs or ends) + couples)) == (rubs, True)
    if rubs or ends:
        assert (model.tie_friction[0] == 2, np.isfinite(model.tie_limits[0, 0])) == (rubs, ends)


def test_friction_is_told():
    joints = '<joint name="knee" frictionloss="1"/><joint name="hip" axis="0 1 0" frictionloss="2"/>'
    assert load_model(mjcf(joint=joints)).notes == (
        "frictionloss of joints 'knee' and 'hip' is smooth: full from 0.1 rad/s or m/s on, and a joint at rest creeps.",
    )


@pytest.mark.parametrize(
    ("sizes", "read"), [("", True), ('nuser_jnt="3" nuser_tendon="3"', True), ('nuser_jnt="1" nuser_tendon="1"', False)]
)
def test_user_numbers_of_another_program(sizes, read):
    """Files of the Shadow hand number their joints and tendons so, and say that each has one number."""
    tendon = '<fixed name="f" range="-1 2" user="1237"><joint joint="knee" coef="2"/></fixed>'
    top = f"<size {sizes}/>" if sizes else ""
    model = load_model(mjcf(joint='<joint name="knee" user="1123"/>', tendon=tendon, top=top))
    assert model.joint_limit_stiffness == [1123 if read else LIMIT_STIFFNESS]
    assert model.tie_limit_stiffness == [1237 if read else LIMIT_STIFFNESS]
    assert len(model.notes) == (0 if read else 2)
    assert read or model.notes[0].startswith("user of joint 'knee' is not read: the file counts such numbers by <size")
