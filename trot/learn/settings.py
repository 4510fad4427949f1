"""All settings of SHAC and its relatives, and what is tuned per task."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from trot.learn.networks import PolicyKind

Algo = Literal["shac", "shac-no-critic", "bptt"]
Preset = Literal["tuned", "general"]


@dataclass(frozen=True)
class ShacSettings:
    """Defaults are the paper's one general setting; TUNED holds what differs per task."""

    num_worlds: int = 64
    """Worlds in parallel."""
    horizon: int = 32
    """Steps of a window, through which gradients flow."""
    iterations: int = 2000
    """Windows, each followed by one step of the policy."""
    gamma: float = 0.99
    """Discount per step."""
    actor_lr: float = 2e-3
    """Learning rate of the policy, at the start."""
    critic_lr: float = 5e-4
    """Learning rate of the value function, at the start."""
    final_lr: float = 1e-5
    """Both fall linearly to this."""
    lr_decay: bool = True
    """Off: learning rates stay as they are."""
    adam_betas: tuple[float, float] = (0.7, 0.95)
    max_grad_norm: float = 1.0
    """Gradients are scaled down to this norm, policy and value function alike."""
    critic: bool = True
    """Off: windows end without a value function; with long windows that is BPTT."""
    td_lambda: float = 0.95
    """Mixes long returns (1) with one-step ones (0) in the targets of the value function."""
    critic_passes: int = 16
    """Passes over a window's data, in each iteration."""
    critic_batches: int = 4
    """Mini-batches of a pass: consecutive blocks of steps."""
    target_keep: float = 0.995
    """Share of itself that the target critic keeps in each iteration."""
    normalize_observations: bool = True
    policy: PolicyKind = "gaussian"
    """gaussian: one deviation per action; state_dependent: the network gives it; deterministic: none."""
    initial_log_std: float = -1.0
    actor_hidden: tuple[int, ...] = (128, 64, 32)
    critic_hidden: tuple[int, ...] = (64, 64)

    def __post_init__(self) -> None:
        for name in ("num_worlds", "horizon", "iterations", "critic_passes", "critic_batches"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.critic and self.horizon % self.critic_batches:
            raise ValueError(f"horizon {self.horizon} does not split into critic_batches {self.critic_batches}")
        for name in ("gamma", "td_lambda", "target_keep"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be between 0 and 1, not {getattr(self, name)}")
        for name in ("actor_lr", "critic_lr", "final_lr", "max_grad_norm"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)}")
        _require_one_of("policy", self.policy, get_args(PolicyKind))


def _require_one_of(what: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{what} must be one of {', '.join(allowed)}, not '{value}'")


WIDE: dict[str, Any] = {"actor_hidden": (256, 128), "critic_hidden": (128, 128)}
WIDEST: dict[str, Any] = {"actor_hidden": (512, 256), "critic_hidden": (256, 256)}
SMALL: dict[str, Any] = {"actor_hidden": (64, 64), "critic_hidden": (64, 64)}

NETWORKS: dict[str, dict[str, Any]] = {"cartpole": SMALL, "humanoid": WIDE, "muscle_humanoid": WIDEST}
"""Sizes are a matter of the robot, and the same for every algorithm and preset."""

TUNED: dict[str, dict[str, Any]] = {
    "cartpole": {"actor_lr": 1e-2, "critic_lr": 1e-3, "target_keep": 0.2, "iterations": 500},
    "hopper": {"num_worlds": 256, "critic_lr": 2e-4, "target_keep": 0.2},
    "half_cheetah": {"critic_lr": 2e-3, "target_keep": 0.2},
    "ant": {"critic_lr": 2e-3, "target_keep": 0.2},
    "humanoid": {},
    "muscle_humanoid": {},
}
"""SHAC, by task: what differs from the general setting."""

OWN_TASK: dict[str, Any] = {"critic_lr": 2e-3, "target_keep": 0.2}
"""What serves the Ant serves most robots with motors better than the general setting."""

BPTT: dict[str, Any] = {"critic": False, "horizon": 128, "num_worlds": 32}
BPTT_TUNED: dict[str, dict[str, Any]] = {
    "cartpole": {
        "horizon": 64,
        "num_worlds": 64,
        "actor_lr": 1e-2,
        "normalize_observations": False,
        "iterations": 500,
    },
    "hopper": {"actor_lr": 1e-3},
    "ant": {"actor_lr": 4e-3},
    "muscle_humanoid": {"num_worlds": 16},
}


def resolve(task: str, algo: Algo = "shac", preset: Preset = "tuned") -> ShacSettings:
    """The settings of an algorithm for a task. A task that is not in the tables counts as one of your own."""
    _require_one_of("algo", algo, get_args(Algo))
    _require_one_of("preset", preset, get_args(Preset))
    settings = replace(ShacSettings(), **NETWORKS.get(task, {}))
    if algo == "bptt":
        return replace(settings, **(BPTT | BPTT_TUNED.get(task, {})))
    if preset == "tuned":
        settings = replace(settings, **TUNED.get(task, OWN_TASK))
    return replace(settings, critic=False) if algo == "shac-no-critic" else settings
