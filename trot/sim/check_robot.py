"""`trot check MODEL`: are the gradients right for this robot? Every input against central differences, in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
import tyro
from torch import Tensor

from trot.sim.diagnose import check_finite
from trot.sim.load import load_model
from trot.sim.manifold import retract, tangent_gradient
from trot.sim.model import Model
from trot.sim.parameters import Parameters, own_parameters
from trot.sim.state import State
from trot.sim.step import step

DIFFERENCE = 1e-5
"""Step of the central differences; two of them, at this and at half of it, give a fourth-order estimate."""

SMALLEST_PARAMETER = 0.01
"""Parameters below this are differenced with the step of this one, lest rounding drown the difference."""


@dataclass
class CheckSettings:
    """Check a robot's gradients against finite differences."""

    model: tyro.conf.Positional[Path]
    """Robot file, MJCF or URDF."""
    worlds: int = 8
    """Worlds, each at another moment of a random motion."""
    steps: int = 1
    """Control steps to differentiate through."""
    control_dt: float = 1 / 60
    """Seconds per control step."""
    substeps: int = 16
    """Substeps per control step; a robot that explodes needs more."""
    seconds: float = 1.0
    """Length of the random motion that the states are taken from."""
    tolerance: float = 1e-6
    """Largest relative error that passes."""
    seed: int = 0
    floating_base: bool = False
    """Add a free joint to the first body (URDF)."""
    ground: bool = False
    """Add the plane z = 0 where the file has none (URDF)."""


@dataclass(frozen=True)
class Row:
    """The verdict on one input."""

    name: str
    largest: float
    """Largest gradient found."""
    error: float
    """Largest error, relative to the largest gradient of that input in the same world."""
    worst: str
    """Where."""
    checked: int
    skipped: int
    """Coordinates next to a kink: a contact, a limit or sliding begins within the difference."""


Inputs = dict[str, Tensor]
Loss = Callable[[Inputs], Tensor]


def run_check(settings: CheckSettings) -> bool:
    """Print a table of errors per input; True when all pass."""
    model = load_model(settings.model, floating_base=settings.floating_base, ground=settings.ground)
    print(
        f"{settings.model}: {model.num_bodies} bodies, {model.num_dofs} dofs, {model.num_controls} controls, "
        f"{model.num_points} contact points, {model.num_muscles} muscles"
    )
    rows = check_gradients(model, settings)
    print(_table(rows, settings.tolerance))
    if any(row.error > settings.tolerance for row in rows):
        print("gradients are WRONG: see the table")
        return False
    if any(row.checked == 0 for row in rows):
        print("some inputs could NOT be checked, a kink beside every coordinate: try fewer steps or another seed")
        return False
    print(f"gradients are right to {settings.tolerance:g}")
    return True


def check_gradients(model: Model, settings: CheckSettings) -> list[Row]:
    """One row per input: joint_q, joint_qd, control, and every parameter the robot has."""
    generator = torch.Generator().manual_seed(settings.seed)
    state = _lively_state(model, settings, generator)
    inputs = _inputs(model, state, _random_control(model, settings.worlds, generator))
    weight_q = torch.randn(settings.worlds, model.num_q, generator=generator, dtype=torch.float64)
    weight_qd = torch.randn(settings.worlds, model.num_dofs, generator=generator, dtype=torch.float64)

    def loss(values: Inputs) -> Tensor:
        now = State(values["joint_q"], values["joint_qd"])
        parameters = Parameters(**{name: values[name] for name in own_parameters(model)})
        for _ in range(settings.steps):
            now = step(model, now, values["control"], settings.control_dt, settings.substeps, parameters)
        return (now.joint_q * weight_q).sum(dim=1) + (now.joint_qd * weight_qd).sum(dim=1)

    leaves = {name: value.clone().requires_grad_() for name, value in inputs.items()}
    found = torch.autograd.grad(loss(leaves).sum(), list(leaves.values()))
    gradients = dict(zip(leaves, found, strict=True))
    gradients["joint_q"] = tangent_gradient(model, inputs["joint_q"], gradients["joint_q"])
    names = _coordinate_names(model)
    with torch.no_grad():
        rows = [name for name, value in inputs.items() if value.shape[1]]
        return [_row(model, name, names[name], loss, inputs, gradients[name]) for name in rows]


