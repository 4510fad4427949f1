"""One batch of policies through all steps of a loss, and back.

What a step leaves for its backward pass would fill any memory over a thousand steps. So only some moments are kept on
the way forward, and on the way back the steps between two of them are run again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from trot.envs.device import memory_bytes
from trot.envs.move import Move
from trot.learn.agent import Agent
from trot.learn.networks import Critic, Policy
from trot.learn.torch_threads import one_torch_thread
from trot.study.common_worlds import CommonWorlds, Mark
from trot.study.moved_weights import Weights

Tick = Callable[[float], None]
"""Is told how much was done: policies times steps."""

ROOM = {"cpu": 2**30, "cuda": 2**36}
"""Bytes for what steps keep for the backward pass; never more than a quarter of the memory."""
NUMBERS_PER_WIDTH = 16
"""That PyTorch keeps of a step, for every number of a world's state, observation and action and of a hidden layer."""
CARRIED = ("joint_q", "joint_qd", "activation", "observation", "memory")
"""The parts of Worlds through which gradients pass from step to step."""
FORWARD_SHARE = 1 / 3
"""Of the work of a gradient."""


@dataclass(frozen=True, eq=False)
class Rule:
    """How rewards become a loss: minus the discounted return, per step, averaged over the worlds of a policy."""

    gamma: float
    critic: Critic | None = None
    """Completes returns where they are cut, unless by a fall."""
    one_episode: bool = False
    """What comes after the end of a world's first episode does not count; else discounting begins anew."""


@dataclass(frozen=True, eq=False)
class Moment:
    """Where a part of the rollout begins."""

    mark: Mark
    discount: Tensor
    """(worlds,) what the next reward counts."""


@dataclass(frozen=True, eq=False)
class Part:
    """Some consecutive steps."""

    loss: Tensor
    """(worlds,) what these steps add to it."""
    inputs: Tensor
    """Normalised observations, (steps, worlds, width)."""
    actions: list[Tensor]
    end: Moment


