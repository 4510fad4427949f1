"""What a policy's observations and actions are, in words and figures that another program reads."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trot.envs.entry import Entry, coordinates, past_actions, rates
from trot.envs.env import Env
from trot.envs.situation import Situation, as_columns, joined
from trot.envs.source_line import task_error
from trot.envs.task import Task, control_sees_state
from trot.sim.manifold import retract
from trot.sim.model import JointType, Model

TRIALS = 4
"""Random states in which entries that a task does not describe are compared with coordinates."""
SAME = 1e-9
"""Largest difference of numbers that count as the same."""


def described_observation(env: Env) -> list[dict[str, Any]]:
    """One for each entry. Those that nobody describes say so."""
    told = env.task.observation_entries()
    if unknown := [name for name in told if name not in env.observation_layout]:
        raise task_error(
            env.task,
            "observation_entries()",
            f"describes '{unknown[0]}', but the observation's parts are {', '.join(env.observation_layout)}",
        )
    derived = None
    found: list[dict[str, Any]] = []
    for part, columns in env.observation_layout.items():
        width = columns.stop - columns.start
        if part in told and len(told[part]) != width:
            raise task_error(
                env.task,
                "observation_entries()",
                f"has {len(told[part])} entries for '{part}', of which the observation has {width}",
            )
        entries: list[Entry | None] = [*told.get(part, [])]
        if part not in told:
            derived = derived_entries(env.task) if derived is None else derived
            entries = derived[columns]
        found += [{"part": part, **_told(entry)} for entry in entries]
    return found


def _told(entry: Entry | None) -> dict[str, Any]:
    return {"name": "not described"} if entry is None else asdict(entry)


def derived_entries(task: Task[Any]) -> list[Entry | None]:
    """Entries of an observation that are a coordinate, a rate or a past action, times a factor and less an offset.

    None for those that are something else.
    """
    model, zero = task.model, torch.zeros((), dtype=torch.float64)
    known = [*coordinates(model), *rates(model), *past_actions(_action_names(task))]
    inputs = _random_inputs(task, zero)
    observation = _observed(task, inputs, zero)
    found: list[Entry | None] = []
    for column in observation.unbind(dim=1):
        slopes = torch.zeros_like(inputs)
        if column.requires_grad:
            (slopes,) = torch.autograd.grad(column.sum(), inputs, retain_graph=True, materialize_grads=True)
        found.append(_single(slopes, inputs.detach(), column.detach(), known))
    return found


def _random_inputs(task: Task[Any], zero: Tensor) -> Tensor:
    """Coordinates, rates and past actions side by side, one row per trial."""
    generator = torch.Generator().manual_seed(0)
    nominal = task.start.draw(task.model, TRIALS, None, zero)

    def chance(width: int) -> Tensor:
        return torch.rand(TRIALS, width, generator=generator, dtype=zero.dtype) - 0.5

    joint_q = retract(task.model, nominal.joint_q, chance(task.model.num_dofs))
    return torch.cat([joint_q, chance(task.model.num_dofs), chance(task.num_actions)], dim=1).requires_grad_()


def _observed(task: Task[Any], inputs: Tensor, zero: Tensor) -> Tensor:
    model = task.model
    joint_q, joint_qd, action = inputs.split_with_sizes([model.num_q, model.num_dofs, task.num_actions], dim=1)
    memory = as_columns(task.draw_memory(TRIALS, None, zero))
    activation = zero.new_zeros(TRIALS, model.num_acts) if model.num_acts else None
    return joined(task.observation(task.measure(Situation(joint_q, joint_qd, memory, activation=activation)), action))


def _single(slopes: Tensor, inputs: Tensor, values: Tensor, known: list[Entry]) -> Entry | None:
    """The input that an entry is, where it is one, times a factor and less an offset."""
    moving: list[int] = (slopes.abs() > SAME).any(dim=0).nonzero().flatten().tolist()
    if len(moving) != 1:
        return None
    (which,) = moving
    scale, column = float(slopes[0, which]), inputs[:, which]
    if abs(scale) <= SAME:
        return None
    offset = float((column - values / scale)[0])
    if not torch.allclose(scale * (column - offset), values, rtol=0, atol=SAME):
        return None
    return replace(known[which], scale=_rounded(scale), offset=_rounded(offset))


def _rounded(number: float) -> float:
    """Without the last digits, which are those of the arithmetic."""
    return float(f"{number:.10g}") if abs(number) > SAME else 0.0


def described_actions(task: Task[Any]) -> list[dict[str, Any]]:
    """One for each action: what it does to which actuator. Those that cannot be told say so."""
    names = _action_names(task)
    found: list[dict[str, Any]] = [{"name": name, "control": "not described"} for name in names]
    if control_sees_state(task) or task.num_actions != task.model.num_controls:
        return found
    size = task.num_actions
    trials = torch.rand(TRIALS, size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with torch.no_grad():
        controls = task.control(torch.cat([torch.zeros(1, size), torch.eye(size), trials]).double())
    offset, scale = controls[0], controls[1 : 1 + size] - controls[0]
    alone = torch.diag(scale.diagonal())
    if not torch.allclose(scale, alone, atol=SAME) or not torch.allclose(
        offset + trials @ alone, controls[1 + size :], atol=SAME
    ):
        return found
    for action, one in enumerate(found):
        one["control"] = {"scale": _rounded(float(alone[action, action])), "offset": _rounded(float(offset[action]))}
    return [{**one, **described_actuator(task.model, actuator)} for actuator, one in enumerate(found)]


def _action_names(task: Task[Any]) -> list[str]:
    """Those of the actuators where there is one for each action."""
    names = task.model.actuator_name
    return list(names) if len(names) == task.num_actions else [f"action {number}" for number in range(task.num_actions)]


def described_actuator(model: Model, actuator: int) -> dict[str, Any]:
    """How a control becomes a force. Without a bound it says null."""
    told: dict[str, Any] = {"range": _bounds(model.control_lower[actuator], model.control_upper[actuator])}
    motors = np.flatnonzero(model.motor_actuator == actuator)
    servos = np.flatnonzero(model.servo_actuator == actuator)
    if len(motors):
        dofs = model.motor_dof[motors]
        return {**told, "kind": "motor", "unit": "1", **_geared(model, dofs, model.motor_gear[motors])}
    if len(servos):
        servo = int(servos[0])
        drives = np.flatnonzero(model.drive_servo == servo)
        geared = _geared(model, model.drive_dof[drives], model.drive_gear[drives])
        force = _bounds(model.servo_lower[servo], model.servo_upper[servo])
        return {**told, **_servo(model, servo, geared["force_unit"]), **geared, "force_range": force}
    return {**told, "kind": "muscle", "unit": "1"}


def _servo(model: Model, servo: int, force_unit: str) -> dict[str, Any]:
    """Its law, force = gain · (1, length, rate) control + bias · (1, length, rate), by the names that robots have."""
    (kp, *rest), (constant, stiffness, damping) = model.servo_gain[servo].tolist(), model.servo_bias[servo].tolist()
    place, rate = ("rad", "rad/s") if force_unit == "N m" else ("m", "m/s")
    if not any(rest) and constant == 0 and stiffness == -kp:
        return {"kind": "position servo", "unit": place, "kp": kp, "kd": abs(damping)}
    if not any(rest) and constant == 0 and stiffness == 0 and damping == -kp:
        return {"kind": "velocity servo", "unit": rate, "kd": kp}
    return {"kind": "servo", "unit": "1", "gain": [kp, *rest], "bias": [constant, stiffness, damping]}


def _geared(model: Model, dofs: Iterable[int], gears: Iterable[float]) -> dict[str, Any]:
    """The joints that an actuator moves, and their force per unit of its own."""
    joints = [int(np.searchsorted(model.joint_dof_start, dof, side="right")) - 1 for dof in dofs]
    slides = all(model.joint_type[joint] == JointType.SLIDE for joint in joints)
    return {
        "joints": [model.joint_name[joint] for joint in joints],
        "gear": [float(gear) for gear in gears],
        "force_unit": "N" if slides else "N m",
    }


def described_joints(model: Model) -> list[dict[str, Any]]:
    """In the order of joint_q and joint_qd; columns are [first, behind the last]."""
    found = []
    for joint, kind in enumerate(model.joint_type):
        q, qd = int(model.joint_q_start[joint]), int(model.joint_dof_start[joint])
        width = JointType(kind).num_plain + 4 * JointType(kind).has_quaternion
        rates = JointType(kind).num_plain + 3 * JointType(kind).has_quaternion
        found.append(
            {
                "name": model.joint_name[joint],
                "type": JointType(kind).name.lower(),
                "joint_q": [q, q + width],
                "joint_qd": [qd, qd + rates],
                "range": _bounds(model.joint_lower[joint], model.joint_upper[joint]),
                "damping": float(model.dof_damping[qd]),
                "armature": float(model.dof_armature[qd]),
            }
        )
    return found


def _bounds(lower: float, upper: float) -> list[float | None]:
    """JSON has no infinity."""
    return [float(bound) if math.isfinite(bound) else None for bound in (lower, upper)]
