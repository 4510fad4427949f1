"""Short-Horizon Actor-Critic: a policy learns from gradients through short windows of simulation.

One iteration, top to bottom in this file:

    rollout         h steps in every world from where the last window ended, with gradients through physics, observation
                    and policy; the target critic values what lies beyond the window
    improve_policy  one backward pass, clip, one step of Adam
    fit_critic      TD(lambda) targets from the window's rewards; some passes of mini-batches
    finish          statistics, the best policy so far, target critic, one row of metrics

No part asks the device for an answer, so that on CUDA each is captured in a graph once and then replayed
(graphs.py). All that lasts from one iteration to the next lives in tensors that are changed in place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trot.envs.env import Env
from trot.learn.networks import Critic, Policy, move_towards
from trot.learn.normalizer import Normalizer
from trot.learn.returns import finished_returns, policy_loss, td_lambda
from trot.learn.settings import ShacSettings
from trot.learn.torch_threads import one_torch_thread, threads_for_batches
from trot.sim.state import State

RETURN_WINDOW = 100
"""Finished episodes that the reported return is a mean of, about."""

STEEP = 1e3
"""A world whose state adjoint exceeds this has a gradient that chaos or stiffness has taken over."""

METRICS = (
    "episode_return",
    "episode_length",
    "episodes",
    "reward",
    "policy_loss",
    "value_loss",
    "gradient_norm",
    "adjoint_first",
    "adjoint_median",
    "adjoint_last",
    "steep_worlds",
    "faults",
    "best_return",
    "stopped",
)


@dataclass
class Window:
    """What a rollout leaves for the rest of its iteration, (horizon, worlds, ...)."""

    inputs: Tensor
    """Normalised observations that the policy saw."""
    actions: list[Tensor]
    seen: list[Tensor]
    """Observations as they came, the one behind the window included."""
    states: list[State]
    """After each step, before any reset."""
    reward: Tensor
    next_value: Tensor
    """Of the target critic after each step; 0 after a fall."""
    done: Tensor
    loss: Tensor


@dataclass
class Adjoints:
    """The loss's gradient by what happened in a window, (horizon, worlds, ...)."""

    actions: Tensor
    joint_q: Tensor
    joint_qd: Tensor

    @classmethod
    def of(cls, window: Window) -> Adjoints:
        """One backward pass through the window."""
        steps = len(window.actions)
        joint_q, joint_qd = ([getattr(state, name) for state in window.states] for name in ("joint_q", "joint_qd"))
        found = torch.autograd.grad(window.loss, [*window.actions, *joint_q, *joint_qd], materialize_grads=True)
        return cls(*(torch.stack(found[first : first + steps]) for first in (0, steps, 2 * steps)))

    def state_norms(self) -> Tensor:
        """(horizon, worlds) of the gradient by each world's state."""
        return (self.joint_q.square().sum(dim=2) + self.joint_qd.square().sum(dim=2)).sqrt()


