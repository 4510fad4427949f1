"""Are the gradients right for a robot? Every input against central differences, in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import torch
import tyro
from torch import Tensor

from trot.sim.added_actuators import Kind
from trot.sim.diagnose import check_finite
from trot.sim.differences import Direction
from trot.sim.gradient_check import STEPS, Row, check_input, gradients
from trot.sim.hill_muscles import Muscles
from trot.sim.load_options import CONTACT, MESH_POINTS
from trot.sim.manifold import retract, tangent_gradient
from trot.sim.model import Model
from trot.sim.parameters import Parameters, own_parameters
from trot.sim.settled_start import settled_start
from trot.sim.state import State
from trot.sim.step import step
from trot.sim.substeps import suggest_substeps

MOST_SUBSTEPS = 200
"""A check takes no more by itself: the time would be better spent on the robot."""

SMALLEST_PARAMETER = 0.01
"""Contact constants below this are moved by shares of this one, lest rounding drown the difference."""


@dataclass
class CheckSettings:
    """Check a robot: what is approximated, its motion against MuJoCo, substeps, a drop, and its gradients."""

    model: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="ROBOT")]
    """Robot file, MJCF or URDF."""
    worlds: int = 8
    """Worlds, each at another moment of a random motion."""
    steps: int = 1
    """Control steps to differentiate through."""
    control_dt: float = 1 / 60
    """Seconds per control step."""
    substeps: int | None = None
    """Substeps per control step; by default what the robot's stiffness suggests."""
    seconds: float = 1.0
    """Length of the random motion that the states are taken from."""
    control_share: float = 1.0
    """Of each control's range, what the random motion uses of it."""
    tolerance: float = 1e-6
    """Largest relative error that passes."""
    seed: int = 0
    """Of the random motion."""
    floating_base: bool = False
    """Add a free joint to the first body (URDF)."""
    ground: bool = False
    """Add the plane z = 0 where the file has none (URDF)."""
    actuators: Kind | None = None
    """What every hinge and slide of a file without actuators gets; a URDF gets motors anyway."""
    kp: float | None = None
    """Gain of position servos."""
    kd: float | None = None
    """Gain of velocity servos, or against the speed of position servos."""
    self_collision: bool = False
    """Let moving bodies touch each other where the file's masks do."""
    keyframe: str | None = None
    """Begin at this <key> of the file."""
    repair_inertia: bool = False
    """Change masses and inertias that no body can have."""
    package_path: tuple[Path, ...] = ()
    """Folders to look for package:// names and meshes in."""
    leave_out: tuple[str, ...] = ()
    """Do without: equality, fluid, gravcomp, meshes, plugins, tendons."""
    mesh_points: int = MESH_POINTS
    """Contact points of a mesh, at most."""
    muscles: Muscles = "hill"
    """What a <muscle> becomes: MuJoCo's own law, or a constant tension times its control."""
    contact: tuple[float, float, float] = CONTACT
    """Stiffness, damping and friction stiffness of shapes whose geoms give none: N/m, N s/m^2, N s/m."""
    armature: float = 0.0
    """Rotor inertia of hinges and slides that have none, kg m^2 or kg."""
    drop: bool = True
    """Drop the robot, and compare its accelerations with MuJoCo's."""


Inputs = dict[str, Tensor]
Loss = Callable[[Inputs], Tensor]


def substeps_of(model: Model, settings: CheckSettings) -> int:
    """Those asked for, or those that the robot's stiffness suggests, up to MOST_SUBSTEPS."""
    if settings.substeps is not None:
        return settings.substeps
    return min(suggest_substeps(model, settings.control_dt).count, MOST_SUBSTEPS)


def check_gradients(model: Model, settings: CheckSettings) -> list[Row]:
    """One row per input: joint_q, joint_qd, activation, control, and every parameter the robot has."""
    settings = replace(settings, substeps=substeps_of(model, settings))
    duration = (settings.control_dt, substeps_of(model, settings))
    generator = torch.Generator().manual_seed(settings.seed)
    state = _lively_state(model, settings, generator)
    inputs = _inputs(model, state, _random_control(model, settings, generator))
    weight_q = torch.randn(settings.worlds, model.num_q, generator=generator, dtype=torch.float64)
    weight_qd = torch.randn(settings.worlds, model.num_dofs, generator=generator, dtype=torch.float64)
    weight_activation = torch.randn(settings.worlds, model.num_acts, generator=generator, dtype=torch.float64)

    def loss(values: Inputs) -> Tensor:
        """A weighted sum of the state after the steps, as its terms."""
        now = _state(values)
        parameters = Parameters(**{name: values[name] for name in own_parameters(model)})
        for _ in range(settings.steps):
            now = step(model, now, values["control"], *duration, parameters)
        terms = [now.joint_q * weight_q, now.joint_qd * weight_qd]
        if now.activation is not None:
            terms.append(now.activation * weight_activation)
        return torch.cat(terms, dim=1)

    leaves = {name: value.clone().requires_grad_() for name, value in inputs.items()}
    here = loss(leaves)
    if not bool(here.isfinite().all()):
        _raise_where_it_blows_up(model, inputs, settings)
    found = gradients(here.sum(), leaves)
    found["joint_q"] = tangent_gradient(model, inputs["joint_q"], found["joint_q"])
    with torch.no_grad():
        return [
            check_input(name, here, _directions(model, name, loss, inputs), found[name].T, settings.tolerance)
            for name, value in inputs.items()
            if value.shape[1]
        ]


