"""MuJoCo's muscles on spatial tendons, with their curves and activation, along paths that may wrap shapes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import mujoco
import numpy as np

from trot.sim.activations import Activations
from trot.sim.errors import ModelError
from trot.sim.model import STRAIGHT, Floats
from trot.sim.tendon_paths import Piece, read_path
from trot.sim.unsupported import control_entry, disabled, name_of
from trot.sim.weld import Welds

Muscles = Literal["hill", "tension"]
"""What a <muscle> becomes: MuJoCo's own law, or a constant tension times its control."""

_GAIN = mujoco.mjtGain.mjGAIN_MUSCLE
_BIASES = (mujoco.mjtBias.mjBIAS_MUSCLE, mujoco.mjtBias.mjBIAS_NONE)
_DYNAMICS = (mujoco.mjtDyn.mjDYN_MUSCLE, mujoco.mjtDyn.mjDYN_NONE)


@dataclass
class HillMuscles:
    """The fields of Model for these muscles while they are gathered."""

    actuator: list[int] = field(default_factory=list)
    act: list[int] = field(default_factory=list)
    peak_force: list[float] = field(default_factory=list)
    gear: list[float] = field(default_factory=list)
    best_length: list[float] = field(default_factory=list)
    offset: list[float] = field(default_factory=list)
    curve: list[tuple[float, float, float, float, float]] = field(default_factory=list)
    force_range: list[tuple[float, float]] = field(default_factory=list)
    piece_hill: list[int] = field(default_factory=list)
    piece: list[Piece] = field(default_factory=list)


def is_hill_muscle(compiled: mujoco.MjModel, actuator: int) -> bool:
    """Whether MuJoCo computes its force from a muscle's curves."""
    kinds = (compiled.actuator_gaintype, compiled.actuator_biastype, compiled.actuator_dyntype)
    gain, bias, dynamics = (int(kind[actuator]) for kind in kinds)
    return gain == _GAIN and bias in _BIASES and dynamics in _DYNAMICS


def add_hill_muscle(
    compiled: mujoco.MjModel, welds: Welds, actuator: int, result: HillMuscles, acts: Activations
) -> tuple[float, float]:
    """Add one muscle; returns the range of its control."""
    name, tendon = name_of(compiled, "actuator", actuator), int(compiled.actuator_trnid[actuator, 0])
    if compiled.actuator_trntype[actuator] != mujoco.mjtTrn.mjTRN_TENDON:
        raise ModelError(f"muscle '{name}' does not act on a tendon. Give it a spatial tendon, or use <motor>.")
    if compiled.tendon_actfrclimited[tendon]:
        tendon_name = name_of(compiled, "tendon", tendon)
        raise ModelError(f"tendon '{tendon_name}' has actuatorfrcrange. Use the actuator's forcerange instead.")
    path = read_path(compiled, welds, tendon)
    hill = len(result.actuator)
    result.actuator.append(actuator)
    result.act.append(acts.add(compiled, actuator))
    gear = float(compiled.actuator_gear[control_entry(compiled, "out", actuator), 0])
    _add_law(compiled, actuator, name, gear, gear * path.fixed_length, result)
    result.piece_hill += [hill] * len(path.pieces)
    result.piece += path.pieces
    return _control_range(compiled, actuator)


