"""What a simulation needs to resume: positions and velocities of the joints, one row per world."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class State:
    """joint_q (num_worlds, num_q) and joint_qd (num_worlds, num_dofs), in MuJoCo's order and conventions."""

    joint_q: Tensor
    joint_qd: Tensor
    activation: Tensor | None = field(default=None, kw_only=True)
    """(num_worlds, num_acts) of actuators that follow their control in time; None where the robot has none such."""

    @property
    def num_worlds(self) -> int:
        return self.joint_q.shape[0]

    @property
    def finite(self) -> Tensor:
        """(num_worlds,) False where a world holds a NaN or an infinity. Computed when read, free when not."""
        joints = self.joint_q.isfinite().all(dim=-1) & self.joint_qd.isfinite().all(dim=-1)
        return joints if self.activation is None else joints & self.activation.isfinite().all(dim=-1)

    def detach(self) -> State:
        """The same numbers, cut off from the gradient."""
        activation = None if self.activation is None else self.activation.detach()
        return State(self.joint_q.detach(), self.joint_qd.detach(), activation=activation)

    def __post_init__(self) -> None:
        for name in ("joint_q", "joint_qd") if self.activation is None else ("joint_q", "joint_qd", "activation"):
            value = getattr(self, name)
            if not isinstance(value, torch.Tensor) or value.dim() != 2:
                found = tuple(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__
                raise ValueError(f"State.{name} must be a tensor (num_worlds, ...), not {found}")
