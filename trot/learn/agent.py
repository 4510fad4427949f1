"""What training leaves: a policy and the normalisation of what it sees."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, get_args

import torch
from torch import Tensor, nn

from trot.learn.networks import Policy, PolicyKind
from trot.learn.normalizer import Normalizer
from trot.learn.settings import ShacSettings
from trot.runs.folder import SETTINGS, RunFolder

if TYPE_CHECKING:
    from trot.envs.env import Env


class Agent(nn.Module):
    """Observations as an environment gives them to actions in [-1, 1]."""

    def __init__(self, policy: Policy, normalizer: Normalizer, normalize: bool = True) -> None:
        super().__init__()
        self.policy, self.normalizer, self.normalize = policy, normalizer, normalize

    @property
    def num_observations(self) -> int:
        return len(self.normalizer.mean)

    @property
    def num_actions(self) -> int:
        return self.policy.actions

    def forward(self, observation: Tensor, noise: Tensor | None = None) -> Tensor:
        """The action that standard normal noise leads to; without noise the mean's."""
        action: Tensor = self.policy(self.normalizer(observation) if self.normalize else observation, noise)
        return action

    def require_fit(self, env: Env) -> None:
        """Raise where the agent was made for something else than this environment."""
        ours, theirs = (self.num_observations, self.num_actions), (env.num_observations, env.num_actions)
        if ours != theirs:
            raise ValueError(
                f"the agent has {ours[0]} observations and {ours[1]} actions, but the task '{env.task.name}' has "
                f"{theirs[0]} and {theirs[1]}: the task is another one, or was changed since the training"
            )


class MeanPolicy(nn.Module):
    """An agent's actions without noise, in plain layers and with nothing else in it: what is exported."""

    shift: Tensor
    scale: Tensor

    def __init__(self, agent: Agent) -> None:
        super().__init__()
        self.num_observations, self.num_actions = agent.num_observations, agent.num_actions
        shift, scale = torch.zeros(agent.num_observations), torch.ones(agent.num_observations)
        if agent.normalize:
            shift, scale = agent.normalizer.affine(torch.float32)
        self.register_buffer("shift", shift)
        self.register_buffer("scale", scale)
        *hidden, last = agent.policy.network
        assert isinstance(last, nn.Linear)
        # Behind the means a network may give deviations, which nobody needs any more.
        mean = nn.Linear(last.in_features, agent.num_actions)
        with torch.no_grad():
            mean.weight.copy_(last.weight[: agent.num_actions])
            mean.bias.copy_(last.bias[: agent.num_actions])
        self.layers = nn.Sequential(*hidden, mean)

    def forward(self, observation: Tensor) -> Tensor:
        return torch.tanh(self.layers((observation - self.shift) * self.scale))


def load_agent(run: RunFolder, checkpoint: str = "best") -> Agent:
    """The agent of a run's checkpoint, on the CPU and without gradients."""
    file, settings = run.path / SETTINGS, run.settings
    missing = [name for name in ("shac", "num_observations", "num_actions") if name not in settings]
    if missing:
        raise ValueError(f"'{file}' does not describe an agent: it lacks {', '.join(missing)}")
    try:
        shac = shac_settings_from(settings["shac"])
    except ValueError as error:
        raise ValueError(f"'{file}' does not describe an agent: {error}") from None

    saved = run.load_checkpoint(checkpoint).get("agent")
    if not (isinstance(saved, dict) and {"policy", "normalizer"} <= saved.keys()):
        raise ValueError(f"the checkpoint '{checkpoint}' of '{run.path}' holds no agent")
    observations, actions = settings["num_observations"], settings["num_actions"]
    try:
        policy = Policy(observations, actions, shac.actor_hidden, shac.policy, shac.initial_log_std)
        normalizer = Normalizer(observations)
        policy.load_state_dict(saved["policy"])
        normalizer.load_state_dict(saved["normalizer"])
    except (RuntimeError, TypeError):
        # PyTorch's own text has a line for every tensor.
        raise ValueError(f"the checkpoint '{checkpoint}' of '{run.path}' does not fit the run's settings") from None
    return Agent(policy, normalizer, shac.normalize_observations).requires_grad_(False)


def shac_settings_from(saved: Any) -> ShacSettings:
    """The settings that a run's settings.json holds under "shac"."""
    if not isinstance(saved, dict):
        raise ValueError(f"the settings of SHAC must be an object, not {saved!r}")
    names = {field.name for field in fields(ShacSettings)}
    if saved.keys() != names:
        missing, unknown = sorted(names - saved.keys()), sorted(saved.keys() - names)
        parts = [f"{verb} {', '.join(some)}" for verb, some in (("lack", missing), ("do not have", unknown)) if some]
        raise ValueError(f"the settings of SHAC {', and '.join(parts)}")
    if saved["policy"] not in get_args(PolicyKind):
        raise ValueError(f"policy must be one of {', '.join(get_args(PolicyKind))}, not {saved['policy']!r}")
    # JSON has no tuples.
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in saved.items()}
    try:
        return ShacSettings(**values)
    except TypeError as error:
        raise ValueError(f"a setting of SHAC is of the wrong kind: {error}") from None