def _add_law(
    compiled: mujoco.MjModel, actuator: int, name: str, gear: float, fixed_length: float, result: HillMuscles
) -> None:
    numbers = [float(number) for number in compiled.actuator_gainprm[actuator, :9]]
    shortest, longest, force, scale, least, most, speed, passive, fastest = numbers
    if compiled.actuator_biastype[actuator] == mujoco.mjtBias.mjBIAS_NONE:
        passive = 0.0
    elif np.any(compiled.actuator_biasprm[actuator, :9] != compiled.actuator_gainprm[actuator, :9]):
        raise ModelError(f"muscle '{name}' has one set of numbers as gain and another as bias. Give them alike.")
    if force < 0:
        force = scale / max(float(compiled.actuator_acc0[actuator]), mujoco.mjMINVAL)
    first, last = (float(length) for length in compiled.actuator_lengthrange[actuator])
    if not (speed > 0 and fastest >= 1):
        raise ModelError(
            f"muscle '{name}' has vmax {speed} and fvmax {fastest}. Give vmax above 0 and fvmax of at least 1."
        )
    if not (longest > shortest and last > first):
        raise ModelError(f"muscle '{name}' has an empty range or lengthrange. Give both as two ascending numbers.")
    best_length = (last - first) / (longest - shortest)
    result.peak_force.append(force)
    result.gear.append(gear)
    result.best_length.append(best_length)
    result.offset.append(shortest + (fixed_length - first) / best_length)
    result.curve.append((least, most, speed, passive, fastest))
    limits = compiled.actuator_forcerange[actuator] if compiled.actuator_forcelimited[actuator] else (-np.inf, np.inf)
    result.force_range.append((float(limits[0]), float(limits[1])))


def _control_range(compiled: mujoco.MjModel, actuator: int) -> tuple[float, float]:
    """Its ctrlrange; what activation dynamics take is never outside of 0 to 1."""
    lower, upper = -np.inf, np.inf
    control = control_entry(compiled, "ctrl", actuator)
    if not disabled(compiled, mujoco.mjtDisableBit.mjDSBL_CLAMPCTRL) and compiled.actuator_ctrllimited[control]:
        lower, upper = (float(bound) for bound in compiled.actuator_ctrlrange[control])
    if compiled.actuator_dyntype[actuator] == mujoco.mjtDyn.mjDYN_MUSCLE:
        lower, upper = (float(np.clip(bound, 0.0, 1.0)) for bound in (lower, upper))
    return lower, upper


def muscle_notes(compiled: mujoco.MjModel, muscles: Muscles) -> Iterator[str]:
    """What of <muscle> is left out."""
    found = [actuator for actuator in range(len(compiled.actuator_trntype)) if is_hill_muscle(compiled, actuator)]
    if muscles == "tension" and found:
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        yield (
            f"muscle '{name_of(compiled, 'actuator', found[0])}'{more} pulls with a constant tension times its control,"
            " without curves of length and velocity and without activation dynamics."
        )


def hill_fields(muscles: HillMuscles) -> dict[str, Any]:
    """By the names that Model has for them."""
    pieces = muscles.piece
    return {
        "hill_actuator": np.array(muscles.actuator, np.int32),
        "hill_act": np.array(muscles.act, np.int32),
        "hill_peak_force": np.array(muscles.peak_force, float),
        "hill_gear": np.array(muscles.gear, float),
        "hill_best_length": np.array(muscles.best_length, float),
        "hill_offset": np.array(muscles.offset, float),
        "hill_curve": np.array(muscles.curve, float).reshape(-1, 5),
        "hill_force_range": np.array(muscles.force_range, float).reshape(-1, 2),
        "piece_hill": np.array(muscles.piece_hill, np.int32),
        "piece_kind": np.array([piece.kind for piece in pieces], np.int32),
        "piece_body": np.array([piece.body for piece in pieces], np.int32).reshape(-1, 3),
        "piece_point": np.array([piece.point for piece in pieces], float).reshape(-1, 2, 3),
        "piece_share": np.array([piece.share for piece in pieces], float),
        "piece_middle": np.array([piece.middle for piece in pieces], float).reshape(-1, 3),
        "piece_axis": np.array([piece.axis for piece in pieces], float).reshape(-1, 3, 3),
        "piece_radius": np.array([piece.radius for piece in pieces], float),
        "piece_side": _sides(pieces),
    }


def _sides(pieces: list[Piece]) -> Floats:
    """NaN where the tendon may pass on any side, or wraps nothing."""
    rows = [np.full(3, np.nan) if piece.side is None or piece.kind == STRAIGHT else piece.side for piece in pieces]
    return np.array(rows, float).reshape(-1, 3)
