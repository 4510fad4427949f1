"""Does a robot move as in MuJoCo? Accelerations of both at random states, without what they simulate by other laws."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import mujoco
import numpy as np
import torch

from trot.sim.build import Variant
from trot.sim.launch import launcher
from trot.sim.model import Floats, JointType, Model
from trot.sim.programs import BACKWARD, FORWARD, Program
from trot.sim.step import Pass, Physics

NUM_STATES = 8
"""Random states at which accelerations are compared."""
LEAST_ACCELERATION = 1e-3
"""m/s^2 or rad/s^2. What nothing pushes does not accelerate but for rounding: errors are relative to this at least."""
AS_GOOD_AS_NONE = 1e-30
"""A coefficient that changes nothing. Zero would be another robot to the kernels, which would be compiled again."""


@dataclass(frozen=True)
class AccelerationError:
    """The largest difference from MuJoCo's accelerations."""

    relative: float
    """To the largest acceleration in the same state."""
    dof: str
    ours: float
    theirs: float


def compare_accelerations(model: Model, programs: tuple[Program, ...] = (FORWARD, BACKWARD)) -> AccelerationError:
    """Against mj_forward at random states, without what the two simulate by different laws.

    These are contacts, limits, dry friction and MuJoCo's other constraints, springs of ball joints, and the curves of
    muscles that were loaded without them. FORWARD alone compiles in half the time; with both, kernels are those that a
    check of gradients needs as well.
    """
    theirs = _without_other_laws(model)
    rng = np.random.default_rng(0)
    joint_q = np.array([_random_pose(theirs, model, rng) for _ in range(NUM_STATES)])
    joint_qd = rng.normal(size=(NUM_STATES, model.num_dofs))
    lower, upper = model.sample_range()
    control = rng.uniform(lower, upper, (NUM_STATES, model.num_controls))
    activation = rng.uniform(size=(NUM_STATES, model.num_acts))
    # In one substep of one second the velocities change by the acceleration itself.
    run = launcher(_without_own_laws(model), Variant(torch.float64), torch.device("cpu"), programs)
    activated = torch.tensor(activation) if model.num_acts else None
    given = (torch.tensor(joint_q), torch.tensor(joint_qd), torch.tensor(control))
    one_second = Pass(Physics(run, control_dt=1.0, substeps=1), *given, parameter=None, activation=activated)
    after = one_second.forward(keep=False)[1].numpy()
    worst = AccelerationError(0.0, model.dof_name[0], 0.0, 0.0)
    data = mujoco.MjData(theirs)
    for world, found in enumerate(after - joint_qd):
        data.qpos[:], data.qvel[:], data.ctrl[:] = joint_q[world], joint_qd[world], control[world]
        # Muscles of constant tension have states there and none here.
        data.act[:] = 0
        data.act[theirs.actuator_actadr[model.act_actuator]] = activation[world]
        mujoco.mj_forward(theirs, data)
        gaps = np.nan_to_num(abs(found - data.qacc), nan=np.inf)
        dof = int(gaps.argmax())
        relative = float(gaps[dof] / max(abs(data.qacc).max(), LEAST_ACCELERATION))
        if relative > worst.relative:
            worst = AccelerationError(relative, model.dof_name[dof], float(found[dof]), float(data.qacc[dof]))
    return worst


def _without_own_laws(model: Model) -> Model:
    is_tendon = np.array([name.startswith("tendon") for name in model.tie_name], bool)
    return replace(
        model,
        ground_height=None,
        pair_stiffness=np.zeros(model.num_pairs),
        pair_damping=np.zeros(model.num_pairs),
        joint_stiffness=np.where(_is_ball(model), _hardly(model.joint_stiffness), model.joint_stiffness),
        joint_limit_stiffness=np.zeros(model.num_joints),
        joint_limit_damping=_hardly(model.joint_limit_damping),
        dof_friction=_hardly(model.dof_friction),
        tie_stiffness=model.tie_stiffness * is_tendon,
        tie_damping=model.tie_damping * is_tendon,
        tie_limits=np.tile([-np.inf, np.inf], (model.num_ties, 1)),
        tie_friction=np.zeros(model.num_ties),
        bond_stiffness=np.zeros(model.num_bonds),
        bond_damping=np.zeros(model.num_bonds),
        bond_turn_stiffness=np.zeros(model.num_bonds),
        bond_turn_damping=np.zeros(model.num_bonds),
    )


def _hardly(coefficients: Floats) -> Floats:
    return np.where(coefficients > 0, AS_GOOD_AS_NONE, 0.0)


def _is_ball(model: Model) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    found: np.ndarray[tuple[int, ...], np.dtype[np.bool_]] = model.joint_type == JointType.BALL
    return found


def _without_other_laws(model: Model) -> mujoco.MjModel:
    theirs = copy.copy(model.source)
    theirs.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONSTRAINT
    theirs.jnt_stiffness[_is_ball(model)] = 0
    for actuator in model.muscle_actuator:
        if theirs.actuator_gaintype[actuator] == mujoco.mjtGain.mjGAIN_MUSCLE:
            theirs.actuator_gaintype[actuator] = mujoco.mjtGain.mjGAIN_FIXED
            theirs.actuator_gainprm[actuator, 0] = -theirs.actuator_gainprm[actuator, 2]
            theirs.actuator_biastype[actuator] = mujoco.mjtBias.mjBIAS_NONE
            theirs.actuator_dyntype[actuator] = mujoco.mjtDyn.mjDYN_NONE
            theirs.actuator_ctrllimited[actuator] = False
    return theirs


def _random_pose(theirs: mujoco.MjModel, model: Model, rng: np.random.Generator) -> Floats:
    """Away from the reference by about half a radian or half a metre in every dof."""
    pose = model.q_reference.copy()
    mujoco.mj_integratePos(theirs, pose, 0.5 * rng.normal(size=model.num_dofs), 1)
    return pose
