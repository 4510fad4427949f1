"""What bench.census runs in a process of its own: one line of JSON per robot file that it is told of.

Paths come one per line; MuJoCo may crash on one of them or never return.
"""

from __future__ import annotations

import copy
import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import mujoco
import numpy as np
import torch

from trot.sim.load import ModelError, load_model
from trot.sim.model import JointType, Model
from trot.sim.state import State
from trot.sim.step import step

NUM_STATES = 8
"""Random states at which accelerations are compared."""
LEAST_ACCELERATION = 1e-3
"""m/s^2 or rad/s^2. What nothing pushes does not accelerate but for rounding: errors are relative to this at least."""


@dataclass
class Verdict:
    """What became of a file."""

    mujoco: str | None = None
    """Why MuJoCo refuses the file as it is; None if it reads it."""
    moving_joints: int | None = None
    """As MuJoCo counts them; None where it refuses the file."""
    actuators: int | None = None
    reasons: list[str] = field(default_factory=list)
    """Why trot refuses it; empty if it loads."""
    notes: list[str] = field(default_factory=list)
    acceleration_error: float | None = None
    """The largest difference from MuJoCo's accelerations, relative to the largest of them in its state."""


def judge(path: str, options: dict[str, Any], accelerations: bool) -> Verdict:
    """Load a file by MuJoCo and by trot."""
    verdict = Verdict()
    try:
        own = mujoco.MjModel.from_xml_path(path)
        verdict.moving_joints, verdict.actuators = own.njnt, own.nu
    except (ValueError, RuntimeError, mujoco.FatalError) as error:
        verdict.mujoco = str(error).strip()
    try:
        model = load_model(path, **options)
    except ModelError as error:
        text = str(error).removeprefix(f"{path}: ")
        # A message of MuJoCo's may have several lines of its own.
        verdict.reasons = text.split("\n  ")
        return verdict
    except Exception as error:
        # Nothing else may come out of load_model: this is what a census finds.
        verdict.reasons = [f"BUG: {type(error).__name__}: {error}"]
        return verdict
    verdict.moving_joints, verdict.actuators = model.num_joints, model.num_controls
    verdict.notes = list(model.notes)
    if accelerations:
        verdict.acceleration_error = acceleration_error(model)
    return verdict


def acceleration_error(model: Model) -> float:
    """Against mj_forward at random states, without what the two simulate by different laws.

    These are contacts, limits, dry friction and MuJoCo's other constraints, springs of ball joints, and the curves of
    muscles that were loaded without.
    """
    is_ball = model.joint_type == JointType.BALL
    is_tendon = np.array([name.startswith("tendon") for name in model.tie_name], bool)
    ours = replace(
        model,
        ground_height=None,
        pair_stiffness=np.zeros(model.num_pairs),
        pair_damping=np.zeros(model.num_pairs),
        joint_stiffness=np.where(is_ball, 0, model.joint_stiffness),
        joint_limit_stiffness=np.zeros(model.num_joints),
        joint_limit_damping=np.zeros(model.num_joints),
        dof_friction=np.zeros(model.num_dofs),
        tie_stiffness=model.tie_stiffness * is_tendon,
        tie_damping=model.tie_damping * is_tendon,
        tie_limits=np.tile([-np.inf, np.inf], (model.num_ties, 1)),
        tie_friction=np.zeros(model.num_ties),
        bond_stiffness=np.zeros(model.num_bonds),
        bond_damping=np.zeros(model.num_bonds),
        bond_turn_stiffness=np.zeros(model.num_bonds),
        bond_turn_damping=np.zeros(model.num_bonds),
    )
    theirs = _without_other_laws(model, is_ball)
    rng = np.random.default_rng(0)
    joint_q = np.array([_random_pose(theirs, model, rng) for _ in range(NUM_STATES)])
    joint_qd = rng.normal(size=(NUM_STATES, model.num_dofs))
    lower, upper = model.sample_range()
    control = rng.uniform(lower, upper, (NUM_STATES, model.num_controls))
    activation = rng.uniform(0, 1, (NUM_STATES, model.num_acts))
    # In one substep of one second the velocities change by the acceleration itself.
    with torch.no_grad():
        acts = torch.tensor(activation) if model.num_acts else None
        state = State(torch.tensor(joint_q), torch.tensor(joint_qd), activation=acts)
        after = step(ours, state, torch.tensor(control), 1.0, 1).joint_qd.numpy()
    worst = 0.0
    data = mujoco.MjData(theirs)
    for q, qd, act, given, found in zip(joint_q, joint_qd, activation, control, after - joint_qd, strict=True):
        data.qpos[:], data.qvel[:], data.act[:], data.ctrl[:] = q, qd, act, given
        mujoco.mj_forward(theirs, data)
        error = abs(found - data.qacc).max() / max(abs(data.qacc).max(), LEAST_ACCELERATION)
        worst = max(worst, float(error) if np.isfinite(error) else np.inf)
    return worst


def _without_other_laws(model: Model, is_ball: np.ndarray[Any, np.dtype[np.bool_]]) -> mujoco.MjModel:
    theirs = copy.copy(model.source)
    theirs.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONSTRAINT
    theirs.jnt_stiffness[is_ball] = 0
    curved = theirs.actuator_gaintype == mujoco.mjtGain.mjGAIN_MUSCLE
    for actuator in np.setdiff1d(np.flatnonzero(curved), model.hill_actuator):
        theirs.actuator_gaintype[actuator] = mujoco.mjtGain.mjGAIN_FIXED
        theirs.actuator_gainprm[actuator, 0] = -theirs.actuator_gainprm[actuator, 2]
        theirs.actuator_biastype[actuator] = mujoco.mjtBias.mjBIAS_NONE
        theirs.actuator_dyntype[actuator] = mujoco.mjtDyn.mjDYN_NONE
        theirs.actuator_ctrllimited[actuator] = False
    return theirs


def _random_pose(theirs: mujoco.MjModel, model: Model, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Away from the reference by about half a radian or half a metre in every dof."""
    pose = model.q_reference.copy()
    mujoco.mj_integratePos(theirs, pose, 0.5 * rng.normal(size=model.num_dofs), 1)
    return pose


def main(tell: Callable[[str], object]) -> None:
    """Options, then paths, from stdin; verdicts to `tell`."""
    given = json.loads(sys.stdin.readline())
    for line in sys.stdin:
        verdict = judge(line.rstrip("\n"), given["options"], given["accelerations"])
        tell(json.dumps(asdict(verdict)))


if __name__ == "__main__":
    # What MuJoCo and Warp print on the way must not come between the verdicts.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    main(lambda text: print(text, file=answers, flush=True))