class Shac:
    """Policy, value functions and the worlds they learn in."""

    def __init__(self, env: Env, settings: ShacSettings, seed: int = 0) -> None:
        if env.num_worlds != settings.num_worlds:
            raise ValueError(f"the environment has {env.num_worlds} worlds, the settings say {settings.num_worlds}")
        self.env, self.settings = env, settings
        self.device = env.device
        observations, actions = env.num_observations, env.num_actions
        with torch.random.fork_rng(devices=[]), one_torch_thread():
            torch.default_generator.manual_seed(seed)
            self.policy, self.best_policy = (self._new_policy() for _ in range(2))
            self.critic, self.target_critic = (self._new_critic() for _ in range(2))
        for copy, original in ((self.best_policy, self.policy), (self.target_critic, self.critic)):
            copy.load_state_dict(original.state_dict())
            copy.requires_grad_(False)
        self.normalizer, self.best_normalizer = (Normalizer(observations).to(self.device) for _ in range(2))
        self._policy_parameters: list[Tensor] = list(self.policy.parameters())
        self._critic_parameters: list[Tensor] = list(self.critic.parameters())
        self._critic_before = [parameter.detach().clone() for parameter in self._critic_parameters]
        self.policy_optimizer = _adam(self.policy, settings)
        self.critic_optimizer = _adam(self.critic, settings)
        # Another stream of numbers than the starts of episodes, which come from the environment's own.
        self.generator = torch.Generator(self.device).manual_seed(seed + 1_000_003)

        def zero(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=env.dtype, device=self.device)

        self.iteration = torch.zeros((), dtype=torch.int64, device=self.device)
        self.collected, self.age = zero(env.num_worlds), zero(env.num_worlds)
        self.mean_return, self.mean_length, self.episodes = zero(), zero(), zero()
        self.best_return = torch.full_like(self.mean_return, -torch.inf)
        self.stopped = torch.zeros((), dtype=torch.bool, device=self.device)
        self.metrics = zero(len(METRICS))
        self.offending_noise = zero(settings.horizon, env.num_worlds, actions)
        env.reset()
        self.start = env.worlds.clone()
        self.offending_start = env.worlds.clone()
        env.worlds = self.start

    def _new_policy(self) -> Policy:
        env, settings = self.env, self.settings
        policy = Policy(
            env.num_observations, env.num_actions, settings.actor_hidden, settings.policy, settings.initial_log_std
        )
        return policy.to(self.device, env.dtype)

    def _new_critic(self) -> Critic:
        return Critic(self.env.num_observations, self.settings.critic_hidden).to(self.device, self.env.dtype)

    def iterate(self) -> None:
        """One iteration. The result is in the networks and in self.metrics."""
        self.rollout()
        self.improve_policy()
        self.fit_critic()
        self.finish()

    def rollout(self, noise: Tensor | None = None) -> None:
        """Act through a window, and work out what the policy is to minimise. Noise is drawn unless it is given."""
        env, settings = self.env, self.settings
        env.worlds = self.start
        # Gradients run along states, observations and actions. The weights join in policy_gradient().
        self.policy.requires_grad_(False)
        observation = env.detach().requires_grad_()
        if noise is None:
            shape = self.offending_noise.shape
            noise = torch.randn(shape, generator=self.generator, dtype=env.dtype, device=self.device)
        self.noise = noise
        shift, scale = self._normalization()
        inputs, actions, seen, moves = [], [], [observation], []
        for sample in noise:
            inputs.append((observation - shift) * scale)
            actions.append(self.policy(inputs[-1], sample))
            moves.append(env.advance(actions[-1]))
            observation = moves[-1].observation
            seen.append(observation)
        states: list[State] = [move.final_state for move in moves]
        # Rewards, and values too, of all steps at once: many times fewer operations than step by step.
        reward, fell = env.rewards(moves), torch.stack([move.terminated for move in moves])
        done = fell | torch.stack([move.truncated for move in moves])
        next_value = torch.zeros_like(reward)
        if settings.critic:
            value = self.target_critic((torch.stack([move.final_obs for move in moves]) - shift) * scale)
            next_value = torch.where(fell, 0.0, value)
        loss = policy_loss(reward, next_value, done, settings.gamma)
        self.window = Window(torch.stack(inputs).detach(), actions, seen, states, reward, next_value, done, loss)

    def policy_gradient(self) -> list[Tensor]:
        """Differentiate the loss: by the actions through the window, and by the weights through the actions.

        A weight acts through the actions alone, so its gradient is a sum over steps. One pass over all of them at once
        takes far fewer operations than adding it up step by step.
        """
        self.adjoints = Adjoints.of(self.window)
        self.policy.requires_grad_(True)
        with threads_for_batches(self.settings.actor_hidden):
            actions = self.policy(self.window.inputs, self.noise)
            return list(torch.autograd.grad(actions, self._policy_parameters, self.adjoints.actions))

    def improve_policy(self) -> None:
        """Follow the gradient of the window's return."""
        gradients = self.policy_gradient()
        self.gradient_norm = _clip(gradients, self.settings.max_grad_norm)
        # A gradient that is not finite stops the run: from here on the policy keeps its weights, and in finish() the
        # critic does.
        first_bad = ~self.gradient_norm.isfinite() & ~self.stopped
        self.stopped |= first_bad
        self._remember_offence(first_bad)
        rate = torch.where(self.stopped, 0.0, self._learning_rate(self.settings.actor_lr))
        self.policy_optimizer.param_groups[0]["lr"].copy_(rate)
        for parameter, gradient in zip(self._policy_parameters, gradients, strict=True):
            parameter.grad = gradient.masked_fill_(self.stopped, 0.0)
        self.policy_optimizer.step()

    def fit_critic(self) -> None:
        """Regress the value function on targets that the window's rewards and the target critic give.

        Nothing here depends on improve_policy() or the other way round: on a GPU they run side by side.
        """
        settings, window = self.settings, self.window
        self.value_loss = torch.zeros_like(self.mean_return)
        if not settings.critic:
            return
        with torch.no_grad():
            targets = td_lambda(window.reward, window.next_value, window.done, settings.gamma, settings.td_lambda)
            torch._foreach_copy_(self._critic_before, self._critic_parameters)
        self.critic_optimizer.param_groups[0]["lr"].copy_(self._learning_rate(settings.critic_lr))
        batches = list(
            zip(window.inputs.chunk(settings.critic_batches), targets.chunk(settings.critic_batches), strict=True)
        )
        with threads_for_batches(settings.critic_hidden):
            for last in [False] * (settings.critic_passes - 1) + [True]:
                losses = [self._critic_step(inputs, target) for inputs, target in batches]
                if last:
                    self.value_loss = torch.stack(losses).mean()

    def _critic_step(self, inputs: Tensor, target: Tensor) -> Tensor:
        loss = torch.nn.functional.mse_loss(self.critic(inputs), target)
        gradients = list(torch.autograd.grad(loss, self._critic_parameters))
        _clip(gradients, self.settings.max_grad_norm)
        for parameter, gradient in zip(self._critic_parameters, gradients, strict=True):
            parameter.grad = gradient
        self.critic_optimizer.step()
        return loss.detach()

    @torch.no_grad()
    def finish(self) -> None:
        """Count episodes, keep the best policy, move the target critic, and write down how it went."""
        window, env = self.window, self.env
        self.normalizer.update(torch.stack(window.seen))
        self._count_episodes(window.reward, window.done)
        improved = (self.mean_return > self.best_return) & (self.episodes > 0) & ~self.stopped
        self.best_return.copy_(torch.where(improved, self.mean_return, self.best_return))
        for best, now in ((self.best_policy, self.policy), (self.best_normalizer, self.normalizer)):
            for kept, current in zip(_tensors(best), _tensors(now), strict=True):
                kept.copy_(torch.where(improved, current, kept))
        if self.settings.critic:
            for before, after in zip(self._critic_before, self._critic_parameters, strict=True):
                after.copy_(torch.where(self.stopped, before, after))
            move_towards(self.target_critic, self.critic, self.settings.target_keep)
        self._write_metrics(window)
        self.iteration += 1
        self.start.copy_(env.worlds)
        env.worlds = self.start

    def _normalization(self) -> tuple[Tensor, Tensor]:
        if self.settings.normalize_observations:
            return self.normalizer.affine(self.env.dtype)
        return torch.zeros((), device=self.device), torch.ones((), device=self.device)

    def _learning_rate(self, initial: float) -> Tensor:
        settings = self.settings
        share = (self.iteration / settings.iterations).clamp(max=1) if settings.lr_decay else self.iteration * 0
        return initial + (settings.final_lr - initial) * share

    def _remember_offence(self, first_bad: Tensor) -> None:
        """Keep what the window began from and its noise, to run it again."""
        self.offending_noise.copy_(torch.where(first_bad, self.noise, self.offending_noise))
        for name, kept in self.offending_start.tensors().items():
            kept.copy_(torch.where(first_bad, getattr(self.start, name), kept))

    def _count_episodes(self, reward: Tensor, done: Tensor) -> None:
        """Running means of return and length: about the last hundred episodes count."""
        returns, collected = finished_returns(reward, done, self.collected)
        lengths, age = finished_returns(torch.ones_like(reward), done, self.age)
        self.collected.copy_(collected)
        self.age.copy_(age)
        count = done.sum().to(reward.dtype)
        new = count.clamp(max=RETURN_WINDOW)
        old = torch.minimum(RETURN_WINDOW - new, self.episodes)
        for mean, values in ((self.mean_return, returns), (self.mean_length, lengths)):
            batch_mean = torch.where(done, values, 0.0).sum() / count.clamp(min=1)
            mean.copy_(torch.where(count > 0, (old * mean + new * batch_mean) / (old + new).clamp(min=1), mean))
        self.episodes += count

    def _write_metrics(self, window: Window) -> None:
        adjoint = self.adjoints.state_norms() * window.reward.numel()
        steps = adjoint.mean(dim=1)
        row = {
            "episode_return": self.mean_return,
            "episode_length": self.mean_length,
            "episodes": self.episodes,
            "reward": window.reward.mean(),
            "policy_loss": window.loss,
            "value_loss": self.value_loss,
            "gradient_norm": self.gradient_norm,
            "adjoint_first": steps[0],
            "adjoint_median": steps.median(),
            "adjoint_last": steps[-1],
            "steep_worlds": (adjoint > STEEP).any(dim=0).to(adjoint.dtype).mean(),
            "faults": self.env.worlds.faults.sum().to(adjoint.dtype),
            "best_return": self.best_return,
            "stopped": self.stopped.to(adjoint.dtype),
        }
        self.metrics.copy_(torch.stack([row[name].detach() for name in METRICS]))

    def named_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Everything that lasts from one iteration to the next, but for the environment and the generators."""
        modules = {
            "policy": self.policy,
            "critic": self.critic,
            "target_critic": self.target_critic,
            "normalizer": self.normalizer,
            "best_policy": self.best_policy,
            "best_normalizer": self.best_normalizer,
        }
        for name, module in modules.items():
            for key, tensor in module.state_dict(keep_vars=True).items():
                yield f"{name}.{key}", tensor
        for name, optimizer in (("policy", self.policy_optimizer), ("critic", self.critic_optimizer)):
            for index, state in enumerate(optimizer.state.values()):
                for key, tensor in state.items():
                    yield f"{name}_optimizer.{index}.{key}", tensor
        for name in (
            "iteration", "collected", "age", "mean_return", "mean_length", "episodes", "best_return", "stopped",
            "offending_noise",
        ):  # fmt: skip
            yield name, getattr(self, name)
        for name, tensor in self.offending_start.tensors().items():
            yield f"offending_start.{name}", tensor

    def state_dict(self) -> dict[str, Any]:
        """A copy of everything, on the CPU: with it a run goes on bit for bit."""
        return {
            "tensors": {name: tensor.detach().cpu().clone() for name, tensor in self.named_tensors()},
            "env": self.env.get_state(),
            "generator": self.generator.get_state(),
        }

    @torch.no_grad()
    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Overwrite everything in place."""
        self.env.set_state(saved["env"])
        self.start.copy_(self.env.worlds)
        self.env.worlds = self.start
        for name, tensor in self.named_tensors():
            # What has no columns need not be there: earlier versions had no memory to save.
            if tensor.numel():
                tensor.copy_(saved["tensors"][name])
        self.generator.set_state(saved["generator"].cpu())


def _adam(network: torch.nn.Module, settings: ShacSettings) -> torch.optim.Adam:
    """With a learning rate that is a tensor, and its state made at once: both can then be changed in place."""
    parameters = list(network.parameters())
    rate = torch.zeros((), device=parameters[0].device)
    optimizer = torch.optim.Adam(
        parameters, lr=rate, betas=settings.adam_betas, fused=True, capturable=parameters[0].is_cuda
    )
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for state in optimizer.state.values():
        for tensor in state.values():
            tensor.zero_()
    return optimizer


def _clip(gradients: list[Tensor], largest: float) -> Tensor:
    """Scale the gradients down in place where their common norm is larger than that; returns the norm before."""
    norm: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    torch._foreach_mul_(gradients, (largest / (norm + 1e-6)).clamp(max=1))
    return norm


def _tensors(module: torch.nn.Module) -> list[Tensor]:
    return list(module.state_dict(keep_vars=True).values())
