"""Adaptive Horizon Actor-Critic: SHAC whose windows end before the simulation becomes stiff.

In every step of a window stiffness is to stay below a limit. A multiplier for each step grows while it does not, falls
while it does, and acts twice:

    rollout  the policy pays for stiffness by the multipliers that are above 0
    finish   the window becomes shorter by the sum of its steps' multipliers, and longer where that is below 0

Stiffness is the acceleration of the joints over a control step, root of the mean square: what contact adds to a motion
within a step shows there, and it has a gradient. The longest window is always simulated, so that a captured graph fits
every length. Only the steps of the present length count for the policy; the critics learn from all.

Georgiev et al., "Adaptive Horizon Actor-Critic for Policy Learning in Contact-Rich Differentiable Simulation", 2024:
its Lagrangian, in which windows shorten where the limit is exceeded, not the program that was released with it, in
which they lengthen there, nothing is paid for stiffness, and both critics are one. The critics are fitted in a fixed
number of passes: a graph cannot ask whether they have converged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from trot.command_line import WorldCount
from trot.envs.env import Env
from trot.envs.move import Move
from trot.learn.algorithms.several_critics import SeveralCritics, SeveralCriticsSettings
from trot.learn.learner import Algorithm, require_at_least_one, require_positive
from trot.learn.networks import Activation
from trot.learn.returns import policy_loss

MULTIPLIER_BOUNDS = (-1.0, 10.0)
"""So that a long time on one side of the limit is soon forgotten on the other."""


@dataclass(frozen=True)
class AhacSettings(SeveralCriticsSettings):
    """Networks and rates are the authors' for the Ant; what concerns stiffness has other units here."""

    num_worlds: WorldCount = 128
    horizon: int = 64
    """Steps of the longest window, which are always simulated; policy_steps of them reach the policy."""
    shortest_horizon: int = 8
    """A window begins with this many steps that count, and never has fewer."""
    target_keep: float = 0.0
    policy_trusts: Literal["least", "mean"] = "least"
    weight_decay: float = 0.0
    activation: Activation = "elu"
    actor_hidden: tuple[int, ...] = (400, 200, 100)
    critic_hidden: tuple[int, ...] = (400, 200, 100)
    stiffness_limit: float = 100.0
    """Of the joints' accelerations, root of the mean square, rad/s² and m/s²."""
    multiplier_lr: float = 1e-2
    """By which multipliers follow stiffness / stiffness_limit - 1."""
    horizon_lr: float = 2e-3
    """Steps by which a window shortens for each unit of its multipliers' sum."""
    stiffness_weight: float = 1.0
    """Of what the policy pays. 0: the horizon alone adapts."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least_one(self, "shortest_horizon")
        if self.shortest_horizon > self.horizon:
            raise ValueError(f"shortest_horizon {self.shortest_horizon} is more than the horizon: {self.horizon}")
        require_positive(self, "stiffness_limit", "multiplier_lr", "horizon_lr")
        if not 0 <= self.stiffness_weight < math.inf:
            raise ValueError(f"stiffness_weight must be 0 or more, not {self.stiffness_weight}")


class Ahac(SeveralCritics):
    """SHAC with windows of a length that adapts, and a price of stiffness."""

    columns = (*SeveralCritics.columns, "policy_steps", "stiffness", "multiplier")
    settings: AhacSettings
    length: Tensor
    """Of the window as far as it reaches the policy; its whole part counts."""
    multipliers: Tensor
    """(steps of the longest window,)"""

    def __init__(self, env: Env, settings: AhacSettings, seed: int = 0) -> None:
        super().__init__(env, settings, seed)
        nothing = torch.zeros_like(self.episodes.mean_return)
        self.register_buffer("length", nothing + settings.shortest_horizon)
        self.register_buffer("multipliers", nothing.new_zeros(*nothing.shape, settings.horizon))

    def rollout(self, noise: Tensor | None = None) -> None:
        self.velocity: list[Tensor] = []
        super().rollout(noise)

    def advance(self, answer: Tensor) -> Move:
        self.velocity.append(self.env.worlds.joint_qd)
        return super().advance(answer)

    def window_loss(self, paid: Tensor, next_value: Tensor, done: Tensor, moves: list[Move]) -> Tensor:
        """SHAC's over the steps that count, and the price of stiffness in them."""
        self.policy_steps = self.length.floor()
        loss = policy_loss(paid, next_value, done, self._numbers["gamma"], self.policy_steps)
        excess = self.stiffness(moves).mean(dim=-1) / self.settings.stiffness_limit - 1
        self.excess = excess.detach()
        price = torch.where(self.counted(), self.multipliers.clamp(min=0) * excess, 0.0)
        return loss + self.settings.stiffness_weight * price.sum(dim=-1) / self.policy_steps

    def counted(self) -> Tensor:
        """(steps,) which of them the policy learns from."""
        return torch.arange(self.settings.horizon, device=self.device) < self.policy_steps.unsqueeze(-1)

    def stiffness(self, moves: list[Move]) -> Tensor:
        """(steps, worlds) of every move; 0 where a world blew up."""
        change = torch.stack([move.final_state.joint_qd for move in moves]) - torch.stack(self.velocity)
        change = torch.where(torch.stack([move.sound for move in moves]), change, 0.0)
        size = torch.linalg.vector_norm(change, dim=-1) / (self.env.task.control_dt * math.sqrt(change.shape[-1]))
        return self.by_member(size)

    def adjoint_norms(self) -> Tensor:
        # The loss is a mean over fewer steps than were simulated.
        return super().adjoint_norms() * (self.policy_steps / self.settings.horizon)[..., None, None]

    @torch.no_grad()
    def finish(self) -> None:
        """Adapt multipliers and length, then as SHAC."""
        self.adapt()
        super().finish()

    @torch.no_grad()
    def adapt(self) -> None:
        settings, counted = self.settings, self.counted() & ~self.stopped.unsqueeze(-1)
        self.multipliers.add_(torch.where(counted, settings.multiplier_lr * self.excess, 0.0))
        self.multipliers.clamp_(*MULTIPLIER_BOUNDS)
        total = torch.where(counted, self.multipliers, 0.0).sum(dim=-1)
        self.length.sub_(settings.horizon_lr * total).clamp_(settings.shortest_horizon, settings.horizon)

    def more_columns(self) -> dict[str, Tensor]:
        over_steps = [
            torch.where(self.counted(), part, 0.0).sum(dim=-1) / self.policy_steps
            for part in ((1 + self.excess) * self.settings.stiffness_limit, self.multipliers)
        ]
        return {"policy_steps": self.policy_steps, "stiffness": over_steps[0], "multiplier": over_steps[1]}

    def forget(self) -> None:
        super().forget()
        del self.velocity


BY_TASK: dict[str, dict[str, Any]] = {
    "cartpole": {"actor_hidden": (64, 64), "critic_hidden": (64, 64), "iterations": 500},
    "hopper": {"num_worlds": 1024},
    "humanoid": {"num_worlds": 64},
    "muscle_humanoid": {"num_worlds": 64},
}


def tuned(task: str) -> AhacSettings:
    """Worlds and networks as the authors say; the limit of stiffness is not tuned."""
    return replace(AhacSettings(), **BY_TASK.get(task, {}))


AHAC = Algorithm(
    name="ahac",
    label="AHAC",
    summary="SHAC with windows that shorten where motion is stiff, and a price of stiffness: hard contact",
    settings=AhacSettings,
    learner=Ahac,
    presets={"tuned": tuned},
)