def _lively_state(model: Model, settings: CheckSettings, generator: torch.Generator) -> State:
    """States of a random motion from a settled start: flung about, fallen to the ground, pushed into limits."""
    state = settled_start(model).state(model, settings.worlds)
    noise = 0.1 * torch.randn(settings.worlds, model.num_dofs, generator=generator, dtype=torch.float64)
    state = State(retract(model, state.joint_q, noise), 5 * noise, activation=state.activation)
    moments = torch.linspace(0, settings.seconds, settings.worlds)
    duration = (settings.control_dt, substeps_of(model, settings))
    chosen = state
    for i in range(round(settings.seconds / settings.control_dt)):
        control = _random_control(model, settings, generator)
        with torch.no_grad():
            following = step(model, state, control, *duration)
        if not bool(following.finite.all()):
            check_finite(model, state, control, *duration)
        state = following
        reached = moments >= (i + 0.5) * settings.control_dt
        chosen = _where(reached.unsqueeze(1), state, chosen)
    return chosen


def _where(mask: Tensor, state: State, other: State) -> State:
    """Worlds of one state where the mask holds, else of the other."""
    activation = None
    if state.activation is not None and other.activation is not None:
        activation = torch.where(mask, state.activation, other.activation)
    joint_q = torch.where(mask, state.joint_q, other.joint_q)
    return State(joint_q, torch.where(mask, state.joint_qd, other.joint_qd), activation=activation)


def _state(inputs: Inputs) -> State:
    return State(inputs["joint_q"], inputs["joint_qd"], activation=inputs.get("activation"))


def _raise_where_it_blows_up(model: Model, inputs: Inputs, settings: CheckSettings) -> None:
    state, duration = _state(inputs), (settings.control_dt, substeps_of(model, settings))
    parameters = Parameters(**{name: inputs[name] for name in own_parameters(model)})
    for _ in range(settings.steps):
        check_finite(model, state, inputs["control"], *duration, parameters)
        state = step(model, state, inputs["control"], *duration, parameters)


def _random_control(model: Model, settings: CheckSettings, generator: torch.Generator) -> Tensor:
    """Inside each actuator's range, two units of it where it is open; never at the border, which is a kink.

    A share of the range is of what leads away from zero, or from the end of the range nearest to it.
    """
    lower, upper = (torch.tensor(bound) for bound in model.sample_range())
    share = 0.05 + 0.9 * torch.rand(settings.worlds, model.num_controls, generator=generator, dtype=torch.float64)
    control = lower + share * (upper - lower)
    if settings.control_share == 1.0:
        return control
    calm = torch.zeros_like(lower).clamp(lower, upper)
    return calm + settings.control_share * (control - calm)


def _inputs(model: Model, state: State, control: Tensor) -> Inputs:
    inputs = {"joint_q": state.joint_q, "joint_qd": state.joint_qd, "control": control}
    if state.activation is not None:
        inputs["activation"] = state.activation
    for name, values in own_parameters(model).items():
        # A difference needs room on both sides, and no parameter may be negative.
        room = 0.0 if name == "body_mass" else 2 * max(STEPS) * SMALLEST_PARAMETER
        inputs[name] = torch.tensor(values).clamp(min=room).repeat(state.num_worlds, 1)
    return inputs


def _directions(model: Model, name: str, loss: Loss, inputs: Inputs) -> list[Direction]:
    """Along each coordinate of one input."""
    value, names = inputs[name], _coordinate_names(model, name)
    move = partial(retract, model) if name == "joint_q" else torch.add

    def moved_loss(coordinate: int, distance: float) -> Tensor:
        offset = value.new_zeros(len(value), len(names))
        offset[:, coordinate] = distance
        return loss({**inputs, name: move(value, offset)})

    units = _units(model, name, inputs)
    return [Direction(names[k], units[k], partial(moved_loss, k)) for k in range(len(names))]


def _units(model: Model, name: str, inputs: Inputs) -> list[float]:
    """How far is far, per coordinate. Masses, stiffnesses and forces span many orders of magnitude."""
    if name in ("joint_q", "joint_qd"):
        return [1.0] * model.num_dofs
    if name == "activation":
        return [1.0] * model.num_acts
    if name == "control":
        lower, upper = model.sample_range()
        sizes = (upper - lower) / 2
    else:
        sizes = inputs[name][0].numpy().clip(0.0 if name == "body_mass" else SMALLEST_PARAMETER)
    # A range of one value and a body without mass have no size; moving them changes nothing.
    return [float(size) or 1.0 for size in sizes]


def _coordinate_names(model: Model, name: str) -> tuple[str, ...]:
    if name in ("joint_q", "joint_qd"):
        return model.dof_name
    if name == "activation":
        return tuple(model.actuator_name[actuator] for actuator in model.act_actuator)
    if name.startswith("pair_"):
        return model.pair_name
    return {"control": model.actuator_name, "body_mass": model.body_name}.get(name, model.shape_name)