def _lively_state(model: Model, settings: CheckSettings, generator: torch.Generator) -> State:
    """States of a random motion from the reference pose: flung about, fallen to the ground, pushed into limits."""
    state = model.default_state(settings.worlds, dtype=torch.float64)
    noise = 0.1 * torch.randn(settings.worlds, model.num_dofs, generator=generator, dtype=torch.float64)
    state = State(retract(model, state.joint_q, noise), 5 * noise)
    moments = torch.linspace(0, settings.seconds, settings.worlds)
    joint_q, joint_qd = state.joint_q.clone(), state.joint_qd.clone()
    for i in range(round(settings.seconds / settings.control_dt)):
        control = _random_control(model, settings.worlds, generator)
        with torch.no_grad():
            following = step(model, state, control, settings.control_dt, settings.substeps)
        if not bool(following.finite.all()):
            check_finite(model, state, control, settings.control_dt, settings.substeps)
        state = following
        reached = moments >= (i + 0.5) * settings.control_dt
        joint_q[reached], joint_qd[reached] = state.joint_q[reached], state.joint_qd[reached]
    return State(joint_q, joint_qd)


def _random_control(model: Model, worlds: int, generator: torch.Generator) -> Tensor:
    """Inside each actuator's range, two units of it where it is open; never at the border, which is a kink."""
    lower, upper = (torch.tensor(bound) for bound in model.sample_range())
    share = 0.05 + 0.9 * torch.rand(worlds, model.num_controls, generator=generator, dtype=torch.float64)
    return lower + share * (upper - lower)


def _inputs(model: Model, state: State, control: Tensor) -> Inputs:
    inputs = {"joint_q": state.joint_q, "joint_qd": state.joint_qd, "control": control}
    for name, values in own_parameters(model).items():
        # A difference needs room on both sides, and no parameter may be negative.
        room = torch.tensor(values).clamp(min=2 * DIFFERENCE * SMALLEST_PARAMETER)
        inputs[name] = room.repeat(state.num_worlds, 1)
    return inputs


def _coordinate_names(model: Model) -> dict[str, tuple[str, ...]]:
    names = {"joint_q": model.dof_name, "joint_qd": model.dof_name, "control": model.actuator_name}
    shapes = {name: model.shape_name for name in own_parameters(model)}
    return {**shapes, **names, "body_mass": model.body_name}


def _row(
    model: Model, name: str, coordinates: tuple[str, ...], loss: Loss, inputs: Inputs, gradient: Tensor
) -> Row:  # fmt: skip
    coarse, fine = (_differences(model, name, loss, inputs, gradient.shape[1], h) for h in (DIFFERENCE, DIFFERENCE / 2))
    expected = fine + (fine - coarse) / 3
    scale = expected.abs().amax(dim=1, keepdim=True).clamp(min=1e-12)
    # On smooth ground the two differences agree to the square of their step; across a kink they do not.
    smooth = (fine - coarse).abs() <= 1e-6 * scale
    error = torch.where(smooth, (gradient - expected).abs() / scale, 0.0)
    error[~expected.isfinite()] = torch.inf
    world, coordinate = divmod(int(error.argmax()), error.shape[1])
    return Row(
        name=name,
        largest=float(gradient.abs().max()),
        error=float(error.max()),
        worst=f"{coordinates[coordinate]}, world {world}",
        checked=int(smooth.sum()),
        skipped=int((~smooth).sum()),
    )


def _differences(model: Model, name: str, loss: Loss, inputs: Inputs, count: int, h: float) -> Tensor:
    """Central differences of the loss by each coordinate of one input, all worlds at once."""
    columns = []
    for k in range(count):
        value = inputs[name]
        # Masses and stiffnesses span many orders of magnitude: there the step is relative.
        size = h * max(float(value[:, k].max()), SMALLEST_PARAMETER) if name in own_parameters(model) else h
        offset = torch.zeros(len(value), count, dtype=torch.float64)
        offset[:, k] = size
        move = partial(retract, model) if name == "joint_q" else torch.add
        above, below = (loss({**inputs, name: move(value, sign * offset)}) for sign in (1, -1))
        columns.append((above - below) / (2 * size))
    return torch.stack(columns, dim=1)


def _table(rows: list[Row], tolerance: float) -> str:
    head = f"{'input':<20}{'largest gradient':>18}{'relative error':>16}  {'worst at':<32}{'checked':>8}{'kinks':>7}"
    lines = [
        f"{row.name:<20}{row.largest:>18.3e}{row.error:>16.1e}  {row.worst:<32}{row.checked:>8}{row.skipped:>7}"
        + ("  FAILS" if row.error > tolerance else "" if row.checked else "  NOT CHECKED")
        for row in rows
    ]
    return "\n".join([head, *lines])
