"""SHAC's settings: what they mean, and what is tuned per task."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Self, get_args

from trot.envs.env import Env
from trot.envs.mirror import find_mirror
from trot.learn.agent import AgentDescription
from trot.learn.learner import (
    LearnerSettings,
    require_at_least_one,
    require_positive,
    require_share,
    require_widths,
)
from trot.learn.networks import PolicyKind


@dataclass(frozen=True)
class ShacSettings(LearnerSettings):
    """Defaults are the paper's one general setting; PAPER and BETTER hold what differs per task."""

    horizon: int = 32
    """Steps of a window, through which gradients flow. Each window is followed by one step of the policy."""
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
    """Adam's memory of gradients and of their squares, policy and value function alike."""
    max_grad_norm: float = 1.0
    """Gradients are scaled down to this norm, policy and value function alike."""
    clip_worlds: float = 0.0
    """A world whose gradient by its actions is more than this many times the worlds' median is scaled down to that. 0:
    off."""
    compare_halves: bool = False
    """Write down the cosine between the gradients of two halves of the worlds, at the price of half a pass more."""
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
    """By the mean and deviation of those seen so far."""
    policy: PolicyKind = "gaussian"
    """gaussian: one deviation per action; state_dependent: the network gives it; deterministic: none."""
    initial_log_std: float = -1.0
    """Logarithm of the deviation of actions, at the start."""
    symmetric: bool = False
    """What the policy does on the left it does on the right in the mirrored state: for robots that are their own mirror
    image, whatever their gait."""
    staggered: bool = False
    """Episodes begin at different times, so that every window sees all parts of one: for tasks where nobody falls, and
    all would begin at once."""
    actor_hidden: tuple[int, ...] = (128, 64, 32)
    """Widths of the policy's hidden layers."""
    critic_hidden: tuple[int, ...] = (64, 64)
    """Widths of the value function's hidden layers."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least_one(self, "horizon", "critic_passes", "critic_batches")
        if self.critic and self.horizon % self.critic_batches:
            raise ValueError(f"horizon {self.horizon} does not split into critic_batches {self.critic_batches}")
        require_share(self, "gamma", "td_lambda", "target_keep")
        require_positive(self, "actor_lr", "critic_lr", "final_lr", "max_grad_norm")
        if not 0 <= self.clip_worlds < math.inf:
            raise ValueError(f"clip_worlds must be 0, which is off, or more, not {self.clip_worlds}")
        if not all(0 <= beta < 1 for beta in self.adam_betas):
            raise ValueError(f"adam_betas must be 0 or more and below 1, not {self.adam_betas}")
        if not math.isfinite(self.initial_log_std):
            raise ValueError(f"initial_log_std must be finite, not {self.initial_log_std}")
        require_widths(self, "actor_hidden", "critic_hidden")
        if self.policy not in get_args(PolicyKind):
            raise ValueError(f"policy must be one of {', '.join(get_args(PolicyKind))}, not '{self.policy}'")

    def going_on_from(self, form: AgentDescription) -> Self:
        return replace(
            self,
            actor_hidden=form.hidden,
            policy=form.kind,
            symmetric=form.mirror is not None,
            normalize_observations=form.normalize,
            # It falls no more, so that all worlds would begin at once again and again.
            staggered=True,
        )

    def agent(self, env: Env) -> AgentDescription:
        return AgentDescription(
            num_observations=env.num_observations,
            num_actions=env.num_actions,
            hidden=self.actor_hidden,
            kind=self.policy,
            initial_log_std=self.initial_log_std,
            normalize=self.normalize_observations,
            mirror=find_mirror(env) if self.symmetric else None,
        )


WIDE: dict[str, Any] = {"actor_hidden": (256, 128), "critic_hidden": (128, 128)}
WIDEST: dict[str, Any] = {"actor_hidden": (512, 256), "critic_hidden": (256, 256)}
SMALL: dict[str, Any] = {"actor_hidden": (64, 64), "critic_hidden": (64, 64)}

NETWORKS: dict[str, dict[str, Any]] = {"cartpole": SMALL, "humanoid": WIDE, "muscle_humanoid": WIDEST}
"""Sizes are a matter of the robot, and the same for every algorithm and preset."""

PAPER: dict[str, dict[str, Any]] = {
    "cartpole": {"actor_lr": 1e-2, "critic_lr": 1e-3, "target_keep": 0.2, "iterations": 500},
    "hopper": {"num_worlds": 256, "critic_lr": 2e-4, "target_keep": 0.2},
    "half_cheetah": {"critic_lr": 2e-3, "target_keep": 0.2},
    "ant": {"critic_lr": 2e-3, "target_keep": 0.2},
    "humanoid": {},
    "muscle_humanoid": {},
    "quadruped": {"num_worlds": 256, "critic_lr": 2e-3, "target_keep": 0.2, "iterations": 600},
}
"""SHAC as it was tuned in 2022, by task: what differs from the general setting. The quadruped is ours."""

BETTER: dict[str, dict[str, Any]] = {
    # An episode is one swing and the rest of it balance: nearly all of it counts, and windows see most of a swing.
    "cartpole": {
        "gamma": 0.998,
        "horizon": 64,
        "actor_lr": 5e-3,
        "actor_hidden": (128, 128),
        "critic_hidden": (128, 128),
        "iterations": 1000,
    },
    # More seeds find the faster of two ways to hop.
    "hopper": {"gamma": 0.995},
    # Nobody falls, so that starts would be seen by all worlds at once and then not for thirty windows.
    "half_cheetah": {"staggered": True},
    # Left and right alike, one candidate of four finds the fastest gait known; else none of hundreds did.
    "ant": {"symmetric": True},
    # With 128 worlds half the error, here and in MuJoCo, and no seed that lags behind.
    "quadruped": {"symmetric": True},
    # A critic that follows sooner; with one that follows at once, seeds of few worlds differ by thousands.
    "humanoid": {"critic_lr": 1e-3, "target_keep": 0.9},
    # By a search; it pays in trainings that are longer than the paper's.
    "muscle_humanoid": {
        "actor_lr": 5e-3,
        "critic_lr": 1.4e-3,
        "target_keep": 0.91,
        "gamma": 0.984,
        "iterations": 2400,
    },
}
"""What was found to serve better since; docs/better.md has the numbers."""

ON_A_GPU: dict[str, dict[str, Any]] = {
    "half_cheetah": {"iterations": 3000},
    # In the same gait it starts and runs better.
    "ant": {"actor_hidden": (256, 128, 64), "iterations": 3000},
    # More worlds cost little there, and a wider policy that needs them ends higher; with them a critic may follow at
    # once. Wider than this, no kernel fits the critic, and it takes as long as the physics.
    "humanoid": {
        "critic_lr": 2e-3,
        "target_keep": 0.2,
        "num_worlds": 256,
        "actor_hidden": (400, 200, 100),
        "critic_hidden": (256, 256),
    },
}
"""What serves better yet, and would take too long on the CPU."""
GPU_PRESETS = dict.fromkeys(ON_A_GPU, "gpu")

CANDIDATES = {"hopper": 8, "half_cheetah": 8, "ant": 8, "humanoid": 8, "muscle_humanoid": 8}
"""That begin on a GPU. Seeds of the other tasks end closer to each other."""

TUNED = {task: own | BETTER.get(task, {}) for task, own in PAPER.items()}

OWN_TASK: dict[str, Any] = {"critic_lr": 2e-3, "target_keep": 0.2}
"""What serves the Ant serves most robots with motors better than the general setting."""

LONG_WINDOWS: dict[str, Any] = {"critic": False, "horizon": 128, "num_worlds": 32}
LONG_WINDOWS_TUNED: dict[str, dict[str, Any]] = {
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


def general(task: str) -> ShacSettings:
    """The paper's one setting for all tasks."""
    return ShacSettings(**NETWORKS.get(task, {}))


def paper(task: str) -> ShacSettings:
    """As tuned in 2022."""
    return replace(general(task), **PAPER.get(task, OWN_TASK))


def tuned(task: str) -> ShacSettings:
    """A task that is not in the tables counts as one of the user's own."""
    return replace(general(task), **TUNED.get(task, OWN_TASK))


def on_a_gpu(task: str) -> ShacSettings:
    """The same but for what a GPU makes worth its time."""
    return replace(tuned(task), **ON_A_GPU.get(task, {}))


def long_windows(task: str) -> ShacSettings:
    """As the paper compares with."""
    return replace(general(task), **(LONG_WINDOWS | LONG_WINDOWS_TUNED.get(task, {})))


PRESETS = {"tuned": tuned, "paper": paper, "general": general, "gpu": on_a_gpu}
LONG_PRESETS = dict.fromkeys(("tuned", "general"), long_windows)
