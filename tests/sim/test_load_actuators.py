"""Motors, muscles and their control ranges, as load_model reads them, against MuJoCo and hand-worked numbers."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
from mujoco_frames import body_frames
from numpy.testing import assert_allclose, assert_array_equal
from small_robot import TENDON, mjcf

from trot.sim.errors import ModelError
from trot.sim.load import load_model
from trot.sim.model import WORLD, Model


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
