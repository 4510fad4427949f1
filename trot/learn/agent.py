"""What training leaves: a policy and the normalisation of what it sees, described in the run folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from trot.envs.mirror import Mirror, mirror_matrix
from trot.learn.bad_window import CHECKPOINT as BAD_WINDOW
from trot.learn.networks import Activation, Policy, PolicyKind, Squash, squashed
from trot.learn.normalizer import Normalizer
from trot.learn.older_runs import upgraded_checkpoint
from trot.learn.saved_settings import settings_from
from trot.runs.folder import SETTINGS, RunFolder

if TYPE_CHECKING:
    from trot.envs.env import Env


@dataclass(frozen=True)
class AgentDescription:
    """All that it takes to build an agent before its weights are loaded."""

    num_observations: int
    num_actions: int
    hidden: tuple[int, ...]
    kind: PolicyKind = "gaussian"
    initial_log_std: float = -1.0
    activation: Activation = "elu"
    layer_norm: bool = True
    normalize: bool = True
    """Whether observations are normalised before the policy sees them."""
    clip_observations: float | None = None
    """The largest normalised observation that the policy sees."""
    squash: Squash = "tanh"
    """How samples get into [-1, 1]."""
    log_std_bounds: tuple[float, float] | None = None
    """Of a state-dependent deviation's logarithm."""
    mirror: Mirror | None = None
    """By which a mirrored observation leads to the mirrored action."""

    def build(
        self, device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32, members: int | None = None
    ) -> Agent:
        """A new agent, or as many side by side; weights come from PyTorch's global generator."""
        policy = self.make_policy(members).to(device, dtype)
        # The statistics keep their own precision.
        return Agent(policy, Normalizer(self.num_observations, members).to(device), self)

    def make_policy(self, members: int | None = None) -> Policy:
        """Its policy, or as many side by side."""
        return Policy(
            self.num_observations,
            self.num_actions,
            self.hidden,
            self.kind,
            self.initial_log_std,
            activation=self.activation,
            layer_norm=self.layer_norm,
            squash=self.squash,
            log_std_bounds=self.log_std_bounds,
            mirror=self.mirror,
            members=members,
        )


class Agent(nn.Module):
    """Observations as an environment gives them to actions in [-1, 1]."""

    def __init__(self, policy: Policy, normalizer: Normalizer, description: AgentDescription) -> None:
        super().__init__()
        self.policy, self.normalizer, self.description = policy, normalizer, description

    @property
    def num_observations(self) -> int:
        return self.description.num_observations

    @property
    def num_actions(self) -> int:
        return self.description.num_actions

    def normalization(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """What to subtract from observations and then to multiply by: constants of a window."""
        if not self.description.normalize:
            device = self.normalizer.mean.device
            return torch.zeros((), device=device), torch.ones((), device=device)
        shift, scale = self.normalizer.affine(dtype)
        mirror = self.description.mirror
        if mirror is None:
            return shift, scale
        # The statistics are those of one side more than of the other, and the policy is not to tell sides apart.
        mirrored = mirror_matrix(mirror.observation, shift)
        return (shift + shift @ mirrored) / 2, (scale + scale @ mirrored.abs()) / 2

    def forward(self, observation: Tensor, noise: Tensor | None = None) -> Tensor:
        """The action that standard normal noise leads to; without noise the mean's."""
        action: Tensor = self.policy(self.normalized(observation), noise)
        return action

    def normalized(self, observation: Tensor) -> Tensor:
        """What the policy sees of an observation."""
        return self.normalization_now(observation.dtype)(observation)

    def normalization_now(self, dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
        """normalized(), by the statistics as they are at this moment: for many observations of one window."""
        limit = self.description.clip_observations
        affine = self.normalization(dtype) if self.description.normalize else None

        def normalized(observation: Tensor) -> Tensor:
            normal = observation if affine is None else (observation - affine[0]) * affine[1]
            return normal if limit is None else normal.clamp(-limit, limit)

        return normalized

    def require_fit(self, env: Env) -> None:
        """Raise where the agent was made for something else than this environment."""
        ours, theirs = (self.num_observations, self.num_actions), (env.num_observations, env.num_actions)
        if ours != theirs:
            raise ValueError(
                f"the agent has {ours[0]} observations and {ours[1]} actions, but the task '{env.task.name}' has "
                f"{theirs[0]} and {theirs[1]}: the task is another one, or was changed since the training"
            )

    def saved(self) -> dict[str, Any]:
        """What a checkpoint keeps of it: a copy on the CPU."""
        return {name: tensor.detach().cpu().clone() for name, tensor in self.state_dict().items()}

    def described(self) -> dict[str, Any]:
        """What settings.json keeps of it."""
        return asdict(self.description)


class MeanPolicy(nn.Module):
    """An agent's actions without noise, in plain layers and with nothing else in it: what is exported."""

    shift: Tensor
    scale: Tensor
    mirrored_observation: Tensor
    mirrored_action: Tensor

    def __init__(self, agent: Agent) -> None:
        super().__init__()
        self.num_observations, self.num_actions = agent.num_observations, agent.num_actions
        self.squash, self.limit = agent.description.squash, agent.description.clip_observations
        shift, scale = torch.zeros(agent.num_observations), torch.ones(agent.num_observations)
        if agent.description.normalize:
            shift, scale = agent.normalization(torch.float32)
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
        self.mirror = mirror = agent.description.mirror
        if mirror is not None:
            self.register_buffer("mirrored_observation", mirror_matrix(mirror.observation, shift))
            self.register_buffer("mirrored_action", mirror_matrix(mirror.action, shift))

    def forward(self, observation: Tensor) -> Tensor:
        normal = (observation - self.shift) * self.scale
        if self.limit is not None:
            normal = normal.clamp(-self.limit, self.limit)
        mean = self.layers(normal)
        if self.mirror is not None:
            mean = (mean + self.layers(normal @ self.mirrored_observation) @ self.mirrored_action) / 2
        return squashed(mean, self.squash)


def agent_names(run: RunFolder) -> list[str]:
    """The checkpoints of a run that hold an agent, in the order of its life."""
    return [name for name in run.checkpoint_names() if name != BAD_WINDOW]


def described_agent(run: RunFolder) -> AgentDescription:
    """What a run's settings say of its agent."""
    file = run.path / SETTINGS
    if "agent" not in run.settings:
        raise ValueError(f"'{file}' does not describe an agent: it lacks 'agent'")
    try:
        return settings_from(run.settings["agent"], AgentDescription, "the agent")
    except ValueError as error:
        raise ValueError(f"'{file}' does not describe an agent: {error}") from None


def load_agent(run: RunFolder, checkpoint: str = "best") -> Agent:
    """The agent of a run's checkpoint, on the CPU and without gradients."""
    description = described_agent(run)
    try:
        agent = description.build()
    except (ValueError, TypeError, RuntimeError, KeyError) as error:
        raise ValueError(f"'{run.path / SETTINGS}' does not describe an agent: {error}") from None

    saved = upgraded_checkpoint(run.load_checkpoint(checkpoint)).get("agent")
    if not isinstance(saved, dict):
        raise ValueError(f"the checkpoint '{checkpoint}' of '{run.path}' holds no agent")
    try:
        agent.load_state_dict(saved)
    except (RuntimeError, TypeError):
        # PyTorch's own text has a line for every tensor.
        raise ValueError(f"the checkpoint '{checkpoint}' of '{run.path}' does not fit the run's settings") from None
    return agent.requires_grad_(False)