class Rollout:
    """Policies as members of one network, in worlds of their own.

    Args:
        rule: What the loss is.
        agent: Gives the form of the policies and the normalisation of what they see.
        worlds: As many for every policy.
        noise: (steps, worlds or those of one policy, actions).
        weights: Of the policies, (policies, ...).
    """

    def __init__(self, rule: Rule, agent: Agent, worlds: CommonWorlds, noise: Tensor, weights: Weights) -> None:
        self.rule, self.worlds, self.weights = rule, worlds, weights
        self.policies, self.steps = len(next(iter(weights.values()))), len(noise)
        self.rows = worlds.num_worlds // self.policies
        self.noise = noise.view(self.steps, -1, self.rows, worlds.num_actions)
        self.policy = _members(agent, weights).to(worlds.device)
        self.shift, self.scale = agent.normalization(worlds.dtype)
        self.beginning = Moment(worlds.beginning, torch.ones_like(worlds.beginning.worlds.joint_q[:, 0]))
        length = self._steps_at_once(sum(agent.description.hidden))
        self.parts = [range(first, min(first + length, self.steps)) for first in range(0, self.steps, length)]

    def loss(self, tick: Tick) -> Tensor:
        """Of every policy, in float64."""
        total, moment = self._nothing(), self.beginning
        with one_torch_thread():
            for steps in self.parts:
                part = self._play(moment, steps)
                total += self._mean(part.loss)
                moment = part.end
                tick(self.policies * len(steps))
        return total

    def gradient(self, tick: Tick) -> tuple[Tensor, Weights]:
        """Losses of every policy and (policies, ...) their gradients by the weights."""
        total, moments = self._nothing(), [self.beginning]
        gradient = {name: torch.zeros_like(weight) for name, weight in self.weights.items()}
        adjoint = [torch.zeros_like(getattr(self.beginning.mark.worlds, name)) for name in CARRIED]
        with one_torch_thread():
            for steps in self.parts[:-1]:
                moments.append(self._play(moments[-1], steps).end)
                tick(FORWARD_SHARE * self.policies * len(steps))
            for steps in reversed(self.parts):
                loss, by_weights, adjoint = self._backward(moments.pop(), steps, adjoint)
                total += self._mean(loss)
                for found, added in zip(gradient.values(), by_weights, strict=True):
                    found += added.view_as(found)
                # The last part runs forward once only.
                share = 1.0 if steps is self.parts[-1] else 1 - FORWARD_SHARE
                tick(share * self.policies * len(steps))
        return total, gradient

    def _nothing(self) -> Tensor:
        return torch.zeros(self.policies, dtype=torch.float64, device=self.worlds.device)

    def _mean(self, loss: Tensor) -> Tensor:
        return loss.detach().double().view(self.policies, self.rows).mean(dim=1)

    def _play(self, begin: Moment, steps: range) -> Part:
        rule, worlds = self.rule, self.worlds
        worlds.go_on(begin.mark)
        observation, inputs, actions, moves = begin.mark.worlds.observation, [], [], []
        for step in steps:
            inputs.append((observation - self.shift) * self.scale)
            seen = inputs[-1].view(self.policies, self.rows, -1)
            actions.append(self.policy(seen, self.noise[step]).view(worlds.num_worlds, -1))
            moves.append(worlds.advance(actions[-1]))
            observation = moves[-1].observation
        # Rewards, and values too, of all steps at once: many times fewer operations than step by step.
        worth, fell = worlds.rewards(moves), torch.stack([move.terminated for move in moves])
        done = fell | torch.stack([move.truncated for move in moves])
        if rule.critic is not None:
            cut = done.clone()
            cut[-1] |= steps.stop == self.steps
            worth = worth + rule.gamma * torch.where(cut & ~fell, self._values(rule.critic, moves), 0.0)
        *discounts, after = self._discounts(begin.discount, done)
        loss = -(torch.stack(discounts) * worth).sum(dim=0) / self.steps
        return Part(loss, torch.stack(inputs).detach(), actions, Moment(worlds.mark, after))

    def _values(self, critic: Critic, moves: list[Move]) -> Tensor:
        final = torch.stack([move.final_obs for move in moves])
        value: Tensor = critic((final - self.shift) * self.scale)
        return value

    def _discounts(self, first: Tensor, done: Tensor) -> list[Tensor]:
        """What the reward of each step counts, and of the one behind them."""
        discounts = [first]
        after_end = torch.full_like(first, 0.0 if self.rule.one_episode else 1.0)
        for ended in done:
            discounts.append(torch.where(ended, after_end, self.rule.gamma * discounts[-1]))
        return discounts

    def _backward(
        self, begin: Moment, steps: range, adjoint: list[Tensor]
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:  # fmt: skip
        """Loss, its gradient by the weights, and by what these steps began from, given that by how they ended."""
        carried = {name: getattr(begin.mark.worlds, name).detach().requires_grad_() for name in CARRIED}
        mark = replace(begin.mark, worlds=replace(begin.mark.worlds, **carried))
        with torch.enable_grad():
            part = self._play(replace(begin, mark=mark), steps)
        end = [getattr(part.end.mark.worlds, name) for name in CARRIED]
        bars = zip([part.loss, *end], [torch.full_like(part.loss, 1 / self.rows), *adjoint], strict=True)
        outputs, bars_of_outputs = zip(*((output, bar) for output, bar in bars if output.requires_grad), strict=True)
        inputs = [*part.actions, *carried.values()]
        found = torch.autograd.grad(outputs, inputs, bars_of_outputs, materialize_grads=True)
        by_weights = self._by_weights(
            part.inputs, torch.stack(found[: len(steps)]), self.noise[steps.start : steps.stop]
        )
        return part.loss, by_weights, list(found[len(steps) :])

    def _by_weights(self, inputs: Tensor, by_actions: Tensor, noise: Tensor) -> list[Tensor]:
        """A weight acts through the actions alone: one pass over all steps at once."""
        self.policy.requires_grad_(True)
        with torch.enable_grad():
            actions = self.policy(self._by_member(inputs), noise.transpose(0, 1).flatten(1, 2))
        parameters = list(self.policy.parameters())
        found = torch.autograd.grad(actions, parameters, self._by_member(by_actions), materialize_grads=True)
        self.policy.requires_grad_(False)
        return list(found)

    def _by_member(self, rows: Tensor) -> Tensor:
        """(steps, worlds, width) to (policies, steps and worlds of each, width)."""
        return rows.view(len(rows), self.policies, self.rows, -1).transpose(0, 1).flatten(1, 2)

    def _steps_at_once(self, hidden: int) -> int:
        """As many as there is room for."""
        worlds, device = self.worlds, self.worlds.device
        begin = self.beginning.mark.worlds
        widths = sum(part.shape[1] for part in (begin.joint_q, begin.joint_qd, begin.observation)) + worlds.num_actions
        numbers = NUMBERS_PER_WIDTH * (widths + hidden)
        of_step = worlds.num_worlds * (worlds.record_bytes + numbers * worlds.dtype.itemsize)
        memory = memory_bytes(device)
        if of_step > memory / 2:
            raise ValueError(
                f"{self.rows} worlds keep {of_step / 1e9:,.0f} GB for one step backward; {device} has "
                f"{memory / 1e9:,.0f} GB. Use fewer worlds"
            )
        return max(1, min(self.steps, int(min(ROOM[device.type], memory / 4) / of_step)))


def _members(agent: Agent, weights: Weights) -> Policy:
    """One network of all policies."""
    with torch.random.fork_rng(devices=[]):
        policy = agent.description.make_policy(members=1)
    for name, parameter in policy.named_parameters():
        parameter.data = weights[name]
    return policy.requires_grad_(False)
