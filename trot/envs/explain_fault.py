"""Running the step again in which a world blew up, to say where it began."""

from __future__ import annotations

import torch
from torch import Tensor

from trot.envs.fault import Fault
from trot.envs.registry import make_task
from trot.envs.situation import Situation, as_columns, require_same_memory, widths_of
from trot.envs.task import Task, task_control
from trot.sim.diagnose import check_finite
from trot.sim.errors import NonFiniteError
from trot.sim.guard import BOUND
from trot.sim.model import Model
from trot.sim.parameters import Parameters, columns
from trot.sim.state import State
from trot.sim.step import step


def explain_fault(fault: Fault) -> str:
    """What went wrong, in words: in the precision it happened in, and then in float64."""
    task = make_task(fault.task)
    expected = as_columns(task.draw_memory(1, None, fault.joint_q.new_zeros(())))
    require_same_memory(widths_of(fault.memory), widths_of(expected), f"the fault of {fault.task}")
    lines = [f"{fault.task}, world {fault.world}: {_size(fault)}"]
    for dtype in dict.fromkeys([fault.joint_q.dtype, torch.float64]):
        lines.append(f"{str(dtype).removeprefix('torch.')}: {_explain(task, fault, dtype)}")
    return "\n".join(lines)


def _size(fault: Fault) -> str:
    return (
        f"the step began with |joint_q| up to {float(fault.joint_q.abs().max()):.3g}, |joint_qd| up to "
        f"{float(fault.joint_qd.abs().max()):.3g}, |action| up to {float(fault.action.abs().max()):.3g}"
    )


def _explain(task: Task[object], fault: Fault, dtype: torch.dtype) -> str:
    joint_q, joint_qd, action = (row.to(dtype).unsqueeze(0) for row in (fault.joint_q, fault.joint_qd, fault.action))
    if not bool(action.isfinite().all()):
        bad = int((~action.isfinite()).nonzero()[0, 1])
        return f"action {bad} is {float(action[0, bad])}: look at what computed it, not at the physics"
    memory = {name: part.to(dtype).unsqueeze(0) for name, part in fault.memory.items()}
    for name, part in memory.items():
        if not bool(part.isfinite().all()):
            return f"memory '{name}' is {part[0].tolist()}: look at the task's next_memory(), not at the physics"
    activation = fault.activation.to(dtype).unsqueeze(0) if fault.activation.numel() else None
    control = task_control(task, action, Situation(joint_q, joint_qd, memory, activation=activation))
    if fault.strength.numel():
        control = control * fault.strength.to(dtype)
    state, parameters = State(joint_q, joint_qd, activation=activation), _parameters(task.model, fault, dtype)
    try:
        check_finite(task.model, state, control, task.control_dt, task.substeps, parameters)
    except NonFiniteError as error:
        return f"non-finite in substep {error.substep} of {task.substeps}, first in dof '{error.dof}'"
    end = step(task.model, state, control, task.control_dt, task.substeps, parameters)
    return _largest(task.model, end)


def _largest(model: Model, end: State) -> str:
    speeds = end.joint_qd[0].abs()
    dof = int(speeds.argmax())
    beyond = max(float(speeds.max()), float(end.joint_q.abs().max())) > BOUND
    ending = f"; beyond {BOUND:g} a world counts as blown up" if beyond else ", and stays within bounds"
    return f"the step is finite, the fastest dof is '{model.dof_name[dof]}' at {float(speeds[dof]):.3g}{ending}"


def _parameters(model: Model, fault: Fault, dtype: torch.dtype) -> Parameters | None:
    """The world's own masses and friction, out of the row that the kernels read."""
    if not fault.parameter.numel():
        return None
    row: Tensor = fault.parameter.to(dtype)
    own_mass = torch.tensor(model.body_mass, dtype=dtype)
    where = columns(model)
    pair_friction = row[where["pair_friction"]] if "pair_friction" in where else None
    return Parameters(
        body_mass=row[where["body_mass"]] * own_mass, friction=row[where["friction"]], pair_friction=pair_friction
    )
