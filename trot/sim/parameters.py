"""Physical constants that a user may vary per world and differentiate by."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from trot.sim.capturing import capturing
from trot.sim.model import Floats, Model


@dataclass(frozen=True, eq=False)
class Parameters:
    """Tensors of one value per body, shape or pair, (count,) or (num_worlds, count); None keeps the model's own.

    Order: Model.body_name, Model.shape_name and Model.pair_name.
    """

    body_mass: Tensor | None = None
    """kg, above zero; a body's rotational inertia scales along, as if its density changed."""
    contact_stiffness: Tensor | None = None
    """N/m"""
    contact_damping: Tensor | None = None
    """N s/m^2"""
    friction_stiffness: Tensor | None = None
    """N s/m"""
    friction: Tensor | None = None
    """Coulomb's coefficient."""
    pair_stiffness: Tensor | None = None
    """As contact_stiffness, of pairs of shapes that touch each other; so the other three."""
    pair_damping: Tensor | None = None
    pair_friction_stiffness: Tensor | None = None
    pair_friction: Tensor | None = None

    def pack(self, model: Model, num_worlds: int, like: Tensor) -> Tensor:
        """One row per world (or one row for all), in the order of columns(). Of body_mass it holds factors."""
        rows: list[Tensor] = []
        own_values = _own_tensors(model, like)
        for name in (field.name for field in fields(self)):
            if name not in own_values and getattr(self, name) is not None:
                raise ValueError(f"parameters.{name} is given, but the model has no pairs of shapes that touch")
        for name, own in own_values.items():
            given: Tensor | None = getattr(self, name)
            value = own if given is None else _checked(name, given, own, num_worlds)
            if name == "body_mass":
                # A massless body has no inertia to scale.
                value = torch.where(own > 0, value / own.clamp(min=1e-30), torch.ones_like(value))
            rows.append(value if value.dim() == 2 else value.unsqueeze(0))
        count = max(row.shape[0] for row in rows)
        return torch.cat([row.expand(count, -1) for row in rows], dim=1).contiguous()


def own_parameters(model: Model) -> dict[str, Floats]:
    """The model's own value of every parameter, by the name of its field in Parameters and in that order.

    Those of pairs only where it has any.
    """
    pairs = {
        "pair_stiffness": model.pair_stiffness,
        "pair_damping": model.pair_damping,
        "pair_friction_stiffness": model.pair_friction_stiffness,
        "pair_friction": model.pair_friction,
    }
    return {
        "body_mass": model.body_mass,
        "contact_stiffness": model.shape_stiffness,
        "contact_damping": model.shape_damping,
        "friction_stiffness": model.shape_friction_stiffness,
        "friction": model.shape_friction,
        **(pairs if model.num_pairs else {}),
    }


def columns(model: Model) -> dict[str, slice]:
    """Where each parameter lies in a packed row, by name; kernels/parameters.h reads it there."""
    found, begin = {}, 0
    for name, values in own_parameters(model).items():
        found[name] = slice(begin, begin + len(values))
        begin += len(values)
    return found


_Place = tuple[torch.dtype, torch.device]
_own: weakref.WeakKeyDictionary[Model, dict[_Place, dict[str, Tensor]]] = weakref.WeakKeyDictionary()


def _own_tensors(model: Model, like: Tensor) -> dict[str, Tensor]:
    """own_parameters() as tensors, copied to the device once: no step waits for them, and a graph may be captured."""
    places = _own.setdefault(model, {})
    place = (like.dtype, like.device)
    if place not in places:
        places[place] = {
            name: torch.tensor(values, dtype=like.dtype, device=like.device)
            for name, values in own_parameters(model).items()
        }
    return places[place]


def _owner(name: str) -> str:
    return "body" if name == "body_mass" else "pair" if name.startswith("pair_") else "shape"


def _checked(name: str, value: Tensor, own: Tensor, num_worlds: int) -> Tensor:
    count = len(own)
    if not isinstance(value, Tensor):
        raise TypeError(f"parameters.{name} must be a tensor, not {type(value).__name__}")
    if tuple(value.shape) not in ((count,), (1, count), (num_worlds, count)):
        raise ValueError(
            f"parameters.{name} must be ({count},) or ({num_worlds}, {count}), one value per "
            f"{_owner(name)}, not {tuple(value.shape)}"
        )
    if value.dtype != own.dtype or value.device != own.device:
        raise ValueError(
            f"parameters.{name} is {value.dtype} on {value.device}, the state is {own.dtype} on {own.device}; "
            "convert one of them with .to(...)"
        )
    # A graph that is being captured cannot be asked.
    if not capturing(value.device):
        _check_values(name, value, own)
    return value


def _check_values(name: str, value: Tensor, own: Tensor) -> None:
    # A body that has no mass in the model may keep it so.
    allowed = (value > 0) | (own == 0) if name == "body_mass" else value >= 0
    allowed = allowed & value.isfinite()
    if not allowed.all():
        found = value[~allowed][0].item()
        bound = "above 0" if name == "body_mass" else "0 or more"
        raise ValueError(f"parameters.{name} holds {found}; every value must be finite and {bound}")
